//! Which daemons can be reached, and the time for which the states of others are kept.

use std::collections::BTreeSet;

use super::record::Record;
use super::{DaemonState, Database, LIFETIME};
use crate::message::DaemonId;
use crate::topology::{Topology, mix};
use core::time::Duration;
use manyflow_core::Payload;
use manyflow_core::time::Time;

/// The time between two requests for a state that was dropped.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Reachability and time.
impl<P: Payload + Default + PartialEq> Database<P> {
    /// Returns the topology that is reachable from here, if links or incarnations have changed. A
    /// link counts if both ends list it.
    pub(in crate::daemon) fn topology(&mut self) -> Option<Topology> {
        if !core::mem::take(&mut self.is_dirty) || self.is_fixed {
            return None;
        }
        let mut reached = BTreeSet::from([self.here]);
        let mut open = vec![self.here];
        let mut links = Vec::new();
        while let Some(daemon) = open.pop() {
            for (end, other) in self.ends(daemon) {
                links.extend((daemon < end).then_some((daemon, end, other)));
                if reached.insert(end) {
                    open.push(end);
                }
            }
        }
        links.sort_unstable();
        let incarnation = |daemon| self.incarnation(daemon).unwrap_or(0);
        let daemons: Vec<_> = reached
            .into_iter()
            .map(|daemon| (daemon, incarnation(daemon)))
            .collect();
        let mut topology = Topology::unlinked(version(&daemons, &links), &daemons);
        for (a, b, (weight, _)) in links {
            topology.add_link(a, b, weight);
        }
        Some(topology)
    }

    /// Returns the ends of a daemon's links that are up, with each link's weight and the changes by
    /// which it came up: at the lower end and at the higher one.
    fn ends(&self, daemon: DaemonId) -> impl Iterator<Item = (DaemonId, LinkUp)> {
        let links = self.records.get(&daemon).map(|record| &record.state.links);
        links.into_iter().flatten().filter_map(move |(&end, own)| {
            let back = self.records.get(&end)?.state.links.get(&daemon)?;
            let (low, high) = if daemon < end {
                (own, back)
            } else {
                (back, own)
            };
            let weight = own.weight.max(back.weight);
            Some((end, (weight, [low.since.0, high.since.0])))
        })
    }

    /// Decides whose members count in a new topology: those of reachable daemons do, and those of
    /// others for a time. Returns the daemons whose members count from now on, each with whether
    /// they did before in the same incarnation.
    pub(in crate::daemon) fn show_reachable(
        &mut self,
        now: Time,
        topology: &Topology,
    ) -> Vec<(DaemonId, bool)> {
        let mut shown = Vec::new();
        self.records.retain(|daemon, record| {
            match (topology.contains(daemon), record.held_until) {
                (true, Some(time)) => {
                    self.holds.remove(&(time, daemon));
                    record.held_until = None;
                }
                (false, None) if !record.has_no_state() => {
                    let until = now + self.hold;
                    record.held_until = Some(until);
                    self.holds.insert((until, daemon));
                }
                _ => {}
            }
            if topology.contains(daemon) && !record.is_shown {
                record.is_shown = true;
                shown.push((daemon, core::mem::take(&mut record.was_lost)));
            }
            true
        });
        shown
    }

    /// Returns the daemons that cannot be reached and whose members still count, with the times
    /// until which they do.
    pub(in crate::daemon) fn away(&self) -> impl Iterator<Item = (DaemonId, Time)> {
        self.holds.iter().map(|(time, daemon)| (*daemon, *time))
    }

    /// Returns a daemon whose members counted, and that has been unreachable for the hold time,
    /// with its state. Its members no longer count. The states of unreachable daemons are dropped:
    /// they could fill the memory, and neighbours send them again when a link comes up.
    pub(in crate::daemon) fn pop_unreachable(
        &mut self,
        now: Time,
    ) -> Option<(DaemonId, DaemonState<P>)> {
        loop {
            let &(time, daemon) = self.holds.first()?;
            if time > now {
                return None;
            }
            self.holds.pop_first();
            let mut record = self.records.get_mut(daemon)?;
            record.held_until = None;
            let was_shown = core::mem::take(&mut record.is_shown);
            record.was_lost |= was_shown;
            let state = record.drop_state();
            if was_shown {
                return Some((daemon, state));
            }
        }
    }

    /// Drops the state of a daemon after the hold time, unless it becomes reachable before.
    pub(in crate::daemon) fn hold_unreachable(&mut self, now: Time, daemon: DaemonId) {
        let until = now + self.hold;
        if let Some(mut record) = self.records.get_mut(daemon)
            && !record.is_shown
            && record.held_until.is_none()
        {
            record.held_until = Some(until);
            self.holds.insert((until, daemon));
        }
    }

    /// Returns the daemons whose states were dropped, and to which a reachable daemon has a link
    /// now. Each is returned once a second at most.
    pub(in crate::daemon) fn take_missing(
        &mut self,
        now: Time,
        topology: &Topology,
    ) -> Vec<DaemonId> {
        let reachable = topology.daemons().iter();
        let reachable = reachable.filter_map(|daemon| self.records.get(daemon));
        let ends = reachable.flat_map(|record| record.state.links.keys());
        let ends: BTreeSet<_> = ends.copied().collect();
        let is_missing = |record: &Record<P>| {
            let is_early = |at| now - at < ASK_AGAIN;
            record.has_no_state() && !record.asked_at.is_some_and(is_early)
        };
        let mut missing = Vec::new();
        for end in ends {
            if let Some(mut record) = self.records.get_mut(end)
                && end != self.here
                && is_missing(&record)
            {
                record.asked_at = Some(now);
                missing.push(end);
            }
        }
        missing
    }

    /// If it is time to repeat that this daemon is alive, drops the records of unreachable daemons
    /// that are too old, and returns these daemons.
    pub(in crate::daemon) fn refresh(&mut self, now: Time) -> Option<Vec<DaemonId>> {
        self.refresh_at.take_if(|time| *time <= now)?;
        let mut dropped = Vec::new();
        self.records.retain(|daemon, record| {
            let is_old = now - record.heard > LIFETIME;
            let is_kept = daemon == self.here || record.is_shown || !is_old;
            dropped.extend((!is_kept).then_some(daemon));
            is_kept
        });
        Some(dropped)
    }

    /// Returns when anything is due next.
    pub(in crate::daemon) fn poll_timeout(&self) -> Option<Time> {
        let hold = self.holds.first().map(|(time, _)| *time);
        let own = [self.own.poll_timeout(), self.seal_due()];
        let times = [hold, self.refresh_at, self.impatient_at, own[0], own[1]];
        times.into_iter().flatten().min()
    }
}

/// A link's weight, and the changes by which it came up at its lower and its higher end.
type LinkUp = (u32, [u32; 2]);

/// Returns a number that equal topologies share, and others do not except by chance. It includes
/// the changes by which links came up, because messages may be lost when a link goes down and comes
/// up again.
fn version(daemons: &[(DaemonId, u32)], links: &[(DaemonId, DaemonId, LinkUp)]) -> u16 {
    let mut hash = 0;
    let mut add = |number: u64| hash = mix(hash ^ number);
    for (daemon, incarnation) in daemons {
        add(u64::from(daemon.0) << 32 | u64::from(*incarnation));
    }
    for (low, high, (weight, [a, b])) in links {
        add(u64::from(low.0) << 48 | u64::from(high.0) << 32 | u64::from(*weight));
        add(u64::from(*a) << 32 | u64::from(*b));
    }
    hash as u16
}
