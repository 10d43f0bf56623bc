//! A daemon's knowledge of all daemons of the overlay: their links, members and pauses.
//!
//! Each daemon numbers the changes of its own state, and floods them. Together, the last changes of
//! all daemons are a database, of which each daemon has a copy:
//!
//! ```text
//!   own change --> Record of this daemon --flooded--> Records of it at all other daemons
//!                                                        | links that both ends list
//!                                                        v
//!                                        the topology that is reachable from here
//! ```
//!
//! **Fixed overlays** flood changes down the tree of their origin. Their topology is given.
//!
//! **Living overlays** flood changes over all links: each daemon sends a change on when it applies
//! it, so that a neighbour receives the changes of an origin in order. When a link comes up, the
//! two daemons send each other a [`Summary`] of each record. A daemon that lacks a state asks for
//! it, gets it in [`Part`]s, and sends its summary on. States age: a daemon repeats that it is
//! alive every half hour, and a record that has not changed for an hour is dropped. The state of a
//! daemon that has been unreachable for the hold time is dropped before; its incarnation remains. A
//! daemon that lacks such a state later sends a summary without changes, which asks for another.
//!
//! **Lies.** The memory that each daemon takes is bounded, and incarnations that are far in the
//! future are not believed. With a [`Notary`], each daemon signs its state: changes count when a
//! seal covers them, and whole states come with a proof. A neighbour that sends what its daemon has
//! not signed loses its link. Without one, a daemon can announce another's state: a daemon that
//! hears of a later state of itself, or of a change that it did not make, begins a later
//! incarnation.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod.rs` | [`Database`]: all records, and which daemons' members count |
//! | `counted.rs` | maps that keep the sums over their values |
//! | `offers.rs` | which neighbours have newer states, and which of them is asked |
//! | `reachable.rs` | which daemons can be reached, and for how long the states of others are kept |
//! | `own.rs` | the incarnation of this daemon, and those that are not believed |
//! | `record.rs` | the state of one daemon |
//! | `seal.rs` | statements that are signed, and changes that wait for a signature |
//! | `signed.rs` | this daemon's signatures, and those of others |
//! | `wanted.rs` | states that this daemon has asked for |

mod counted;
mod digests;
mod offers;
mod own;
mod reachable;
mod record;
mod seal;
mod signed;
#[cfg(test)]
mod tests;
mod wanted;

use core::time::Duration;
use std::collections::BTreeSet;

use crate::config::OverlayConfig;
use crate::event::Misconduct;
use crate::message::{Change, DaemonId, GroupId, Item, NAME_BYTES_MAX, Part, Summary};
use crate::notary::Notary;
use crate::sequence::{ChangeSeq, Sequence};
use counted::Counted;
use manyflow_core::Payload;
use manyflow_core::time::Time;
use offers::OfferCounts;
use own::{Credibility, Own};
pub(super) use record::DaemonState;
use record::Members;
use record::{Limits, Popped, Record};
pub(super) use signed::Announcement;
use signed::Unsigned;
use wanted::Wanted;

/// The time after which a daemon repeats that it is alive.
const REFRESH: Duration = Duration::from_secs(30 * 60);
/// The time without a change after which a record is dropped.
const LIFETIME: Duration = Duration::from_secs(60 * 60);
/// The maximum number of changes that wait for an earlier one.
const EARLY_MAX: usize = 16_384;
/// The records of all known daemons.
#[derive(Debug)]
pub(super) struct Database<P> {
    here: DaemonId,
    /// Whether the topology is given and never changes.
    is_fixed: bool,
    daemons_max: usize,
    neighbours_max: usize,
    state_bytes: usize,
    share_bytes: usize,
    hold: Duration,
    /// There is always one of this daemon.
    records: Counted<Record<P>>,
    wanted: Counted<Wanted<P>>,
    /// The offers in `wanted`.
    offer_counts: OfferCounts,
    /// A time before which no other neighbour must be asked for a state, if there is any to ask.
    impatient_at: Option<Time>,
    /// The times at which the members of unreachable daemons no longer count.
    holds: BTreeSet<(Time, DaemonId)>,
    /// Whether links or incarnations have changed since the last [`topology`](Database::topology).
    is_dirty: bool,
    refresh_at: Option<Time>,
    own: Own<P>,
    /// Signs states; `None` if states are not signed.
    notary: Option<Box<dyn Notary<P>>>,
    unsigned: Unsigned<P>,
}

