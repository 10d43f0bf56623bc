//! The delivery of messages to a daemon's clients: order, inboxes, and slow members.
//!
//! ```text
//!   insert -> Resequencer (for each origin and group) -> pop_in_order
//!          -> deliver -> Inbox (for each member) -> Deliver frames, 64 unread ones at most
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `mod.rs` | [`Delivery`]: the interface to the daemon; members and order |
//! | `inbox.rs` | the messages of one client |
//! | `slow.rs` | slow members and their deadlines |
//!
//! **Slow members.** Messages for which a client's window has no room wait in its inbox. If
//! [`OverlayConfig::client_messages`] already wait when another arrives, the [policy](SlowPolicy)
//! of the group decides. To make senders wait, the daemon floods a [`Pause`](crate::Pause) that
//! concerns only this group; closed links would delay all groups. Messages already in the overlay
//! are still accepted.

mod inbox;
mod slow;

use std::collections::{BTreeMap, BTreeSet};

use super::outbox::Outbox;
use crate::Event;
use crate::config::{OverlayConfig, SlowPolicy, Verdict};
use crate::message::{ClientFrame, ClientId, DaemonId, Data, GroupId};
use crate::resequencer::Resequencer;
use crate::sequence::OriginSeq;
use inbox::Inbox;
use manyflow_core::Payload;
use manyflow_core::time::Time;
use slow::{Slow, SlowMembers};

/// The members of groups at this daemon, and the messages for them.
#[derive(Debug)]
pub(super) struct Delivery<P> {
    config: OverlayConfig,
    /// The members of each group at this daemon. One set for all groups: with many small groups, a
    /// list for each would take several times the memory.
    members: BTreeSet<(GroupId, ClientId)>,
    /// The same by client: when thousands of clients leave at once, none of them may take the time
    /// of all members.
    groups: BTreeSet<(ClientId, GroupId)>,
    /// The number of further members for which members stand. No map is empty, and no number zero.
    represented: BTreeMap<GroupId, BTreeMap<ClientId, u32>>,
    /// Other daemons' messages to groups with members here, in the order of their origins.
    flows: BTreeMap<(GroupId, DaemonId), Flow<P>>,
    /// The inbox of each connected client.
    inboxes: BTreeMap<ClientId, Inbox<P>>,
    slow: SlowMembers,
}

/// The messages of one origin to one group.
#[derive(Debug)]
struct Flow<P> {
    order: Resequencer<OriginSeq, (Data, bool, P)>,
    /// Whether messages were released that are not acknowledged.
    owes_receipt: bool,
}

impl<P> Default for Flow<P> {
    fn default() -> Flow<P> {
        Flow {
            order: Resequencer::default(),
            owes_receipt: false,
        }
    }
}

impl<P: Payload + Default> Delivery<P> {
    pub(super) fn new(config: OverlayConfig) -> Delivery<P> {
        Delivery {
            config,
            members: BTreeSet::new(),
            groups: BTreeSet::new(),
            represented: BTreeMap::new(),
            flows: BTreeMap::new(),
            inboxes: BTreeMap::new(),
            slow: SlowMembers::default(),
        }
    }

    pub(super) fn connect(&mut self, client: ClientId) {
        self.inboxes.insert(client, Inbox::default());
    }

    /// Drops a client's messages. The client remains a member of its groups until it
    /// [leaves](Delivery::leave) them.
    pub(super) fn disconnect(&mut self, client: ClientId) {
        self.inboxes.remove(&client);
    }

    /// Adds a member. Returns whether it is new.
    pub(super) fn join(&mut self, group: GroupId, client: ClientId) -> bool {
        debug_assert!(self.inboxes.contains_key(&client), "{client:?} is unknown");
        self.groups.insert((client, group));
        self.members.insert((group, client))
    }

    /// Removes a member and its deadline. Returns whether there was such a member. Senders that
    /// wait for it continue to wait until [`resume_senders`](Delivery::resume_senders).
    pub(super) fn leave(&mut self, group: GroupId, client: ClientId) -> bool {
        if !self.members.remove(&(group, client)) {
            return false;
        }
        self.groups.remove(&(client, group));
        self.slow.forget_deadline(group, client);
        self.forget_represented(group, client);
        true
    }

