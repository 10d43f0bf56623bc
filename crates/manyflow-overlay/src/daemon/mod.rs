//! The daemon: a router of the overlay, and the agent of its clients (Cost-Benefit's paper, section
//! III).
//!
//! ```text
//!   Entry       one waiting message of each client
//!     |                                        clients
//!     | admitted by the Controller                ^
//!     v                                           |
//!   enter ------------------> deliver --> Delivery: order, inboxes, slow members
//!     |                          ^
//!     v                          |
//!   forward <------------- handle_message
//!     |                          ^
//!     v                          |
//!   Links: route, queues         |
//!     `-> hop --> frames --> hop of a neighbour's Links
//! ```
//!
//! A daemon consists of five parts. Each part owns its fields; none calls another or knows its
//! fields. [`Daemon`] calls all of them: this file handles messages, `changes.rs` handles joins,
//! leaves and pauses.
//!
//! | part | what it owns |
//! |---|---|
//! | `links/` | neighbours with their hops and queues; which queues are full; timers |
//! | `entry.rs` | clients' waiting messages, and whose turn it is |
//! | `membership.rs` | the members of all groups, announced changes, the numbers of messages, pauses |
//! | `delivery/` | local members, order, inboxes, slow members |
//! | `outbox.rs` | frames and events for the world |
//!
//! **Cycles of full queues.** A link is not read while another link's queue is full (`links/`).
//! This cannot deadlock if the links form a tree. If they form cycles, full queues could wait for
//! each other. Clients' messages therefore enter only while no queue is half full, so that messages
//! already in the overlay go first.

mod changes;
mod delivery;
mod entry;
mod links;
mod membership;
mod outbox;
#[cfg(test)]
mod tests;

use core::any::Any;
use std::sync::Arc;

use super::config::OverlayConfig;
use super::controller::{Audience, Controller};
use super::hop::{Arrival, Hop};
use super::message::{
    Body, ClientFrame, ClientId, DATA_BYTES, DaemonId, Data, Frame, GroupId, Membership, Message,
    Pause,
};
use super::sequence::LinkSeq;
use super::topology::Topology;
use crate::Event;
use delivery::Delivery;
use entry::{Admitted, Entry};
use links::{Links, NeighbourIndex, QueueLength};
use manyflow_core::ConfigError;
use manyflow_core::Ecn;
use manyflow_core::Payload;
use manyflow_core::time::Time;
use membership::Memberships;
use outbox::Outbox;
pub use outbox::Transmit;

/// A daemon of an overlay.
///
/// After each call of a `handle_*` method or [`connect`](Daemon::connect), drain
/// [`poll_transmit`](Daemon::poll_transmit) and [`poll_event`](Daemon::poll_event), then read
/// [`poll_timeout`](Daemon::poll_timeout).
#[derive(Debug)]
pub struct Daemon<P> {
    controller: Box<dyn Controller>,
    links: Links<P>,
    entry: Entry<P>,
    membership: Memberships,
    delivery: Delivery<P>,
    outbox: Outbox<P>,
}

impl<P: Payload + Default> Daemon<P> {
    /// Returns daemon number `here` of a topology. `hops` holds a hop for each of its neighbours,
    /// in the order of the neighbours' numbers.
    ///
    /// # Errors
    /// Returns an error if a parameter is outside its range, or if there are more or fewer hops
    /// than neighbours.
    pub fn new(
        config: OverlayConfig,
        controller: Box<dyn Controller>,
        here: DaemonId,
        topology: Arc<Topology>,
        hops: Vec<Box<dyn Hop<P>>>,
    ) -> Result<Daemon<P>, ConfigError> {
        config.check()?;
        Ok(Daemon {
            controller,
            links: Links::new(&topology, here, hops, config.queue_messages)?,
            entry: Entry::default(),
            membership: Memberships::new(here, topology),
            delivery: Delivery::new(config),
            outbox: Outbox::default(),
        })
    }

