//! Receivers of a session, observed together: how well they use their paths, and how often they
//! change their groups (section IV-A of SIM's paper).

use manyflow_core::{EndpointId, Time};

use crate::protocols::{AnyEvent, Observed};
use crate::scene::Scene;
use crate::schema::observables::Observable;
use crate::world::World;
use manyflow_netsim::{LinkId, NodeId};

/// The receivers that a name stands for.
pub(super) struct Audience {
    /// The name.
    pub(super) of: String,
    listeners: Vec<Listener>,
}

/// A receiver.
struct Listener {
    session: u32,
    receiver: u32,
    /// When it is there.
    stays: Vec<(Time, Time)>,
    /// The links from the sender to it.
    path: Vec<LinkId>,
    /// For how long it was there in the present interval.
    present_s: f64,
    /// What its path could have carried meanwhile.
    possible_bits: f64,
    /// What it had received by the end of the last interval.
    received_bits: f64,
    groups: Groups,
}

/// The groups that a receiver has joined.
#[derive(Default)]
struct Groups {
    joined: i32,
    /// When that changed last, and how many there were before.
    changed: Time,
    before: i32,
    /// Changes in the present interval, of instants that are over.
    changes: u32,
}

impl Groups {
    fn step(&mut self, now: Time, by: i32) {
        if now != self.changed {
            self.settle();
            self.changed = now;
        }
        self.joined += by;
    }

    /// Counts what changed at the last instant: once, however many groups it was. To come is a
    /// change from none, to go one to none.
    fn settle(&mut self) {
        if self.joined != self.before {
            self.changes += 1;
        }
        self.before = self.joined;
    }
}

impl Audience {
    pub(super) fn new(of: &str, receivers: &[(u32, u32)], scene: &mut Scene) -> Audience {
        let listener = |&(session, receiver): &(u32, u32)| {
            let known = &scene.plan.sessions.0[session as usize];
            let ends = [known.sender, known.receivers[receiver as usize].node].map(NodeId);
            Listener {
                session,
                receiver,
                stays: scene.stays(session, receiver),
                path: scene.network.branch(ends[0], ends[1]),
                present_s: 0.0,
                possible_bits: 0.0,
                received_bits: 0.0,
                groups: Groups::default(),
            }
        };
        Audience {
            of: of.to_owned(),
            listeners: receivers.iter().map(listener).collect(),
        }
    }

    /// The endpoints of each receiver, in the receivers' order.
    pub(super) fn endpoints(&self, scene: &Scene) -> Vec<Vec<EndpointId>> {
        let all = |l: &Listener| scene.member(l.session, l.receiver).all().collect();
        self.listeners.iter().map(all).collect()
    }

    /// Nothing changes in the network between these two times.
    pub(super) fn advance(&mut self, network: &dyn World, from: Time, to: Time) {
        for listener in &mut self.listeners {
            let overlap = |&(start, stop): &(Time, Time)| {
                let (start, stop) = (start.max(from), stop.min(to));
                if start < stop {
                    (stop - start).as_secs_f64()
                } else {
                    0.0
                }
            };
            let present_s: f64 = listener.stays.iter().map(overlap).sum();
            if present_s > 0.0 {
                listener.present_s += present_s;
                listener.possible_bits += present_s * capacity(network, &listener.path);
            }
        }
    }

    /// A receiver joined a group, or left one.
    pub(super) fn on_event(&mut self, now: Time, listener: usize, event: &AnyEvent) {
        let groups = &mut self.listeners[listener].groups;
        if let Some(Observed::Step(by)) = event.observe(Observable::Channels) {
            groups.step(now, by as i32);
        }
    }

    /// E of the interval that is over; NaN where nobody was there.
    pub(super) fn efficiency(&mut self, scene: &Scene) -> f64 {
        let mut shares = Vec::with_capacity(self.listeners.len());
        for listener in &mut self.listeners {
            let ends = scene
                .member(listener.session, listener.receiver)
                .receiving();
            let bytes: u64 = ends.map(|id| scene.network.received(id).bytes).sum();
            let bits = bytes as f64 * 8.0;
            if listener.present_s > 0.0 {
                shares.push((bits - listener.received_bits) / listener.possible_bits);
            }
            listener.received_bits = bits;
            (listener.present_s, listener.possible_bits) = (0.0, 0.0);
        }
        shares.iter().sum::<f64>() / shares.len() as f64
    }

    /// I of the interval that is over; NaN where nobody was there.
    pub(super) fn instability(&mut self) -> f64 {
        let (mut changes, mut present) = (0, 0);
        for listener in &mut self.listeners {
            listener.groups.settle();
            changes += std::mem::take(&mut listener.groups.changes);
            present += u32::from(std::mem::take(&mut listener.present_s) > 0.0);
        }
        f64::from(changes) / f64::from(present)
    }
}

/// The lowest rate of these links; NaN, no number, where none has a limit.
fn capacity(network: &dyn World, path: &[LinkId]) -> f64 {
    let rates = path
        .iter()
        .filter_map(|&link| network.link_config(link).rate);
    let lowest = rates.map(|rate| rate.bits_per_s()).min();
    lowest.map_or(f64::NAN, |rate| rate as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Time {
        Time::from_nanos(s * 1_000_000_000)
    }

    #[test]
    fn an_instant_is_one_change_and_coming_and_going_are_changes() {
        let mut groups = Groups::default();
        let mut changes = |steps: &[(u64, i32)]| {
            for &(s, by) in steps {
                groups.step(at(s), by);
            }
            groups.settle();
            std::mem::take(&mut groups.changes)
        };
        assert_eq!(changes(&[(1, 1)]), 1);
        assert_eq!(changes(&[(2, 1), (3, 1), (4, -1), (4, -1)]), 3);
        // What is undone in the same instant did not happen.
        assert_eq!(changes(&[(5, 1), (5, -1)]), 0);
        // A member without a group is a member still.
        assert_eq!(changes(&[(6, -1), (7, 1)]), 2);
        assert_eq!(changes(&[(9, -1)]), 1);
    }
}
