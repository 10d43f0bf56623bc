//! Observes the receivers of a session together: the use of their paths, and the changes of their
//! groups (section IV-A of SIM's paper).

use manyflow_core::{EndpointId, Time};

use crate::protocols::{AnyEvent, Observed};
use crate::scene::Scene;
use crate::world::World;
use manyflow_model::measure::groups::Groups;
use manyflow_model::observables::Observable;
use manyflow_netsim::{LinkId, NodeId};

/// The receivers that a name stands for.
pub(super) struct Audience {
    /// The name in the scenario.
    pub(super) of: String,
    listeners: Vec<Listener>,
}

/// A receiver of the audience.
struct Listener {
    session: u32,
    receiver: u32,
    /// The receiver's membership intervals.
    intervals: Vec<(Time, Time)>,
    /// The links from the sender to the receiver.
    path: Vec<LinkId>,
    /// The time for which the receiver was present in the current interval.
    present_s: f64,
    /// The number of bits that the path could have carried in that time.
    possible_bits: f64,
    /// The number of bits received by the end of the last interval.
    received_bits: f64,
    groups: Groups,
}

impl Audience {
    pub(super) fn new(of: &str, receivers: &[(u32, u32)], scene: &mut Scene) -> Audience {
        let listener = |&(session, receiver): &(u32, u32)| {
            let known = &scene.plan.sessions.0[session as usize];
            let ends = [known.sender, known.receivers[receiver as usize].node].map(NodeId);
            Listener {
                session,
                receiver,
                intervals: scene.intervals(session, receiver),
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

    /// Returns the endpoints of each receiver, in the order of the receivers.
    pub(super) fn endpoints(&self, scene: &Scene) -> Vec<Vec<EndpointId>> {
        let all = |l: &Listener| scene.ends(l.session, l.receiver).all();
        let listeners = self.listeners.iter();
        listeners
            .map(|listener| all(listener).map(|(id, _)| id).collect())
            .collect()
    }

    /// Advances time from `from` to `to`. No link changes in between.
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
            let present_s: f64 = listener.intervals.iter().map(overlap).sum();
            if present_s > 0.0 {
                listener.present_s += present_s;
                listener.possible_bits += present_s * capacity(network, &listener.path);
            }
        }
    }

    /// Handles an event of a receiver: it may have joined or left a group.
    pub(super) fn on_event(&mut self, now: Time, listener: usize, event: &AnyEvent) {
        let groups = &mut self.listeners[listener].groups;
        if let Some(Observed::Step(by)) = event.observe(Observable::Channels) {
            groups.step(now, by as i32);
        }
    }

    /// Returns E of the interval that has ended, or NaN if no receiver was present.
    pub(super) fn efficiency(&mut self, scene: &Scene) -> f64 {
        let mut shares = Vec::with_capacity(self.listeners.len());
        for listener in &mut self.listeners {
            let ends = scene.ends(listener.session, listener.receiver).receiving();
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

    /// Returns I of the interval that has ended, or NaN if no receiver was present.
    pub(super) fn instability(&mut self) -> f64 {
        let (mut changes, mut present) = (0, 0);
        for listener in &mut self.listeners {
            changes += listener.groups.take_changes();
            present += u32::from(std::mem::take(&mut listener.present_s) > 0.0);
        }
        f64::from(changes) / f64::from(present)
    }
}

/// Returns the lowest rate of these links, or NaN if none of them has a limit.
fn capacity(network: &dyn World, path: &[LinkId]) -> f64 {
    let rates = path
        .iter()
        .filter_map(|&link| network.link_config(link).rate);
    let lowest = rates.map(|rate| rate.bits_per_s()).min();
    lowest.map_or(f64::NAN, |rate| rate as f64)
}