/// The effect of a message about a daemon's state.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Nothing is left to do.
    Nothing,
    /// The sender of the message has a newer state: ask it.
    Ask,
    /// The sender of the message has no state, or that of an earlier incarnation: send it the
    /// summary of the known one.
    Tell,
    /// The message's sender knows a later incarnation than the one that the daemon lives in: the
    /// daemon has to learn it.
    Outdated,
    /// The message is one that no daemon sends.
    Forged(Misconduct),
}

impl<P: Payload + Default + PartialEq> Database<P> {
    /// Returns the database of a fixed overlay's daemon.
    pub(super) fn fixed(here: DaemonId, config: &OverlayConfig) -> Database<P> {
        Database::new(here, config, 0, true)
    }

    /// Returns the database of a living overlay's daemon, which knows only itself.
    pub(super) fn living(here: DaemonId, config: &OverlayConfig, incarnation: u32) -> Database<P> {
        Database::new(here, config, incarnation, false)
    }

    fn new(
        here: DaemonId,
        config: &OverlayConfig,
        incarnation: u32,
        is_fixed: bool,
    ) -> Database<P> {
        let mut records = Counted::new();
        records.insert(here, Record::new(Time::ZERO, incarnation, true));
        Database {
            here,
            is_fixed,
            daemons_max: config.daemons_max,
            neighbours_max: config.neighbours_max,
            state_bytes: config.state_bytes,
            share_bytes: config.share_bytes(),
            hold: config.hold,
            records,
            wanted: Counted::new(),
            offer_counts: OfferCounts::default(),
            impatient_at: None,
            holds: BTreeSet::new(),
            is_dirty: false,
            refresh_at: None,
            own: Own::new(incarnation, config),
            notary: None,
            unsigned: Unsigned::default(),
        }
    }

    pub(super) fn is_fixed(&self) -> bool {
        self.is_fixed
    }

    /// Returns the incarnation of a daemon, if there is a record of it.
    pub(super) fn incarnation(&self, daemon: DaemonId) -> Option<u32> {
        self.records.get(&daemon).map(|record| record.incarnation)
    }

    /// Returns a daemon's state, if its members count.
    pub(super) fn shown(&self, daemon: DaemonId) -> Option<&DaemonState<P>> {
        let record = self.records.get(&daemon)?;
        record.is_shown.then_some(&record.state)
    }

    fn own_members(&self, group: GroupId) -> Option<&Members<P>> {
        let own = self.records.get(&self.here)?;
        own.state.members.get(&group)
    }

    /// Returns the change by which this daemon gained the first of its present members of a group.
    /// If there are none yet, returns the next change.
    pub(super) fn own_since(&self, group: GroupId) -> ChangeSeq {
        let members = self.own_members(group);
        members.map_or_else(|| self.next_change(), |members| members.since)
    }

    /// Returns the name that the first of this daemon's present members gave a group.
    pub(super) fn own_name(&self, group: GroupId) -> Option<P> {
        self.own_members(group).map(|members| members.name.clone())
    }

    /// Returns the number of this daemon's next change.
    pub(super) fn next_change(&self) -> ChangeSeq {
        let own = self.records.get(&self.here);
        own.map_or(ChangeSeq(1), |own| own.last.next())
    }

    /// Numbers a change of this daemon and applies it to its record. The caller floods it.
    pub(super) fn change(&mut self, now: Time, item: Item, name: P) -> Option<Change> {
        let change = self.next_change();
        let mut own = self.records.get_mut(self.here)?;
        own.insert(change, item, name, self.here);
        // The members at this daemon are limited where clients join.
        let limits = Limits {
            neighbours: self.neighbours_max,
            bytes: usize::MAX,
            share: usize::MAX,
        };
        let popped = own.pop(now, limits)?;
        drop(own);
        if !self.is_fixed {
            self.own.note(change, item, popped.name.clone());
        }
        if self.notary.is_some() {
            self.unsigned.push(change, item, popped.name.clone());
        }
        self.is_dirty |= matches!(item, Item::Link { .. });
        self.refresh_at = (!self.is_fixed).then_some(now + REFRESH);
        Some(popped.change)
    }

