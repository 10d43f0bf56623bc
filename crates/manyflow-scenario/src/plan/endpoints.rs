//! Allots the numbers of endpoints. A world numbers endpoints in the order in which they are added:
//! first the daemons of each overlay, then the endpoints of each session. Nothing outside this file
//! calculates with these numbers.

use manyflow_core::EndpointId;
use manyflow_netsim::NodeId;

use crate::plan::overlays::Overlays;
use crate::plan::sessions::{PlannedSession, Sessions};
use crate::plan::topology::Topology;
use crate::protocols::Network;
use crate::schema::protocols::Protocol;
use manyflow_model::error::Fault;

/// Hands out the numbers of endpoints, in the order in which the scene adds them.
#[derive(Debug, Default)]
pub struct Allotment {
    /// The number of endpoints so far, which is the number of the next one.
    count: u64,
}

/// The maximum number of endpoints. An endpoint takes about 1 kB, so more are a mistake.
const ENDPOINTS_MAX: u64 = 100_000_000;

/// Consecutive endpoints.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    first: u32,
    count: u32,
}

/// The endpoints of a receiver. There is one for each membership interval, or two with a unicast
/// protocol: the sending end, which reports round-trip time and window, and the receiving end.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    ids: Ids,
    is_unicast: bool,
}

/// The role of a receiver's endpoint.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The sending end of a unicast flow, which is at the sender's node.
    Sending,
    /// The receiver itself.
    Receiving,
}

impl Ids {
    /// Returns the endpoint at a place in the order.
    ///
    /// # Panics
    /// Panics if there are fewer endpoints.
    pub fn at(self, place: usize) -> EndpointId {
        assert!(place < self.count as usize, "no endpoint was allotted");
        EndpointId(self.first + place as u32)
    }

    /// Returns the endpoints in order.
    pub fn iter(self) -> impl Iterator<Item = EndpointId> {
        (self.first..self.first + self.count).map(EndpointId)
    }
}

impl Ends {
    /// Returns the ends of a receiver whose endpoints are `ids`, two for each membership interval
    /// if the protocol `is_unicast`.
    pub fn new(ids: Ids, is_unicast: bool) -> Ends {
        Ends { ids, is_unicast }
    }

    /// Returns the receiving endpoint of a membership interval.
    pub fn receiving_in(self, interval: usize) -> EndpointId {
        match self.is_unicast {
            true => self.ids.at(2 * interval + 1),
            false => self.ids.at(interval),
        }
    }

    /// Returns the sending and the receiving endpoint of a membership interval.
    ///
    /// # Panics
    /// Panics if the protocol is not unicast.
    pub fn pair_in(self, interval: usize) -> (EndpointId, EndpointId) {
        assert!(self.is_unicast, "only unicast protocols have pairs");
        (self.ids.at(2 * interval), self.ids.at(2 * interval + 1))
    }

    /// Returns the receiving endpoints.
    pub fn receiving(self) -> impl Iterator<Item = EndpointId> {
        let receiving = self.all().filter(|(_, role)| *role == Role::Receiving);
        receiving.map(|(id, _)| id)
    }

    /// Returns all endpoints with their roles, in the order of their numbers.
    pub fn all(self) -> impl Iterator<Item = (EndpointId, Role)> {
        self.ids.iter().enumerate().map(move |(place, id)| {
            let is_sending = self.is_unicast && place.is_multiple_of(2);
            let role = match is_sending {
                true => Role::Sending,
                false => Role::Receiving,
            };
            (id, role)
        })
    }
}

impl Allotment {
    /// Allots all endpoints of a plan. Returns their number.
    ///
    /// # Errors
    /// Returns an error if there are too many.
    pub fn all(overlays: &mut Overlays, sessions: &mut Sessions) -> Result<usize, Fault> {
        let mut allotment = Allotment::default();
        for overlay in &mut overlays.0 {
            overlay.endpoints = allotment.take(overlay.nodes.len());
        }
        for session in &mut sessions.0 {
            allotment.session(session);
        }
        if allotment.is_exhausted() {
            let message = format!("the sessions need more than {ENDPOINTS_MAX} endpoints");
            return Err(Fault::value(message));
        }
        Ok(allotment.count as usize)
    }

