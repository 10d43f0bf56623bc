//! A sender of SIM whose end of a tree has receivers behind links of different rates, which leave
//! and join.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use manyflow_core::link::{Carried, Link, LinkConfig, QueueLimit};
use manyflow_core::{Action, Channel, Destination, Ecn, Endpoint, EndpointId, Packet, Rate, Time};
use manyflow_layered::hop::is_hop_message;
use manyflow_layered::relay::{RelayConfig, ReportingEnd, SessionInfo, StreamRelay, Where};
use manyflow_layered::repair::Arrival;
use manyflow_layered::sim::{Receiver, ReceiverConfig, Sender, SenderConfig};
use manyflow_layered::{Data, Feedback, Membership, Message};

pub(crate) const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const SESSION: u32 = 7;
const GROUPS: u8 = 3;
const DELAY: Duration = Duration::from_millis(20);
/// The bytes of the headers of AMT, IPv4 and UDP before the header of the session.
const INNER_BYTES: usize = 2 + 28;

pub(crate) fn ms(value: u64) -> Duration {
    Duration::from_millis(value)
}

pub(crate) fn address(number: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], number))
}

/// Returns an AMT Multicast Data message with data of a group, whose datagram is `bytes` long and
/// has the given ECN field.
pub(crate) fn data_message(group: u8, bytes: usize, ecn: u8) -> Vec<u8> {
    let data = Data {
        group,
        sequence: 0,
        request: 0,
        is_for_group: false,
        rate: 0,
        rtt_us: 0,
        next_rate: 0,
        is_pair: false,
    };
    message(&Message::Data(data), bytes, ecn)
}

fn message(header: &Message, bytes: usize, ecn: u8) -> Vec<u8> {
    let mut message = vec![0; 2 + bytes];
    message[0] = 6;
    let ip = &mut message[2..22];
    (ip[0], ip[1]) = (0x45, ecn);
    ip[2..4].copy_from_slice(&(bytes as u16).to_be_bytes());
    (ip[8], ip[9]) = (64, 17);
    let sum = checksum(ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let encoded = header.encode();
    let encoded = encoded.as_bytes();
    message[INNER_BYTES..INNER_BYTES + encoded.len()].copy_from_slice(encoded);
    message
}

fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2);
    let mut sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Returns whether the checksum of an IPv4 header is that of its other fields.
pub(crate) fn checksum_is_right(header: &[u8]) -> bool {
    checksum(header) == 0
}

/// A datagram on a link.
#[derive(Clone, Debug)]
struct Datagram(Vec<u8>);

impl Carried for Datagram {}

/// A receiver, and the links to and from it.
struct Leaf {
    /// The address of the receiver, which is another after each join.
    at: SocketAddr,
    is_present: bool,
    config: ReceiverConfig,
    receiver: Receiver,
    end: ReportingEnd,
    down: Link<Datagram>,
    up: Link<Datagram>,
    received: u64,
    /// Changes each report of the receiver.
    lie: Option<fn(&mut Feedback)>,
}

impl Leaf {
    fn new(number: u32, rate: u64, delay: Duration, config: ReceiverConfig) -> Leaf {
        let up = LinkConfig {
            delay,
            ..LinkConfig::default()
        };
        let down = LinkConfig {
            rate: Some(Rate::from_bits_per_s(rate)),
            queue: QueueLimit::Bytes(rate / 8 / 20),
            ..up.clone()
        };
        Leaf {
            at: address(number as u16),
            is_present: true,
            receiver: receiver(&config, number, Time::ZERO),
            config,
            end: ReportingEnd::new(None, number),
            down: Link::new(down, u64::from(number)),
            up: Link::new(up, u64::from(number)),
            received: 0,
            lie: None,
        }
    }

