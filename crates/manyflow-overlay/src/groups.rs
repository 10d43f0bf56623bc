//! The members of each group at each daemon, as one daemon knows them.

use std::collections::BTreeMap;

use super::message::{DaemonId, GroupId};
use super::sequence::ChangeSeq;

/// The number of members of each group at each daemon. Its size does not depend on the number of
/// senders.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    /// One map for all groups. With many small groups, a map for each group would take several
    /// times the memory.
    members: BTreeMap<(GroupId, DaemonId), Members>,
    version: u64,
}

/// A group's members at one daemon; there is at least one.
#[derive(Copy, Clone, Debug)]
struct Members {
    count: u32,
    /// The daemon's change by which it gained its first member of the group.
    since: ChangeSeq,
}

impl Groups {
    /// Sets the number of a group's members at a daemon. `since` is the daemon's change by which it
    /// gained the first of them.
    pub fn set(&mut self, group: GroupId, at: DaemonId, count: u32, since: ChangeSeq) {
        if count == 0 {
            self.members.remove(&(group, at));
        } else {
            self.members.insert((group, at), Members { count, since });
        }
        self.version += 1;
    }

    /// Returns a number that grows with each change of any group.
    pub fn version(&self) -> u64 {
        self.version
    }

    fn of(&self, group: GroupId) -> impl Iterator<Item = (DaemonId, Members)> {
        let all = (group, DaemonId(0))..=(group, DaemonId(u16::MAX));
        let members = self.members.range(all);
        members.map(|(&(_, daemon), &members)| (daemon, members))
    }

    /// Returns the daemons with members of a group, in ascending order.
    pub fn daemons(&self, group: GroupId) -> impl Iterator<Item = DaemonId> {
        self.of(group).map(|(daemon, _)| daemon)
    }

    /// Returns whether a group has a member at any daemon.
    pub fn has_members(&self, group: GroupId) -> bool {
        self.of(group).next().is_some()
    }

    /// Returns the number of pairs of a group and a daemon with members of it.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns whether no group has a member.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns whether a daemon has a member of a group.
    pub fn has_member_at(&self, group: GroupId, daemon: DaemonId) -> bool {
        self.members.contains_key(&(group, daemon))
    }

    /// Returns the change by which a daemon gained its first member of a group, if it has members.
    pub fn member_since(&self, group: GroupId, daemon: DaemonId) -> Option<ChangeSeq> {
        let members = self.members.get(&(group, daemon))?;
        Some(members.since)
    }

    /// Returns the daemons with members of a group, in ascending order, and the number of members
    /// at each of them.
    pub fn counts(&self, group: GroupId) -> impl Iterator<Item = (DaemonId, u32)> {
        self.of(group)
            .map(|(daemon, members)| (daemon, members.count))
    }

    /// Returns the number of a group's members at all daemons.
    pub fn members(&self, group: GroupId) -> u32 {
        // The sum of counts that other daemons announce may exceed the range.
        let counts = self.of(group).map(|(_, members)| members.count);
        counts.fold(0, u32::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: GroupId = GroupId(1);
    const B: GroupId = GroupId(2);

    #[test]
    fn members_are_counted_for_each_group_and_daemon() {
        let mut groups = Groups::default();
        groups.set(A, DaemonId(3), 1, ChangeSeq(5));
        groups.set(A, DaemonId(3), 2, ChangeSeq(5));
        groups.set(B, DaemonId(3), 1, ChangeSeq(7));
        assert_eq!(groups.member_since(A, DaemonId(3)), Some(ChangeSeq(5)));
        assert_eq!((groups.members(A), groups.members(B)), (2, 1));
        groups.set(A, DaemonId(3), 0, ChangeSeq(5));
        assert_eq!((groups.members(A), groups.members(B)), (0, 1));
        assert_eq!(groups.version(), 4);
    }

    #[test]
    fn announced_counts_do_not_overflow() {
        let mut groups = Groups::default();
        for daemon in 0..3 {
            groups.set(A, DaemonId(daemon), u32::MAX, ChangeSeq(1));
        }
        assert_eq!(groups.members(A), u32::MAX);
    }

    #[test]
    fn daemons_lists_only_the_members_of_its_group() {
        let mut groups = Groups::default();
        for (group, daemon) in [(A, 9), (B, 1), (A, 2), (A, u16::MAX), (B, 9)] {
            groups.set(group, DaemonId(daemon), 1, ChangeSeq(1));
        }
        let daemons: Vec<_> = groups.daemons(A).map(|daemon| daemon.0).collect();
        assert_eq!(daemons, [2, 9, u16::MAX]);
    }
}
