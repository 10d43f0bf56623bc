//! A sender of SIM with a hop to each receiver, and TCP connections on the links of receivers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use manyflow_core::link::{LinkConfig, QueueLimit};
use manyflow_core::{
    Action, Channel, Destination, Ecn, Endpoint, EndpointId, Header, Packet, Rate, Time,
};
use manyflow_layered::hop::{HopConfig, HopCounters, is_hop_message};
use manyflow_layered::relay::{
    HopStatus, RelayConfig, ReportingEnd, SessionInfo, StreamRelay, Where, inner_ecn,
};
use manyflow_layered::repair::Arrival;
use manyflow_layered::sim::{Receiver, ReceiverConfig, Sender, SenderConfig};
use manyflow_layered::{Membership, Message};
use manyflow_netsim::{Network, NodeId, Probe};
use manyflow_tcp::{TcpConfig, Variant};

manyflow_netsim::protocols! {
    enum AnyHeader;
    enum AnyEvent;
    Stream: Datagram, ();
    Tcp: manyflow_tcp::Segment, manyflow_tcp::Event;
}

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const SESSION: u32 = 7;
/// The bytes of the headers of AMT, IPv4 and UDP before the header of the session.
const INNER_BYTES: usize = 2 + 28;

/// A datagram between the sender and a receiver, or a change of the groups that a receiver has
/// joined.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) enum Datagram {
    /// A message of AMT with data, or a message of a hop.
    Bytes,
    /// The receiver has joined this number of groups.
    Joined(u8),
}

impl Header for Datagram {
    fn wire_bytes(&self) -> u32 {
        28
    }
}

/// The sender, and its end of the hops.
pub(crate) struct Source {
    sender: Sender,
    groups: u8,
    relay: StreamRelay,
    /// The receivers, and the number of groups that each has joined.
    children: Vec<(EndpointId, u8)>,
    /// Datagrams of one length to a child.
    out: Vec<u8>,
    segment_bytes: usize,
    to: usize,
}

fn address(place: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], place as u16 + 1))
}

impl Source {
    /// Returns the state of the hop to a child.
    pub(crate) fn hop(&self, place: usize) -> Option<HopStatus> {
        self.relay.hop(address(place))
    }

    /// Returns the cumulative rate of each group in kbit/s, and the longest round-trip time.
    pub(crate) fn rates(&self) -> (Vec<u64>, Duration) {
        let rates = (0..self.groups).map(|group| self.sender.rate(group).bits_per_s() / 1000);
        (rates.collect(), self.sender.rtt())
    }

    fn send_data(&mut self, now: Time) {
        self.relay.handle_timeout(now);
        while let Some(feedback) = self.relay.poll_feedback() {
            let to = Destination::Endpoint(EndpointId(0));
            let packet = Packet::new(to, Message::Feedback(feedback), 0);
            self.sender.handle_packet(now, &packet);
        }
        self.sender.handle_timeout(now);
        while let Some(action) = self.sender.poll_action(now) {
            let Action::Send(packet) = action else {
                continue;
            };
            self.push(now, &packet);
        }
        while self.sender.poll_event().is_some() {}
    }

    fn push(&mut self, now: Time, packet: &Packet<Message>) {
        let Message::Data(data) = packet.header else {
            return;
        };
        if !self.children.iter().any(|(_, joined)| data.group < *joined) {
            return;
        }
        self.relay.observe_data(now, 0, &data);
        let message: Arc<[u8]> = message(packet).into();
        for (place, (_, joined)) in self.children.iter().enumerate() {
            if data.group < *joined {
                let rank = Some(data.group);
                // The hop counts what its queue drops.
                let _ = self
                    .relay
                    .push(now, address(place), LOCAL, 0, rank, &message);
            }
        }
    }
}

/// Returns the AMT message with a packet of the session, whose datagram supports ECN.
fn message(packet: &Packet<Message>) -> Vec<u8> {
    let mut message = vec![0; 2 + packet.wire_bytes() as usize];
    (message[0], message[2], message[3]) = (6, 0x45, 2);
    let encoded = packet.header.encode();
    let encoded = encoded.as_bytes();
    message[INNER_BYTES..INNER_BYTES + encoded.len()].copy_from_slice(encoded);
    message
}

impl Endpoint for Source {
    type Rx = Datagram;
    type Tx = Datagram;
    type Event = ();

