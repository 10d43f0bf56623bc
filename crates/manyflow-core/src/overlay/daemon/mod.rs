//! The daemon: an overlay's router, and the agent of its clients (Cost-Benefit's paper, section III).
//!
//! ```text
//!    clients                               neighbours
//!      | one message each waits      poll_arrival | ^ push
//!      v                                          v |
//!   try_send --admit?--> enter --> forward -----> [control queue] --> hop
//!                          |         ^            [data queue]
//!                          v         |
//!                        deliver <-- flow (FIFO per origin and group)
//! ```
//!
//! | file | what it does |
//! |---|---|
//! | `mod.rs` | what the world calls, and what is done after each call |
//! | `neighbour.rs` | one link's queues and its hop |
//! | `routing.rs` | where a message goes from here |
//! | `membership.rs` | joins, leaves, views, and from where on a member gets everything |
//! | `sending.rs` | from a client into the overlay |
//! | `delivery.rs` | from the overlay to clients, and what is done about slow ones |
//!
//! **Back-pressure.** A daemon drops nothing. While a queue is full, it reads no link but the one that this queue leads back
//! to, so the queues before it fill, and so on back to the clients. Where the links form a tree this cannot lock; where they form
//! cycles, full queues could wait for each other in a circle. So clients' messages enter only while no queue is half full: what
//! is under way already goes first.

mod delivery;
mod membership;
mod neighbour;
mod routing;
mod sending;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::config::OverlayConfig;
use super::controller::{Audience, Controller, Site};
use super::groups::Groups;
use super::hop::Hop;
use super::message::{Body, ClientFrame, ClientId, DaemonId, Data, Frame, GroupId, Message};
use super::resequencer::Resequencer;
use super::sequence::{ChangeSeq, OriginSeq};
use super::topology::Topology;
use crate::config_error::ConfigError;
use crate::endpoint::Event;
use crate::packet::Ecn;
use crate::payload::Payload;
use crate::time::Time;
use delivery::Client;
use neighbour::Neighbour;

/// What a daemon wants sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Transmit<P> {
    /// To another daemon.
    Daemon(DaemonId, Frame, P),
    /// To a client.
    Client(ClientId, ClientFrame, P),
}

/// A daemon of an overlay.
#[derive(Debug)]
pub struct Daemon<P> {
    config: OverlayConfig,
    /// What a message takes on a link besides its own header and payload, in bytes.
    overhead_bytes: u32,
    site: Site,
    controller: Box<dyn Controller>,
    /// In the order of their numbers.
    neighbours: Vec<Neighbour<P>>,
    /// Queues that are full, and that are half full.
    full: usize,
    half_full: usize,
    /// Neighbours that something is to be done for.
    dirty: Vec<u16>,
    /// When hops want to be called.
    timers: BTreeSet<(Time, u16)>,
    clients: BTreeMap<ClientId, Client<P>>,
    next_client: u32,
    /// The members of each group that are here.
    members: BTreeMap<GroupId, Vec<ClientId>>,
    /// Changes that this daemon has told of.
    changes: ChangeSeq,
    /// Changes of others, in their order.
    heard: BTreeMap<DaemonId, Resequencer<ChangeSeq, Message>>,
    /// What others sent to groups that have members here.
    flows: BTreeMap<(GroupId, DaemonId), Resequencer<OriginSeq, (Data, P)>>,
    /// How many messages this daemon's clients have sent to each group with members, and to any group that has none any more: the
    /// numbers of a group that is new begin above, so that nothing that is still on its way is taken for one of them.
    sent: BTreeMap<GroupId, OriginSeq>,
    sent_before: OriginSeq,
    /// The client whose message entered last, and those that are asked next.
    last_sender: ClientId,
    asked: Vec<ClientId>,
    /// Groups whose senders wait, and for which daemons' members.
    paused: BTreeMap<GroupId, BTreeSet<DaemonId>>,
    /// The slow members here for which they wait.
    slow: BTreeMap<GroupId, BTreeSet<ClientId>>,
    /// When slow members that have not caught up since have had their time.
    deadlines: BTreeSet<(Time, GroupId, ClientId)>,
    /// Messages to groups that went through here, and the links that the present one goes to.
    forwarded: u64,
    links: Vec<u16>,
    outputs: VecDeque<Transmit<P>>,
    events: VecDeque<Event>,
}