    /// Sets the number of members for which a member stands, at least 1. Returns whether it has
    /// changed.
    pub(super) fn set_represented(&mut self, group: GroupId, client: ClientId, count: u32) -> bool {
        if !self.members.contains(&(group, client)) {
            return false;
        }
        let further = count - 1;
        let known = self.represented.get(&group);
        let before = known.and_then(|known| known.get(&client)).copied();
        if before.unwrap_or(0) == further {
            return false;
        }
        match further {
            0 => self.forget_represented(group, client),
            _ => {
                let of_group = self.represented.entry(group).or_default();
                of_group.insert(client, further);
            }
        }
        true
    }

    fn forget_represented(&mut self, group: GroupId, client: ClientId) {
        if let Some(of_group) = self.represented.get_mut(&group) {
            of_group.remove(&client);
            if of_group.is_empty() {
                self.represented.remove(&group);
            }
        }
    }

    /// Returns the groups of a client.
    pub(super) fn groups_of(&self, client: ClientId) -> Vec<GroupId> {
        let all = (client, GroupId(0))..=(client, GroupId(u32::MAX));
        self.groups.range(all).map(|(_, group)| *group).collect()
    }

    pub(super) fn has_members(&self, group: GroupId) -> bool {
        members_of(&self.members, group).next().is_some()
    }

    /// Holds another daemon's message until its turn.
    pub(super) fn insert(&mut self, origin: DaemonId, data: Data, layered: bool, payload: P) {
        debug_assert!(
            self.has_members(data.group),
            "a daemon without members keeps no flows"
        );
        let flow = self.flows.entry((data.group, origin)).or_default();
        flow.order.insert(data.sequence, (data, layered, payload));
    }

    /// Starts an origin's flow to a group: all its messages from `start` on arrive here.
    pub(super) fn start_flow(&mut self, group: GroupId, origin: DaemonId, start: OriginSeq) {
        let flow = self.flows.entry((group, origin)).or_default();
        flow.order.start(start);
    }

    /// Returns the number of the next message of an origin to a group, if its flow has started.
    pub(super) fn expected(&self, group: GroupId, origin: DaemonId) -> Option<OriginSeq> {
        self.flows.get(&(group, origin))?.order.next()
    }

    /// Notes whether messages of a flow were released that are not acknowledged. Returns whether
    /// this was noted before.
    pub(super) fn set_owes_receipt(
        &mut self,
        group: GroupId,
        origin: DaemonId,
        owes_receipt: bool,
    ) -> bool {
        let flow = self.flows.get_mut(&(group, origin));
        flow.is_some_and(|flow| core::mem::replace(&mut flow.owes_receipt, owes_receipt))
    }

    /// Forgets the flows of an origin that no longer exists, or begins again.
    pub(super) fn forget_origin(&mut self, origin: DaemonId) {
        self.flows.retain(|(_, of), _| *of != origin);
    }

    /// Returns the number of a group's members at this daemon, with those for which others stand.
    pub(super) fn count(&self, group: GroupId) -> u32 {
        let members = members_of(&self.members, group).count() as u32;
        let further = self.represented.get(&group).into_iter().flatten();
        further.fold(members, |sum, (_, further)| sum.saturating_add(*further))
    }

    /// Forgets the flows of a group that no longer has members at this daemon.
    pub(super) fn forget_flows(&mut self, group: GroupId) {
        self.flows.retain(|(of, _), _| *of != group);
    }

    /// Returns the next message of an origin to a group in order, and whether it is layered, if it
    /// has arrived.
    pub(super) fn pop_in_order(
        &mut self,
        group: GroupId,
        origin: DaemonId,
    ) -> Option<(Data, bool, P)> {
        self.flows.get_mut(&(group, origin))?.order.pop()
    }

