//! Who is a member of which group, as a daemon has heard it.

use std::collections::BTreeMap;

use super::message::{DaemonId, GroupId};

/// Each group's members, by their daemons. It does not grow with senders.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    members: BTreeMap<(GroupId, DaemonId), Members>,
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
        let none = Members {
            count: 0,
            since: change,
        };
        let members = self.members.entry((group, at)).or_insert(none);
        members.count += 1;
        members.count == 1
    }

    /// A client at a daemon leaves; returns whether it was the daemon's last member.
    pub fn leave(&mut self, group: GroupId, at: DaemonId) -> bool {
        let Some(members) = self.members.get_mut(&(group, at)) else {
            return false;
        };
        members.count -= 1;
        if members.count > 0 {
            return false;
        }
        self.members.remove(&(group, at));
        true
    }

    /// A group's daemons, in order, each with its members.
    fn of(&self, group: GroupId) -> impl Iterator<Item = (DaemonId, &Members)> {
        let all = (group, DaemonId(0))..=(group, DaemonId(u16::MAX));
        let members = self.members.range(all);
        members.map(|((_, daemon), members)| (*daemon, members))
    }

    /// The daemons with members of a group, in order.
    pub fn daemons(&self, group: GroupId) -> impl Iterator<Item = DaemonId> {
        self.of(group).map(|(daemon, _)| daemon)
    }

    /// Whether a daemon has a member.
    pub fn has_member_at(&self, group: GroupId, daemon: DaemonId) -> bool {
        self.members.contains_key(&(group, daemon))
    }

    /// The number of the change by which a daemon got its first member, if it has one.
    pub fn member_since(&self, group: GroupId, daemon: DaemonId) -> Option<u32> {
        Some(self.members.get(&(group, daemon))?.since)
    }

    /// A group's members, anywhere.
    pub fn members(&self, group: GroupId) -> u32 {
        self.of(group).map(|(_, members)| members.count).sum()
    }
}
