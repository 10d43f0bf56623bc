//! The way of clients' messages through a daemon: their entry, forwarding and delivery.

use super::Daemon;
use super::entry::Admitted;
use super::links::{NeighbourIndex, QueueLength, Share};
use crate::Event;
use crate::hop::Arrival;
use crate::layers::Cut;
use crate::message::{
    Body, ClientFrame, ClientId, CopyFlags, DATA_BYTES, DaemonId, Data, GroupId, GroupSet, Message,
};
use manyflow_core::time::Time;

impl<P: Cut + Default + PartialEq> Daemon<P> {
    /// Offers the waiting messages of clients to `concerned` groups in turn, and lets them enter if
    /// they may.
    pub(super) fn let_enter(&mut self, now: Time, concerned: impl Fn(GroupId) -> bool) {
        self.entry.queue_turns(concerned);
        while let Some(client) = self.entry.pop_turn() {
            self.try_enter(now, client);
        }
    }

    /// Lets a client's waiting message enter, if no queue is half full, there is room to keep it,
    /// its groups are not held, their senders need not wait for a slow member, and the controller
    /// admits it. A message to several groups enters for all of them at once, or for one after the
    /// other if the controller does not share copies.
    pub(super) fn try_enter(&mut self, now: Time, client: ClientId) {
        while let Some(waiting) = self.entry.waiting_groups(client) {
            let groups = match self.controller.shares_copies() {
                true => waiting,
                false => waiting.first().into(),
            };
            if self.links.are_half_full() || !self.may_enter(now, &groups) {
                return;
            }
            let overhead = self.links.overhead_bytes();
            let (controller, site) = (&mut *self.controller, self.membership.site());
            let admitted = self
                .entry
                .try_admit(now, client, groups, overhead, controller, site);
            let Some(admitted) = admitted else {
                return;
            };
            self.enter(now, admitted);
        }
    }

    /// Sends a message of this daemon's own protocols to a group, in the order of its other
    /// messages to the group, without asking the controller. Call it only while there
    /// [is room](Daemon::has_room).
    pub fn send_at_once(&mut self, now: Time, sender: ClientId, group: GroupId, payload: P) {
        let overhead = DATA_BYTES + self.links.overhead_bytes();
        let admitted = Admitted {
            sender,
            groups: group.into(),
            sent_us: (now - Time::ZERO).as_micros() as u32,
            bytes: payload.length() + overhead,
            purse: None,
            payload,
        };
        self.enter(now, admitted);
        self.do_pending_work(now);
    }

    /// Takes a client's waiting message, which then does not enter.
    pub fn take_waiting(&mut self, client: ClientId) -> Option<P> {
        self.entry.take_waiting(client)
    }

    /// Returns whether no queue of a link is half full.
    pub fn has_room(&self) -> bool {
        !self.links.are_half_full()
    }

    /// Lets the messages of this daemon's clients to a group wait, or no longer wait.
    /// Returns whether this is a change.
    pub fn set_held(&mut self, now: Time, group: GroupId, is_held: bool) -> bool {
        let is_change = self.entry.set_held(group, is_held);
        if is_change && !is_held {
            self.let_enter(now, |waiting| waiting == group);
            self.do_pending_work(now);
        }
        is_change
    }

    /// Returns whether messages to these groups need not wait for a slow member, or for room.
    fn may_enter(&mut self, now: Time, groups: &GroupSet) -> bool {
        let mut groups = groups.as_slice().iter();
        groups.all(|group| {
            !self.membership.is_paused(*group)
                && !self.entry.is_held(*group)
                && !self.retention.must_wait(now, *group)
        })
    }

    /// Numbers an admitted message for each of its groups, forwards it, and delivers it to members
    /// at this daemon.
    fn enter(&mut self, now: Time, admitted: Admitted<P>) {
        let groups = admitted.groups.as_slice();
        let layered = admitted.purse.is_some();
        let copy = CopyFlags::layered(layered);
        let share = (groups.len() > 1).then(|| self.links.begin_share());
        for &group in groups {
            self.begin_sending(now, group);
            let data = Data {
                group,
                version: self.membership.site().topology.version(),
                sequence: self.membership.number_message(group),
                sender: admitted.sender,
                sent_us: admitted.sent_us,
            };
            let site = self.membership.site();
            self.controller.on_sent(now, &data, admitted.bytes, site);
            if !self.database.is_fixed() {
                self.retention.push(now, data, copy, &admitted.payload);
            }
            let message = self.membership.message(Body::Data(data));
            let message = Message { copy, ..message };
            self.forward_shared(now, message, &admitted.payload, share);
            self.deliver(now, message.origin, data, layered, &admitted.payload);
        }
        if self.entry.waiting_groups(admitted.sender).is_none() {
            self.outbox
                .notify_client(admitted.sender, ClientFrame::Ready);
        }
    }

