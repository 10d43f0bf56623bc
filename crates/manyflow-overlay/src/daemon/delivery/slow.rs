//! Members that read more slowly than their groups' messages arrive.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::SlowPolicy;
use crate::message::{ClientId, GroupId};
use manyflow_core::time::Time;

/// The slow members of this daemon.
#[derive(Debug, Default)]
pub(super) struct SlowMembers {
    /// Members that their groups' senders wait for. No set is empty.
    by_group: BTreeMap<GroupId, BTreeSet<ClientId>>,
    /// When members that have not caught up are evicted.
    deadlines: BTreeSet<(Time, GroupId, ClientId)>,
}

/// How a member became slow.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Slow {
    /// The member was slow already.
    Still,
    /// The member is newly slow; its group's senders wait for another member already.
    New,
    /// The member is newly slow and the first of its group: the senders must wait from now on.
    First,
}

impl SlowMembers {
    /// Notes that a group's senders must wait for a member, and under [`SlowPolicy::Evict`] for how
    /// long.
    pub(super) fn insert(
        &mut self,
        now: Time,
        group: GroupId,
        client: ClientId,
        policy: SlowPolicy,
    ) -> Slow {
        let members = self.by_group.entry(group).or_default();
        let is_first = members.is_empty();
        if !members.insert(client) {
            return Slow::Still;
        }
        if let SlowPolicy::Evict(patience) = policy
            && !self.has_deadline(group, client)
        {
            self.deadlines.insert((now + patience, group, client));
        }
        if is_first { Slow::First } else { Slow::New }
    }

    fn has_deadline(&self, group: GroupId, client: ClientId) -> bool {
        let mut deadlines = self.deadlines.iter();
        deadlines.any(|(_, of, who)| (*of, *who) == (group, client))
    }

    pub(super) fn contains(&self, group: GroupId, client: ClientId) -> bool {
        let members = self.by_group.get(&group);
        members.is_some_and(|members| members.contains(&client))
    }

    /// Notes that a group's senders need not wait for a member any longer; returns whether it was
    /// the last that they waited for.
    pub(super) fn remove(&mut self, group: GroupId, client: ClientId) -> bool {
        let Some(members) = self.by_group.get_mut(&group) else {
            return false;
        };
        let was_last = members.remove(&client) && members.is_empty();
        if was_last {
            self.by_group.remove(&group);
        }
        was_last
    }

    /// The groups whose senders wait for a client.
    pub(super) fn groups_of(&self, client: ClientId) -> Vec<GroupId> {
        let groups = self.by_group.iter();
        let groups = groups.filter(|(_, members)| members.contains(&client));
        groups.map(|(group, _)| *group).collect()
    }

    /// Drops all deadlines of a client, which has caught up.
    pub(super) fn forget_deadlines(&mut self, client: ClientId) {
        self.deadlines.retain(|(.., who)| *who != client);
    }

    /// Drops the deadline of a client that leaves a group.
    pub(super) fn forget_deadline(&mut self, group: GroupId, client: ClientId) {
        self.deadlines
            .retain(|(_, of, who)| (*of, *who) != (group, client));
    }

    /// The next member whose deadline has passed.
    pub(super) fn pop_overdue(&mut self, now: Time) -> Option<(GroupId, ClientId)> {
        let &(time, group, client) = self.deadlines.first()?;
        if time > now {
            return None;
        }
        self.deadlines.pop_first();
        Some((group, client))
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.deadlines.first().map(|(time, ..)| *time)
    }

    /// Entries kept for groups with slow members, and deadlines.
    pub(super) fn state_size(&self) -> usize {
        debug_assert!(
            self.by_group.values().all(|members| !members.is_empty()),
            "a group's senders wait for nobody"
        );
        self.by_group.len() + self.deadlines.len()
    }
}