    fn is_exhausted(&self) -> bool {
        self.count > ENDPOINTS_MAX
    }

    /// Takes the next numbers. They are meaningless if there are too many endpoints.
    pub fn take(&mut self, count: usize) -> Ids {
        let first = self.count as u32;
        self.count = self.count.saturating_add(count as u64);
        Ids {
            first,
            count: count as u32,
        }
    }

    /// Allots the endpoints of a session, in the order in which its protocol adds them.
    fn session(&mut self, session: &mut PlannedSession) {
        match session.protocol {
            Protocol::Tcp | Protocol::Cbr => self.pairs(session),
            Protocol::Command => self.staff(session, session.sender),
            Protocol::Webrc | Protocol::Sim | Protocol::Rlm | Protocol::Tfmcc => {
                self.staff(session, session.sender);
                for place in 0..session.aggregators.len() {
                    self.staff(session, session.aggregators[place]);
                }
                self.memberships(session);
            }
            Protocol::Acp => {
                self.memberships(session);
                let connections = match session.switches.len() {
                    0 => session.intervals(),
                    _ => 1,
                };
                for _ in 0..connections {
                    self.staff(session, session.sender);
                }
                for switch in 0..session.switches.len() {
                    self.staff(session, session.switches[switch].node);
                }
            }
            Protocol::Overlay => {
                self.memberships(session);
                for _ in 0..session.affiliation.map_or(0, |own| own.clients) {
                    self.staff(session, session.sender);
                }
            }
        }
    }

    /// Allots the next endpoint to a session, at a node and apart from its receivers.
    fn staff(&mut self, session: &mut PlannedSession, node: u32) {
        let id = self.take(1).at(0);
        if !self.is_exhausted() {
            session.staff.push((id, NodeId(node)));
        }
    }

    /// Allots an endpoint to each membership interval of each receiver.
    fn memberships(&mut self, session: &mut PlannedSession) {
        self.receivers(session, false);
    }

    /// Allots a sending and a receiving endpoint to each membership interval of each receiver.
    fn pairs(&mut self, session: &mut PlannedSession) {
        self.receivers(session, true);
    }

    fn receivers(&mut self, session: &mut PlannedSession, is_unicast: bool) {
        let each = if is_unicast { 2 } else { 1 };
        for receiver in &mut session.receivers {
            let ids = self.take(each * receiver.intervals.len());
            receiver.ends = Ends::new(ids, is_unicast);
        }
    }
}

/// The paths of packets through a topology, as the simulator routes them.
pub struct Paths<'a> {
    topology: &'a Topology,
    network: Network,
}

impl Paths<'_> {
    /// Prepares the search in this network.
    pub fn new(topology: &Topology) -> Paths<'_> {
        let mut network = Network::new(0);
        for name in topology.nodes.iter() {
            network.add_node(name);
        }
        for link in &topology.links {
            network.add_link(NodeId(link.from), NodeId(link.to), link.config.clone());
        }
        Paths { topology, network }
    }

    /// Returns the links over which multicast packets from `sender` reach a node, the last link
    /// first.
    pub fn find_links(&mut self, sender: u32, node: u32) -> Vec<u32> {
        let branch = self.network.branch(NodeId(sender), NodeId(node));
        branch.into_iter().map(|link| link.0).collect()
    }

    /// Returns the nodes on the way of unicast packets, from the sender's to the receiver's.
    pub fn find_unicast(&mut self, sender: u32, node: u32) -> Vec<u32> {
        let way = self.network.path(NodeId(sender), NodeId(node)).into_iter();
        std::iter::once(sender)
            .chain(way.map(|node| node.0))
            .collect()
    }

    /// Returns a node and the nodes over which multicast packets from `sender` reach it, up to
    /// the sender's.
    pub fn find_path(&mut self, sender: u32, node: u32) -> Vec<u32> {
        let branch = self.network.branch(NodeId(sender), NodeId(node));
        let from = |link: manyflow_netsim::LinkId| self.topology.links[link.0 as usize].from;
        let above = branch.into_iter().map(from);
        std::iter::once(node).chain(above).collect()
    }
}