    fn handle_packet(&mut self, now: Time, packet: &Packet<Datagram>) {
        let known = self
            .children
            .iter()
            .position(|(child, _)| *child == packet.source);
        let place = known.expect("only children send to the source");
        match packet.header {
            Datagram::Joined(joined) => {
                self.children[place].1 = joined;
                self.relay
                    .set_top(now, address(place), LOCAL, 0, joined.checked_sub(1))
                    .expect("valid in this test");
            }
            Datagram::Bytes => {
                let bytes = packet.contents().unwrap_or_default();
                // A child's first report can come before the sounding of its hop.
                let _ = self
                    .relay
                    .handle_datagram(now, address(place), LOCAL, bytes);
            }
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_action(&mut self, now: Time) -> Option<Action<Datagram>> {
        if self.out.is_empty() {
            self.send_data(now);
            let sent = self.relay.poll_transmit(now, &mut self.out)?;
            let Where::Child { to, .. } = sent.place else {
                panic!("there is no parent");
            };
            self.segment_bytes = sent.segment_bytes;
            self.to = usize::from(to.port()) - 1;
        }
        let rest = self.out.split_off(self.segment_bytes.min(self.out.len()));
        let datagram = core::mem::replace(&mut self.out, rest);
        let to = Destination::Endpoint(self.children[self.to].0);
        let packet = Packet::new(to, Datagram::Bytes, datagram.as_slice());
        Some(Action::Send(packet))
    }

    fn poll_timeout(&self) -> Option<Time> {
        let times = [self.sender.poll_timeout(), self.relay.poll_timeout()];
        times.into_iter().flatten().min()
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }
}

/// A receiver.
pub(crate) struct Leaf {
    pub(crate) receiver: Receiver,
    end: ReportingEnd,
    parent: EndpointId,
    joined: u8,
}

impl Leaf {
    fn handle_data(&mut self, now: Time, bytes: &[u8]) {
        if self.end.handle_data(SESSION, bytes) == Arrival::Duplicate {
            return;
        }
        let header = Message::decode(&bytes[INNER_BYTES..]).expect("valid in this test");
        let Message::Data(data) = header else {
            panic!("{header:?} is not data");
        };
        let channel = Channel {
            session: SESSION,
            number: data.group.into(),
        };
        let payload = bytes.len() as u32 - 2 - header.wire_bytes();
        let packet = Packet::new(Destination::Channel(channel), header, payload);
        let packet = packet.with_ecn(match inner_ecn(bytes) {
            Ecn::Marked => Ecn::Marked,
            _ => Ecn::Capable,
        });
        self.receiver.handle_packet(now, &packet);
    }

    fn obey(&mut self, now: Time) {
        while let Some(action) = self.receiver.poll_action(now) {
            if let Action::Send(packet) = action
                && let Message::Feedback(feedback) = packet.header
            {
                self.end.report(&[feedback]);
            }
        }
        while self.receiver.poll_event().is_some() {}
    }
}

impl Endpoint for Leaf {
    type Rx = Datagram;
    type Tx = Datagram;
    type Event = ();

    fn handle_packet(&mut self, now: Time, packet: &Packet<Datagram>) {
        let bytes = packet.contents().unwrap_or_default();
        if is_hop_message(bytes) {
            self.end.handle_datagram(bytes).expect("valid in this test");
        } else {
            self.handle_data(now, bytes);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.receiver.handle_timeout(now);
    }

    fn poll_action(&mut self, now: Time) -> Option<Action<Datagram>> {
        self.obey(now);
        let to = Destination::Endpoint(self.parent);
        let joined = self.receiver.subscribed();
        if joined != core::mem::replace(&mut self.joined, joined) {
            return Some(Action::Send(Packet::new(to, Datagram::Joined(joined), 0)));
        }
        let mut out = Vec::new();
        let has_one = self.end.poll_transmit(&mut out);
        has_one.then(|| Action::Send(Packet::new(to, Datagram::Bytes, out.as_slice())))
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.receiver.poll_timeout()
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }
}

/// The links of receivers, with a stream and one connection of each of two TCP variants on each.
pub(crate) struct Chain {
    network: Network<AnyHeader, AnyEvent>,
    pub(crate) source: Probe<Source>,
    pub(crate) leaves: Vec<Probe<Leaf>>,
    tcp: Vec<[EndpointId; 2]>,
}

/// The parameters of a chain.
pub(crate) struct ChainConfig<'a> {
    /// The rates of the links, in bits per second.
    pub(crate) links: &'a [u64],
    /// The minimum length of a link's queue, which is one bandwidth-delay product otherwise.
    pub(crate) queue_bytes_min: u64,
    pub(crate) hop: HopConfig,
    pub(crate) sender: SenderConfig,
    pub(crate) receiver: ReceiverConfig,
    /// When the TCP connections start, in seconds.
    pub(crate) tcp_start_s: f64,
    pub(crate) seed: u64,
}

fn access() -> LinkConfig {
    LinkConfig {
        rate: Some(Rate::from_bits_per_s(100_000_000)),
        delay: Duration::from_millis(2),
        ..LinkConfig::default()
    }
}

impl Chain {
    pub(crate) fn new(config: &ChainConfig<'_>) -> Chain {
        let mut network = Network::new(config.seed);
        let [sender, tcp, router] = ["S", "T", "R"].map(|name| network.add_node(name));
        network.add_duplex(sender, router, access());
        network.add_duplex(tcp, router, access());
        let groups = config.sender.groups;
        let info = SessionInfo {
            session: SESSION,
            groups,
        };
        let first = network.next_endpoint().0;
        let children = (1..=config.links.len() as u32).map(|place| (EndpointId(first + place), 0));
        let source = Source {
            sender: Sender::new(config.sender.clone(), SESSION, Time::ZERO, None)
                .expect("valid in this test"),
            groups,
            relay: StreamRelay::new(
                RelayConfig {
                    hop: config.hop.clone(),
                    ..RelayConfig::default()
                },
                &[info],
                [config.seed as u8; 32],
                Time::ZERO,
            )
            .expect("valid in this test"),
            children: children.collect(),
            out: Vec::new(),
            segment_bytes: 0,
            to: 0,
        };
        let mut chain = Chain {
            source: Probe::add(&mut network, sender, source),
            network,
            leaves: Vec::new(),
            tcp: Vec::new(),
        };
        let ends = config
            .links
            .iter()
            .map(|rate| chain.add_leaf(config, router, *rate));
        let ends: Vec<NodeId> = ends.collect();
        for (place, end) in ends.into_iter().enumerate() {
            let pair = [Variant::Cubic, Variant::Sack]
                .map(|variant| chain.add_tcp(config, variant, tcp, end, place as u64));
            chain.tcp.push(pair);
        }
        chain
    }

    fn add_leaf(&mut self, config: &ChainConfig<'_>, router: NodeId, rate: u64) -> NodeId {
        let place = self.leaves.len() as u32;
        let node = self.network.add_node(&format!("P{place}"));
        let link = LinkConfig {
            rate: Some(Rate::from_bits_per_s(rate)),
            delay: Duration::from_millis(18),
            queue: QueueLimit::Bytes((rate / 200).max(config.queue_bytes_min)),
            ..LinkConfig::default()
        };
        self.network.add_duplex(router, node, link);
        let parent = self.source.id();
        let membership = Membership {
            start: Time::from_secs_f64(2.0),
            ..Membership::new(SESSION, config.sender.groups)
        };
        let receiver = Receiver::new(config.receiver.clone(), membership, place, parent);
        let leaf = Leaf {
            receiver: receiver.expect("valid in this test"),
            end: ReportingEnd::new(None, place),
            parent,
            joined: 0,
        };
        let leaf = Probe::add(&mut self.network, node, leaf);
        self.leaves.push(leaf);
        node
    }

    fn add_tcp(
        &mut self,
        config: &ChainConfig<'_>,
        variant: Variant,
        from: NodeId,
        to: NodeId,
        place: u64,
    ) -> EndpointId {
        let tcp = TcpConfig {
            variant,
            segment_bytes: 1448,
            initial_window: 10,
            start: Time::from_secs_f64(config.tcp_start_s),
            send_jitter: Duration::from_millis(1),
            delayed_acks: true,
            ..TcpConfig::default()
        };
        let receiver = EndpointId(self.network.next_endpoint().0 + 1);
        let sender = manyflow_tcp::Sender::new(tcp.clone(), receiver, config.seed + place)
            .expect("valid in this test");
        let sender = self.network.add(from, sender);
        let receiver = manyflow_tcp::Receiver::new(tcp, sender).expect("valid in this test");
        self.network.add(to, receiver)
    }

    /// Returns the bytes that the stream and both connections have received on each link.
    pub(crate) fn received(&self) -> Vec<[u64; 3]> {
        let leaves = self.leaves.iter().zip(&self.tcp);
        let bytes = |endpoint| self.network.received(endpoint).bytes;
        leaves
            .map(|(leaf, [cubic, reno])| [bytes(leaf.id()), bytes(*cubic), bytes(*reno)])
            .collect()
    }

    /// Prints the time, the rates of the groups, and for each receiver the shares of its link, its
    /// groups and its hop.
    pub(crate) fn print(&self, now_s: f64, shares: &[[f64; 3]]) {
        let source = self.source.get();
        let (rates, rtt) = source.rates();
        print!("{now_s:4} s, {} ms, {rates:?} kbit/s", rtt.as_millis());
        for (place, [stream, cubic, reno]) in shares.iter().enumerate() {
            let groups = self.leaves[place].get().receiver.subscribed();
            print!(" | {stream:.2} {cubic:.2} {reno:.2}, {groups} groups");
            if let Some(hop) = source.hop(place) {
                let rtt = hop.rtt.unwrap_or_default().0.as_millis();
                let (rate, queued) = (hop.rate.bits_per_s() / 1000, hop.queued.0);
                let HopCounters { marked, lost, .. } = hop.counters;
                print!(", hop {rate} {rtt} ms, queue {queued} marked {marked} lost {lost}");
            }
        }
        println!();
    }

    pub(crate) fn run_until(&mut self, end_s: f64) {
        self.network
            .run_until(Time::from_secs_f64(end_s), &mut ())
            .expect("valid in this test");
    }
}