    /// Handles a datagram from the relay.
    fn receive(&mut self, now: Time, bytes: &[u8]) {
        if is_hop_message(bytes) {
            // A sounding for the receiver before this one may still be on the way.
            let _ = self.end.handle_datagram(bytes);
            return;
        }
        if self.end.handle_data(SESSION, bytes) == Arrival::Duplicate {
            return;
        }
        assert!(checksum_is_right(&bytes[2..22]));
        let header = Message::decode(&bytes[INNER_BYTES..]).expect("valid in this test");
        let Message::Data(data) = header else {
            panic!("{header:?} is not data");
        };
        let channel = Channel {
            session: SESSION,
            number: data.group.into(),
        };
        let ecn = match bytes[3] & 3 {
            3 => Ecn::Marked,
            _ => Ecn::Capable,
        };
        let payload = bytes.len() as u32 - 2 - header.wire_bytes();
        let packet = Packet::new(Destination::Channel(channel), header, payload).with_ecn(ecn);
        self.received += u64::from(packet.wire_bytes());
        self.receiver.handle_packet(now, &packet);
    }
}

/// Returns a receiver that joins at `now`.
fn receiver(config: &ReceiverConfig, number: u32, now: Time) -> Receiver {
    let membership = Membership {
        start: now,
        ..Membership::new(SESSION, GROUPS)
    };
    Receiver::new(config.clone(), membership, number, EndpointId(0)).expect("valid in this test")
}

/// A sender, its end of the tree, and receivers.
pub(crate) struct Tree {
    now: Time,
    sender: Sender,
    relay: StreamRelay,
    leaves: Vec<Leaf>,
    /// The children that have left without a word, and their top groups.
    ghosts: Vec<(SocketAddr, u8)>,
    joins: u16,
    /// Whether each half second prints a line.
    is_traced: bool,
}

impl Tree {
    /// Creates receivers behind links of these rates, in bits per second.
    pub(crate) fn new(rates: &[u64]) -> Tree {
        let links: Vec<_> = rates.iter().map(|rate| (*rate, DELAY)).collect();
        let config = ReceiverConfig::default();
        Tree::with(
            &links,
            SenderConfig::default(),
            &config,
            RelayConfig::default(),
        )
    }

    /// Creates receivers behind links of these rates, in bits per second, and delays.
    pub(crate) fn with(
        links: &[(u64, Duration)],
        sender: SenderConfig,
        receiver: &ReceiverConfig,
        relay: RelayConfig,
    ) -> Tree {
        let sender = SenderConfig {
            groups: GROUPS,
            ..sender
        };
        let sessions = [SessionInfo {
            session: SESSION,
            groups: GROUPS,
        }];
        let leaves = (1..)
            .zip(links)
            .map(|(number, (rate, delay))| Leaf::new(number, *rate, *delay, receiver.clone()));
        Tree {
            now: Time::ZERO,
            sender: Sender::new(sender, SESSION, Time::ZERO, None).expect("valid in this test"),
            relay: StreamRelay::new(relay, &sessions, [1; 32], Time::ZERO)
                .expect("valid in this test"),
            leaves: leaves.collect(),
            ghosts: Vec::new(),
            joins: 0,
            is_traced: false,
        }
    }

    /// Lets a receiver change its reports.
    pub(crate) fn let_lie(&mut self, place: usize, lie: fn(&mut Feedback)) {
        self.leaves[place].lie = Some(lie);
    }

    /// Removes a receiver. Without a word, the relay keeps sending to its address.
    pub(crate) fn leave(&mut self, place: usize, says_so: bool) {
        let leaf = &mut self.leaves[place];
        if !core::mem::take(&mut leaf.is_present) {
            return;
        }
        if says_so {
            self.relay.remove_child(leaf.at);
        } else if let Some(top) = leaf.receiver.subscribed().checked_sub(1) {
            self.ghosts.push((leaf.at, top));
        }
    }