impl<P: Payload + Default> Daemon<P> {
    /// Daemon number `here` of a topology, with a hop for each of its neighbours, in the order of their numbers.
    ///
    /// # Errors
    /// Where a parameter is outside its range, or the hops are not as many as the neighbours.
    pub fn new(
        config: OverlayConfig,
        controller: Box<dyn Controller>,
        here: DaemonId,
        topology: Arc<Topology>,
        hops: Vec<Box<dyn Hop<P>>>,
    ) -> Result<Daemon<P>, ConfigError> {
        config.check()?;
        let mut ends = topology.neighbours(here).to_vec();
        ends.sort_unstable();
        ConfigError::first_of([(
            "a daemon's hops",
            "as many as its neighbours",
            ends.len() == hops.len(),
        )])?;
        let neighbours = ends.into_iter().zip(hops);
        let neighbours: Vec<_> = neighbours
            .map(|((id, link), hop)| Neighbour::new(id, link, hop))
            .collect();
        Ok(Daemon {
            overhead_bytes: neighbours
                .iter()
                .map(|neighbour| neighbour.hop.overhead_bytes())
                .max()
                .unwrap_or(0),
            site: Site {
                here,
                topology,
                groups: Groups::default(),
            },
            controller,
            neighbours,
            full: 0,
            half_full: 0,
            dirty: Vec::new(),
            timers: BTreeSet::new(),
            clients: BTreeMap::new(),
            next_client: 0,
            members: BTreeMap::new(),
            changes: ChangeSeq(0),
            heard: BTreeMap::new(),
            flows: BTreeMap::new(),
            sent: BTreeMap::new(),
            sent_before: OriginSeq(0),
            last_sender: ClientId(0),
            asked: Vec::new(),
            paused: BTreeMap::new(),
            slow: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            forwarded: 0,
            links: Vec::new(),
            outputs: VecDeque::new(),
            events: VecDeque::new(),
            config,
        })
    }

    /// A client is there: its number from now on. `priority` is what the controller gives it, in percent of what others get.
    pub fn connect(&mut self, now: Time, priority: u16) -> ClientId {
        let client = ClientId(self.next_client);
        self.next_client += 1;
        self.clients.insert(client, Client::default());
        let share = f64::from(priority.max(1)) / 100.0;
        self.controller.add_client(now, client, share);
        self.settle(now);
        client
    }

    /// A client says something. What makes no sense from it is ignored.
    pub fn handle_client(&mut self, now: Time, client: ClientId, frame: &ClientFrame, payload: P) {
        if !self.clients.contains_key(&client) {
            return;
        }
        match *frame {
            ClientFrame::Join(group) => self.join(now, client, group),
            ClientFrame::Leave(group) => self.leave(now, client, group),
            ClientFrame::Send { group, sent_us } => {
                self.offer(now, client, group, sent_us, payload)
            }
            ClientFrame::Took { messages } => self.on_took(now, client, messages),
            ClientFrame::Disconnect => self.disconnect(now, client),
            ClientFrame::Connect { .. }
            | ClientFrame::Ready
            | ClientFrame::Deliver { .. }
            | ClientFrame::View { .. }
            | ClientFrame::Evicted(_) => {}
        }
        self.settle(now);
    }

