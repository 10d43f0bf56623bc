//! A sender, its relay, and receivers behind links, in simulated time and with the parameters of
//! live streams.
//!
//! ```text
//!   pictures --> Cutter, sim::Sender --> hop --> StreamRelay --> hops --+
//!                          sim::Receiver, Assembler <-- links <---------+
//! ```

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use manyflow_core::link::{Link, LinkConfig};
use manyflow_core::{Action, Destination, EndpointId, Packet, Time};
use manyflow_layered::hop::is_hop_message;
use manyflow_layered::relay::{RelayConfig, SessionInfo, StreamRelay, Where};
use manyflow_layered::repair::Arrival;
use manyflow_layered::unit::{Cutter, PIECE_BYTES, unit_share};
use manyflow_layered::{Data, Event, GROUPS_MAX, Message};
use manyflow_streams::{SendControl, live_hop_config, live_receiver_config};

use crate::stream_shares::ends::{SESSION, Sender, initial_rates, sender};
use crate::stream_shares::leaf::{Crossing, INNER_BYTES, Leaf, TICK, link_config};

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The delay between the sender and its relay.
const NEAR: Duration = Duration::from_micros(50);
/// The port of the first relay at the sender, less 1. Each further relay has the next one.
const RELAY_PORT: usize = 100;
/// The headers on a link of a packet with one piece.
const HEADER_BYTES: u32 = 48 + PIECE_BYTES as u32;
/// Units of 12 Mbit/s.
const UNIT_BYTES: usize = 150_000;
const UNIT_INTERVAL: Duration = Duration::from_millis(100);

fn address(number: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], number as u16))
}

fn message(header: &Message, payload: &[u8]) -> Vec<u8> {
    let encoded = header.encode();
    let bytes = 28 + encoded.as_bytes().len() + payload.len();
    let mut message = vec![0; INNER_BYTES];
    message[0] = 6;
    let ip = &mut message[2..22];
    (ip[0], ip[1]) = (0x45, 2);
    ip[2..4].copy_from_slice(&(bytes as u16).to_be_bytes());
    (ip[8], ip[9]) = (64, 17);
    message.extend_from_slice(encoded.as_bytes());
    message.extend_from_slice(payload);
    message
}

/// A sender, its relay and receivers.
pub(crate) struct Tree {
    now: Time,
    sender: Sender,
    sender_packet_bytes: u32,
    /// The number of the next packet of each group that is sent.
    sequences: [u32; GROUPS_MAX as usize],
    /// The last request of each group that was sent, and the RTT with it.
    rtts: [Duration; GROUPS_MAX as usize],
    cutter: Cutter,
    rates: Vec<f64>,
    root: StreamRelay,
    relay: StreamRelay,
    /// The number of relays so far, which is the port of the present one at the sender.
    relays: usize,
    /// The link between the sender and the relay, downwards and upwards.
    near: [Link<Crossing>; 2],
    relay_top: Option<u8>,
    tops: Vec<Option<u8>>,
    /// Whether each receiver has a tunnel to the present relay.
    has_tunnel: Vec<bool>,
    relay_config: RelayConfig,
    sessions: [SessionInfo; 1],
    pub(crate) leaves: Vec<Leaf>,
    next_unit: Time,
    next_tick: Time,
    unit: Bytes,
    unit_interval: Duration,
}

impl Tree {
    /// Creates receivers behind links of these rates, in bits per second. The seed delays
    /// the receivers and the first unit by up to half a second.
    pub(crate) fn new(control: &SendControl, rates: &[u64], seed: u8) -> Tree {
        let relay = RelayConfig {
            hop: live_hop_config(),
            ..RelayConfig::default()
        };
        let sessions = [SessionInfo {
            session: SESSION,
            groups: control.groups(),
        }];
        let start = |number: usize| {
            Time::ZERO + Duration::from_millis((number as u64 * 37 * (u64::from(seed) + 1)) % 500)
        };
        let near = || {
            let config = LinkConfig {
                delay: NEAR,
                ..LinkConfig::default()
            };
            Link::new(config, 1)
        };
        let parent = RelayConfig {
            has_parent: true,
            id: 1,
            ..relay.clone()
        };
        let numbered = (1..).zip(rates);
        Tree {
            now: Time::ZERO,
            sender: sender(control),
            sender_packet_bytes: control.packet_bytes(),
            sequences: [0; GROUPS_MAX as usize],
            rtts: [Duration::ZERO; GROUPS_MAX as usize],
            cutter: Cutter::new(control.groups(), Duration::from_secs(1))
                .in_pieces_of(control.packet_bytes() as usize - 48 - PIECE_BYTES),
            rates: initial_rates(control),
            relays: 1,
            root: StreamRelay::new(relay.clone(), &sessions, [seed; 32], Time::ZERO)
                .expect("valid in this test"),
            relay: StreamRelay::new(parent.clone(), &sessions, [seed ^ 0x55; 32], Time::ZERO)
                .expect("valid in this test"),
            near: [near(), near()],
            relay_top: None,
            tops: vec![None; rates.len()],
            has_tunnel: vec![true; rates.len()],
            relay_config: parent,
            sessions,
            leaves: numbered
                .map(|(n, rate)| Leaf::new(n, *rate, start(n), control))
                .collect(),
            next_unit: start(9),
            next_tick: Time::ZERO,
            unit: vec![0; UNIT_BYTES].into(),
            unit_interval: UNIT_INTERVAL,
        }
    }