    /// Starts a receiver again, at another address.
    pub(crate) fn join(&mut self, place: usize) {
        self.joins += 1;
        let leaf = &mut self.leaves[place];
        let number = 1000 + u32::from(self.joins);
        leaf.at = address(number as u16);
        leaf.receiver = receiver(&leaf.config, number, self.now);
        leaf.end = ReportingEnd::new(None, number);
        leaf.is_present = true;
    }

    /// Moves a receiver that has left to another path.
    pub(crate) fn move_to(&mut self, place: usize, rate: u64, delay: Duration) {
        let config = self.leaves[place].config.clone();
        let number = place as u32 + 1;
        self.leaves[place] = Leaf {
            is_present: false,
            ..Leaf::new(number, rate, delay, config)
        };
    }

    /// Returns the bytes that each receiver has received.
    pub(crate) fn received(&self) -> Vec<u64> {
        self.leaves.iter().map(|leaf| leaf.received).collect()
    }

    pub(crate) fn subscribed(&self) -> Vec<u8> {
        let receivers = self.leaves.iter().map(|leaf| &leaf.receiver);
        receivers.map(Receiver::subscribed).collect()
    }

    /// Returns the share of datagrams that the link of a receiver dropped.
    pub(crate) fn loss(&self, place: usize) -> f64 {
        let counters = self.leaves[place].down.counters();
        counters.dropped as f64 / counters.pushed as f64
    }

    /// Prints a line in each half second from now on.
    pub(crate) fn trace(&mut self) {
        self.is_traced = true;
    }

    pub(crate) fn run_until(&mut self, end_s: f64) {
        while self.is_traced && self.now < Time::from_secs_f64(end_s) {
            let (since, before) = (self.now.as_secs_f64(), self.received());
            let next = (since + 0.5).min(end_s);
            self.run_to(next);
            self.print(&before, next - since);
        }
        self.run_to(end_s);
    }

    /// Prints the time, the longest round-trip time, the rates of the groups, and for each receiver
    /// its groups, its rate in the last `span_s` seconds, and its hop.
    fn print(&self, before: &[u64], span_s: f64) {
        let rates = (0..GROUPS).map(|group| self.sender.rate(group).bits_per_s() / 1000);
        let rates: Vec<_> = rates.collect();
        let rtt = self.sender.rtt().as_millis();
        print!(
            "{:7.2} s, {rtt} ms, {rates:?} kbit/s",
            self.now.as_secs_f64()
        );
        for (leaf, before) in self.leaves.iter().zip(before) {
            let hop = self.relay.hop(leaf.at).filter(|_| leaf.is_present);
            let Some(hop) = hop else {
                print!(" | away");
                continue;
            };
            let groups = leaf.receiver.subscribed();
            let kbits = (leaf.received - before) as f64 / 125.0 / span_s;
            let (rate, queued) = (hop.rate.bits_per_s() / 1000, hop.queued.0);
            let counters = hop.counters;
            let dropped = counters.dropped + counters.displaced;
            print!(" | {groups} groups {kbits:.0}, hop {rate} queue {queued}");
            print!(" marked {} dropped {dropped}", counters.marked);
        }
        println!();
    }

    fn run_to(&mut self, end_s: f64) {
        let end = Time::from_secs_f64(end_s);
        loop {
            self.step();
            let leaves = self.leaves.iter();
            let links = leaves.flat_map(|leaf| {
                let receiver = leaf.receiver.poll_timeout();
                [
                    leaf.down.next_time(),
                    leaf.up.next_time(),
                    receiver.filter(|_| leaf.is_present),
                ]
            });
            let ends = [self.sender.poll_timeout(), self.relay.poll_timeout()];
            let next = links
                .chain(ends)
                .flatten()
                .min()
                .expect("a sender always has a timer");
            if next > end {
                break;
            }
            self.now = self.now.max(next);
        }
        self.now = end;
    }

