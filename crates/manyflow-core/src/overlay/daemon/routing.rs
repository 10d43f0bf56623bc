//! Where a message goes from here. It needs the tree of its origin and the group's members, and nothing that stands for a flow.

use super::Daemon;
use crate::overlay::message::{Body, DaemonId, GroupId, Message};
use crate::payload::Payload;
use crate::time::Time;

impl<P: Payload + Default> Daemon<P> {
    /// A message has come over a link: on with it, and then what it means here.
    pub(super) fn take(&mut self, now: Time, message: Message, payload: P) {
        if self.is_from_elsewhere(&message) {
            self.forward(now, message, payload.clone());
            self.accept(now, message, payload);
        }
    }

    /// A message has come straight from its origin: it is for this daemon alone, so it goes no further. Only controllers speak like this.
    pub(super) fn take_straight(&mut self, now: Time, message: Message, payload: P) {
        let is_control = matches!(message.body, Body::Control(_));
        if is_control && self.is_from_elsewhere(&message) {
            self.accept(now, message, payload);
        }
    }

    fn is_from_elsewhere(&self, message: &Message) -> bool {
        usize::from(message.origin.0) < self.site.topology.len() && message.origin != self.site.here
    }

    fn accept(&mut self, now: Time, message: Message, payload: P) {
        match message.body {
            Body::Data(data) => {
                self.on_data(now, message.origin, data, message.repaired, payload);
            }
            Body::Membership(change) => self.on_change(now, message, change.change),
            Body::Pause(pause) => self.on_change(now, message, pause.change),
            Body::Welcome(welcome) => self.on_welcome(now, message.origin, &welcome),
            Body::Control(control) => {
                self.controller
                    .on_control(now, message.origin, &control, &self.site);
            }
        }
    }

    /// Queues a message on the links that lead to those it is for, down the tree of its origin.
    pub(super) fn forward(&mut self, now: Time, message: Message, payload: P) {
        match message.body {
            Body::Data(data) => self.forward_to_group(now, data.group, message, &payload),
            Body::Welcome(welcome) => self.forward_to(now, welcome.to, message),
            Body::Membership(_) | Body::Pause(_) | Body::Control(_) => self.flood(now, message),
        }
    }

    fn forward_to_group(&mut self, now: Time, group: GroupId, message: Message, payload: &P) {
        self.forwarded += 1;
        let mut links = core::mem::take(&mut self.links);
        let tree = self.site.topology.tree(message.origin);
        for daemon in self.site.groups.daemons(group) {
            let Some(child) = tree.child_towards(self.site.here, daemon) else {
                continue;
            };
            let Some(index) = self.neighbour_index(child) else {
                continue;
            };
            let stamp = &mut self.neighbours[usize::from(index)].stamp;
            if *stamp != self.forwarded {
                *stamp = self.forwarded;
                links.push(index);
            }
        }
        for index in links.drain(..) {
            self.enqueue(now, index, message, payload.clone());
        }
        self.links = links;
    }

    fn forward_to(&mut self, now: Time, daemon: DaemonId, message: Message) {
        let known = usize::from(daemon.0) < self.site.topology.len();
        let tree = self.site.topology.tree(message.origin);
        let child = known.then(|| tree.child_towards(self.site.here, daemon));
        let index = child
            .flatten()
            .and_then(|child| self.neighbour_index(child));
        if let Some(index) = index {
            self.enqueue(now, index, message, P::default());
        }
    }

    /// To all daemons below.
    fn flood(&mut self, now: Time, message: Message) {
        let topology = self.site.topology.clone();
        for child in topology.tree(message.origin).children(self.site.here) {
            if let Some(index) = self.neighbour_index(child) {
                self.enqueue(now, index, message, P::default());
            }
        }
    }
}
