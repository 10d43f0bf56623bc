//! A network of links that carries real IP packets. It has no clock and no device: packets and the
//! time are arguments.
//!
//! The network is that of the simulator: the same links, routes, joins and leaves. Each host has an
//! endpoint that stands for its programs, and each router one that answers pings and traceroutes.
//! Endpoints of protocols can run in the same network; their packets share the links' queues with
//! those of programs.

mod addresses;
mod groups;
mod hops;
mod icmp;
mod membership;
mod packet;
mod port;
mod queries;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::mpsc::{Sender, channel};

use manyflow_core::{Action, Channel, Destination, Ecn, EndpointId, Packet, Time};
use manyflow_netsim::{Halt, Incident, LinkId, NodeId, Observer};
use manyflow_scenario::protocols::{HostEvent, IpArrived, IpPacket};
use manyflow_scenario::{AnyEvent, AnyHeader, Network};

pub use addresses::{Addresses, NodeAddresses};
use groups::GroupsOfSessions;
pub use groups::{Groups, Joiner};
use hops::Hops;
use membership::{Change, Membership};
pub use packet::MTU;
use packet::{Fields, forward, read_fields};
use port::RouterPort;
pub use port::{HostPort, kernel_end, program_end};
use queries::Queries;

/// The header of packets between hosts whose TTL expires on the way.
const EXPIRED: IpPacket = IpPacket {
    is_expired: true,
    ..IpPacket::DATA
};

/// Takes the packets that arrive at hosts.
pub trait Outlet {
    /// Delivers an IP packet that was due at a host at this time.
    fn deliver(&mut self, due: Time, node: NodeId, packet: &[u8]);

    /// Delivers a query of the router beside a host, which no link carries.
    fn query(&mut self, node: NodeId, packet: &[u8]);
}

/// The two sides that watch a network: hosts, and the observer of its endpoints and links.
pub struct Outside<'a> {
    /// Takes the packets that arrive at hosts.
    pub outlet: &'a mut dyn Outlet,
    /// Observes everything else.
    pub observer: &'a mut dyn Observer<AnyHeader, AnyEvent>,
}

/// The IP packets of programs, by their fate outside the links, which have counters of their own.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets from hosts.
    pub entered: u64,
    /// Bytes of these packets.
    pub entered_bytes: u64,
    /// Packets delivered to hosts.
    pub left: u64,
    /// Bytes of these packets.
    pub left_bytes: u64,
    /// Packets delivered to hosts with congestion experienced (RFC 3168).
    pub left_marked: u64,
    /// Packets from hosts that are not IP packets, or have no path to their destination.
    pub refused: u64,
    /// Packets from hosts to groups that nobody has joined, and to groups of the local network.
    pub unjoined: u64,
    /// Packets whose TTL or hop limit expired.
    pub expired: u64,
}

/// A network that carries IP packets between hosts. See the [module's page](self).
pub struct Fabric {
    network: Network,
    addresses: Addresses,
    nodes: u32,
    /// The endpoint of node 0. Those of the other nodes follow in their order.
    first_port: u32,
    /// For each host, the way into its endpoint; `None` for routers.
    inlets: Vec<Option<Sender<Action<IpPacket>>>>,
    members: Vec<Membership>,
    /// The multicast session of each host.
    sessions: Vec<Option<u32>>,
    /// The addresses of all hosts.
    sources: Vec<IpAddr>,
    /// The number of each group's channels, which all sessions use: the order in which groups were
    /// first joined. Receivers of layered sessions join the lowest group first, so these numbers
    /// are the ranks by which routers mark.
    groups: BTreeMap<IpAddr, u16>,
    /// The endpoints that take the TCP segments over IPv4 to some ports of a node.
    claims: BTreeMap<(NodeId, u16), EndpointId>,
    groups_of_sessions: GroupsOfSessions,
    queries: Queries,
    /// The time of the next queries, or of the first membership that would end before them.
    upkeep_at: Time,
    hops: Hops,
    counts: Counts,
    scratch: Vec<u8>,
}