    /// Handles a message from a neighbour.
    pub(super) fn handle_message(
        &mut self,
        now: Time,
        from: NeighbourIndex,
        arrival: (Arrival<P>, Option<Share>),
    ) {
        let (Arrival { message, payload }, share) = arrival;
        let origin = message.origin;
        if let Some(version) = message.version() {
            if origin != self.membership.site().here && self.is_present(origin, version) {
                self.forward_shared(now, message, &payload, share);
                self.handle_routed(now, &message, payload);
            }
        } else if self.database.is_fixed() {
            if let Body::Change(change) = &{ message.body }
                && self.membership.is_other(origin)
            {
                self.forward(now, message, &payload);
                self.handle_change(now, from, origin, change, payload);
            }
        } else {
            self.handle_state(now, from, &message, payload);
        }
    }

    /// Handles a message that was sent down a tree.
    fn handle_routed(&mut self, now: Time, message: &Message, payload: P) {
        let origin = message.origin;
        let here = self.membership.site().here;
        match &{ message.body } {
            Body::Data(data) => self.handle_data(now, message, *data, payload),
            Body::Resent(resent) if resent.to == here => {
                self.handle_data(now, message, resent.data, payload);
            }
            Body::Welcome(welcome) => self.handle_welcome(now, origin, welcome),
            Body::Answer(answer) => self.handle_answer(now, origin, answer),
            Body::Acknowledge(acknowledge) => self.handle_acknowledge(now, origin, acknowledge),
            Body::Control(control) => {
                let site = self.membership.site();
                self.controller.on_control(now, origin, control, site);
            }
            _ => {}
        }
    }

    /// Queues a message for its next hops.
    pub(super) fn forward(&mut self, now: Time, message: Message, payload: &P) {
        self.forward_shared(now, message, payload, None);
    }

    /// Queues a message for its next hops. Messages of one share have the same payload, which each
    /// link carries once.
    pub(super) fn forward_shared(
        &mut self,
        now: Time,
        message: Message,
        payload: &P,
        share: Option<Share>,
    ) {
        self.links.route(self.membership.site(), &message);
        while let Some(neighbour) = self.links.pop_next_hop() {
            let queue = self.links.enqueue(neighbour, message, payload, share);
            if let Some(QueueLength { link, messages }) = queue {
                self.controller.on_queue(now, link, messages);
                if message.is_data() {
                    let messages = messages as u32;
                    self.outbox.push_event(Event::Queue { link, messages });
                }
            }
        }
    }

    /// Handles another daemon's message to a group.
    pub(super) fn handle_data(&mut self, now: Time, message: &Message, data: Data, payload: P) {
        if !self.delivery.has_members(data.group) {
            return;
        }
        let bytes = payload.length() + DATA_BYTES + self.links.overhead_bytes();
        let origin = message.origin;
        self.controller.on_arrival(now, message, &data, bytes);
        let layered = { message.copy }.has(CopyFlags::LAYERED);
        self.delivery.insert(origin, data, layered, payload);
        self.deliver_in_order(now, origin, data.group);
    }

    /// Delivers the messages of one origin to a group, up to the first gap.
    pub(super) fn deliver_in_order(&mut self, now: Time, origin: DaemonId, group: GroupId) {
        let mut arrived = (0, 0u32);
        while let Some((data, layered, payload)) = self.delivery.pop_in_order(group, origin) {
            arrived = (arrived.0 + 1, arrived.1.saturating_add(payload.length()));
            self.deliver(now, origin, data, layered, &payload);
        }
        self.add_receipt(now, origin, group, arrived);
    }

    /// Delivers a message to the group's members at this daemon.
    pub(super) fn deliver(
        &mut self,
        now: Time,
        origin: DaemonId,
        data: Data,
        layered: bool,
        payload: &P,
    ) {
        let message = (origin, data, layered);
        let must_pause = self
            .delivery
            .deliver(now, message, payload, &mut self.outbox);
        if must_pause {
            self.announce_pause(now, data.group, true);
        }
    }

    /// Handles a message that was sent directly. Only controllers send such messages; they are not
    /// forwarded.
    pub(super) fn handle_direct(&mut self, now: Time, from: DaemonId, message: &Message) {
        if let Body::Control(control) = &{ message.body }
            && { message.origin } == from
            && self.membership.is_other(from)
        {
            let site = self.membership.site();
            self.controller.on_control(now, from, control, site);
        }
    }
}