    /// Handles everything that is due.
    fn step(&mut self) {
        let now = self.now;
        for place in 0..self.leaves.len() {
            self.exchange(place);
        }
        self.relay.handle_timeout(now);
        while let Some(feedback) = self.relay.poll_feedback() {
            let to = Destination::Endpoint(EndpointId(0));
            let packet = Packet::new(to, Message::Feedback(feedback), 0);
            self.sender.handle_packet(now, &packet);
        }
        self.sender.handle_timeout(now);
        while let Some(action) = self.sender.poll_action(now) {
            if let Action::Send(packet) = action {
                self.forward(&packet);
            }
        }
        while self.sender.poll_event().is_some() {}
        let mut out = Vec::new();
        while let Some(sent) = self.relay.poll_transmit(now, &mut out) {
            let Where::Child { to, .. } = sent.place else {
                panic!("there is no parent");
            };
            let mut leaves = self.leaves.iter_mut();
            let Some(leaf) = leaves.find(|leaf| leaf.is_present && leaf.at == to) else {
                continue;
            };
            for bytes in out.chunks(sent.segment_bytes) {
                let wire_bytes = bytes.len() as u32 + 28;
                let _ = leaf.down.push(now, Datagram(bytes.to_vec()), wire_bytes);
            }
        }
    }

    /// Forwards data of a group to the receivers that have joined it.
    fn forward(&mut self, packet: &Packet<Message>) {
        let Message::Data(data) = packet.header else {
            panic!("a sender sends data");
        };
        let present = self.leaves.iter().filter(|leaf| leaf.is_present);
        let joined = present.filter_map(|leaf| {
            let top = leaf.receiver.subscribed().checked_sub(1)?;
            Some((leaf.at, top))
        });
        let joined: Vec<_> = joined.chain(self.ghosts.iter().copied()).collect();
        let takers = joined.iter().filter(|(_, top)| data.group <= *top);
        // A sender sends only what somebody has joined.
        if takers.clone().next().is_none() {
            return;
        }
        self.relay.observe_data(self.now, 0, &data);
        let bytes = message(&packet.header, packet.wire_bytes() as usize, 2);
        let bytes: Arc<[u8]> = bytes.into();
        for (at, _) in takers {
            let rank = Some(data.group);
            let _ = self.relay.push(self.now, *at, LOCAL, 0, rank, &bytes);
        }
    }

    /// Exchanges datagrams with a receiver.
    fn exchange(&mut self, place: usize) {
        let now = self.now;
        let leaf = &mut self.leaves[place];
        let at = leaf.at;
        while let Some(Datagram(bytes)) = leaf.down.pop_ready(now) {
            if leaf.is_present {
                leaf.receive(now, &bytes);
            }
        }
        if !leaf.is_present {
            while leaf.up.pop_ready(now).is_some() {}
            return;
        }
        leaf.receiver.handle_timeout(now);
        while let Some(action) = leaf.receiver.poll_action(now) {
            match action {
                Action::Send(packet) => {
                    if let Message::Feedback(mut feedback) = packet.header {
                        leaf.lie.iter().for_each(|lie| lie(&mut feedback));
                        leaf.end.report(&[feedback]);
                    }
                }
                Action::Join(_) | Action::Leave(_) => {
                    let top = leaf.receiver.subscribed().checked_sub(1);
                    self.relay
                        .set_top(now, at, LOCAL, 0, top)
                        .expect("valid in this test");
                }
            }
        }
        while leaf.receiver.poll_event().is_some() {}
        let mut out = Vec::new();
        while leaf.end.poll_transmit(&mut out) {
            let bytes = out.len() as u32 + 28;
            let _ = leaf.up.push(now, Datagram(out.clone()), bytes);
        }
        while let Some(Datagram(bytes)) = leaf.up.pop_ready(now) {
            // A child's first report can come before the sounding of its hop.
            let _ = self.relay.handle_datagram(now, at, LOCAL, &bytes);
        }
    }
}