impl Fabric {
    /// Connects the programs of `hosts` to a network, which already has all its nodes, links and
    /// other endpoints. The network has `nodes` nodes, and all except `hosts` are routers.
    pub fn new(network: Network, nodes: u32, hosts: &[NodeId], addresses: Addresses) -> Fabric {
        let both = |&node| {
            let NodeAddresses { v4, v6 } = addresses.of(node);
            [IpAddr::from(v4), v6.into()]
        };
        let mut fabric = Fabric {
            first_port: network.next_endpoint().0,
            network,
            addresses,
            nodes,
            inlets: Vec::new(),
            members: (0..nodes).map(|_| Membership::default()).collect(),
            sessions: vec![None; nodes as usize],
            sources: hosts.iter().flat_map(both).collect(),
            groups: BTreeMap::new(),
            claims: BTreeMap::new(),
            groups_of_sessions: GroupsOfSessions::default(),
            queries: Queries::new(),
            upkeep_at: Time::ZERO,
            hops: Hops::new(nodes as usize),
            counts: Counts::default(),
            scratch: Vec::with_capacity(MTU),
        };
        (0..nodes).for_each(|node| fabric.add_port(NodeId(node), hosts.contains(&NodeId(node))));
        fabric
    }

    fn add_port(&mut self, node: NodeId, is_host: bool) {
        if is_host {
            let (inlet, outside) = channel();
            self.network.add(node, HostPort::new(node, outside));
            self.inlets.push(Some(inlet));
            self.sessions[node.0 as usize] = Some(self.network.open_session(node));
        } else {
            let addresses = self.addresses.of(node);
            self.network.add(node, RouterPort::new(addresses));
            self.inlets.push(None);
        }
    }

    /// Hands the TCP segments over IPv4 to a port of a node to this endpoint, so that the network
    /// counts them as its packets. The endpoint has to report them as [`HostEvent::Arrived`].
    pub fn claim(&mut self, node: NodeId, port: u16, endpoint: EndpointId) {
        self.claims.insert((node, port), endpoint);
    }

    /// Makes the groups of a session the channels of a multicast session of the network.
    pub fn claim_groups(&mut self, groups: &Groups) {
        self.groups_of_sessions.claim(groups);
    }

    /// Lets an endpoint join the channels of a session instead of its host, so that the network
    /// counts their packets as its own.
    pub fn add_joiner(&mut self, joiner: Joiner) {
        self.groups_of_sessions.add_joiner(joiner);
    }

    /// Returns the network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Returns the network, so that its links can be changed and read.
    pub fn network_mut(&mut self) -> &mut Network {
        &mut self.network
    }

    /// Returns the counts of IP packets so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the time of the next event, until which a driver can wait.
    pub fn next_time(&mut self) -> Time {
        let next = self.network.next_time();
        next.map_or(self.upkeep_at, |next| next.min(self.upkeep_at))
    }

    /// Moves packets, queries hosts and ends memberships up to the time `now`. Packets that arrive
    /// at hosts and all events go to `outside`.
    ///
    /// # Errors
    /// Returns the reason if the network [cannot continue](Network::run_until).
    pub fn advance(&mut self, now: Time, outside: &mut Outside<'_>) -> Result<(), Halt> {
        while self.upkeep_at <= now {
            let due = self.upkeep_at;
            self.run_until(due, outside)?;
            self.keep_memberships(due, outside);
        }
        self.run_until(now, outside)
    }

    fn run_until(&mut self, end: Time, outside: &mut Outside<'_>) -> Result<(), Halt> {
        let (network, mut exit) = self.split(outside);
        network.run_until(end, &mut exit)
    }

    /// Sends the queries that are due, and ends memberships without a report.
    fn keep_memberships(&mut self, now: Time, outside: &mut Outside<'_>) {
        if let Some(queries) = self.queries.take(now) {
            for (node, _) in (0..).zip(&self.inlets).filter(|(_, inlet)| inlet.is_some()) {
                let queries = queries.iter();
                queries.for_each(|query| outside.outlet.query(NodeId(node), query));
            }
        }
        // A membership that begins later ends after the next queries.
        let mut next = self.queries.next();
        for node in 0..self.members.len() {
            let members = &mut self.members[node];
            let changes = members.expire(now, &self.sources);
            next = members.expires_at().map_or(next, |at| at.min(next));
            self.change_memberships(NodeId(node as u32), &changes, outside);
        }
        debug_assert!(next > now, "the upkeep at this time is done");
        self.upkeep_at = next;
    }

