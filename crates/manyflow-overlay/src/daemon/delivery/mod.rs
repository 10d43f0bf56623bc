//! The delivery of messages to a daemon's clients: order, inboxes, and slow members.
//!
//! ```text
//!   insert -> Resequencer (for each origin and group) -> pop_in_order
//!          -> deliver -> Inbox (for each member) -> Deliver frames, 64 unread ones at most
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `mod.rs` | [`Delivery`]: what the daemon calls; members, and order |
//! | `inbox.rs` | one client's messages |
//! | `slow.rs` | slow members and their deadlines |
//!
//! **Slow members.** Messages that a client's window has no room for wait in its inbox. If more
//! than [`OverlayConfig::client_messages`] wait, the group's [policy](SlowPolicy) decides. To make
//! senders wait, the daemon floods a [`Pause`](crate::Pause), which concerns this group alone;
//! closed links would delay all groups. Messages already under way are still taken.

mod inbox;
mod slow;

use std::collections::BTreeMap;

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

/// What is delivered to the clients of a daemon.
#[derive(Debug)]
pub(super) struct Delivery<P> {
    config: OverlayConfig,
    /// The members of each group at this daemon. No list is empty.
    members: BTreeMap<GroupId, Vec<ClientId>>,
    /// Other daemons' messages to groups with members here, in their origins' order.
    flows: BTreeMap<(GroupId, DaemonId), Resequencer<OriginSeq, (Data, P)>>,
    /// An inbox for each connected client.
    inboxes: BTreeMap<ClientId, Inbox<P>>,
    slow: SlowMembers,
}

impl<P: Payload + Default> Delivery<P> {
    pub(super) fn new(config: OverlayConfig) -> Delivery<P> {
        Delivery {
            config,
            members: BTreeMap::new(),
            flows: BTreeMap::new(),
            inboxes: BTreeMap::new(),
            slow: SlowMembers::default(),
        }
    }

    pub(super) fn connect(&mut self, client: ClientId) {
        self.inboxes.insert(client, Inbox::default());
    }

    /// Drops a client's messages. Its groups remain until it [leaves](Delivery::leave) them.
    pub(super) fn disconnect(&mut self, client: ClientId) {
        self.inboxes.remove(&client);
    }

    /// Adds a member; returns whether it is new.
    pub(super) fn join(&mut self, group: GroupId, client: ClientId) -> bool {
        debug_assert!(self.inboxes.contains_key(&client), "{client:?} is unknown");
        let members = self.members.entry(group).or_default();
        let is_new = !members.contains(&client);
        if is_new {
            members.push(client);
        }
        is_new
    }

    /// Removes a member and its deadline; returns whether there was such a member. Senders that
    /// wait for it do so until [`resume_senders`](Delivery::resume_senders).
    pub(super) fn leave(&mut self, group: GroupId, client: ClientId) -> bool {
        let Some(members) = self.members.get_mut(&group) else {
            return false;
        };
        let Some(place) = members.iter().position(|member| *member == client) else {
            return false;
        };
        members.remove(place);
        if members.is_empty() {
            self.members.remove(&group);
        }
        self.slow.forget_deadline(group, client);
        true
    }

    /// The groups of a client.
    pub(super) fn groups_of(&self, client: ClientId) -> Vec<GroupId> {
        let groups = self.members.iter();
        let groups = groups.filter(|(_, members)| members.contains(&client));
        groups.map(|(group, _)| *group).collect()
    }

    pub(super) fn has_members(&self, group: GroupId) -> bool {
        self.members.contains_key(&group)
    }

    /// Holds another daemon's message until its turn.
    pub(super) fn insert(&mut self, origin: DaemonId, data: Data, payload: P) {
        debug_assert!(self.has_members(data.group), "a router keeps no flows");
        let flow = self.flows.entry((data.group, origin)).or_default();
        flow.insert(data.sequence, (data, payload));
    }

    /// From `start` on, all messages of an origin to a group arrive here.
    pub(super) fn start_flow(&mut self, group: GroupId, origin: DaemonId, start: OriginSeq) {
        self.flows.entry((group, origin)).or_default().start(start);
    }

    /// Drops the messages and the order of a group that has no members here any more.
    pub(super) fn forget_flows(&mut self, group: GroupId) {
        self.flows.retain(|(of, _), _| *of != group);
    }

    /// The next message of an origin to a group in order, if it has arrived.
    pub(super) fn pop_in_order(&mut self, group: GroupId, origin: DaemonId) -> Option<(Data, P)> {
        self.flows.get_mut(&(group, origin))?.pop()
    }

    /// Gives a message to each member of its group; returns whether the group's senders must wait
    /// for a slow member from now on.
    #[must_use]
    pub(super) fn deliver(
        &mut self,
        now: Time,
        origin: DaemonId,
        data: Data,
        payload: &P,
        outbox: &mut Outbox<P>,
    ) -> bool {
        let mut must_pause = false;
        for &client in self.members.get(&data.group).into_iter().flatten() {
            let Some(inbox) = self.inboxes.get_mut(&client) else {
                // It is just disconnecting, and still has to leave this group.
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
            inbox.push(origin, data, payload.clone());
            inbox.hand_over(client, outbox);
        }
        must_pause
    }

    /// A client has read messages: hands it more. Returns the groups whose senders need not wait
    /// for it any longer.
    #[must_use]
    pub(super) fn handle_took(
        &mut self,
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
            // A member that is always slow has room again and again, but never catches up.
            self.slow.forget_deadlines(client);
        }
        if waiting > self.config.client_messages / 2 {
            return Vec::new();
        }
        self.slow.groups_of(client)
    }

    /// Whether a group's senders wait for a client.
    pub(super) fn is_slow(&self, group: GroupId, client: ClientId) -> bool {
        self.slow.contains(group, client)
    }

    /// A group's senders no longer wait for a client; returns whether they wait for no member of
    /// this daemon now.
    #[must_use]
    pub(super) fn resume_senders(&mut self, group: GroupId, client: ClientId) -> bool {
        self.slow.remove(group, client)
    }

    /// The next member whose deadline has passed: it is to be evicted.
    pub(super) fn pop_overdue(&mut self, now: Time) -> Option<(GroupId, ClientId)> {
        self.slow.pop_overdue(now)
    }

    /// When the next deadline of a slow member passes.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.slow.poll_timeout()
    }

    /// Shows a group's members here how many members it has at all daemons.
    pub(super) fn show_view(&self, group: GroupId, members: u32, outbox: &mut Outbox<P>) {
        let Some(clients) = self.members.get(&group) else {
            return;
        };
        outbox.push_event(Event::View { group, members });
        for client in clients {
            outbox.notify_client(*client, ClientFrame::View { group, members });
        }
    }

    /// How many pairs of an origin and a group have a state of order.
    #[cfg(test)]
    pub(super) fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// Entries kept for groups, flows, early messages and slow members.
    pub(super) fn state_size(&self) -> usize {
        let early = self.flows.values().map(Resequencer::held).sum::<usize>();
        self.members.len() + self.flows.len() + early + self.slow.state_size()
    }
}
