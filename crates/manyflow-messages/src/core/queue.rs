//! Queue groups: each message goes to one of the members.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};

use bytes::Bytes;
use manyflow_overlay::ClientId;

use super::SessionKey;
use crate::fragment::Partial;
use crate::nats::interest::GroupName;

/// A subscription of a session.
type Member = (SessionKey, Bytes);

/// The members of a queue group at this daemon.
#[derive(Debug)]
pub(super) struct QueueGroup {
    /// The client of the overlay that stands for the members.
    pub(super) client: ClientId,
    pub(super) name: GroupName,
    members: BTreeSet<Member>,
    /// The member that had the last message.
    last: Member,
    /// Messages whose fragments have not all arrived.
    pub(super) partial: VecDeque<Partial>,
}

impl QueueGroup {
    /// Returns a queue group without members.
    pub(super) fn new(client: ClientId, name: GroupName) -> QueueGroup {
        QueueGroup {
            client,
            name,
            members: BTreeSet::new(),
            last: (0, Bytes::new()),
            partial: VecDeque::new(),
        }
    }

    /// Adds a subscription of a session.
    pub(super) fn add(&mut self, session: SessionKey, sid: Bytes) {
        self.members.insert((session, sid));
    }

    /// Removes a subscription of a session. Returns whether no member remains.
    pub(super) fn remove(&mut self, session: SessionKey, sid: &[u8]) -> bool {
        self.members.remove(&(session, Bytes::copy_from_slice(sid)));
        self.members.is_empty()
    }

    /// Returns all members.
    pub(super) fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.iter()
    }

    /// Returns the number of members.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.members.len()).unwrap_or(u32::MAX)
    }

    /// Returns the ready member whose turn is next, or the next member if none is ready. Only
    /// members that `is_for` accepts have turns; returns `None` if it accepts no member.
    /// [`handed_over`](QueueGroup::handed_over) ends its turn.
    pub(super) fn next(
        &self,
        is_for: impl Fn(SessionKey) -> bool,
        is_ready: impl Fn(SessionKey) -> bool,
    ) -> Option<Member> {
        let later = self.members.range((Excluded(&self.last), Unbounded));
        let turns = later.chain(self.members.iter()).take(self.members.len());
        let mut turns = turns.filter(|(session, _)| is_for(*session));
        let first = turns.next()?;
        let mut ready = core::iter::once(first).chain(turns);
        let ready = ready.find(|(session, _)| is_ready(*session));
        Some(ready.unwrap_or(first).clone())
    }

    /// Notes that a member has had a message.
    pub(super) fn handed_over(&mut self, to: Member) {
        self.last = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> QueueGroup {
        let name = GroupName {
            pattern: Bytes::from_static(b"work"),
            queue: None,
        };
        QueueGroup::new(ClientId(1), name)
    }

    fn turns(queue: &mut QueueGroup, count: usize, slow: SessionKey) -> Vec<SessionKey> {
        let turn = |_| {
            let next = queue.next(|_| true, |session| session != slow).unwrap();
            queue.handed_over(next.clone());
            next.0
        };
        (0..count).map(turn).collect()
    }

    #[test]
    fn ready_members_take_turns() {
        let mut queue = queue();
        assert!(queue.next(|_| true, |_| true).is_none());
        for session in [4, 2, 9] {
            queue.add(session, Bytes::from_static(b"1"));
        }
        assert_eq!(turns(&mut queue, 5, 0), [2, 4, 9, 2, 4]);
        assert_eq!(turns(&mut queue, 4, 9), [2, 4, 2, 4]);
    }

    #[test]
    fn members_that_a_message_is_not_for_have_no_turn() {
        let mut queue = queue();
        for session in [2, 4] {
            queue.add(session, Bytes::from_static(b"1"));
        }
        let next = |own| queue.next(|session| session != own, |session| session == own);
        assert_eq!(next(2).unwrap().0, 4, "also if it is not ready");
        assert!(queue.next(|_| false, |_| true).is_none());
    }

    #[test]
    fn a_member_that_is_not_ready_gets_messages_if_it_is_alone() {
        let mut queue = queue();
        queue.add(3, Bytes::from_static(b"1"));
        assert_eq!(turns(&mut queue, 2, 3), [3, 3]);
        assert!(queue.remove(3, b"1"));
    }
}