    /// Takes an IP packet from the programs of a host, at the time up to which the network has
    /// [advanced](Fabric::advance). Ignores packets from nodes that are not hosts.
    pub fn push(&mut self, node: NodeId, packet: &[u8], outside: &mut Outside<'_>) {
        self.counts.entered += 1;
        self.counts.entered_bytes += packet.len() as u64;
        let Some(fields) = read_fields(packet) else {
            self.counts.refused += 1;
            return;
        };
        if fields.is_membership {
            self.counts.unjoined += 1;
            let now = self.network.now();
            let members = &mut self.members[node.0 as usize];
            let changes = members.handle_report(now, packet, &self.sources);
            self.change_memberships(node, &changes, outside);
        } else if fields.destination.is_multicast() {
            let channel = self.channel(node, fields.destination);
            match channel.filter(|_| !fields.is_link_local()) {
                Some(channel) => {
                    let to = Destination::Channel(channel);
                    let header = IpPacket {
                        rank: u8::try_from(channel.number).ok(),
                        ..IpPacket::DATA
                    };
                    self.send(node, to, header, &fields, packet, outside);
                }
                None => self.counts.unjoined += 1,
            }
        } else if fields.is_link_local() {
            self.counts.refused += 1;
        } else {
            self.push_unicast(node, &fields, packet, outside);
        }
    }

    fn push_unicast(
        &mut self,
        node: NodeId,
        fields: &Fields,
        packet: &[u8],
        outside: &mut Outside<'_>,
    ) {
        let to = self.addresses.node_of(fields.destination, self.nodes);
        let to = to.filter(|to| *to != node);
        let routers = to.and_then(|to| self.hops.look_up(&mut self.network, node, to));
        let (Some(to), Some(routers)) = (to, routers) else {
            self.counts.refused += 1;
            self.refuse(node, packet, outside);
            return;
        };
        if fields.ttl <= routers {
            self.counts.expired += 1;
            let path = self.network.path(node, to);
            if let Some(&router) = path.get(usize::from(fields.ttl.max(1)) - 1) {
                self.hops.look_up(&mut self.network, router, node);
                let to = Destination::Endpoint(self.port(router));
                self.send(node, to, EXPIRED, fields, packet, outside);
            }
            return;
        }
        self.hops.look_up(&mut self.network, to, node);
        let claim = fields
            .tcp_port
            .and_then(|port| self.claims.get(&(to, port)));
        let to = claim.copied().unwrap_or(self.port(to));
        let to = Destination::Endpoint(to);
        self.send(node, to, IpPacket::DATA, fields, packet, outside);
    }

    /// Answers a packet without a path to its destination. The answer comes from the first router,
    /// without any delay.
    fn refuse(&mut self, node: NodeId, packet: &[u8], outside: &mut Outside<'_>) {
        let router = self.addresses.of(node);
        if let Some(error) = icmp::host_unreachable(router, packet) {
            outside.outlet.deliver(self.network.now(), node, &error);
        }
    }

    /// Sends a packet from a host. Copies it once; its copies in the network share the bytes.
    fn send(
        &mut self,
        node: NodeId,
        to: Destination,
        header: IpPacket,
        fields: &Fields,
        packet: &[u8],
        outside: &mut Outside<'_>,
    ) {
        let header = IpPacket {
            flow: fields.flow,
            ..header
        };
        let packet = Packet::new(to, header, packet).with_ecn(fields.ecn);
        self.perform(node, [Action::Send(packet)], outside);
    }

    /// Performs actions of a host's programs.
    fn perform(
        &mut self,
        node: NodeId,
        actions: impl IntoIterator<Item = Action<IpPacket>>,
        outside: &mut Outside<'_>,
    ) {
        let Some(inlet) = &self.inlets[node.0 as usize] else {
            return;
        };
        for action in actions {
            inlet.send(action).expect("the network holds the endpoint");
        }
        self.wake(self.port(node), outside);
    }

