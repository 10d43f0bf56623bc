//! The border of a part: the packets and joins that leave it or arrive from other parts.

use std::collections::VecDeque;
use std::sync::Arc;

use manyflow_core::{EndpointId, Header, Time};

use crate::engine::events::Due;
use crate::engine::multicast::Message;
use crate::engine::packets::{PacketId, Shipped};
use crate::engine::routing::{Graph, NONE};
use crate::engine::{LinkId, Network, NodeId, Observer};

/// The places of nodes, endpoints and links in the parts.
pub(in crate::engine) struct Map {
    pub(super) part_of_node: Vec<u16>,
    pub(super) node_of_endpoint: Vec<NodeId>,
    /// The index of each endpoint in its part.
    pub(super) endpoints: Vec<u32>,
    /// The index of each link in the part of its first node.
    pub(super) links: Vec<u32>,
    /// The ends of each link.
    pub(super) ends: Vec<(NodeId, NodeId)>,
}

impl Map {
    #[inline]
    pub(super) fn part(&self, node: NodeId) -> usize {
        usize::from(self.part_of_node[node.0 as usize])
    }

    /// Returns the part that has an endpoint, and the endpoint's index there.
    pub(super) fn endpoint(&self, id: EndpointId) -> (usize, u32) {
        let node = self.node_of_endpoint[id.0 as usize];
        (self.part(node), self.endpoints[id.0 as usize])
    }

    /// Returns the part that has a link's queue, and the link's index there.
    pub(super) fn link(&self, link: LinkId) -> (usize, u32) {
        let (from, _) = self.ends[link.0 as usize];
        (self.part(from), self.links[link.0 as usize])
    }
}

/// A part's knowledge of the network around it.
pub(in crate::engine) struct Border<H> {
    pub(super) map: Arc<Map>,
    pub(super) graph: Arc<Graph>,
    pub(super) part: usize,
    /// The number of each endpoint in the whole network.
    pub(super) endpoints: Vec<u32>,
    /// The number of each link in the whole network: the links of this part, then those that
    /// arrive from other parts.
    pub(super) links: Vec<u32>,
    /// For each link that leaves this part, the part in which it ends and its place there among
    /// `arrivals`. These are the last links of this part.
    pub(super) exits: Vec<(u32, u32)>,
    pub(super) arrivals: Vec<Arrivals<H>>,
    /// The places of arrivals whose last number is not final yet.
    pub(super) reserved: Vec<u32>,
    /// For each part, the traffic of this window.
    pub(super) outboxes: Vec<Vec<Crossing<H>>>,
}

/// The end of a link that begins in another part.
pub(super) struct Arrivals<H> {
    pub(super) to: NodeId,
    pub(super) tapped: bool,
    /// The packets on their way, with their numbers.
    pub(super) packets: VecDeque<(Time, Shipped<H>)>,
    /// The place in the order of events at which the link's last arrival ended: a single engine
    /// adds the event of the next arrival there if the next packet is on its way by then.
    pub(super) last: u32,
}

/// A packet, a join or a leave that is on its way to another part.
pub(super) struct Crossing<H> {
    /// The time of its arrival.
    pub(super) time: Time,
    /// Its place in the order of added events.
    pub(super) number: u32,
    pub(super) cargo: Cargo<H>,
}

pub(super) enum Cargo<H> {
    /// A packet on the link with this place among the arrivals.
    Packet(u32, Shipped<H>),
    Message(Message),
}

impl<H> Border<H> {
    /// Returns the first link of the path from each node of this part to a destination.
    pub(in crate::engine) fn routes_to(&self, to: NodeId) -> Vec<u32> {
        let mut routes = self.graph.routes_to(to);
        self.keep_own(&mut routes);
        routes
    }

    /// Replaces links by their indexes in this part, and forgets those of other parts.
    pub(super) fn keep_own(&self, routes: &mut [u32]) {
        for (node, link) in (0..).zip(routes) {
            *link = match self.map.part(NodeId(node)) == self.part && *link != NONE {
                true => self.map.links[*link as usize],
                false => NONE,
            };
        }
    }

    /// Returns the number of a link of this part, or of one that arrives here, in the whole
    /// network.
    pub(super) fn link(&self, link: LinkId) -> LinkId {
        LinkId(self.links[link.0 as usize])
    }
}

