//! A daemon's knowledge of groups: their members at all daemons, announced changes, the numbers of
//! its clients' messages, and pauses.
//!
//! A daemon floods each change down its own tree. Paths are the same in both directions. When a
//! sender's daemon learns of a join, all daemons on the path to the new member have therefore
//! learnt of it, and all later messages of the sender reach the member. The sender's daemon
//! announces the first such message with a [`Welcome`]: when it learns of the join, or, if it has
//! not yet sent to the group, before its first message. The new member's daemon delivers nothing
//! before that message.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::controller::Site;
use crate::groups::Groups;
use crate::message::{Body, DaemonId, GroupId, Membership, Message, Pause, Welcome};
use crate::resequencer::Resequencer;
use crate::sequence::{ChangeSeq, OriginSeq, Sequence};
use crate::topology::Topology;

/// The memberships of all groups, as one daemon knows them.
#[derive(Debug)]
pub(super) struct Memberships {
    site: Site,
    /// The number of the last change that this daemon has announced.
    announced: ChangeSeq,
    /// Changes announced by other daemons. A later change may overtake an earlier one.
    changes: BTreeMap<DaemonId, Resequencer<ChangeSeq, Message>>,
    /// The number of the last message from this daemon's clients to each group with members.
    last_sent: BTreeMap<GroupId, OriginSeq>,
    /// The highest number that was sent to any group that has lost all its members since. The
    /// numbers of a new group start above it, so that no message still in the overlay has one of
    /// them.
    last_retired: OriginSeq,
    /// Groups whose senders must wait, with the daemons whose members they wait for.
    paused_groups: BTreeMap<GroupId, BTreeSet<DaemonId>>,
}

/// The consequences of a change of membership.
#[derive(Debug)]
pub(super) struct Applied {
    /// A welcome to forward, if any.
    pub(super) welcome: Option<Message>,
    /// Whether this daemon has lost its last member of the group.
    pub(super) lost_last_here: bool,
}

impl Memberships {
    pub(super) fn new(here: DaemonId, topology: Arc<Topology>) -> Memberships {
        Memberships {
            site: Site {
                here,
                topology,
                groups: Groups::default(),
            },
            announced: ChangeSeq(0),
            changes: BTreeMap::new(),
            last_sent: BTreeMap::new(),
            last_retired: OriginSeq(0),
            paused_groups: BTreeMap::new(),
        }
    }

    /// Returns the state that controllers and routing read.
    pub(super) fn site(&self) -> &Site {
        &self.site
    }

    /// Returns whether a daemon exists and is not this one.
    pub(super) fn is_other(&self, daemon: DaemonId) -> bool {
        usize::from(daemon.0) < self.site.topology.len() && daemon != self.site.here
    }

    /// Returns a message whose origin is this daemon.
    pub(super) fn message(&self, body: Body) -> Message {
        Message {
            origin: self.site.here,
            repaired: false,
            body,
        }
    }

    /// Numbers this daemon's next change and returns the message that announces it. The caller
    /// forwards the message and [applies](Memberships::apply_membership) it here.
    pub(super) fn announce(&mut self, body: impl FnOnce(ChangeSeq) -> Body) -> Message {
        self.announced = self.announced.next();
        self.message(body(self.announced))
    }

    /// Holds another daemon's change until its turn.
    pub(super) fn insert_change(&mut self, change: ChangeSeq, message: Message) {
        debug_assert!(self.is_other(message.origin), "own changes are in order");
        let changes = self.changes.entry(message.origin);
        changes
            .or_insert_with(|| Resequencer::starting_at(ChangeSeq(1)))
            .insert(change, message);
    }

    /// Returns the next change of a daemon in order, if it has arrived.
    pub(super) fn pop_change(&mut self, origin: DaemonId) -> Option<Message> {
        self.changes.get_mut(&origin)?.pop()
    }

