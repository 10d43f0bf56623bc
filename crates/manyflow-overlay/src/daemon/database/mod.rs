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
//! alive every half hour, and a record that has not changed for an hour is dropped.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod.rs` | [`Database`]: all records, and which daemons' members count |
//! | `record.rs` | the state of one daemon |
//! | `wanted.rs` | states that this daemon has asked for |

mod record;
#[cfg(test)]
mod tests;
mod wanted;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crate::config::OverlayConfig;
use crate::message::{Change, DaemonId, GroupId, Item, NAME_BYTES_MAX, Part, Summary};
use crate::sequence::{ChangeSeq, Sequence};
use crate::topology::{Topology, mix};
use manyflow_core::Payload;
use manyflow_core::time::Time;
use record::Members;
pub(super) use record::State;
use record::{Limits, Popped, Record};
use wanted::Wanted;

/// The time after which a daemon repeats that it is alive.
const REFRESH: Duration = Duration::from_secs(30 * 60);
/// The time without a change after which a record is dropped.
const LIFETIME: Duration = Duration::from_secs(60 * 60);
/// The maximum number of changes that wait for an earlier one.
const EARLY_MAX: usize = 16_384;
/// The first time between two incarnations that outbid another daemon with the same number. It
/// doubles each time, up to [`OUTBID_MAX`].
const OUTBID_MIN: Duration = Duration::from_millis(100);
const OUTBID_MAX: Duration = Duration::from_secs(60);

/// The records of all known daemons.
#[derive(Debug)]
pub(super) struct Database<P> {
    here: DaemonId,
    /// Whether the topology is given and never changes.
    is_fixed: bool,
    daemons_max: usize,
    neighbours_max: usize,
    state_bytes: usize,
    hold: Duration,
    /// There is always one of this daemon.
    records: BTreeMap<DaemonId, Record<P>>,
    wanted: BTreeMap<DaemonId, Wanted<P>>,
    /// The times at which the members of unreachable daemons no longer count.
    holds: BTreeSet<(Time, DaemonId)>,
    /// Whether links or incarnations have changed since the last [`topology`](Database::topology).
    is_dirty: bool,
    refresh_at: Option<Time>,
    /// A later incarnation of this daemon that must be outbid, and when.
    outbid: Option<(Time, u32)>,
    outbid_wait: Duration,
}

/// The effect of a message about a daemon's state.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Nothing is left to do.
    Nothing,
    /// The sender of the message has a newer state: ask it.
    Ask,
}

impl<P: Payload + Default> Database<P> {
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
        let own = Record::new(Time::ZERO, incarnation, true);
        Database {
            here,
            is_fixed,
            daemons_max: config.daemons_max,
            neighbours_max: config.neighbours_max,
            state_bytes: config.state_bytes,
            hold: config.hold,
            records: BTreeMap::from([(here, own)]),
            wanted: BTreeMap::new(),
            holds: BTreeSet::new(),
            is_dirty: false,
            refresh_at: None,
            outbid: None,
            outbid_wait: Duration::ZERO,
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
    pub(super) fn shown(&self, daemon: DaemonId) -> Option<&State<P>> {
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
        let own = self.records.get_mut(&self.here)?;
        own.insert(change, item, name);
        // The members at this daemon are limited where clients join.
        let limits = Limits {
            neighbours: self.neighbours_max,
            bytes: usize::MAX,
        };
        let popped = own.pop(now, limits)?;
        self.is_dirty |= matches!(item, Item::Link { .. });
        self.refresh_at = (!self.is_fixed).then_some(now + REFRESH);
        Some(popped.change)
    }

    /// Returns the limits of the next change of a daemon's state, which takes `present` bytes now.
    fn limits(&self, present: usize) -> Limits {
        let others = match self.is_fixed {
            true => 0,
            false => self.bytes() - present,
        };
        let all = match self.is_fixed {
            true => usize::MAX,
            false => self.state_bytes,
        };
        Limits {
            neighbours: self.neighbours_max,
            bytes: all.saturating_sub(others),
        }
    }

    /// Returns the bytes that the members and pauses of all daemons take.
    fn bytes(&self) -> usize {
        let records = self.records.values();
        let records: usize = records.map(|record| record.state.bytes()).sum();
        let wanted: usize = self.wanted.values().map(Wanted::bytes).sum();
        records + wanted
    }

    /// Returns whether there is room for another group with members.
    pub(super) fn has_room(&self) -> bool {
        let group = record::GROUP_BYTES + NAME_BYTES_MAX as usize;
        self.is_fixed || self.bytes() + group <= self.state_bytes
    }

    /// Returns whether another change may wait for earlier ones. A change whose turn it is may.
    fn may_hold(&self, record: &Record<P>, change: ChangeSeq) -> bool {
        let held = || self.records.values().map(Record::held).sum::<usize>();
        change == record.last.next() || held() < EARLY_MAX
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
            let record = self.records.entry(origin);
            let record = record.or_insert_with(|| Record::new(now, 0, true));
            if change.change == record.last.next() || record.held() < EARLY_MAX {
                record.insert(change.change, change.item, name);
            }
            return Heard::Nothing;
        }
        let age = (change.incarnation, change.change);
        let Some(record) = self.records.get(&origin) else {
            return self.offer(from, origin, age);
        };
        if age <= record.age() {
            return Heard::Nothing;
        }
        let may_hold = record.incarnation == age.0 && self.may_hold(record, change.change);
        match self.records.get_mut(&origin) {
            Some(record) if may_hold => {
                record.insert(change.change, change.item, name);
                Heard::Nothing
            }
            _ => self.offer(from, origin, age),
        }
    }