    /// Connects a client and returns its number. `priority` is the client's share under the
    /// controller, in percent of the share of a client with priority 100.
    pub fn connect(&mut self, now: Time, priority: u16) -> ClientId {
        let client = self.entry.connect();
        self.delivery.connect(client);
        let share = f64::from(priority.max(1)) / 100.0;
        self.controller.add_client(now, client, share);
        self.do_pending_work(now);
        client
    }

    /// Handles a frame from a client. Ignores frames from unknown clients, and kinds of frames that
    /// only daemons send.
    pub fn handle_client(&mut self, now: Time, client: ClientId, frame: &ClientFrame, payload: P) {
        if !self.entry.is_connected(client) {
            return;
        }
        match *frame {
            ClientFrame::Join(group) => self.join(now, client, group),
            ClientFrame::Leave(group) => self.leave(now, client, group),
            ClientFrame::Send { group, sent_us } => {
                if self.entry.offer(client, group, sent_us, payload) {
                    self.try_enter(now, client);
                }
            }
            ClientFrame::Took { messages } => self.handle_took(now, client, messages),
            ClientFrame::Disconnect => self.disconnect(now, client),
            ClientFrame::Connect { .. }
            | ClientFrame::Ready
            | ClientFrame::Deliver { .. }
            | ClientFrame::View { .. }
            | ClientFrame::Evicted(_) => {}
        }
        self.do_pending_work(now);
    }

    /// Handles a frame from another daemon; `ecn` is the mark of its packet. Ignores everything
    /// except neighbours' frames and [`Frame::Direct`] from daemons of this overlay.
    pub fn handle_frame(&mut self, now: Time, from: DaemonId, frame: &Frame, ecn: Ecn, payload: P) {
        match frame {
            Frame::Direct(message) => self.handle_direct(now, from, message),
            _ => self.links.handle_frame(now, from, frame, ecn, payload),
        }
        self.do_pending_work(now);
    }

    /// Handles the drain of a socket buffer that was full: sends the messages that wait for this
    /// neighbour. Ignores daemons that are not neighbours.
    pub fn handle_writable(&mut self, now: Time, neighbour: DaemonId) {
        self.links.handle_writable(now, neighbour);
        self.do_pending_work(now);
    }

    /// Handles a new connection to a neighbour, which has received the messages of this link before
    /// `received`. Ignores daemons that are not neighbours.
    pub fn handle_connected(&mut self, now: Time, neighbour: DaemonId, received: LinkSeq) {
        self.links.handle_connected(now, neighbour, received);
        self.do_pending_work(now);
    }

    /// Handles the end of the connection to a neighbour. Its messages wait for the next connection.
    pub fn handle_disconnected(&mut self, now: Time, neighbour: DaemonId) {
        self.links.handle_disconnected(neighbour);
        self.do_pending_work(now);
    }

    /// Returns the hop that leads to a neighbour.
    pub fn hop(&self, neighbour: DaemonId) -> Option<&dyn Hop<P>> {
        self.links.hop(neighbour)
    }

    /// Handles all timers that are due at `now`. Spurious calls do nothing.
    pub fn handle_timeout(&mut self, now: Time) {
        self.links.handle_timeout(now);
        self.evict_overdue_members(now);
        if self.controller.poll_timeout().is_some_and(|due| due <= now) {
            self.controller.handle_timeout(now, self.membership.site());
        }
        self.do_pending_work(now);
    }

    /// Returns when [`handle_timeout`](Daemon::handle_timeout) is wanted next, if at all.
    pub fn poll_timeout(&self) -> Option<Time> {
        let times = [
            self.links.poll_timeout(),
            self.delivery.poll_timeout(),
            self.controller.poll_timeout(),
        ];
        times.into_iter().flatten().min()
    }

