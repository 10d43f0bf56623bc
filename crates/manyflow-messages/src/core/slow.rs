//! The clients that read their groups' messages too slowly.

use std::collections::BTreeMap;
use std::time::Duration;

use manyflow_core::Time;
use manyflow_overlay::{ClientId, GroupId, Verdict};

use crate::nats::interest::GroupName;
use crate::status::SlowVerdict;

/// The time for which a member counts as slow after it missed a message. A member that reads a
/// little too slowly misses a message now and then.
const DROPPED_SHOWN: Duration = Duration::from_secs(10);
/// The time for which a member is listed after its eviction.
const EVICTED_SHOWN: Duration = Duration::from_secs(300);

/// The members that are slow now, or were a short time ago.
#[derive(Debug, Default)]
pub(super) struct SlowMembers(BTreeMap<(GroupId, ClientId), SlowMember>);

/// A client that reads the messages of one group too slowly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlowMember {
    /// The group's name, which outlives the group here.
    pub(super) group: Option<GroupName>,
    pub(super) verdict: SlowVerdict,
    /// When this verdict was passed first.
    pub(super) since: Time,
    /// The number of messages that the member has missed since.
    pub(super) missed_messages: u64,
    /// When the latest event came.
    latest: Time,
}

impl SlowMembers {
    /// Handles a verdict on a member. Returns whether the member is new in the list, or its verdict
    /// is.
    pub(super) fn handle(
        &mut self,
        now: Time,
        key: (GroupId, ClientId),
        name: Option<&GroupName>,
        verdict: Verdict,
    ) -> bool {
        let verdict = match verdict {
            Verdict::Blocked => SlowVerdict::Blocks,
            Verdict::Dropped => SlowVerdict::Misses,
            Verdict::Evicted => SlowVerdict::Evicted,
            Verdict::Resumed => {
                // The senders of a group also resume when a member was evicted.
                let blocks = |member: &SlowMember| member.verdict == SlowVerdict::Blocks;
                if self.0.get(&key).is_some_and(blocks) {
                    self.0.remove(&key);
                }
                return false;
            }
        };
        let missed_messages = u64::from(verdict == SlowVerdict::Misses);
        if let Some(member) = self.0.get_mut(&key)
            && member.verdict == verdict
        {
            member.latest = now;
            member.missed_messages += missed_messages;
            return false;
        }
        let member = SlowMember {
            group: name.cloned(),
            verdict,
            since: now,
            missed_messages,
            latest: now,
        };
        self.0.insert(key, member);
        true
    }

    /// Removes a client that has disconnected.
    pub(super) fn remove_client(&mut self, client: ClientId) {
        self.0.retain(|(_, other), _| *other != client);
    }

    /// Removes a member that has left its group.
    pub(super) fn remove(&mut self, group: GroupId, client: ClientId) {
        self.0.remove(&(group, client));
    }

    /// Removes members that are no longer slow.
    pub(super) fn expire(&mut self, now: Time) {
        self.0.retain(|_, member| {
            let age = now - member.latest;
            match member.verdict {
                SlowVerdict::Blocks => true,
                SlowVerdict::Misses => age < DROPPED_SHOWN,
                SlowVerdict::Evicted => age < EVICTED_SHOWN,
            }
        });
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns all slow members by group and client.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ClientId, &SlowMember)> {
        let members = self.0.iter();
        members.map(|((_, client), member)| (*client, member))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: (GroupId, ClientId) = (GroupId(5), ClientId(1));

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn listed(members: &SlowMembers) -> Vec<(SlowVerdict, Time, u64)> {
        let listed = members.iter();
        listed
            .map(|(_, member)| (member.verdict, member.since, member.missed_messages))
            .collect()
    }

    #[test]
    fn a_member_that_blocks_its_group_is_listed_until_it_has_caught_up() {
        let mut members = SlowMembers::default();
        assert!(members.handle(at(1), KEY, None, Verdict::Blocked));
        assert!(!members.handle(at(2), KEY, None, Verdict::Blocked));
        members.expire(at(10_000));
        assert_eq!(listed(&members), [(SlowVerdict::Blocks, at(1), 0)]);
        members.handle(at(10_001), KEY, None, Verdict::Resumed);
        assert_eq!(listed(&members), []);
    }

    #[test]
    fn a_member_that_misses_messages_is_listed_until_it_has_missed_none_for_ten_seconds() {
        let mut members = SlowMembers::default();
        for second in 1..=3 {
            members.handle(at(second), KEY, None, Verdict::Dropped);
        }
        members.expire(at(12));
        assert_eq!(listed(&members), [(SlowVerdict::Misses, at(1), 3)]);
        members.expire(at(13));
        assert_eq!(listed(&members), []);
    }

    #[test]
    fn an_eviction_replaces_the_verdict_before_it() {
        let mut members = SlowMembers::default();
        members.handle(at(1), KEY, None, Verdict::Blocked);
        assert!(members.handle(at(11), KEY, None, Verdict::Evicted));
        assert_eq!(listed(&members), [(SlowVerdict::Evicted, at(11), 0)]);
        members.handle(at(11), KEY, None, Verdict::Resumed);
        assert_eq!(members.len(), 1);
        members.remove_client(KEY.1);
        assert_eq!(listed(&members), []);
    }
}