    /// Returns the limits of another daemon's state.
    fn limits(&self, origin: DaemonId) -> Limits {
        let neighbours = self.neighbours_max;
        if self.is_fixed {
            return Limits {
                neighbours,
                bytes: usize::MAX,
                share: usize::MAX,
            };
        }
        let own = |daemon| self.records.size_of(daemon).bytes + self.wanted.size_of(daemon).bytes;
        let mut others = self.bytes() - own(origin);
        if origin != self.here {
            others -= own(self.here);
        }
        let free = self.state_bytes - self.share_bytes;
        let free = free.saturating_sub(others);
        Limits {
            neighbours,
            bytes: self.share_bytes.min(free / 2),
            share: self.share_bytes,
        }
    }

    /// Returns the bytes that the members and pauses of all daemons take.
    fn bytes(&self) -> usize {
        self.records.total().bytes + self.wanted.total().bytes
    }

    /// Returns whether there is room for another group with members at this daemon.
    pub(super) fn has_room(&self) -> bool {
        let own = self.records.get(&self.here);
        let own = own.map_or(0, |own| own.state.bytes());
        let group = record::GROUP_BYTES + NAME_BYTES_MAX as usize;
        self.is_fixed || own + group <= self.share_bytes
    }

    /// Returns whether another daemon can have this incarnation now.
    pub(super) fn is_credible(&self, now: Time, incarnation: u32) -> bool {
        self.own.credibility(now, incarnation) == Credibility::Credible
    }

    /// Returns whether another change may wait for earlier ones. A change whose turn it is may.
    fn may_hold(&self, record: &Record<P>, change: ChangeSeq) -> bool {
        change == record.last.next() || self.may_wait()
    }

    fn may_wait(&self) -> bool {
        self.records.total().changes < EARLY_MAX
    }

    /// Holds a change of another daemon until its turn. Changes of unknown incarnations are
    /// dropped: the neighbour must be asked for the whole state.
    pub(super) fn insert(
        &mut self,
        now: Time,
        from: DaemonId,
        origin: DaemonId,
        change: &Change,
        name: P,
    ) -> Heard {
        if self.is_fixed {
            let new = || Record::new(now, 0, true);
            let mut record = self.records.get_or_insert(origin, new);
            if change.change == record.last.next() || record.held() < EARLY_MAX {
                record.insert(change.change, change.item, name, from);
            }
            return Heard::Nothing;
        }
        let age = (change.incarnation, change.change);
        if let Some(doubt) = self.own.doubt(now, age.0) {
            return doubt;
        }
        let known = self.records.get(&origin);
        let Some(record) = known.filter(|record| !record.has_no_state()) else {
            return self.offer(now, from, origin, age);
        };
        if age <= record.age() {
            return Heard::Nothing;
        }
        if self.notary.is_some() {
            return self.insert_unsealed(now, from, origin, change, name);
        }
        let may_hold = record.incarnation == age.0 && self.may_hold(record, change.change);
        if !may_hold {
            return self.offer(now, from, origin, age);
        }
        if let Some(mut record) = self.records.get_mut(origin) {
            record.insert(change.change, change.item, name, from);
        }
        Heard::Nothing
    }

    /// Applies and returns the next change of a daemon in order, if it has arrived.
    pub(super) fn pop_change(&mut self, now: Time, origin: DaemonId) -> Option<Popped<P>> {
        let limits = self.limits(origin);
        let popped = self.records.get_mut(origin)?.pop(now, limits)?;
        self.is_dirty |= matches!(popped.change.item, Item::Link { .. });
        Some(popped)
    }

