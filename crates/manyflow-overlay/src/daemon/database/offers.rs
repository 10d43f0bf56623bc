//! Which neighbours have a newer state of a daemon, and which of them is asked.

use std::collections::BTreeMap;

use super::record::Record;
use super::wanted::Wanted;
use super::{Database, Heard};
use crate::message::{DaemonId, Summary};
use crate::sequence::ChangeSeq;
use manyflow_core::Payload;
use manyflow_core::time::Time;

/// The number of states that each neighbour offers. It is asked for each offer, and there may be as
/// many wanted states for each neighbour as there may be daemons.
#[derive(Debug, Default)]
pub(super) struct OfferCounts(BTreeMap<DaemonId, usize>);

impl OfferCounts {
    /// Returns the number of states that this neighbour offers.
    pub(super) fn of(&self, neighbour: DaemonId) -> usize {
        self.0.get(&neighbour).copied().unwrap_or(0)
    }

    /// Counts one more offer of this neighbour.
    pub(super) fn add(&mut self, neighbour: DaemonId) {
        *self.0.entry(neighbour).or_default() += 1;
    }

    /// Counts one offer less of this neighbour.
    pub(super) fn subtract(&mut self, neighbour: DaemonId) {
        debug_assert!(self.of(neighbour) > 0, "each offer was counted");
        let rest = self.of(neighbour).saturating_sub(1);
        if rest == 0 {
            self.0.remove(&neighbour);
        } else {
            self.0.insert(neighbour, rest);
        }
    }
}

impl<P: Payload + Default + PartialEq> Database<P> {
    /// Notes that a neighbour has a newer state of a daemon.
    ///
    /// Offers are not signed. Each neighbour may therefore offer as many states as there can be
    /// daemons, whatever the others offer: one that offers states and sends none takes no other's
    /// place. Its offers are forgotten with its link.
    pub(super) fn offer(
        &mut self,
        now: Time,
        from: DaemonId,
        origin: DaemonId,
        age: (u32, ChangeSeq),
    ) -> Heard {
        if let Some(mut wanted) = self.wanted.get_mut(origin) {
            if wanted.add_offer(from, age) {
                self.offer_counts.add(from);
            }
            let times = [self.impatient_at, wanted.impatient_at()];
            self.impatient_at = times.into_iter().flatten().min();
            return Heard::Nothing;
        }
        if !self.may_offer(from) || !self.can_make_room(origin) {
            return Heard::Nothing;
        }
        self.wanted.insert(origin, Wanted::new(now, from, age));
        self.offer_counts.add(from);
        Heard::Ask
    }

    /// Returns whether this neighbour may offer another state.
    fn may_offer(&self, from: DaemonId) -> bool {
        self.wanted.len() < self.daemons_max || self.offer_counts.of(from) < self.daemons_max
    }

    /// Forgets the offer of a neighbour that has sent another state than it offered.
    pub(super) fn refuse_offer(&mut self, from: DaemonId, origin: DaemonId) {
        let wanted = self.wanted.get_mut(origin);
        if wanted.is_some_and(|mut wanted| wanted.refuse_offer(from)) {
            self.offer_counts.subtract(from);
        }
    }

    /// Returns the neighbour to ask next for a daemon's state, after a state of it has arrived or
    /// an offer was withdrawn.
    pub(in crate::daemon) fn next_to_ask(
        &mut self,
        now: Time,
        origin: DaemonId,
    ) -> Option<DaemonId> {
        let known = self.records.get(&origin).map(Record::age);
        let mut wanted = self.wanted.get_mut(origin)?;
        let next = wanted.retain(now, None, known, &mut self.offer_counts);
        drop(wanted);
        if next.is_err() {
            self.wanted.remove(origin);
        }
        next.ok().flatten()
    }

    /// Forgets that a neighbour, which was asked for a state, has it: the neighbour has sent a
    /// summary without changes. Returns a summary that asks the neighbour once more.
    ///
    /// Such a summary answers a request if the state was dropped after it had been offered. It also
    /// asks for a state, and a link of datagrams can deliver it behind an offer that the neighbour
    /// made later. Without the question, that offer would be lost.
    pub(in crate::daemon) fn withdraw_offer(
        &mut self,
        from: DaemonId,
        origin: DaemonId,
    ) -> Option<Summary> {
        if !self.wanted.get(&origin)?.is_asked(from) {
            return None;
        }
        self.refuse_offer(from, origin);
        Some(Summary {
            incarnation: self.incarnation(origin).unwrap_or(0),
            change: ChangeSeq(0),
        })
    }

    /// Forgets a neighbour whose link is down. Returns which other neighbours to ask instead, and
    /// for which daemons' states.
    pub(in crate::daemon) fn forget_neighbour(
        &mut self,
        now: Time,
        gone: DaemonId,
    ) -> Vec<(DaemonId, DaemonId)> {
        self.forget_unsealed(gone);
        let mut asks = Vec::new();
        let (records, counts) = (&self.records, &mut self.offer_counts);
        self.wanted.retain(|origin, wanted| {
            let known = records.get(&origin).map(Record::age);
            let next = wanted.retain(now, Some(gone), known, counts);
            asks.extend(next.ok().flatten().map(|next| (next, origin)));
            next.is_ok()
        });
        asks
    }

    /// Returns another neighbour to ask for a daemon's state, because the last one has sent nothing
    /// for long, and that daemon.
    pub(in crate::daemon) fn pop_unanswered(&mut self, now: Time) -> Option<(DaemonId, DaemonId)> {
        self.impatient_at.filter(|time| *time <= now)?;
        let times = self.wanted.iter();
        let times = times.filter_map(|(origin, wanted)| Some((wanted.impatient_at()?, *origin)));
        let (time, origin) = times.min().unzip();
        self.impatient_at = time;
        let origin = origin.filter(|_| time.is_some_and(|time| time <= now))?;
        let next = self.wanted.get_mut(origin)?.lose_patience(now)?;
        Some((next, origin))
    }
}