    /// Applies and returns the next change of a daemon in order, if it has arrived.
    pub(super) fn pop_change(&mut self, now: Time, origin: DaemonId) -> Option<Popped<P>> {
        let limits = self.limits(self.records.get(&origin)?.state.bytes());
        let popped = self.records.get_mut(&origin)?.pop(now, limits)?;
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
        let known = self.records.get(&origin).map(Record::age);
        if known >= Some(age) {
            return Heard::Nothing;
        }
        if origin == self.here {
            self.schedule_outbid(now, summary.incarnation);
            return Heard::Nothing;
        }
        self.offer(from, origin, age)
    }

    /// Notes that a neighbour has a newer state of a daemon.
    fn offer(&mut self, from: DaemonId, origin: DaemonId, age: (u32, ChangeSeq)) -> Heard {
        if let Some(wanted) = self.wanted.get_mut(&origin) {
            wanted.add_offer(from, age);
            return Heard::Nothing;
        }
        let has_room = self.wanted.len() < self.daemons_max;
        if !has_room || !self.make_room(origin) {
            return Heard::Nothing;
        }
        self.wanted.insert(origin, Wanted::new(from, age));
        Heard::Ask
    }

    /// Makes room for a record. An unreachable daemon's record that has not changed for longest may
    /// be dropped for it. Returns whether there is room.
    fn make_room(&mut self, origin: DaemonId) -> bool {
        if self.records.len() < self.daemons_max || self.records.contains_key(&origin) {
            return true;
        }
        let hidden = self.records.iter().filter(|(_, record)| !record.is_shown);
        let oldest = hidden.min_by_key(|(daemon, record)| (record.heard, **daemon));
        match oldest.map(|(daemon, _)| *daemon) {
            Some(oldest) => self.records.remove(&oldest).is_some(),
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
        let limits = self.limits(self.wanted.get(&origin)?.bytes());
        let wanted = self.wanted.get_mut(&origin)?;
        let (age, state) = wanted.insert(from, part, name, limits)?;
        let known = self.records.get(&origin).map(Record::age);
        if known >= Some(age) || !self.make_room(origin) {
            return Some(Received::Old);
        }
        let record = self.records.entry(origin);
        let record = record.or_insert_with(|| Record::new(now, age.0, false));
        let is_restarted = record.incarnation != age.0;
        let was_shown = record.is_shown;
        let before = record.replace(now, age, state);
        if is_restarted {
            record.is_shown = false;
            if let Some(time) = record.held_until.take() {
                self.holds.remove(&(time, origin));
            }
        }
        self.is_dirty = true;
        Some(Received::New {
            before: was_shown.then_some(before),
            is_restarted,
        })
    }

    /// Returns the neighbour to ask next for a daemon's state, after a state of it has arrived.
    pub(super) fn next_to_ask(&mut self, origin: DaemonId) -> Option<DaemonId> {
        let known = self.records.get(&origin).map(Record::age);
        match self.wanted.get_mut(&origin)?.retain(None, known) {
            Ok(next) => next,
            Err(()) => {
                self.wanted.remove(&origin);
                None
            }
        }
    }

    /// Forgets a neighbour whose link is down. Returns which other neighbours to ask instead, and
    /// for which daemons' states.
    pub(super) fn forget_neighbour(&mut self, gone: DaemonId) -> Vec<(DaemonId, DaemonId)> {
        let mut asks = Vec::new();
        let records = &self.records;
        self.wanted.retain(|origin, wanted| {
            let known = records.get(origin).map(Record::age);
            let next = wanted.retain(Some(gone), known);
            asks.extend(next.ok().flatten().map(|next| (next, *origin)));
            next.is_ok()
        });
        asks
    }

    /// Returns the summaries of all records.
    pub(super) fn summaries(&self) -> impl Iterator<Item = (DaemonId, Summary)> {
        let records = self.records.iter();
        records.map(|(daemon, record)| (*daemon, record.summary()))
    }

    /// Returns the summary of a daemon's record.
    pub(super) fn summary(&self, daemon: DaemonId) -> Option<Summary> {
        self.records.get(&daemon).map(Record::summary)
    }

    /// Returns a daemon's whole state in parts; none if there is no record of it.
    pub(super) fn parts(&self, daemon: DaemonId) -> Vec<(Part, P)> {
        let record = self.records.get(&daemon);
        record.map(Record::parts).unwrap_or_default()
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
        before: Option<State<P>>,
        /// Whether the new state is that of another incarnation.
        is_restarted: bool,
    },
}

/// Reachability and time.
impl<P: Payload + Default> Database<P> {
    /// Returns the topology that is reachable from here, if links or incarnations have changed. A
    /// link counts if both ends list it.
    pub(super) fn topology(&mut self) -> Option<Topology> {
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
    /// others for a time. Returns the daemons whose members count from now on.
    pub(super) fn show_reachable(&mut self, now: Time, topology: &Topology) -> Vec<DaemonId> {
        let mut shown = Vec::new();
        for (&daemon, record) in &mut self.records {
            match (topology.contains(daemon), record.held_until) {
                (true, Some(time)) => {
                    self.holds.remove(&(time, daemon));
                    record.held_until = None;
                }
                (false, None) if record.is_shown => {
                    let until = now + self.hold;
                    record.held_until = Some(until);
                    self.holds.insert((until, daemon));
                }
                _ => {}
            }
            if topology.contains(daemon) && !record.is_shown {
                record.is_shown = true;
                shown.push(daemon);
            }
        }
        shown
    }

    /// Returns a daemon that has been unreachable for the hold time, with its state. Its members no
    /// longer count.
    pub(super) fn pop_unreachable(&mut self, now: Time) -> Option<(DaemonId, State<P>)> {
        let &(time, daemon) = self.holds.first()?;
        if time > now {
            return None;
        }
        self.holds.pop_first();
        let record = self.records.get_mut(&daemon)?;
        record.held_until = None;
        record.is_shown = false;
        Some((daemon, record.state.clone()))
    }

    /// If it is time to repeat that this daemon is alive, drops the records of unreachable daemons
    /// that are too old, and returns these daemons.
    pub(super) fn refresh(&mut self, now: Time) -> Option<Vec<DaemonId>> {
        self.refresh_at.take_if(|time| *time <= now)?;
        let mut dropped = Vec::new();
        self.records.retain(|daemon, record| {
            let is_old = now - record.heard > LIFETIME;
            let is_kept = *daemon == self.here || record.is_shown || !is_old;
            dropped.extend((!is_kept).then_some(*daemon));
            is_kept
        });
        Some(dropped)
    }

    fn schedule_outbid(&mut self, now: Time, incarnation: u32) {
        let (at, other) = self.outbid.unwrap_or((now + self.outbid_wait, incarnation));
        self.outbid = Some((at, other.max(incarnation)));
    }

    /// Begins a new incarnation of this daemon, if a later one must be outbid now. Returns its
    /// number. Nothing is outbid above the highest number.
    pub(super) fn outbid(&mut self, now: Time) -> Option<u32> {
        let (_, incarnation) = self.outbid.take_if(|(at, _)| *at <= now)?;
        let own = self.records.get_mut(&self.here)?;
        own.incarnation = own.incarnation.max(incarnation).checked_add(1)?;
        self.outbid_wait = (2 * self.outbid_wait).clamp(OUTBID_MIN, OUTBID_MAX);
        self.is_dirty = true;
        Some(own.incarnation)
    }

    /// Returns when anything is due next.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let hold = self.holds.first().map(|(time, _)| *time);
        let outbid = self.outbid.map(|(time, _)| time);
        [hold, self.refresh_at, outbid].into_iter().flatten().min()
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