    fn wake(&mut self, endpoint: EndpointId, outside: &mut Outside<'_>) {
        let (network, mut exit) = self.split(outside);
        network.wake(endpoint, &mut exit);
    }

    fn port(&self, node: NodeId) -> EndpointId {
        EndpointId(self.first_port + node.0)
    }

    /// Returns the channel of packets from a host to a group; `None` if nobody has joined it.
    fn channel(&self, source: NodeId, group: IpAddr) -> Option<Channel> {
        let number = *self.groups.get(&group)?;
        if let Some(channel) = self.groups_of_sessions.channel(source, group) {
            return Some(channel);
        }
        Some(Channel {
            session: self.sessions[source.0 as usize]?,
            number,
        })
    }

    /// Joins and leaves the channels of a host's groups.
    fn change_memberships(&mut self, node: NodeId, changes: &[Change], outside: &mut Outside<'_>) {
        for change in changes {
            let next = u16::try_from(self.groups.len()).ok();
            let Some(source) = self.addresses.node_of(change.source, self.nodes) else {
                continue;
            };
            // A host delivers its own packets itself.
            if source == node {
                continue;
            }
            if let Some(next) = next {
                self.groups.entry(change.group).or_insert(next);
            }
            let Some(channel) = self.channel(source, change.group) else {
                continue;
            };
            self.hops.look_up(&mut self.network, source, node);
            let now = self.network.now();
            let sessions = &mut self.groups_of_sessions;
            if let Some(endpoint) = sessions.join_or_leave(node, channel, change.is_join, now) {
                let event = match change.is_join {
                    true => HostEvent::Joined(channel),
                    false => HostEvent::Left(channel),
                };
                self.wake(endpoint, outside);
                let event = AnyEvent::Ip(event);
                outside.observer.on_event(now, endpoint, &event);
                continue;
            }
            let action = match change.is_join {
                true => Action::Join(channel),
                false => Action::Leave(channel),
            };
            self.perform(node, [action], outside);
        }
    }

    fn split<'a, 'o>(
        &'a mut self,
        outside: &'a mut Outside<'o>,
    ) -> (&'a mut Network, Exit<'a, 'o>) {
        let exit = Exit {
            first_port: self.first_port,
            hops: &self.hops,
            counts: &mut self.counts,
            scratch: &mut self.scratch,
            outside,
        };
        (&mut self.network, exit)
    }
}

/// Separates the packets that arrive at hosts from the events of endpoints.
struct Exit<'a, 'o> {
    first_port: u32,
    hops: &'a Hops,
    counts: &'a mut Counts,
    scratch: &'a mut Vec<u8>,
    outside: &'a mut Outside<'o>,
}

impl Exit<'_, '_> {
    fn leave(&mut self, now: Time, arrived: &IpArrived) {
        let source = NodeId(arrived.source.0 - self.first_port);
        let hops = self.hops.known(source, arrived.node);
        self.scratch.clear();
        let bytes = arrived.contents.bytes().unwrap_or_default();
        self.scratch.extend_from_slice(bytes);
        if !forward(self.scratch, hops, arrived.ecn) {
            self.counts.expired += 1;
            return;
        }
        self.counts.left += 1;
        self.counts.left_marked += u64::from(arrived.ecn == Ecn::Marked);
        self.counts.left_bytes += bytes.len() as u64;
        self.outside.outlet.deliver(now, arrived.node, self.scratch);
    }
}

impl Observer<AnyHeader, AnyEvent> for Exit<'_, '_> {
    fn on_event(&mut self, now: Time, endpoint: EndpointId, event: &AnyEvent) {
        match event {
            AnyEvent::Ip(HostEvent::Arrived(arrived)) => self.leave(now, arrived),
            event => self.outside.observer.on_event(now, endpoint, event),
        }
    }

    fn on_tapped(&mut self, now: Time, link: LinkId, packet: &Packet<AnyHeader>) {
        self.outside.observer.on_tapped(now, link, packet);
    }

    fn on_incident(&mut self, now: Time, incident: &Incident<AnyHeader>) {
        self.outside.observer.on_incident(now, incident);
    }
}
