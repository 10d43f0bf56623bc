//! From a client into the overlay.

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

    /// Lets all enter whose messages wait for such a group, if they may. They take turns: the first place goes to the client after
    /// the one that had the last.
    pub(super) fn try_all(&mut self, now: Time, concerned: impl Fn(GroupId) -> bool) {
        let waits = |client: &Client<P>| {
            let waiting = client.waiting.as_ref();
            waiting.is_some_and(|waiting| concerned(waiting.group))
        };
        let waiting = self.clients.iter().filter(|(_, client)| waits(client));
        let mut waiting: Vec<ClientId> = waiting.map(|(id, _)| *id).collect();
        let turn = waiting.partition_point(|id| Some(*id) <= self.last_sender);
        waiting.rotate_left(turn);
        for client in waiting {
            self.try_send(now, client);
        }
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
            sequence: self.sent.get(&waiting.group).map_or(1, |sent| sent + 1),
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
        if self.controller.admit(now, &request, &self.site) {
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
        if data.sequence == 1 {
            self.welcome_all(now, data.group);
        }
        self.sent.insert(data.group, data.sequence);
        self.last_sender = Some(data.sender);
        self.controller.on_sent(now, &data, bytes, &self.site);
        let message = self.message(Body::Data(data));
        self.forward(now, message, waiting.payload.clone());
        self.deliver(now, self.site.here, data, waiting.payload);
        let ready = Client::output(data.sender, ClientFrame::Ready);
        self.outputs.push_back(ready);
    }
}
