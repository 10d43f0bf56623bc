//! A daemon's state as another daemon knows it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;

use crate::message::{Change, DaemonId, GroupId, Item, Part, Summary};
use crate::resequencer::Resequencer;
use crate::sequence::{ChangeSeq, Sequence};
use manyflow_core::Payload;
use manyflow_core::time::Time;

use super::counted::{Measured, Size};
use super::seal::{StateSeal, Waiting};

/// The memory that a group takes at most besides its name, in bytes: in the state of a daemon, and
/// in the tables of groups that are made of it.
pub(super) const GROUP_BYTES: usize = 512;

/// The limits of a daemon's state.
#[derive(Copy, Clone, Debug)]
pub(super) struct Limits {
    /// The maximum number of links.
    pub(super) neighbours: usize,
    /// The maximum number of bytes of groups.
    pub(super) bytes: usize,
    /// The maximum number of bytes of groups of a daemon that obeys the protocol.
    pub(super) share: usize,
}

/// A group's members at one daemon.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::daemon) struct Members<P> {
    pub(in crate::daemon) count: u32,
    /// The change by which the daemon gained its first member.
    pub(in crate::daemon) since: ChangeSeq,
    /// The group's name.
    pub(in crate::daemon) name: P,
}

/// One end of a link that is up.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct LinkEnd {
    pub(super) weight: u32,
    /// The change by which the link came up.
    pub(super) since: ChangeSeq,
}

/// The state of a daemon after all its changes. Only entries that differ from a daemon without
/// clients and links take memory.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::daemon) struct DaemonState<P> {
    pub(in crate::daemon) members: BTreeMap<GroupId, Members<P>>,
    pub(in crate::daemon) paused: BTreeSet<GroupId>,
    pub(super) links: BTreeMap<DaemonId, LinkEnd>,
    /// The bytes that members and pauses take.
    bytes: usize,
}

impl<P> Default for DaemonState<P> {
    fn default() -> DaemonState<P> {
        DaemonState {
            members: BTreeMap::new(),
            paused: BTreeSet::new(),
            links: BTreeMap::new(),
            bytes: 0,
        }
    }
}

impl<P: Payload + Default> DaemonState<P> {
    /// Returns the bytes that members and pauses take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether another group with this name would exceed a number of bytes.
    pub(super) fn would_exceed(&self, name: &P, bytes_max: usize) -> bool {
        self.bytes + GROUP_BYTES + name.length() as usize > bytes_max
    }

    /// Applies an item. Returns `false` if it is ignored, because it exceeds a limit.
    pub(super) fn apply(&mut self, item: Item, name: P, limits: Limits) -> bool {
        match item {
            Item::Members {
                group,
                members: count,
                since,
            } => return self.set_members(group, Members { count, since, name }, limits.bytes),
            Item::Paused { group, paused } => return self.set_paused(group, paused, limits.bytes),
            Item::Link { to, weight, since } => {
                let has_room = self.links.len() < limits.neighbours || self.links.contains_key(&to);
                if weight == 0 {
                    self.links.remove(&to);
                } else if has_room {
                    self.links.insert(to, LinkEnd { weight, since });
                }
                return weight == 0 || has_room;
            }
            Item::Alive | Item::Count { .. } | Item::Proof => {}
        }
        true
    }

    fn set_members(&mut self, group: GroupId, members: Members<P>, bytes_max: usize) -> bool {
        let size = |members: &Members<P>| GROUP_BYTES + members.name.length() as usize;
        let before = self.members.get(&group).map_or(0, size);
        let after = match members.count {
            0 => 0,
            _ => size(&members),
        };
        let bytes = self.bytes - before + after;
        if after > before && bytes > bytes_max {
            return false;
        }
        self.bytes = bytes;
        match members.count {
            0 => self.members.remove(&group),
            _ => self.members.insert(group, members),
        };
        true
    }

    fn set_paused(&mut self, group: GroupId, paused: bool, bytes_max: usize) -> bool {
        if paused && self.bytes + GROUP_BYTES > bytes_max {
            return self.paused.contains(&group);
        }
        if paused && self.paused.insert(group) {
            self.bytes += GROUP_BYTES;
        } else if !paused && self.paused.remove(&group) {
            self.bytes -= GROUP_BYTES;
        }
        true
    }

    /// Drops all groups. The links remain.
    pub(super) fn drop_groups(&mut self) {
        self.members.clear();
        self.paused.clear();
        self.bytes = 0;
    }

    /// Returns the items that make up the links.
    pub(super) fn link_items(&self) -> impl Iterator<Item = (Item, P)> {
        self.links.iter().map(|(&to, end)| {
            let LinkEnd { weight, since } = *end;
            (Item::Link { to, weight, since }, P::default())
        })
    }