    /// Handles a neighbour's summary of a daemon's state.
    pub(super) fn handle_summary(
        &mut self,
        now: Time,
        from: DaemonId,
        origin: DaemonId,
        summary: &Summary,
    ) -> Heard {
        let age = (summary.incarnation, summary.change);
        if origin == self.here {
            return self.hear_of_self(now, from, age);
        }
        if let Some(doubt) = self.own.doubt(now, age.0) {
            return doubt;
        }
        let known = self.records.get(&origin).map(Record::age);
        if let Some(known) = known.filter(|known| *known >= age) {
            let has_none = age.1 == ChangeSeq(0) && known > age;
            // The state of the later incarnation was dropped, so that nobody has asked for it.
            let is_outdated = known.1 == ChangeSeq(0) && known.0 > age.0;
            return match has_none || is_outdated {
                true => Heard::Tell,
                false => Heard::Nothing,
            };
        }
        // A summary without changes asks for a state, and offers none: two daemons that lack the
        // state of a later incarnation would ask each other without end. If the daemon lives in an
        // earlier one, because its clock was set back, it has to outbid the later one.
        if age.1 == ChangeSeq(0) {
            let is_outdated = known.is_some_and(|known| known.1 != ChangeSeq(0) && known.0 < age.0);
            return match is_outdated {
                true => Heard::Outdated,
                false => Heard::Nothing,
            };
        }
        self.offer(now, from, origin, age)
    }

    /// Handles a change that another daemon announces in this one's name.
    pub(super) fn handle_own_change(
        &mut self,
        now: Time,
        from: DaemonId,
        change: &Change,
        name: &P,
    ) -> Heard {
        let age = (change.incarnation, change.change);
        let present = self.incarnation(self.here).unwrap_or(0);
        let is_signed = self.notary.is_some();
        if !is_signed && age.0 == present && self.own.contradicts(change, name) {
            self.own.schedule_outbid(now, present);
            return Heard::Nothing;
        }
        self.hear_of_self(now, from, age)
    }

    /// Handles news of a state of this daemon. A later one than its own is outbid, even if others
    /// do not believe it: their clocks may be behind. If states are signed, the neighbour must
    /// prove it.
    fn hear_of_self(&mut self, now: Time, from: DaemonId, age: (u32, ChangeSeq)) -> Heard {
        let own = self.records.get(&self.here).map(Record::age);
        if own >= Some(age) {
            let has_none = age.1 == ChangeSeq(0) && own > Some(age);
            return if has_none {
                Heard::Tell
            } else {
                Heard::Nothing
            };
        }
        if let Some(doubt @ Heard::Forged(_)) = self.own.doubt(now, age.0) {
            return doubt;
        }
        if self.notary.is_some() {
            // A summary without changes offers no proof.
            return match age.1 == ChangeSeq(0) {
                true => Heard::Nothing,
                false => self.offer(now, from, self.here, age),
            };
        }
        self.own.schedule_outbid(now, age.0);
        Heard::Nothing
    }

    /// Begins a new incarnation of this daemon, if a later one must be outbid now. Returns its
    /// number.
    pub(super) fn outbid(&mut self, now: Time) -> Option<u32> {
        let mut own = self.records.get_mut(self.here)?;
        own.incarnation = self.own.outbid(now, own.incarnation)?;
        self.unsigned.clear();
        self.is_dirty = true;
        Some(own.incarnation)
    }

    /// Returns whether it is time to announce this daemon's incarnation again.
    pub(super) fn must_repeat_incarnation(&mut self, now: Time) -> bool {
        self.own.must_repeat(now)
    }

    /// Returns whether a record needs no other's place.
    fn has_place(&self, origin: DaemonId) -> bool {
        self.records.len() < self.daemons_max || self.records.contains_key(&origin)
    }

    /// Returns whether there would be room for a record. An offer does not drop another daemon's
    /// record yet: nobody has shown that the state exists.
    fn can_make_room(&self, origin: DaemonId) -> bool {
        self.has_place(origin) || self.records.values().any(|record| !record.is_shown)
    }