impl<H: Header, E> Network<H, E> {
    /// Returns the index of an endpoint that is in this part.
    #[inline]
    pub(in crate::engine) fn place_of(&self, endpoint: EndpointId) -> u32 {
        match &self.border {
            None => endpoint.0,
            Some(border) => border.map.endpoints[endpoint.0 as usize],
        }
    }

    /// Returns the number of the endpoint with this index.
    #[inline]
    pub(in crate::engine) fn id_of(&self, index: u32) -> EndpointId {
        match &self.border {
            None => EndpointId(index),
            Some(border) => EndpointId(border.endpoints[index as usize]),
        }
    }

    /// Returns the node of an endpoint, which may be in another part.
    #[inline]
    pub(in crate::engine) fn node_of(&self, endpoint: EndpointId) -> NodeId {
        match &self.border {
            None => self.endpoints[endpoint.0 as usize].node,
            Some(border) => border.map.node_of_endpoint[endpoint.0 as usize],
        }
    }

    /// Hands the packets that a link to another part has accepted to that part. Their arrival is
    /// certain, because such a link neither changes nor has a managed queue or jitter.
    pub(in crate::engine) fn export(&mut self, link: LinkId, id: PacketId, copies: u32) {
        let number = self.events.take_number();
        let border = self.border.as_mut().expect("only parts have exits");
        let (part, place) = border.exits[(link.0 - self.exits_from) as usize];
        let entry = &mut self.links[link.0 as usize];
        for _ in 0..copies {
            let time = entry.link.next_time().expect("the link has accepted it");
            let popped = entry.link.pop_ready(time);
            debug_assert_eq!(popped, Some(id), "an exit carries nothing else");
            border.outboxes[part as usize].push(Crossing {
                time,
                number,
                cargo: Cargo::Packet(place, self.packets.ship(id)),
            });
        }
    }

    /// Sends a join or leave if its node is in another part. Returns whether it is.
    pub(in crate::engine) fn export_message(&mut self, time: Time, message: Message) -> bool {
        let Some(border) = &mut self.border else {
            return false;
        };
        let part = border.map.part(message.node);
        if part == border.part {
            return false;
        }
        let number = self.events.take_number();
        border.outboxes[part].push(Crossing {
            time,
            number,
            cargo: Cargo::Message(message),
        });
        true
    }

    /// Takes the packets, joins and leaves that have arrived from other parts.
    pub(super) fn import(&mut self, inbox: &mut Vec<Crossing<H>>) {
        for crossing in inbox.drain(..) {
            let Crossing {
                time,
                number,
                cargo,
            } = crossing;
            match cargo {
                Cargo::Message(message) => {
                    let index = self.store_message(message);
                    self.events.push_numbered(time, number, Due::Message(index));
                }
                Cargo::Packet(place, packet) => {
                    let border = self.border.as_mut().expect("parts have borders");
                    let arrivals = &mut border.arrivals[place as usize];
                    if arrivals.packets.is_empty() {
                        let due = Due::Link(self.links.len() as u32 + place);
                        let number = number.max(arrivals.last);
                        self.events.push_numbered(time, number, due);
                    }
                    arrivals.packets.push_back((time, packet));
                }
            }
        }
    }

    /// Handles the packets that have arrived on a link from another part.
    pub(in crate::engine) fn on_arrivals(&mut self, index: u32, observer: &mut dyn Observer<H, E>) {
        let place = index as usize - self.links.len();
        let now = self.now;
        loop {
            let border = self.border.as_mut().expect("parts have borders");
            let arrivals = &mut border.arrivals[place];
            let (to, tapped) = (arrivals.to, arrivals.tapped);
            if arrivals.packets.front().is_none_or(|(time, _)| *time > now) {
                break;
            }
            let Some((_, packet)) = arrivals.packets.pop_front() else {
                break;
            };
            let id = self.packets.unpack(packet);
            if tapped {
                observer.on_tapped(now, LinkId(index), &self.packets[id]);
            }
            self.limits.carried -= 1;
            if let Some(endpoint) = self.arrive(to, id, observer) {
                self.drain(endpoint, observer);
            }
        }
        let number = self.events.take_number();
        let border = self.border.as_mut().expect("parts have borders");
        let arrivals = &mut border.arrivals[place];
        if let Some(&(time, _)) = arrivals.packets.front() {
            self.events.push_numbered(time, number, Due::Link(index));
        } else {
            arrivals.last = number;
            border.reserved.push(place as u32);
        }
    }
}