    /// Returns the items that make up the groups with these numbers. A group with members has its
    /// name.
    pub(super) fn group_items(
        &self,
        groups: RangeInclusive<GroupId>,
    ) -> impl Iterator<Item = (Item, Option<&P>)> {
        let members = self.members.range(groups.clone()).map(|(&group, members)| {
            let item = Item::Members {
                group,
                members: members.count,
                since: members.since,
            };
            (item, Some(&members.name))
        });
        let paused = self.paused.range(groups).map(|&group| {
            let paused = true;
            (Item::Paused { group, paused }, None)
        });
        members.chain(paused)
    }
}

/// A change whose turn has come.
#[derive(Debug)]
pub(in crate::daemon) struct Popped<P> {
    pub(in crate::daemon) change: Change,
    /// The name of the group; empty if the change concerns none.
    pub(in crate::daemon) name: P,
    /// The neighbour that has sent the change.
    pub(in crate::daemon) from: DaemonId,
    /// The seal that this change is the last of, if changes are signed.
    pub(in crate::daemon) seal: Option<P>,
    /// Whether the change counts. One that exceeds a limit does not.
    pub(in crate::daemon) counts: bool,
    /// Whether the daemon has more groups than one may have.
    pub(in crate::daemon) is_over_share: bool,
}

/// The proof that a whole state is the daemon's.
#[derive(Debug)]
pub(super) struct Proof {
    pub(super) seal: StateSeal,
    pub(super) identity: Vec<u8>,
    /// Whether groups are left out of the state, because they exceed a limit.
    pub(super) is_cut: bool,
}

/// The last known state of a daemon.
#[derive(Debug)]
pub(super) struct Record<P> {
    pub(super) incarnation: u32,
    pub(super) last: ChangeSeq,
    /// Changes that follow the last one. A later change may overtake an earlier one.
    early: Resequencer<ChangeSeq, (Item, P, DaemonId)>,
    pub(super) state: DaemonState<P>,
    /// Changes whose signature has not arrived, or not been verified.
    pub(super) waiting: Waiting<P>,
    /// The seals of changes in `early`, and the payloads that they came as.
    seals: VecDeque<(StateSeal, P)>,
    /// The signature of the state after the last change, also if the state was dropped; `None` if
    /// states are not signed.
    pub(super) seal: Option<StateSeal>,
    /// The daemon's [identity](crate::Notary::identity), which verifies its signatures.
    pub(super) identity: Vec<u8>,
    /// Whether groups are left out, because they exceed a limit. Such a state is not the one that
    /// was signed, so no other daemon would believe it.
    pub(super) is_cut: bool,
    /// The time of the last change.
    pub(super) heard: Time,
    /// Whether the daemon's members count: it is reachable, or was until recently.
    pub(super) is_shown: bool,
    /// The time at which the members of an unreachable daemon no longer count, and its state is
    /// dropped.
    pub(super) held_until: Option<Time>,
    /// Whether the daemon's members ceased to count in this incarnation, and do not count yet
    /// again.
    pub(super) was_lost: bool,
    /// When neighbours were asked for a state that was dropped.
    pub(super) asked_at: Option<Time>,
}

impl<P: Payload + Default> Record<P> {
    pub(super) fn new(now: Time, incarnation: u32, is_shown: bool) -> Record<P> {
        Record {
            incarnation,
            last: ChangeSeq(0),
            early: Resequencer::starting_at(ChangeSeq(1)),
            state: DaemonState::default(),
            waiting: Waiting::default(),
            seals: VecDeque::new(),
            seal: None,
            identity: Vec::new(),
            is_cut: false,
            heard: now,
            is_shown,
            held_until: None,
            was_lost: false,
            asked_at: None,
        }
    }

    /// Drops the state of an unreachable daemon, and returns it. The incarnation remains, because
    /// messages of the same incarnation continue where they stopped. The last seal remains, because
    /// it proves the incarnation.
    pub(super) fn drop_state(&mut self) -> DaemonState<P> {
        self.early = Resequencer::default();
        self.last = ChangeSeq(0);
        self.waiting = Waiting::default();
        self.seals.clear();
        self.identity.clear();
        self.is_cut = false;
        core::mem::take(&mut self.state)
    }

    /// Returns whether the state was dropped, or never known.
    pub(super) fn has_no_state(&self) -> bool {
        self.last == ChangeSeq(0)
    }

    /// Returns the incarnation and its last change. Of two states of a daemon, the one with the
    /// higher pair is newer.
    pub(super) fn age(&self) -> (u32, ChangeSeq) {
        (self.incarnation, self.last)
    }

