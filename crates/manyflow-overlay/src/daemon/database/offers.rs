//! Which neighbours have a newer state of a daemon, and which of them is asked.

use super::record::Record;
use super::wanted::Wanted;
use super::{Database, Heard};
use crate::message::DaemonId;
use crate::sequence::ChangeSeq;
use manyflow_core::Payload;
use manyflow_core::time::Time;

impl<P: Payload + Default + PartialEq> Database<P> {
    /// Notes that a neighbour has a newer state of a daemon.
    pub(super) fn offer(
        &mut self,
        now: Time,
        from: DaemonId,
        origin: DaemonId,
        age: (u32, ChangeSeq),
    ) -> Heard {
        if let Some(wanted) = self.wanted.get_mut(&origin) {
            wanted.add_offer(from, age);
            return Heard::Nothing;
        }
        let has_room = self.wanted.len() < self.daemons_max;
        if !has_room || !self.make_room(origin) {
            return Heard::Nothing;
        }
        self.wanted.insert(origin, Wanted::new(now, from, age));
        Heard::Ask
    }

    /// Forgets the offer of a neighbour that has sent another state than it offered.
    pub(super) fn refuse_offer(&mut self, from: DaemonId, origin: DaemonId) {
        if let Some(wanted) = self.wanted.get_mut(&origin) {
            wanted.refuse_offer(from);
        }
    }

    /// Returns the neighbour to ask next for a daemon's state, after a state of it has arrived.
    pub(in crate::daemon) fn next_to_ask(
        &mut self,
        now: Time,
        origin: DaemonId,
    ) -> Option<DaemonId> {
        let known = self.records.get(&origin).map(Record::age);
        match self.wanted.get_mut(&origin)?.retain(now, None, known) {
            Ok(next) => next,
            Err(()) => {
                self.wanted.remove(&origin);
                None
            }
        }
    }

    /// Forgets that a neighbour, which was asked for a state, has it. Returns the neighbour to ask
    /// instead.
    pub(in crate::daemon) fn withdraw_offer(
        &mut self,
        now: Time,
        from: DaemonId,
        origin: DaemonId,
    ) -> Option<DaemonId> {
        let wanted = self.wanted.get_mut(&origin)?;
        if !wanted.is_asked(from) {
            return None;
        }
        wanted.refuse_offer(from);
        self.next_to_ask(now, origin)
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
        let records = &self.records;
        self.wanted.retain(|origin, wanted| {
            let known = records.get(origin).map(Record::age);
            let next = wanted.retain(now, Some(gone), known);
            asks.extend(next.ok().flatten().map(|next| (next, *origin)));
            next.is_ok()
        });
        asks
    }

    /// Returns another neighbour to ask for a daemon's state, because the last one has sent nothing
    /// for long, and that daemon.
    pub(in crate::daemon) fn pop_unanswered(&mut self, now: Time) -> Option<(DaemonId, DaemonId)> {
        let mut wanted = self.wanted.iter_mut();
        wanted.find_map(|(origin, wanted)| Some((wanted.lose_patience(now)?, *origin)))
    }
}
