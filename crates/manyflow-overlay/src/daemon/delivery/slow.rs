//! Members that read more slowly than their groups' messages arrive.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::SlowPolicy;
use crate::message::{ClientId, GroupId};
use manyflow_core::time::Time;

/// The longest pause for one member under [`SlowPolicy::EvictStalled`], as a multiple of the time
/// in which it must take a message.
const PAUSE_MAX: u32 = 6;

/// The slow members of this daemon.
#[derive(Debug, Default)]
pub(super) struct SlowMembers {
    /// Members for whom the senders of their groups wait, and since when. No map is empty.
    by_group: BTreeMap<GroupId, BTreeMap<ClientId, Time>>,
    /// The times at which members are evicted unless they catch up.
    deadlines: BTreeSet<(Time, GroupId, ClientId)>,
}

/// The state of a slow member when [`SlowMembers::insert`] was called.
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
    /// Records that a group's senders must wait for a member. Under [`SlowPolicy::Evict`] and
    /// [`SlowPolicy::EvictStalled`], sets the member's deadline.
    pub(super) fn insert(
        &mut self,
        now: Time,
        group: GroupId,
        client: ClientId,
        policy: SlowPolicy,
    ) -> Slow {
        let members = self.by_group.entry(group).or_default();
        let is_first = members.is_empty();
        if members.contains_key(&client) {
            return Slow::Still;
        }
        members.insert(client, now);
        if let SlowPolicy::Evict(patience) | SlowPolicy::EvictStalled(patience) = policy
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
        members.is_some_and(|members| members.contains_key(&client))
    }

    /// Records that a group's senders no longer need to wait for a member. Returns whether it was
    /// the last for whom they waited.
    pub(super) fn remove(&mut self, group: GroupId, client: ClientId) -> bool {
        let Some(members) = self.by_group.get_mut(&group) else {
            return false;
        };
        let was_last = members.remove(&client).is_some() && members.is_empty();
        if was_last {
            self.by_group.remove(&group);
        }
        was_last
    }

    /// Returns the groups whose senders wait for a client.
    pub(super) fn groups_of(&self, client: ClientId) -> Vec<GroupId> {
        let groups = self.by_group.iter();
        let groups = groups.filter(|(_, members)| members.contains_key(&client));
        groups.map(|(group, _)| *group).collect()
    }

    /// Drops all deadlines of a client that has caught up.
    pub(super) fn forget_deadlines(&mut self, client: ClientId) {
        self.deadlines.retain(|(.., who)| *who != client);
    }

    /// Moves the deadlines of a client that has taken messages, in groups whose policy is
    /// [`SlowPolicy::EvictStalled`]. Not beyond the longest pause: a member could take a message
    /// now and then, and stop its group.
    pub(super) fn restart_deadlines(
        &mut self,
        now: Time,
        client: ClientId,
        policy: impl Fn(GroupId) -> SlowPolicy,
    ) {
        let own = self.deadlines.iter().filter(|(.., who)| *who == client);
        let moved: Vec<_> = own
            .filter_map(|&(time, group, _)| match policy(group) {
                SlowPolicy::EvictStalled(patience) => {
                    let since = self.by_group.get(&group).and_then(|of| of.get(&client));
                    let last = since.map(|since| *since + PAUSE_MAX * patience);
                    let later = now + patience;
                    Some((time, group, last.map_or(later, |last| last.min(later))))
                }
                _ => None,
            })
            .collect();
        for (time, group, later) in moved {
            self.deadlines.remove(&(time, group, client));
            self.deadlines.insert((later, group, client));
        }
    }

    /// Drops the deadline of a client that leaves a group.
    pub(super) fn forget_deadline(&mut self, group: GroupId, client: ClientId) {
        self.deadlines
            .retain(|(_, of, who)| (*of, *who) != (group, client));
    }

    /// Returns the next member whose deadline has passed.
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

    /// Returns the number of groups with slow members plus the number of deadlines.
    pub(super) fn state_size(&self) -> usize {
        debug_assert!(
            self.by_group.values().all(|members| !members.is_empty()),
            "a group's senders wait for nobody"
        );
        self.by_group.len() + self.deadlines.len()
    }
}
