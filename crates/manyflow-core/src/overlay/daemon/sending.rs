//! From a client into the overlay.

use core::ops::Bound;

use super::Daemon;
use super::delivery::Client;
use crate::overlay::controller::Request;
use crate::overlay::message::{Body, ClientFrame, ClientId, Data, GroupId};
use crate::payload::Payload;
use crate::time::Time;

/// A client's message that waits at its daemon; the client is not read from until it has entered.
#[derive(Clone, Debug)]
pub(super) struct Waiting<P> {
    group: GroupId,
    sent_us: u32,
    payload: P,
}

impl<P: Payload + Default> Daemon<P> {
    /// A client's next message. One that comes while another waits is ignored: the client was not told to go on.
    pub(super) fn offer(
        &mut self,
        now: Time,
        client: ClientId,
        group: GroupId,
        sent_us: u32,
        payload: P,
    ) {
        let Some(known) = self.clients.get_mut(&client) else {
            return;
        };
        if known.waiting.is_none() {
            known.waiting = Some(Waiting {
                group,
                sent_us,
                payload,
            });
            self.try_send(now, client);
        }
    }

    /// Lets all enter whose messages wait for such a group, if they may. They take turns: there may be room for one alone.
    pub(super) fn try_all(&mut self, now: Time, concerned: impl Fn(GroupId) -> bool) {
        let waits =
            |client: &Client<P>| client.waiting.as_ref().is_some_and(|w| concerned(w.group));
        let last = self.last_sender;
        let after = self
            .clients
            .range((Bound::Excluded(last), Bound::Unbounded));
        let in_turn = after.chain(self.clients.range(..=last));
        let waiting = in_turn.filter(|(_, client)| waits(client));
        let mut asked = core::mem::take(&mut self.asked);
        asked.extend(waiting.map(|(id, _)| *id));
        for client in asked.drain(..) {
            self.try_send(now, client);
        }
        self.asked = asked;
    }

    /// Lets a client's message enter, if it may: no member holds its group up, no queue is half full, and the controller admits it.
    pub(super) fn try_send(&mut self, now: Time, client: ClientId) {
        let Some(known) = self.clients.get(&client) else {
            return;
        };
        let Some(waiting) = &known.waiting else {
            return;
        };
        if self.half_full > 0 || self.paused.contains_key(&waiting.group) {
            return;
        }
        let data = Data {
            group: waiting.group,
            sequence: self.next_sequence(waiting.group),
            sender: client,
            sent_us: waiting.sent_us,
        };
        let message = self.message(Body::Data(data));
        let bytes = waiting.payload.length() + message.wire_bytes() + self.overhead_bytes;
        let request = Request {
            client,
            group: data.group,
            bytes,
        };
        if self.controller.try_admit(now, &request, &self.site) {
            self.enter(now, data, bytes);
        }
    }

    fn enter(&mut self, now: Time, data: Data, bytes: u32) {
        let Some(client) = self.clients.get_mut(&data.sender) else {
            return;
        };
        let Some(waiting) = client.waiting.take() else {
            return;
        };
        self.last_sender = data.sender;
        if !self.sent.contains_key(&data.group) {
            self.welcome_all(now, data.group);
        }
        if self.site.groups.has_members(data.group) {
            self.sent.insert(data.group, data.sequence);
        }
        self.controller.on_sent(now, &data, bytes, &self.site);
        let message = self.message(Body::Data(data));
        self.forward(now, message, waiting.payload.clone());
        self.deliver(now, self.site.here, data, waiting.payload);
        let ready = Client::output(data.sender, ClientFrame::Ready);
        self.outputs.push_back(ready);
    }
}