    /// Returns whether other daemons can have this state from here.
    pub(super) fn can_be_sent(&self) -> bool {
        !self.has_no_state() && !self.is_cut
    }

    /// Returns the summary for other daemons. One without changes offers no state.
    pub(super) fn summary(&self) -> Summary {
        let change = if self.is_cut { ChangeSeq(0) } else { self.last };
        Summary {
            incarnation: self.incarnation,
            change,
        }
    }

    /// Holds a change of this incarnation until its turn.
    pub(super) fn insert(&mut self, change: ChangeSeq, item: Item, name: P, from: DaemonId) {
        self.early.insert(change, (item, name, from));
    }

    /// Takes changes that have been verified, in order, with their seal and its payload.
    pub(super) fn insert_sealed(
        &mut self,
        seal: StateSeal,
        payload: P,
        changes: Vec<(ChangeSeq, Item, P)>,
        from: DaemonId,
    ) {
        for (number, item, name) in changes {
            self.insert(number, item, name, from);
        }
        self.waiting.forget_until(seal.statement.last);
        self.seals.push_back((seal, payload));
    }

    /// Returns the number of the first change that no known seal covers.
    pub(super) fn next_unsealed(&self) -> ChangeSeq {
        let last = self.seals.back().map(|(seal, _)| seal.statement.last);
        last.unwrap_or(self.last).next()
    }

    /// Returns the number of changes that wait for earlier ones or for their signature.
    pub(super) fn held(&self) -> usize {
        self.early.held() + self.waiting.held()
    }

    /// Applies and returns the next change in order, if it has arrived.
    pub(super) fn pop(&mut self, now: Time, limits: Limits) -> Option<Popped<P>> {
        let (item, name, from) = self.early.pop()?;
        self.last = self.last.next();
        self.heard = now;
        let counts = self.state.apply(item, name.clone(), limits);
        let seal = self.pop_seal();
        self.is_cut |= !counts && self.seal.is_some();
        let is_over_share = !counts && self.state.would_exceed(&name, limits.share);
        let change = Change {
            incarnation: self.incarnation,
            change: self.last,
            item,
        };
        Some(Popped {
            change,
            name,
            from,
            seal,
            counts,
            is_over_share,
        })
    }

    /// Takes the seal of the last change, if that is the last of its seal. Returns its payload.
    fn pop_seal(&mut self) -> Option<P> {
        let (seal, _) = self.seals.front()?;
        if seal.statement.last != self.last {
            return None;
        }
        let (seal, payload) = self.seals.pop_front()?;
        self.seal = Some(seal);
        Some(payload)
    }

    /// Replaces the whole state by a newer one, and returns the old one.
    pub(super) fn replace(
        &mut self,
        now: Time,
        age: (u32, ChangeSeq),
        state: DaemonState<P>,
        proof: Option<Proof>,
    ) -> DaemonState<P> {
        debug_assert!(
            age > self.age(),
            "{age:?} is not newer than {:?}",
            self.age()
        );
        if age.0 != self.incarnation {
            self.early = Resequencer::default();
            self.waiting = Waiting::default();
            self.seals.clear();
            self.was_lost = false;
        }
        self.early.start(age.1.next());
        self.waiting.forget_until(age.1);
        if let Some(proof) = proof {
            (self.seal, self.identity) = (Some(proof.seal), proof.identity);
            self.is_cut = proof.is_cut;
        }
        (self.incarnation, self.last) = age;
        self.heard = now;
        core::mem::replace(&mut self.state, state)
    }

    /// Returns the whole state in parts, with the names of groups. `proof` is the pieces of the
    /// proof that the state is the daemon's.
    pub(super) fn parts(&self, proof: Vec<P>) -> Vec<(Part, P)> {
        let proof = proof.into_iter().map(|piece| (Item::Proof, piece));
        let items = proof.chain(self.state.link_items());
        let groups = self.state.group_items(GroupId(0)..=GroupId(u32::MAX));
        let groups = groups.map(|(item, name)| (item, name.cloned().unwrap_or_default()));
        let items: Vec<_> = items.chain(groups).collect();
        let count = Item::Count {
            count: items.len() as u32,
            incarnation: self.incarnation,
        };
        let all = core::iter::once((count, P::default())).chain(items);
        let part = |((item, name), index)| {
            let part = Part {
                change: self.last,
                index,
                item,
            };
            (part, name)
        };
        all.zip(0..).map(part).collect()
    }
}

impl<P: Payload + Default> Measured for Record<P> {
    fn size(&self) -> Size {
        Size {
            changes: self.held(),
            bytes: self.state.bytes(),
        }
    }
}
