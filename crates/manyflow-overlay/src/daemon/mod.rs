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
//! A daemon consists of eight parts. Each part owns its fields; none calls another or knows its
//! fields. [`Daemon`] calls all of them: `messages.rs` handles messages, `changes.rs` joins, leaves
//! and pauses, `living.rs` a topology that changes, and `repair.rs` messages that got lost by it.
//!
//! | part | what it owns |
//! |---|---|
//! | `links/` | neighbours with their hops and queues; which queues are full; timers |
//! | `entry.rs` | clients' waiting messages, and whose turn it is |
//! | `database/` | the links, members and pauses of all daemons, as they announced them |
//! | `membership.rs` | the members of all groups that count now, the numbers of messages, pauses |
//! | `delivery/` | local members, order, inboxes, slow members |
//! | `retention.rs` | messages that other daemons have not acknowledged |
//! | `receipts.rs` | acknowledgements of other daemons' messages |
//! | `outbox.rs` | frames and events for the world |
//!
//! **Cycles of full queues.** A link is not read while another link's queue is full (`links/`).
//! This cannot deadlock if the links form a tree. If they form cycles, full queues could wait for
//! each other. Clients' messages therefore enter only while no queue is half full, so that messages
//! already in the overlay go first.

mod changes;
mod database;
mod delivery;
mod entry;
mod links;
mod living;
mod membership;
mod messages;
mod outbox;
mod receipts;
mod repair;
mod retention;
#[cfg(test)]
mod tests;

use core::any::Any;
use core::time::Duration;
use std::sync::Arc;

use super::config::OverlayConfig;
use super::controller::{Audience, Controller};
use super::hop::Hop;
use super::message::{
    Body, ClientFrame, ClientId, Control, CopyFlags, DaemonId, Frame, GroupId, LinkId, Message,
};
use super::notary::Notary;
use super::sequence::LinkSeq;
use super::topology::Topology;
use crate::Event;
use crate::event::Misconduct;
use crate::layers::{Cut, Layers};
use database::Database;
use delivery::Delivery;
use entry::Entry;
use links::{Links, NeighbourIndex};
use manyflow_core::ConfigError;
use manyflow_core::Ecn;
use manyflow_core::time::Time;
pub use membership::Interest;
use membership::Memberships;
use outbox::Outbox;
pub use outbox::Transmit;
use receipts::Receipts;
use retention::Retention;

/// A daemon of an overlay.
///
/// After each call of a `handle_*` method, [`connect`](Daemon::connect),
/// [`add_link`](Daemon::add_link) or [`remove_link`](Daemon::remove_link), drain
/// [`poll_transmit`](Daemon::poll_transmit), [`poll_event`](Daemon::poll_event) and
/// [`poll_interest`](Daemon::poll_interest), then read [`poll_timeout`](Daemon::poll_timeout).
#[derive(Debug)]
pub struct Daemon<P> {
    controller: Box<dyn Controller>,
    links: Links<P>,
    entry: Entry<P>,
    database: Database<P>,
    membership: Memberships<P>,
    delivery: Delivery<P>,
    retention: Retention<P>,
    receipts: Receipts,
    /// An empty list that keeps its memory.
    groups_to_acknowledge: Vec<GroupId>,
    outbox: Outbox<P>,
    neighbours_max: usize,
    /// Neighbours that have announced states that no daemon can have.
    condemned: Vec<(DaemonId, DaemonId, Misconduct)>,
}

impl<P: Cut + Default + PartialEq> Daemon<P> {
    /// Returns a daemon of a living overlay, which has no neighbours yet:
    /// [`add_link`](Daemon::add_link) adds them. No other daemon has the number `here`. Each time
    /// that the daemon restarts, it needs a higher `incarnation`, such as the time in seconds.
    ///
    /// # Errors
    /// Returns an error if a parameter is outside its range.
    pub fn new(
        config: OverlayConfig,
        controller: Box<dyn Controller>,
        here: DaemonId,
        incarnation: u32,
    ) -> Result<Daemon<P>, ConfigError> {
        config.check()?;
        let database = Database::living(here, &config, incarnation);
        let alone = Arc::new(Topology::unlinked(0, &[(here, incarnation)]));
        Ok(Daemon::of_parts(config, controller, database, alone, here))
    }

    /// Lets the daemon sign its state, and believe only what other daemons have signed of theirs.
    /// All daemons of an overlay sign, or none does. Does nothing in a fixed overlay.
    #[must_use]
    pub fn with_notary(mut self, notary: Box<dyn Notary<P>>) -> Daemon<P> {
        if !self.database.is_fixed() {
            self.database.set_notary(notary);
        }
        self
    }