    /// Sends units of this length, one in each interval, instead of the pictures.
    pub(crate) fn with_units(mut self, bytes: usize, interval: Duration) -> Tree {
        (self.unit, self.unit_interval) = (vec![0; bytes].into(), interval);
        self
    }

    /// Returns two selection intervals of the receivers, in seconds.
    pub(crate) fn two_selections_s(&self) -> f64 {
        let longest = *self.rtts.iter().max().expect("there are groups");
        2.0 * (live_receiver_config().selection_rtts * longest).as_secs_f64()
    }

    /// Changes the rate of the link to a receiver.
    pub(crate) fn set_rate(&mut self, leaf: usize, rate: u64) {
        self.leaves[leaf]
            .down
            .reconfigure(self.now, link_config(rate));
    }

    /// Kills the relay, starts another one after `down_s` seconds, and lets the receivers join it
    /// one after the other in the half second after that.
    pub(crate) fn restart_relay(&mut self, down_s: f64) {
        let begin = self.now.as_secs_f64();
        self.tops.fill(None);
        self.has_tunnel.fill(false);
        self.run_until(begin + down_s);
        self.relays += 1;
        let seed = [self.relays as u8 ^ 0xaa; 32];
        self.relay = StreamRelay::new(self.relay_config.clone(), &self.sessions, seed, self.now)
            .expect("valid in this test");
        for place in 0..self.leaves.len() {
            self.run_until(begin + down_s + 0.5 * (place + 1) as f64 / self.leaves.len() as f64);
            self.has_tunnel[place] = true;
            let top = self.leaves[place].receiver.joined().checked_sub(1);
            self.set_top(place, top);
        }
    }

    fn set_top(&mut self, place: usize, top: Option<u8>) {
        self.tops[place] = top;
        let set = self
            .relay
            .set_top(self.now, address(place + 1), LOCAL, 0, top);
        set.expect("valid in this test");
    }

    pub(crate) fn run_until(&mut self, end_s: f64) {
        let end = Time::from_secs_f64(end_s);
        while self.now < end {
            self.step();
            let leaves = self.leaves.iter().flat_map(Leaf::timeouts);
            let ends = [
                self.sender.poll_timeout(),
                self.root.poll_timeout(),
                self.relay.poll_timeout(),
                self.near[0].next_time(),
                self.near[1].next_time(),
                Some(self.next_unit),
                Some(self.next_tick),
            ];
            let next = leaves.chain(ends).flatten().min();
            self.now = self.now.max(next.unwrap_or(end)).min(end);
        }
    }

    /// Handles everything that is due.
    fn step(&mut self) {
        let now = self.now;
        if self.next_tick <= now {
            self.next_tick += TICK;
            self.leaves.iter_mut().for_each(|leaf| leaf.tick(now));
        }
        self.receive_from_leaves();
        self.run_relay();
        self.receive_from_relay();
        self.run_sender();
    }

    fn receive_from_leaves(&mut self) {
        let now = self.now;
        let mut tops = Vec::new();
        for (place, leaf) in self.leaves.iter_mut().enumerate() {
            leaf.run(now);
            let at = address(place + 1);
            while let Some(crossing) = leaf.up.pop_ready(now) {
                match crossing {
                    _ if !self.has_tunnel[place] => {}
                    // A child's first report can come before the sounding of its hop.
                    Crossing::Datagram(bytes) => {
                        let _ = self.relay.handle_datagram(now, at, LOCAL, &bytes);
                    }
                    Crossing::Top(top) => tops.push((place, top)),
                }
            }
        }
        for (place, top) in tops {
            self.set_top(place, top);
        }
        let top = self.tops.iter().copied().max().flatten();
        if top != self.relay_top {
            self.relay_top = top;
            let _ = self.near[1].push(now, Crossing::Top(top), 60);
        }
    }

    fn run_relay(&mut self) {
        let now = self.now;
        while let Some(crossing) = self.near[0].pop_ready(now) {
            let Crossing::Datagram(bytes) = crossing else {
                panic!("joins go up");
            };
            if is_hop_message(&bytes) {
                let handled = self.relay.handle_parent_datagram(now, &bytes);
                handled.expect("valid in this test");
                continue;
            }
            if self.relay.handle_parent_data(0, &bytes) == Arrival::Duplicate {
                continue;
            }
            let header = Message::decode(&bytes[INNER_BYTES..]).expect("valid in this test");
            if let Message::Data(data) = header {
                self.distribute(&data, bytes.into());
            }
        }
        self.relay.handle_timeout(now);
        let mut out = Vec::new();
        while let Some(sent) = self.relay.poll_transmit(now, &mut out) {
            let link = match sent.place {
                Where::Parent => &mut self.near[1],
                Where::Child { to, .. } => &mut self.leaves[usize::from(to.port()) - 1].down,
            };
            for bytes in out.chunks(sent.segment_bytes) {
                let wire_bytes = bytes.len() as u32 + 28;
                let _ = link.push(now, Crossing::Datagram(bytes.to_vec()), wire_bytes);
            }
        }
    }