    /// Applies the join or leave of a client at a daemon.
    pub(super) fn apply_membership(&mut self, at: DaemonId, change: &Membership) -> Applied {
        let group = change.group;
        let mut applied = Applied {
            welcome: None,
            lost_last_here: false,
        };
        if change.joined {
            let is_first = self.site.groups.join(group, at, change.change);
            if is_first && self.last_sent.contains_key(&group) {
                applied.welcome = self.welcome(group, at);
            }
        } else if self.site.groups.leave(group, at) {
            applied.lost_last_here = at == self.site.here;
            self.retire_numbers(group);
        }
        applied
    }

    /// Forgets the numbers of a group that has no members left.
    fn retire_numbers(&mut self, group: GroupId) {
        if !self.site.groups.has_members(group) {
            let last = self.last_sent.remove(&group).unwrap_or_default();
            self.last_retired = self.last_retired.max(last);
        }
    }

    /// Applies a pause of a daemon, or its end. Returns whether this lets the group's senders
    /// continue now.
    pub(super) fn apply_pause(&mut self, at: DaemonId, pause: &Pause) -> bool {
        let waiting_for = self.paused_groups.entry(pause.group).or_default();
        if pause.paused {
            waiting_for.insert(at);
            return false;
        }
        waiting_for.remove(&at);
        let is_resumed = waiting_for.is_empty();
        if is_resumed {
            self.paused_groups.remove(&pause.group);
        }
        is_resumed
    }

    /// Returns whether a group's senders must wait.
    pub(super) fn is_paused(&self, group: GroupId) -> bool {
        let waiting_for = self.paused_groups.get(&group);
        debug_assert!(
            waiting_for.is_none_or(|daemons| !daemons.is_empty()),
            "{group:?} is paused, but by no daemon"
        );
        waiting_for.is_some()
    }

    /// Returns the number of the next message from this daemon to a group.
    fn next_number(&self, group: GroupId) -> OriginSeq {
        let last = self.last_sent.get(&group).unwrap_or(&self.last_retired);
        last.next()
    }

    /// Assigns the next number to a message that enters at this daemon.
    pub(super) fn number_message(&mut self, group: GroupId) -> OriginSeq {
        let number = self.next_number(group);
        if self.site.groups.has_members(group) {
            self.last_sent.insert(group, number);
        }
        number
    }

    /// Returns welcomes for all daemons with members of a group, if this daemon is about to send
    /// its first message to the group.
    pub(super) fn welcomes(&self, group: GroupId) -> Vec<Message> {
        if self.last_sent.contains_key(&group) {
            return Vec::new();
        }
        let daemons = self.site.groups.daemons(group);
        daemons.filter_map(|to| self.welcome(group, to)).collect()
    }

    /// Returns a welcome that announces the next message to a daemon with members of a group.
    fn welcome(&self, group: GroupId, to: DaemonId) -> Option<Message> {
        let welcome = Welcome {
            to,
            group,
            change: self.site.groups.member_since(group, to)?,
            start: self.next_number(group),
        };
        Some(self.message(Body::Welcome(welcome)))
    }

    /// Returns whether a welcome is addressed to this daemon and to the members that it has now.
    pub(super) fn accepts_welcome(&self, welcome: &Welcome) -> bool {
        let here = self.site.here;
        let since = self.site.groups.member_since(welcome.group, here);
        welcome.to == here && since == Some(welcome.change)
    }

    /// Returns the number of groups for which messages are numbered.
    #[cfg(test)]
    pub(super) fn numbered_groups(&self) -> usize {
        self.last_sent.len()
    }

    /// Returns the number of the last message that was sent to a group with members.
    #[cfg(test)]
    pub(super) fn last_sent(&self, group: GroupId) -> OriginSeq {
        self.last_sent.get(&group).copied().unwrap_or_default()
    }

    /// Returns the number of entries for groups and for changes that wait for earlier ones.
    pub(super) fn state_size(&self) -> usize {
        let early = self.changes.values().map(Resequencer::held).sum::<usize>();
        self.site.groups.len() + self.last_sent.len() + self.paused_groups.len() + early
    }
}
