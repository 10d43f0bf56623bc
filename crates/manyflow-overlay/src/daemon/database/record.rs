//! A daemon's state as another daemon knows it.

use std::collections::{BTreeMap, BTreeSet};

use crate::message::{Change, DaemonId, GroupId, Item, Part, Summary};
use crate::resequencer::Resequencer;
use crate::sequence::{ChangeSeq, Sequence};
use manyflow_core::time::Time;

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
pub(in crate::daemon) struct State<P> {
    pub(in crate::daemon) members: BTreeMap<GroupId, Members<P>>,
    pub(in crate::daemon) paused: BTreeSet<GroupId>,
    pub(super) links: BTreeMap<DaemonId, LinkEnd>,
}

impl<P> Default for State<P> {
    fn default() -> State<P> {
        State {
            members: BTreeMap::new(),
            paused: BTreeSet::new(),
            links: BTreeMap::new(),
        }
    }
}

impl<P: Clone + Default> State<P> {
    /// Applies an item. Ignores links beyond the maximum number of `neighbours`.
    pub(super) fn apply(&mut self, item: Item, name: P, neighbours: usize) {
        match item {
            Item::Members {
                group,
                members: count,
                since,
            } => {
                if count == 0 {
                    self.members.remove(&group);
                } else {
                    self.members.insert(group, Members { count, since, name });
                }
            }
            Item::Paused { group, paused } => {
                if paused {
                    self.paused.insert(group);
                } else {
                    self.paused.remove(&group);
                }
            }
            Item::Link { to, weight, since } => {
                if weight == 0 {
                    self.links.remove(&to);
                } else if self.links.len() < neighbours || self.links.contains_key(&to) {
                    self.links.insert(to, LinkEnd { weight, since });
                }
            }
            Item::Alive | Item::Count { .. } => {}
        }
    }

    /// Returns the items that make up the state, with the names of groups.
    fn items(&self) -> impl Iterator<Item = (Item, P)> {
        let links = self.links.iter().map(|(&to, end)| {
            let LinkEnd { weight, since } = *end;
            (Item::Link { to, weight, since }, P::default())
        });
        let members = self.members.iter().map(|(&group, members)| {
            let item = Item::Members {
                group,
                members: members.count,
                since: members.since,
            };
            (item, members.name.clone())
        });
        let paused = self.paused.iter().map(|&group| {
            let paused = true;
            (Item::Paused { group, paused }, P::default())
        });
        links.chain(members).chain(paused)
    }
}

/// The last known state of a daemon.
#[derive(Debug)]
pub(super) struct Record<P> {
    pub(super) incarnation: u32,
    pub(super) last: ChangeSeq,
    /// Changes that follow the last one. A later change may overtake an earlier one.
    early: Resequencer<ChangeSeq, (Item, P)>,
    pub(super) state: State<P>,
    /// The time of the last change.
    pub(super) heard: Time,
    /// Whether the daemon's members count: it is reachable, or was until recently.
    pub(super) is_shown: bool,
    /// The time at which the members of an unreachable daemon no longer count.
    pub(super) held_until: Option<Time>,
}

impl<P: Clone + Default> Record<P> {
    pub(super) fn new(now: Time, incarnation: u32, is_shown: bool) -> Record<P> {
        Record {
            incarnation,
            last: ChangeSeq(0),
            early: Resequencer::starting_at(ChangeSeq(1)),
            state: State::default(),
            heard: now,
            is_shown,
            held_until: None,
        }
    }

    /// Returns the incarnation and its last change. Of two states of a daemon, the one with the
    /// higher pair is newer.
    pub(super) fn age(&self) -> (u32, ChangeSeq) {
        (self.incarnation, self.last)
    }

    pub(super) fn summary(&self) -> Summary {
        Summary {
            incarnation: self.incarnation,
            change: self.last,
        }
    }

    /// Holds a change of this incarnation until its turn.
    pub(super) fn insert(&mut self, change: ChangeSeq, item: Item, name: P) {
        self.early.insert(change, (item, name));
    }

    /// Returns the number of changes that wait for earlier ones.
    pub(super) fn held(&self) -> usize {
        self.early.held()
    }

    /// Applies and returns the next change in order, if it has arrived.
    pub(super) fn pop(&mut self, now: Time, neighbours: usize) -> Option<(Change, P)> {
        let (item, name) = self.early.pop()?;
        self.last = self.last.next();
        self.heard = now;
        self.state.apply(item, name.clone(), neighbours);
        let change = Change {
            incarnation: self.incarnation,
            change: self.last,
            item,
        };
        Some((change, name))
    }

    /// Replaces the whole state by a newer one, and returns the old one.
    pub(super) fn replace(
        &mut self,
        now: Time,
        age: (u32, ChangeSeq),
        state: State<P>,
    ) -> State<P> {
        debug_assert!(
            age > self.age(),
            "{age:?} is not newer than {:?}",
            self.age()
        );
        if age.0 != self.incarnation {
            self.early = Resequencer::default();
        }
        self.early.start(age.1.next());
        (self.incarnation, self.last) = age;
        self.heard = now;
        core::mem::replace(&mut self.state, state)
    }

    /// Returns the whole state in parts, with the names of groups.
    pub(super) fn parts(&self) -> Vec<(Part, P)> {
        let items: Vec<_> = self.state.items().collect();
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