    /// Makes room for a record. An unreachable daemon's record that has not changed for longest may
    /// be dropped for it. Returns whether there is room.
    fn make_room(&mut self, origin: DaemonId) -> bool {
        if self.has_place(origin) {
            return true;
        }
        let hidden = self.records.iter().filter(|(_, record)| !record.is_shown);
        let oldest = hidden.min_by_key(|(daemon, record)| (record.heard, **daemon));
        match oldest.map(|(daemon, _)| *daemon) {
            Some(oldest) => self.records.remove(oldest),
            None => false,
        }
    }

    /// Handles a part of a daemon's state from a neighbour. Returns the effect of the state when it
    /// is complete.
    pub(super) fn handle_part(
        &mut self,
        now: Time,
        from: DaemonId,
        origin: DaemonId,
        part: &Part,
        name: P,
    ) -> Option<Received<P>> {
        let limits = self.limits(origin);
        let mut wanted = self.wanted.get_mut(origin)?;
        let mut whole = wanted.insert(now, from, part, name, limits)?;
        drop(wanted);
        let age = whole.age;
        let known = self.records.get(&origin).map(Record::age);
        let verified = match self.own.doubt(now, age.0) {
            Some(doubt) => Err(Received::Refused(doubt)),
            None if known >= Some(age) => Err(Received::Old),
            None => {
                let verified = self.verify(origin, &mut whole, limits);
                verified.map_err(|misconduct| Received::Refused(Heard::Forged(misconduct)))
            }
        };
        let proof = match verified {
            Ok(proof) => proof,
            Err(received) => {
                self.refuse_offer(from, origin);
                return Some(received);
            }
        };
        if origin == self.here {
            self.own.schedule_outbid(now, age.0);
            self.refuse_offer(from, origin);
            return Some(Received::Old);
        }
        if !self.make_room(origin) {
            return Some(Received::Old);
        }
        let new = || Record::new(now, age.0, false);
        let mut record = self.records.get_or_insert(origin, new);
        let is_restarted = record.incarnation != age.0;
        let was_shown = record.is_shown;
        let before = record.replace(now, age, whole.state, proof);
        if is_restarted {
            record.is_shown = false;
            if let Some(time) = record.held_until.take() {
                self.holds.remove(&(time, origin));
            }
        }
        drop(record);
        self.hold_unreachable(now, origin);
        self.is_dirty = true;
        Some(Received::New {
            before: was_shown.then_some(before),
            is_restarted,
            is_over_share: whole.is_over_share,
        })
    }

    /// Returns the summaries of all records whose states can be sent.
    pub(super) fn summaries(&self) -> impl Iterator<Item = (DaemonId, Summary)> {
        let records = self.records.iter();
        let records = records.filter(|(_, record)| record.can_be_sent());
        records.map(|(daemon, record)| (*daemon, record.summary()))
    }

    /// Returns the summary of a daemon's record. One without changes asks a neighbour for its own.
    pub(super) fn summary(&self, daemon: DaemonId) -> Option<Summary> {
        self.records.get(&daemon).map(Record::summary)
    }

    /// Returns a daemon's whole state in parts; none if it is not known, or cannot be sent.
    pub(super) fn parts(&mut self, daemon: DaemonId) -> Vec<(Part, P)> {
        let proof = self.proof(daemon);
        let record = self.records.get(&daemon);
        let record = record.filter(|record| record.can_be_sent());
        let parts = record.map(|record| record.parts(proof));
        parts.unwrap_or_default()
    }

    /// Returns the number of entries for members and pauses, and for changes that wait for earlier
    /// ones.
    pub(super) fn state_size(&self) -> usize {
        let size = |record: &Record<P>| {
            record.state.members.len() + record.state.paused.len() + record.held()
        };
        self.records.values().map(size).sum::<usize>() + self.wanted.len()
    }
}

/// The effect of a daemon's whole state.
#[derive(Debug)]
pub(super) enum Received<P> {
    /// A state that is not newer than the known one.
    Old,
    /// A newer state.
    New {
        /// The state before, if its members counted.
        before: Option<DaemonState<P>>,
        /// Whether the new state is that of another incarnation.
        is_restarted: bool,
        /// Whether the daemon has more groups than one may have.
        is_over_share: bool,
    },
    /// A state that is not believed.
    Refused(Heard),
}