    /// Returns the next frame to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit<P>> {
        self.outbox.pop_transmit()
    }

    /// Returns the next event, for traces and metrics.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.outbox.pop_event();
        event.or_else(|| self.controller.poll_event())
    }

    /// Returns the controller if it is a `C`.
    pub fn controller<C: Controller>(&self) -> Option<&C> {
        let controller: &dyn Any = &*self.controller;
        controller.downcast_ref()
    }

    /// Returns the number of entries that this daemon keeps for clients, groups, senders and
    /// waiting messages. It is zero once all clients of all daemons have disconnected and all their
    /// messages have arrived. Operators and tests use it to detect leaks.
    pub fn state_size(&self) -> usize {
        let clients = self.entry.len();
        clients + self.links.waiting() + self.membership.state_size() + self.delivery.state_size()
    }
}

/// Work that follows from every call.
impl<P: Payload + Default> Daemon<P> {
    /// Serves the controller and all neighbours until there is no more work.
    fn do_pending_work(&mut self, now: Time) {
        loop {
            self.serve_controller(now);
            let Some(neighbour) = self.links.pop_dirty() else {
                return;
            };
            self.serve_neighbour(now, neighbour);
        }
    }

    /// Lets messages enter that the controller has admitted, and sends the controller's own
    /// messages.
    fn serve_controller(&mut self, now: Time) {
        while let Some(client) = self.controller.poll_ready() {
            self.try_enter(now, client);
        }
        while let Some((audience, control)) = self.controller.poll_control() {
            let message = self.membership.message(Body::Control(control));
            match audience {
                Audience::Everyone => self.forward(now, message, &P::default()),
                Audience::One(daemon) => self.outbox.push_direct(daemon, message),
            }
        }
    }

    /// Handles a neighbour's messages, fills the hop that leads to it, and sends the hop's frames.
    fn serve_neighbour(&mut self, now: Time, neighbour: NeighbourIndex) {
        while let Some(arrival) = self.links.poll_arrival(now, neighbour) {
            self.handle_message(now, arrival);
        }
        // Frames that leave a hop make room for more messages.
        while self.fill_hop(now, neighbour) | self.send_frames(now, neighbour) {}
        self.links.rearm_timer(neighbour);
    }

    /// Fills a hop with waiting messages while it has room. Returns whether there were any.
    fn fill_hop(&mut self, now: Time, neighbour: NeighbourIndex) -> bool {
        let filled = self.links.fill_hop(now, neighbour);
        if let Some(queue) = filled.queue {
            self.controller.on_queue(now, queue.link, queue.messages);
        }
        if filled.is_relieved {
            self.let_enter(now, |_| true);
        }
        filled.any
    }

    /// Sends a hop's frames. Returns whether there were any.
    fn send_frames(&mut self, now: Time, neighbour: NeighbourIndex) -> bool {
        let mut any = false;
        while let Some((to, frame, payload)) = self.links.poll_transmit(now, neighbour) {
            self.outbox.push_frame(to, frame, payload);
            any = true;
        }
        any
    }
}

/// Handling of messages: entry, forwarding and delivery.
impl<P: Payload + Default> Daemon<P> {
    /// Offers the waiting messages of clients to `concerned` groups in turn, and lets them enter if
    /// they may.
    fn let_enter(&mut self, now: Time, concerned: impl Fn(GroupId) -> bool) {
        self.entry.queue_turns(concerned);
        while let Some(client) = self.entry.pop_turn() {
            self.try_enter(now, client);
        }
    }

    /// Lets a client's waiting message enter, if no queue is half full, the group's senders need
    /// not wait for a slow member, and the controller admits the message.
    fn try_enter(&mut self, now: Time, client: ClientId) {
        let Some(group) = self.entry.waiting_group(client) else {
            return;
        };
        if self.links.are_half_full() || self.membership.is_paused(group) {
            return;
        }
        let overhead = self.links.overhead_bytes();
        let (controller, site) = (&mut *self.controller, self.membership.site());
        let admitted = self
            .entry
            .try_admit(now, client, overhead, controller, site);
        if let Some(admitted) = admitted {
            self.enter(now, admitted);
        }
    }