    fn distribute(&mut self, data: &Data, bytes: Arc<[u8]>) {
        self.relay.observe_data(self.now, 0, data);
        for (place, top) in self.tops.iter().enumerate() {
            if top.is_some_and(|top| data.group <= top) {
                let (at, rank) = (address(place + 1), Some(data.group));
                let _ = self.relay.push(self.now, at, LOCAL, 0, rank, &bytes);
            }
        }
    }

    fn receive_from_relay(&mut self) {
        let now = self.now;
        while let Some(crossing) = self.near[1].pop_ready(now) {
            let at = address(RELAY_PORT + self.relays);
            match crossing {
                Crossing::Datagram(bytes) => {
                    let _ = self.root.handle_datagram(now, at, LOCAL, &bytes);
                }
                Crossing::Top(top) => {
                    let set = self.root.set_top(now, at, LOCAL, 0, top);
                    set.expect("valid in this test");
                }
            }
        }
        self.root.handle_timeout(now);
        while let Some(feedback) = self.root.poll_feedback() {
            let to = Destination::Endpoint(EndpointId(0));
            let packet = Packet::new(to, Message::Feedback(feedback), 0);
            self.sender.handle_packet(now, &packet);
        }
    }

    fn run_sender(&mut self) {
        let now = self.now;
        if self.next_unit <= now {
            self.cut_unit();
            self.next_unit += self.unit_interval;
        }
        let room = self.sender_packet_bytes as usize - 48;
        for group in 0..self.rates.len() as u8 {
            let waiting = self.cutter.payload_bytes(group, room) as u32;
            self.sender.offer(group, waiting);
        }
        self.sender.handle_timeout(now);
        while let Some(action) = self.sender.poll_action(now) {
            if let Action::Send(packet) = action {
                self.send(&packet);
            }
        }
        let mut has_changed = false;
        while let Some(event) = self.sender.poll_event() {
            if let Event::GroupRate { group, rate, .. } = event {
                let rate = rate.bits_per_s() as f64 / 8.0;
                has_changed |= std::mem::replace(&mut self.rates[usize::from(group)], rate) != rate;
            }
        }
        if has_changed {
            let own = self.own_rates();
            let left = self.next_unit - now;
            self.cutter.rebalance(left, &own);
            self.cutter.spread(&mut *self.sender, left, HEADER_BYTES);
        }
        let mut out = Vec::new();
        while let Some(sent) = self.root.poll_transmit(now, &mut out) {
            for bytes in out.chunks(sent.segment_bytes) {
                let wire_bytes = bytes.len() as u32 + 28;
                let _ = self.near[0].push(now, Crossing::Datagram(bytes.to_vec()), wire_bytes);
            }
        }
    }

    fn is_wanted(&self, group: u8) -> bool {
        self.relay_top.is_some_and(|top| group <= top)
    }

    fn own_rates(&self) -> Vec<f64> {
        let (packet, interval) = (self.sender_packet_bytes, self.unit_interval.as_secs_f64());
        let mut below = 0.0;
        let own_rate = |(group, cumulative): (u8, &f64)| {
            let rate = cumulative - std::mem::replace(&mut below, *cumulative);
            match self.is_wanted(group) {
                true => rate * unit_share(rate * interval, packet, HEADER_BYTES),
                false => 0.0,
            }
        };
        (0..).zip(&self.rates).map(own_rate).collect()
    }

    fn cut_unit(&mut self) {
        let own = self.own_rates();
        let time_us = (self.now - Time::ZERO).as_micros() as u32;
        self.cutter
            .push_unit(time_us, self.unit.clone(), self.unit_interval, &own);
        self.cutter
            .spread(&mut *self.sender, self.unit_interval, HEADER_BYTES);
    }

    /// Sends a packet with the pieces that wait in its group.
    fn send(&mut self, packet: &Packet<Message>) {
        let Message::Data(mut data) = packet.header else {
            panic!("a sender sends data");
        };
        let rtt = Duration::from_micros(data.rtt_us.into());
        let is_wanted = self.is_wanted(data.group);
        self.rtts[usize::from(data.group)] = if is_wanted { rtt } else { Duration::ZERO };
        if !is_wanted {
            return;
        }
        data.sequence = self.sequences[usize::from(data.group)];
        let mut payload = Vec::new();
        let length = packet.payload_bytes() as usize;
        self.cutter.next_payload(data.group, length, &mut payload);
        self.sequences[usize::from(data.group)] += 1;
        self.root.observe_data(self.now, 0, &data);
        let bytes: Arc<[u8]> = message(&Message::Data(data), &payload).into();
        let at = address(RELAY_PORT + self.relays);
        let rank = Some(data.group);
        let _ = self.root.push(self.now, at, LOCAL, 0, rank, &bytes);
    }
}
