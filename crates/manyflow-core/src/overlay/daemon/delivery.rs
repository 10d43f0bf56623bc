//! From the overlay to clients, and what is done about those that read too slowly.
//!
//! A client's messages wait at its daemon. Where more than [`OverlayConfig::client_messages`](crate::overlay::OverlayConfig) do, the
//! group's [policy](SlowPolicy) decides. To hold the senders up, the daemon floods a [`Pause`](crate::overlay::Pause): it concerns this
//! group alone, where closing the links would hold up all groups. What is on its way by then is still taken.

use std::collections::VecDeque;

use super::sending::Waiting;
use super::{Daemon, Transmit};
use crate::endpoint::Event;
use crate::overlay::CLIENT_WINDOW;
use crate::overlay::config::{SlowPolicy, Verdict};
use crate::overlay::message::{ClientFrame, ClientId, DaemonId, Data, GroupId};
use crate::overlay::resequencer::Resequencer;
use crate::payload::Payload;
use crate::time::Time;

/// A client, as its daemon knows it.
#[derive(Clone, Debug)]
pub(super) struct Client<P> {
    /// The message that it wants to send.
    pub(super) waiting: Option<Waiting<P>>,
    /// What it has not been given yet.
    inbox: VecDeque<(DaemonId, Data, P)>,
    /// What it was given and has not read.
    unread: u32,
}

impl<P> Default for Client<P> {
    fn default() -> Client<P> {
        Client {
            waiting: None,
            inbox: VecDeque::new(),
            unread: 0,
        }
    }
}

impl<P: Payload + Default> Client<P> {
    /// A frame without payload for a client.
    pub(super) fn output(client: ClientId, frame: ClientFrame) -> Transmit<P> {
        Transmit::Client(client, frame, P::default())
    }
}

impl<P: Payload + Default> Daemon<P> {
    /// Another daemon's message to a group.
    pub(super) fn on_data(
        &mut self,
        now: Time,
        origin: DaemonId,
        data: Data,
        repaired: bool,
        payload: P,
    ) {
        if !self.members.contains_key(&data.group) {
            return;
        }
        let bytes = payload.length() + self.data_bytes();
        self.controller
            .on_arrival(now, origin, &data, repaired, bytes);
        let flow = self.flows.entry((data.group, origin)).or_default();
        flow.insert(data.sequence, (data, payload));
        self.deliver_ready(now, data.group, origin);
    }

    /// Delivers what has come of a flow without a gap.
    pub(super) fn deliver_ready(&mut self, now: Time, group: GroupId, origin: DaemonId) {
        while let Some((data, payload)) = self
            .flows
            .get_mut(&(group, origin))
            .and_then(Resequencer::pop)
        {
            self.deliver(now, origin, data, payload);
        }
    }

    /// To each member here.
    pub(super) fn deliver(&mut self, now: Time, origin: DaemonId, data: Data, payload: P) {
        let members = self.members.get(&data.group).map_or(0, Vec::len);
        for place in 0..members {
            // By their places, since what is done about one may change others' standing.
            let member = self.members.get(&data.group).and_then(|m| m.get(place));
            let Some(&client) = member else {
                return;
            };
            if self.has_room_for(now, client, data.group) {
                let Some(known) = self.clients.get_mut(&client) else {
                    continue;
                };
                known.inbox.push_back((origin, data, payload.clone()));
                self.hand_out(client);
            }
        }
    }

    /// Whether a member is to get a message of this group; if it is slow, what is to be done about it is.
    fn has_room_for(&mut self, now: Time, client: ClientId, group: GroupId) -> bool {
        let waiting = self.clients.get(&client).map_or(0, |c| c.inbox.len());
        if waiting < self.config.client_messages {
            return true;
        }
        match self.config.slow_policy(group) {
            SlowPolicy::Drop => {
                self.tell_slow(client, group, Verdict::Dropped);
                return false;
            }
            SlowPolicy::Block => {
                self.hold_up(now, group, client);
            }
            SlowPolicy::Evict(patience) => {
                let is_new = self.hold_up(now, group, client);
                let is_it = |(_, of, who): &(_, _, _)| (*of, *who) == (group, client);
                if is_new && !self.deadlines.iter().any(is_it) {
                    self.deadlines.insert((now + patience, group, client));
                }
            }
        }
        true
    }

    fn tell_slow(&mut self, client: ClientId, group: GroupId, verdict: Verdict) {
        self.events.push_back(Event::SlowMember {
            client,
            group,
            verdict,
        });
    }

    /// A group's senders are to wait for a member; returns whether they do so from now on.
    fn hold_up(&mut self, now: Time, group: GroupId, client: ClientId) -> bool {
        let slow = self.slow.entry(group).or_default();
        let is_first = slow.is_empty();
        if !slow.insert(client) {
            return false;
        }
        self.tell_slow(client, group, Verdict::Blocked);
        if is_first {
            self.announce_pause(now, group, true);
        }
        true
    }

    /// A group's senders need not wait for a member any more.
    pub(super) fn forgive(&mut self, now: Time, group: GroupId, client: ClientId) {
        let Some(slow) = self.slow.get_mut(&group) else {
            return;
        };
        if !slow.remove(&client) {
            return;
        }
        if slow.is_empty() {
            self.slow.remove(&group);
            self.announce_pause(now, group, false);
        }
        self.tell_slow(client, group, Verdict::Resumed);
    }

    /// Those whose time is over are no longer members.
    pub(super) fn evict_overdue(&mut self, now: Time) {
        while let Some(&(time, group, client)) = self.deadlines.first()
            && time <= now
        {
            self.deadlines.pop_first();
            self.tell_slow(client, group, Verdict::Evicted);
            let evicted = Client::output(client, ClientFrame::Evicted(group));
            self.outputs.push_back(evicted);
            self.leave(now, client, group);
        }
    }

    /// A client has read so many messages.
    pub(super) fn on_took(&mut self, now: Time, client: ClientId, messages: u32) {
        let Some(known) = self.clients.get_mut(&client) else {
            return;
        };
        known.unread = known.unread.saturating_sub(messages);
        self.hand_out(client);
        let waiting = self.clients.get(&client).map_or(0, |c| c.inbox.len());
        if waiting == 0 {
            // One that is always slow has room again and again, but never catches up.
            self.deadlines.retain(|(.., who)| *who != client);
        }
        if waiting <= self.config.client_messages / 2 {
            let groups = self.slow.iter().filter(|(_, slow)| slow.contains(&client));
            let groups: Vec<GroupId> = groups.map(|(group, _)| *group).collect();
            for group in groups {
                self.forgive(now, group, client);
            }
        }
    }

    /// Gives a client what its window has room for.
    fn hand_out(&mut self, client: ClientId) {
        let Some(known) = self.clients.get_mut(&client) else {
            return;
        };
        while known.unread < CLIENT_WINDOW
            && let Some((origin, data, payload)) = known.inbox.pop_front()
        {
            known.unread += 1;
            let deliver = ClientFrame::Deliver { origin, data };
            self.outputs
                .push_back(Transmit::Client(client, deliver, payload));
        }
    }

    /// What a client's message takes on a link besides its payload.
    fn data_bytes(&self) -> u32 {
        crate::overlay::message::DATA_BYTES + self.overhead_bytes
    }
}