    /// Numbers an admitted message, forwards it, and delivers it to members at this daemon.
    fn enter(&mut self, now: Time, admitted: Admitted<P>) {
        for welcome in self.membership.welcomes(admitted.group) {
            self.forward(now, welcome, &P::default());
        }
        let data = Data {
            group: admitted.group,
            sequence: self.membership.number_message(admitted.group),
            sender: admitted.sender,
            sent_us: admitted.sent_us,
        };
        let site = self.membership.site();
        self.controller.on_sent(now, &data, admitted.bytes, site);
        let message = self.membership.message(Body::Data(data));
        self.forward(now, message, &admitted.payload);
        self.deliver(now, message.origin, data, &admitted.payload);
        self.outbox
            .notify_client(admitted.sender, ClientFrame::Ready);
    }

    /// Forwards a message from a neighbour, then handles it at this daemon.
    fn handle_message(&mut self, now: Time, arrival: Arrival<P>) {
        let Arrival { message, payload } = arrival;
        if !self.membership.is_other(message.origin) {
            return;
        }
        self.forward(now, message, &payload);
        match message.body {
            Body::Data(data) => self.handle_data(now, &message, data, payload),
            Body::Membership(Membership { change, .. }) | Body::Pause(Pause { change, .. }) => {
                self.handle_change(now, change, message);
            }
            Body::Welcome(welcome) => self.handle_welcome(now, message.origin, &welcome),
            Body::Control(control) => {
                let site = self.membership.site();
                self.controller
                    .on_control(now, message.origin, &control, site);
            }
        }
    }

    /// Queues a message for its next hops.
    fn forward(&mut self, now: Time, message: Message, payload: &P) {
        self.links.route(self.membership.site(), &message);
        while let Some(neighbour) = self.links.pop_next_hop() {
            let queue = self.links.enqueue(neighbour, message, payload.clone());
            if let Some(QueueLength { link, messages }) = queue {
                self.controller.on_queue(now, link, messages);
                let messages = messages as u32;
                self.outbox.push_event(Event::Queue { link, messages });
            }
        }
    }

    /// Handles another daemon's message to a group.
    fn handle_data(&mut self, now: Time, message: &Message, data: Data, payload: P) {
        if !self.delivery.has_members(data.group) {
            return;
        }
        let bytes = payload.length() + DATA_BYTES + self.links.overhead_bytes();
        let (origin, repaired) = (message.origin, message.repaired);
        self.controller
            .on_arrival(now, origin, &data, repaired, bytes);
        self.delivery.insert(origin, data, payload);
        self.deliver_in_order(now, origin, data.group);
    }

    /// Delivers the messages of one origin to a group, up to the first gap.
    fn deliver_in_order(&mut self, now: Time, origin: DaemonId, group: GroupId) {
        while let Some((data, payload)) = self.delivery.pop_in_order(group, origin) {
            self.deliver(now, origin, data, &payload);
        }
    }

    /// Delivers a message to the group's members at this daemon.
    fn deliver(&mut self, now: Time, origin: DaemonId, data: Data, payload: &P) {
        let must_pause = self
            .delivery
            .deliver(now, origin, data, payload, &mut self.outbox);
        if must_pause {
            self.announce_pause(now, data.group, true);
        }
    }

    /// Handles a message that was sent directly. Only controllers send such messages; they are not
    /// forwarded.
    fn handle_direct(&mut self, now: Time, from: DaemonId, message: &Message) {
        if let Body::Control(control) = &message.body
            && message.origin == from
            && self.membership.is_other(from)
        {
            let site = self.membership.site();
            self.controller.on_control(now, from, control, site);
        }
    }
}
