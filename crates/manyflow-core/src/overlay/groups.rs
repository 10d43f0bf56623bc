//! Who is a member of which group, as a daemon has heard it.

use std::collections::BTreeMap;

use super::message::{DaemonId, GroupId};

/// Each group's members, by their daemons. It does not grow with senders.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    members: BTreeMap<GroupId, BTreeMap<DaemonId, Members>>,
}

/// A group's members at one daemon.
#[derive(Copy, Clone, Debug)]
struct Members {
    count: u32,
    /// The number of the daemon's change by which it got the first of them.
    since: u32,
}

impl Groups {
    /// A client at a daemon joins, by the daemon's change of this number; returns whether it is the daemon's first member.
    pub fn join(&mut self, group: GroupId, at: DaemonId, change: u32) -> bool {
        let daemons = self.members.entry(group).or_default();
        let none = Members {
            count: 0,
            since: change,
        };
        let members = daemons.entry(at).or_insert(none);
        members.count += 1;
        members.count == 1
    }

    /// A client at a daemon leaves; returns whether it was the daemon's last member.
    pub fn leave(&mut self, group: GroupId, at: DaemonId) -> bool {
        let Some(daemons) = self.members.get_mut(&group) else {
            return false;
        };
        let Some(members) = daemons.get_mut(&at) else {
            return false;
        };
        members.count -= 1;
        if members.count > 0 {
            return false;
        }
        daemons.remove(&at);
        if daemons.is_empty() {
            self.members.remove(&group);
        }
        true
    }

    /// The daemons with members of a group, in order.
    pub fn daemons(&self, group: GroupId) -> impl Iterator<Item = DaemonId> {
        self.members
            .get(&group)
            .into_iter()
            .flat_map(|daemons| daemons.keys().copied())
    }

    /// Whether a group has a member anywhere.
    pub fn has_members(&self, group: GroupId) -> bool {
        self.members.contains_key(&group)
    }

    /// How many groups have members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether no group has a member.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether a daemon has a member.
    pub fn has_member_at(&self, group: GroupId, daemon: DaemonId) -> bool {
        self.members
            .get(&group)
            .is_some_and(|daemons| daemons.contains_key(&daemon))
    }

    /// The number of the change by which a daemon got its first member, if it has one.
    pub fn member_since(&self, group: GroupId, daemon: DaemonId) -> Option<u32> {
        Some(self.members.get(&group)?.get(&daemon)?.since)
    }

    /// A group's members, anywhere.
    pub fn members(&self, group: GroupId) -> u32 {
        self.members
            .get(&group)
            .map_or(0, |daemons| daemons.values().map(|at| at.count).sum())
    }
}