    /// Delivers a message, of which its origin, header and whether it is layered are given, to each
    /// member of its group. Returns whether the group's senders must
    /// wait for a slow member from now on.
    #[must_use]
    pub(super) fn deliver(
        &mut self,
        now: Time,
        message: (DaemonId, Data, bool),
        payload: &P,
        outbox: &mut Outbox<P>,
    ) -> bool {
        let (_, data, _) = message;
        let mut must_pause = false;
        for client in members_of(&self.members, data.group) {
            let Some(inbox) = self.inboxes.get_mut(&client) else {
                // The client is disconnecting and has not left this group yet.
                continue;
            };
            if inbox.waiting() >= self.config.client_messages {
                let policy = self.config.slow_policy(data.group);
                if policy == SlowPolicy::Drop {
                    outbox.report_slow(client, data.group, Verdict::Dropped);
                    continue;
                }
                let slow = self.slow.insert(now, data.group, client, policy);
                if slow != Slow::Still {
                    outbox.report_slow(client, data.group, Verdict::Blocked);
                }
                must_pause |= slow == Slow::First;
            }
            inbox.push(message, payload.clone());
            inbox.hand_over(client, outbox);
        }
        must_pause
    }

    /// Handles a client's report that it has read messages: hands it more. Returns the groups whose
    /// senders no longer need to wait for it.
    #[must_use]
    pub(super) fn handle_took(
        &mut self,
        now: Time,
        client: ClientId,
        messages: u32,
        outbox: &mut Outbox<P>,
    ) -> Vec<GroupId> {
        let Some(inbox) = self.inboxes.get_mut(&client) else {
            return Vec::new();
        };
        inbox.handle_took(messages);
        inbox.hand_over(client, outbox);
        let waiting = inbox.waiting();
        if waiting == 0 {
            // A member that is always slow has room now and then, but never catches up.
            self.slow.forget_deadlines(client);
        } else if messages > 0 {
            let config = &self.config;
            self.slow
                .restart_deadlines(now, client, |group| config.slow_policy(group));
        }
        if waiting > self.config.client_messages / 2 {
            return Vec::new();
        }
        self.slow.groups_of(client)
    }

    /// Returns whether a group's senders wait for a client.
    pub(super) fn is_slow(&self, group: GroupId, client: ClientId) -> bool {
        self.slow.contains(group, client)
    }

    /// Records that a group's senders no longer wait for a client. Returns whether they now wait
    /// for no member of this daemon.
    #[must_use]
    pub(super) fn resume_senders(&mut self, group: GroupId, client: ClientId) -> bool {
        self.slow.remove(group, client)
    }

    /// Returns the next member whose deadline has passed, to be evicted.
    pub(super) fn pop_overdue(&mut self, now: Time) -> Option<(GroupId, ClientId)> {
        self.slow.pop_overdue(now)
    }

    /// Returns when the next deadline of a slow member passes.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.slow.poll_timeout()
    }

    /// Reports the number of a group's members at all daemons to its members at this daemon.
    pub(super) fn show_view(&self, group: GroupId, members: u32, outbox: &mut Outbox<P>) {
        if self.has_members(group) {
            outbox.push_event(Event::View { group, members });
        }
        for client in members_of(&self.members, group) {
            outbox.notify_client(client, ClientFrame::View { group, members });
        }
    }

    /// Returns the number of pairs of a group and an origin whose messages are put in order.
    #[cfg(test)]
    pub(super) fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// Returns the number of entries for groups, flows, early messages and slow members.
    pub(super) fn state_size(&self) -> usize {
        let early = self.flows.values().map(|flow| flow.order.held());
        let early = early.sum::<usize>();
        let members = self.members.len() + self.represented.len();
        members + self.flows.len() + early + self.slow.state_size()
    }
}

/// Returns the members of a group in a set, in the order in which they were connected.
fn members_of(
    members: &BTreeSet<(GroupId, ClientId)>,
    group: GroupId,
) -> impl Iterator<Item = ClientId> {
    let all = (group, ClientId(0))..=(group, ClientId(u32::MAX));
    members.range(all).map(|(_, client)| *client)
}