    /// Another daemon's frame, and the mark of the packet that carried it. What is not from a neighbour, and not straight from a
    /// daemon of this overlay, is ignored.
    pub fn handle_frame(&mut self, now: Time, from: DaemonId, frame: &Frame, ecn: Ecn, payload: P) {
        if let Frame::Direct(message) = frame {
            self.take_straight(now, from, message);
        } else if let Some(index) = self.neighbour_index(from) {
            self.neighbours[usize::from(index)]
                .hop
                .handle_frame(now, frame, ecn, payload);
            self.touch(index);
        }
        self.settle(now);
    }

    /// Does what is due; a spurious call does nothing.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(&(time, index)) = self.timers.first()
            && time <= now
        {
            self.timers.pop_first();
            let neighbour = &mut self.neighbours[usize::from(index)];
            neighbour.armed = None;
            neighbour.hop.handle_timeout(now);
            self.touch(index);
        }
        self.evict_overdue(now);
        if self.controller.poll_timeout().is_some_and(|due| due <= now) {
            self.controller.handle_timeout(now, &self.site);
        }
        self.settle(now);
    }

    /// When [`handle_timeout`](Daemon::handle_timeout) is wanted next.
    pub fn poll_timeout(&self) -> Option<Time> {
        let hops = self.timers.first().map(|(time, _)| *time);
        let deadline = self.deadlines.first().map(|(time, ..)| *time);
        let times = [hops, deadline, self.controller.poll_timeout()];
        times.into_iter().flatten().min()
    }

    /// The next thing to send. Drain it after each call of the others.
    pub fn poll_transmit(&mut self) -> Option<Transmit<P>> {
        self.outputs.pop_front()
    }

    /// What happened, for traces and metrics.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        event.or_else(|| self.controller.poll_event())
    }

    /// Does all that follows from a call: it ends when neither the controller nor a link has more to do.
    fn settle(&mut self, now: Time) {
        loop {
            while let Some(client) = self.controller.poll_ready() {
                self.try_send(now, client);
            }
            while let Some((audience, control)) = self.controller.poll_control() {
                let message = self.message(Body::Control(control));
                match audience {
                    Audience::Everyone => self.forward(now, message, P::default()),
                    Audience::One(daemon) => self.send_straight(daemon, message),
                }
            }
            let Some(index) = self.dirty.pop() else {
                return;
            };
            self.serve(now, index);
        }
    }

    /// A message of this daemon's own.
    fn message(&self, body: Body) -> Message {
        Message {
            origin: self.site.here,
            repaired: false,
            body,
        }
    }

    fn send_straight(&mut self, to: DaemonId, message: Message) {
        let output = Transmit::Daemon(to, Frame::Direct(message), P::default());
        self.outputs.push_back(output);
    }

    /// Something is to be done for a neighbour.
    fn touch(&mut self, index: u16) {
        let neighbour = &mut self.neighbours[usize::from(index)];
        if !neighbour.dirty {
            neighbour.dirty = true;
            self.dirty.push(index);
        }
    }

    fn neighbour_index(&self, daemon: DaemonId) -> Option<u16> {
        let found = self.neighbours.binary_search_by_key(&daemon, |n| n.id);
        found.ok().map(|index| index as u16)
    }

    /// Entries that this daemon keeps for clients, groups and senders: none once all clients everywhere are gone and all that they sent
    /// has arrived. For operators, and for tests that it does not grow.
    pub fn state_size(&self) -> usize {
        let queues = self.neighbours.iter().map(Neighbour::waiting);
        let early = self.heard.values().map(Resequencer::held);
        let flows = self.flows.values().map(|flow| 1 + flow.held());
        let slow = self.paused.len() + self.slow.len() + self.deadlines.len();
        let own = self.clients.len() + self.members.len() + self.sent.len() + slow;
        own + self.site.groups.len() + queues.chain(early).chain(flows).sum::<usize>()
    }

    /// What this daemon keeps for flows of messages, none where they only go through. For tests of the promise that routers keep
    /// no state of flows.
    #[cfg(test)]
    fn flow_states(&self) -> usize {
        self.flows.len() + self.sent.len()
    }
}