    /// Returns daemon number `here` of a fixed overlay, whose topology all daemons know and never
    /// changes. Nothing gets lost, so that its daemons acknowledge nothing. `hops` holds a hop for
    /// each of the daemon's neighbours, in the order of the neighbours' numbers.
    ///
    /// # Errors
    /// Returns an error if a parameter is outside its range, or if there are more or fewer hops
    /// than neighbours.
    pub fn fixed(
        config: OverlayConfig,
        controller: Box<dyn Controller>,
        here: DaemonId,
        topology: Arc<Topology>,
        hops: Vec<Box<dyn Hop<P>>>,
    ) -> Result<Daemon<P>, ConfigError> {
        config.check()?;
        let ends = topology.neighbours(here);
        ConfigError::first_of([(
            "a daemon's hops",
            "as many as its neighbours",
            ends.len() == hops.len(),
        )])?;
        let database = Database::fixed(here, &config);
        let shared = Arc::clone(&topology);
        let mut daemon = Daemon::of_parts(config, controller, database, shared, here);
        for (end, hop) in ends.iter().zip(hops) {
            daemon.links.add(*end, hop);
        }
        Ok(daemon)
    }

    fn of_parts(
        config: OverlayConfig,
        controller: Box<dyn Controller>,
        database: Database<P>,
        topology: Arc<Topology>,
        here: DaemonId,
    ) -> Daemon<P> {
        Daemon {
            controller,
            links: Links::new(here, config.queue_messages),
            entry: Entry::default(),
            membership: Memberships::new(here, topology, database.is_fixed()),
            database,
            retention: Retention::new(config.retain_bytes, config.hold),
            receipts: Receipts::default(),
            groups_to_acknowledge: Vec::new(),
            neighbours_max: config.neighbours_max,
            delivery: Delivery::new(config),
            outbox: Outbox::default(),
            condemned: Vec::new(),
        }
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
            ClientFrame::Join(group) => self.join(now, client, group, payload),
            ClientFrame::Leave(group) => self.leave(now, client, group),
            ClientFrame::Send {
                groups,
                sent_us,
                layered,
            } => {
                let (purse, payload) = match layered {
                    true => layered_payload(payload),
                    false => (None, payload),
                };
                if self.entry.offer(client, groups, sent_us, purse, payload) {
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

    /// Returns the ECN field of a frame's packet to a neighbour. Only the messages of clients may
    /// be marked, and only if the controller responds to marks.
    pub fn ecn(&self, frame: &Frame) -> Ecn {
        match frame {
            Frame::Datagram { message, .. }
                if message.is_data() && self.controller.heeds_marks() =>
            {
                Ecn::Capable
            }
            _ => Ecn::NotCapable,
        }
    }

    /// Asks a neighbour for an answer if it was not asked for a second, so that one that hangs is
    /// noticed. Ignores daemons that are not neighbours.
    pub fn keep_alive(&mut self, now: Time, neighbour: DaemonId) {
        self.links.keep_alive(now, neighbour);
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

    /// Returns the number of clients' messages that wait for the link to a neighbour; `None` for
    /// other daemons.
    pub fn queue_messages(&self, neighbour: DaemonId) -> Option<usize> {
        self.links.queue_messages(neighbour)
    }

    /// Returns the hop that leads to a neighbour.
    pub fn hop(&self, neighbour: DaemonId) -> Option<&dyn Hop<P>> {
        self.links.hop(neighbour)
    }

    /// Handles all timers that are due at `now`. Spurious calls do nothing.
    pub fn handle_timeout(&mut self, now: Time) {
        self.links.handle_timeout(now);
        self.handle_living_timeout(now);
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
            self.poll_living_timeout(),
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

    /// Returns the next group that has gained its first member at any daemon, or lost its last one.
    /// There are none in a fixed overlay.
    pub fn poll_interest(&mut self) -> Option<Interest<P>> {
        self.membership.pop_interest()
    }

    /// Returns the daemons with members of a group, in ascending order, and the number of members
    /// at each of them.
    pub fn members(&self, group: GroupId) -> impl Iterator<Item = (DaemonId, u32)> {
        self.membership.site().groups.counts(group)
    }

    /// Returns a number that grows with each change of the members of any group.
    pub fn members_version(&self) -> u64 {
        self.membership.site().groups.version()
    }

    /// Returns whether there is room for another group with members. Does not concern groups of
    /// other daemons, which do not count when there is none.
    pub fn has_room_for_group(&self) -> bool {
        self.database.has_room()
    }

    /// Returns the daemons that this daemon can reach, itself included, and the links between them.
    pub fn topology(&self) -> &Topology {
        &self.membership.site().topology
    }

    /// Returns a number that grows with each change of the topology.
    pub fn topology_version(&self) -> u64 {
        self.membership.topology_version()
    }

    /// Returns the bytes of the messages of this daemon's clients that other daemons with members
    /// have not acknowledged; 0 in a fixed overlay. Each message counts 64 bytes besides its
    /// payload.
    pub fn unacknowledged_bytes(&self) -> usize {
        self.retention.bytes()
    }

    /// Returns this daemon's incarnation; 0 in a fixed overlay.
    pub fn incarnation(&self) -> u32 {
        let here = self.membership.site().here;
        self.database.incarnation(here).unwrap_or(0)
    }

    /// Returns the incarnation of a daemon that is known; 0 in a fixed overlay.
    pub fn incarnation_of(&self, daemon: DaemonId) -> Option<u32> {
        match self.database.is_fixed() {
            true => Some(0),
            false => self.database.incarnation(daemon),
        }
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
        let clients = self.entry.len() + self.links.waiting();
        let groups = self.membership.state_size() + self.database.state_size();
        let messages = self.delivery.state_size() + self.retention.state_size();
        clients + groups + messages + self.receipts.state_size()
    }
}

/// Work that follows from every call.
impl<P: Cut + Default + PartialEq> Daemon<P> {
    /// Serves the controller and all neighbours until there is no more work.
    fn do_pending_work(&mut self, now: Time) {
        loop {
            self.serve_controller(now);
            if !self.database.is_fixed() {
                self.seal_changes(now);
                self.update_topology(now);
                self.send_receipts(now);
                self.remove_overflowed_link(now);
                self.remove_condemned_links(now);
            }
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
        while let Some((audience, mut control)) = self.controller.poll_control() {
            if let Control::Cost(update) = &mut control {
                update.version = self.membership.site().topology.version();
            }
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
            self.handle_message(now, neighbour, arrival);
        }
        if let Some((link, delay)) = self.links.poll_delay(neighbour) {
            self.controller.on_delay(now, link, delay);
        }
        // Frames that leave a hop make room for more messages.
        while self.send_state(now, neighbour)
            | self.fill_hop(now, neighbour)
            | self.send_frames(now, neighbour)
        {}
        self.links.rearm_timer(neighbour);
    }

    /// Fills a hop with waiting messages while it has room. Returns whether there were any.
    fn fill_hop(&mut self, now: Time, neighbour: NeighbourIndex) -> bool {
        let controller = &mut *self.controller;
        let cut = |link, message: &Message, payload: P| cut(controller, link, message, payload);
        let filled = self.links.fill_hop(now, neighbour, cut);
        if let Some(queue) = filled.queue {
            self.controller.on_queue(now, queue.link, queue.messages);
        }
        if filled.is_relieved {
            self.continue_sending(now);
        }
        filled.any
    }

    /// Sends what waited until no queue is half full: first missing messages, then new ones.
    fn continue_sending(&mut self, now: Time) {
        self.send_resent(now);
        self.let_enter(now, |_| true);
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

/// Returns the purse of a client's layered message, and the message up to a cut point. A message
/// whose layers can not be read is not layered: decoders refuse it before.
fn layered_payload<P: Cut>(payload: P) -> (Option<Duration>, P) {
    let Ok(layers) = Layers::read(payload.bytes()) else {
        return (None, payload);
    };
    let purse = layers.purse();
    let length = layers.cut_point_within(payload.length());
    let is_at_cut_point = length == payload.length();
    let cut = (!is_at_cut_point).then(|| payload.cut(length));
    (Some(purse), cut.unwrap_or(payload))
}

/// Returns as much of a message's payload as a link sells for its purse at this moment.
fn cut<P: Cut>(controller: &mut dyn Controller, link: LinkId, message: &Message, payload: P) -> P {
    if !{ message.copy }.has(CopyFlags::LAYERED) {
        return payload;
    }
    let (Some(sequence), Ok(layers)) = (message.sequence(), Layers::read(payload.bytes())) else {
        return payload;
    };
    let sold = controller.sell(link, &layers, sequence);
    let length = layers.cut_point_within(sold.min(payload.length()));
    match length < payload.length() {
        true => payload.cut(length),
        false => payload,
    }
}
