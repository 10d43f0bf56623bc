//! A daemon's knowledge of groups: the members that count at all daemons, the numbers of its
//! clients' messages, pauses, and names.
//!
//! In a fixed overlay, a daemon floods each change down its own tree. Paths are the same in both
//! directions. When a sender's daemon learns of a join, all daemons on the path to the new member
//! have therefore learnt of it, and all later messages of the sender reach the member. The sender's
//! daemon announces the first such message with a [`Welcome`]: when it learns of the join, or, if
//! it has not yet sent to the group, before its first message. The new member's daemon delivers
//! nothing before that message. In a living overlay, `retention.rs` sends welcomes at the same
//! moments, and repairs what they show to be missing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::controller::Site;
use crate::message::{Body, DaemonId, GroupId, Message, Welcome};
use crate::sequence::{ChangeSeq, OriginSeq, Sequence};
use crate::topology::Topology;

/// The number of earlier topologies whose trees messages may still follow.
const EARLIER_TOPOLOGIES: usize = 3;

/// A group that gained its first member at any daemon, or lost its last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interest<P> {
    /// The group's number.
    pub group: GroupId,
    /// The name that the first member's client gave the group.
    pub name: P,
    /// Whether the group has members now.
    pub has_members: bool,
}

/// The memberships of all groups, as one daemon knows them.
#[derive(Debug)]
pub(super) struct Memberships<P> {
    site: Site,
    /// The names of groups with members.
    names: BTreeMap<GroupId, P>,
    /// `None` in a fixed overlay, whose world asks for none.
    interests: Option<VecDeque<Interest<P>>>,
    /// The number of the last message from this daemon's clients to each group with members.
    last_sent: BTreeMap<GroupId, OriginSeq>,
    /// The highest number that was sent to any group that has lost all its members since. The
    /// numbers of a new group start above it, so that no message still in the overlay has one of
    /// them.
    last_retired: OriginSeq,
    /// Groups whose senders must wait, with the daemons whose members they wait for.
    paused_groups: BTreeMap<GroupId, BTreeSet<DaemonId>>,
    topology_version: u64,
}

impl<P: Clone + PartialEq> Memberships<P> {
    pub(super) fn new(here: DaemonId, topology: Arc<Topology>, is_fixed: bool) -> Memberships<P> {
        Memberships {
            site: Site::new(here, topology),
            names: BTreeMap::new(),
            interests: (!is_fixed).then(VecDeque::new),
            last_sent: BTreeMap::new(),
            last_retired: OriginSeq::new(0),
            paused_groups: BTreeMap::new(),
            topology_version: 0,
        }
    }

    /// Returns the state that controllers and routing read.
    pub(super) fn site(&self) -> &Site {
        &self.site
    }

    /// Returns a number that grows with each change of the topology.
    pub(super) fn topology_version(&self) -> u64 {
        self.topology_version
    }

    /// Replaces the topology. Returns `false` if it is the same.
    pub(super) fn set_topology(&mut self, topology: Topology) -> bool {
        if topology.is_same(&self.site.topology) {
            return false;
        }
        let version = topology.version();
        let last = core::mem::replace(&mut self.site.topology, Arc::new(topology));
        let earlier = &mut self.site.earlier;
        earlier.push_front(last);
        // A version must not be known twice: the topology may have come back, or another one may
        // have the same version by chance.
        earlier.retain(|known| known.version() != version);
        earlier.truncate(EARLIER_TOPOLOGIES);
        self.topology_version += 1;
        true
    }

    /// Returns whether a daemon exists and is not this one.
    pub(super) fn is_other(&self, daemon: DaemonId) -> bool {
        self.site.topology.contains(daemon) && daemon != self.site.here
    }

    /// Returns a message whose origin is this daemon.
    pub(super) fn message(&self, body: Body) -> Message {
        Message {
            origin: self.site.here,
            copy: Default::default(),
            body,
        }
    }

    /// Sets the number of a group's members at a daemon. Returns whether the group has another name
    /// already.
    pub(super) fn set_members(
        &mut self,
        at: DaemonId,
        group: GroupId,
        count: u32,
        since: ChangeSeq,
        name: &P,
    ) -> bool {
        let had_members = self.names.contains_key(&group);
        self.site.groups.set(group, at, count, since);
        if !self.site.groups.has_members(group) {
            self.retire(group);
            return false;
        }
        let known = self.names.entry(group).or_insert_with(|| name.clone());
        let clashes = count > 0 && known != name;
        if !had_members && let Some(interests) = &mut self.interests {
            interests.push_back(Interest {
                group,
                name: name.clone(),
                has_members: true,
            });
        }
        clashes
    }

    /// Forgets the name and the numbers of a group that has no members left.
    fn retire(&mut self, group: GroupId) {
        if let Some(name) = self.names.remove(&group)
            && let Some(interests) = &mut self.interests
        {
            interests.push_back(Interest {
                group,
                name,
                has_members: false,
            });
        }
        let last = self.last_sent.remove(&group).unwrap_or_default();
        self.last_retired = self.last_retired.max(last);
    }

    pub(super) fn pop_interest(&mut self) -> Option<Interest<P>> {
        self.interests.as_mut()?.pop_front()
    }

    /// Applies a pause of a daemon, or its end. Returns whether this lets the group's senders
    /// continue now.
    pub(super) fn set_paused(&mut self, at: DaemonId, group: GroupId, paused: bool) -> bool {
        let waiting_for = self.paused_groups.entry(group).or_default();
        if paused {
            waiting_for.insert(at);
            return false;
        }
        waiting_for.remove(&at);
        if waiting_for.is_empty() {
            self.paused_groups.remove(&group);
        }
        !self.is_paused(group)
    }

    /// Returns whether a group's senders must wait. A slow member at a daemon that cannot be
    /// reached delays nobody: it gets the messages of this time when the daemon is back.
    pub(super) fn is_paused(&self, group: GroupId) -> bool {
        let waiting_for = self.paused_groups.get(&group);
        debug_assert!(
            waiting_for.is_none_or(|daemons| !daemons.is_empty()),
            "{group:?} is paused, but by no daemon"
        );
        let mut daemons = waiting_for.into_iter().flatten();
        daemons.any(|daemon| self.site.topology.contains(*daemon))
    }

    /// Returns whether this daemon has sent to a group since the group gained its first member.
    pub(super) fn has_sent(&self, group: GroupId) -> bool {
        self.last_sent.contains_key(&group)
    }

    /// Returns the number of the next message from this daemon to a group.
    pub(super) fn next_number(&self, group: GroupId) -> OriginSeq {
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

    /// Returns a welcome that announces a group's messages from `start` on to a daemon with
    /// members.
    pub(super) fn welcome(
        &self,
        group: GroupId,
        to: DaemonId,
        start: OriginSeq,
    ) -> Option<Message> {
        let welcome = Welcome {
            to,
            version: self.site.topology.version(),
            group,
            change: self.site.groups.member_since(group, to)?,
            start,
            next: self.next_number(group),
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

    /// Returns the number of entries for groups.
    pub(super) fn state_size(&self) -> usize {
        self.site.groups.len() + self.last_sent.len() + self.paused_groups.len() + self.names.len()
    }
}
