//! Repair of lost packets over a tree of a sender's end, a relay and receivers, in simulated time.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use manyflow_core::link::{Carried, Link, LinkConfig, LossModel};
use manyflow_core::{Rate, Time};
use manyflow_layered::hop::{Direction, HopConfig, HopMessage, HopRate, is_hop_message};
use manyflow_layered::relay::{
    RelayConfig, ReportingEnd, SessionInfo, StreamRelay, Where, inner_payload,
};
use manyflow_layered::repair::Arrival;
use manyflow_layered::unit::{Assembler, AssemblerConfig, Latency, Piece};
use manyflow_layered::{Data, Message};
use proptest::prelude::*;

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const SESSIONS: [SessionInfo; 1] = [SessionInfo {
    session: 7,
    groups: 2,
}];
/// The headers of AMT, IPv4 and UDP.
const INNER_BYTES: usize = 2 + 28;
/// A unit has ten pieces, one in each 5 ms: 20 units of 12,500 bytes per second, 2 Mbit/s.
const PIECES: u32 = 10;
const PIECE_LENGTH: u32 = 1250;
const STEP: Duration = Duration::from_millis(1);
const RELAY: u16 = 100;

fn address(number: u16) -> SocketAddr {
    SocketAddr::new(LOCAL, number)
}

#[derive(Clone, Debug)]
struct Datagram(Vec<u8>);

impl Carried for Datagram {}

/// Returns the byte of a unit at a place.
fn content(unit: u32, place: u32) -> u8 {
    (unit.wrapping_mul(31) ^ place.wrapping_mul(7) ^ (place >> 8)) as u8
}

/// Returns a message with one piece of a unit. The second half of a unit is in group 1.
fn message(unit: u32, piece: u32, now: Time) -> (Data, Arc<[u8]>) {
    let half = PIECES / 2;
    let data = Data {
        group: (piece / half) as u8,
        sequence: unit * half + piece % half,
        request: 0,
        is_for_group: false,
        rate: 0,
        rtt_us: 0,
        next_rate: 0,
        is_pair: false,
    };
    let header = Piece {
        unit,
        time_us: (now - Time::ZERO).as_micros() as u32,
        offset: piece * PIECE_LENGTH,
        length: PIECES * PIECE_LENGTH,
    };
    let mut message = vec![0; INNER_BYTES];
    (message[0], message[2], message[3]) = (6, 0x45, 2);
    message.extend_from_slice(Message::Data(data).encode().as_bytes());
    message.extend_from_slice(&header.encode());
    let places = header.offset..header.offset + PIECE_LENGTH;
    message.extend(places.map(|place| content(unit, place)));
    (data, message.into())
}

/// A receiver, with the links to and from it.
struct Leaf {
    at: SocketAddr,
    end: ReportingEnd,
    assembler: Assembler,
    down: Link<Datagram>,
    up: Link<Datagram>,
    prefix_bytes: u64,
    whole: u64,
    requests: u64,
    soundings: u64,
}

impl Leaf {
    fn new(number: u16, link: &LinkConfig, latency: Latency) -> Leaf {
        let mut end = ReportingEnd::new(None, number.into());
        if let Latency::Fixed(latency) = latency {
            end.set_wait(latency);
        }
        Leaf {
            at: address(number),
            end,
            assembler: Assembler::new(AssemblerConfig {
                latency,
                ..AssemblerConfig::default()
            }),
            down: Link::new(link.clone(), number.into()),
            up: Link::new(link.clone(), u64::from(number) + 1000),
            prefix_bytes: 0,
            whole: 0,
            requests: 0,
            soundings: 0,
        }
    }

    fn run(&mut self, now: Time) {
        while let Some(Datagram(bytes)) = self.down.pop_ready(now) {
            if is_hop_message(&bytes) {
                self.soundings += u64::from(self.end.handle_datagram(&bytes).is_ok());
                continue;
            }
            let arrival = self.end.handle_data(7, &bytes);
            if arrival == Arrival::Duplicate {
                continue;
            }
            let payload = &inner_payload(&bytes).unwrap()[20..];
            let (piece, bytes, _) = Piece::decode(payload).unwrap();
            let is_late = arrival == Arrival::Late;
            self.assembler.handle_arrival(now, piece, bytes, is_late);
        }
        while let Some(unit) = self.assembler.poll_unit(now) {
            let places = (0..).zip(unit.prefix.iter());
            for (place, byte) in places {
                assert_eq!(*byte, content(unit.number, place), "unit {}", unit.number);
            }
            self.prefix_bytes += unit.prefix.len() as u64;
            self.whole += u64::from(unit.complete);
        }
        let mut out = Vec::new();
        while self.end.poll_transmit(&mut out) {
            let decoded = HopMessage::decode(&out, Direction::Up, None);
            self.requests += u64::from(matches!(decoded, Ok(HopMessage::Repair { .. })));
            let _ = self.up.push(now, Datagram(out.clone()), out.len() as u32);
        }
    }
}

/// A sender's end, a relay and two receivers.
struct Tree {
    now: Time,
    root: StreamRelay,
    relay: StreamRelay,
    near: [Link<Datagram>; 2],
    leaves: Vec<Leaf>,
    next: u32,
}

fn config(rate: u64, has_parent: bool) -> RelayConfig {
    RelayConfig {
        has_parent,
        hop: HopConfig {
            rate: HopRate::Given(Rate::from_bits_per_s(rate)),
            packet_bytes: 1314,
            ..HopConfig::default()
        },
        ..RelayConfig::default()
    }
}

/// A link of 20 ms without a limit to its rate.
fn lossy(share: f64) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(20),
        loss: LossModel::Bernoulli(share),
        ..LinkConfig::default()
    }
}

impl Tree {
    /// Creates a tree with these links from the root to the relay, and from there to receivers. The
    /// hops to the receivers have this rate.
    fn new(near: &LinkConfig, far: &LinkConfig, rate: u64, latency: Latency) -> Tree {
        let of = |rate, has_parent, seed| {
            let config = config(rate, has_parent);
            StreamRelay::new(config, &SESSIONS, [seed; 32], Time::ZERO).unwrap()
        };
        let mut tree = Tree {
            now: Time::ZERO,
            root: of(4_000_000, false, 1),
            relay: of(rate, true, 2),
            near: [Link::new(near.clone(), 1), Link::new(near.clone(), 2)],
            leaves: (1..3).map(|n| Leaf::new(n, far, latency)).collect(),
            next: 0,
        };
        let top = Some(1);
        let joined = tree
            .root
            .set_top(tree.now, address(RELAY), LOCAL, 0, top)
            .and_then(|()| tree.relay.set_top(tree.now, address(1), LOCAL, 0, top))
            .and_then(|()| tree.relay.set_top(tree.now, address(2), LOCAL, 0, top));
        joined.unwrap();
        tree
    }

    fn run_until(&mut self, end_s: f64) {
        while self.now < Time::from_secs_f64(end_s) {
            self.now += STEP;
            self.send();
            self.run_root();
            self.run_relay();
            self.leaves.iter_mut().for_each(|leaf| leaf.run(self.now));
        }
    }

    fn send(&mut self) {
        if !(self.now - Time::ZERO).as_millis().is_multiple_of(5) {
            return;
        }
        let (unit, piece) = (self.next / PIECES, self.next % PIECES);
        self.next += 1;
        let before = u64::from(piece) * 5_000_000;
        let at = Time::from_nanos(self.now.as_nanos() - before);
        let (data, message) = message(unit, piece, at);
        self.root.observe_data(self.now, 0, &data);
        let rank = Some(data.group);
        let _ = self
            .root
            .push(self.now, address(RELAY), LOCAL, 0, rank, &message);
    }

    fn run_root(&mut self) {
        let now = self.now;
        while let Some(Datagram(bytes)) = self.near[1].pop_ready(now) {
            // Echoes and requests that others have overtaken are refused.
            let _ = self
                .root
                .handle_datagram(now, address(RELAY), LOCAL, &bytes);
        }
        self.root.handle_timeout(now);
        let mut out = Vec::new();
        while let Some(sent) = self.root.poll_transmit(now, &mut out) {
            for bytes in out.chunks(sent.segment_bytes) {
                let _ = self.near[0].push(now, Datagram(bytes.to_vec()), bytes.len() as u32);
            }
        }
    }

    fn run_relay(&mut self) {
        let now = self.now;
        while let Some(Datagram(bytes)) = self.near[0].pop_ready(now) {
            if is_hop_message(&bytes) {
                let _ = self.relay.handle_parent_datagram(now, &bytes);
            } else if self.relay.handle_parent_data(0, &bytes) != Arrival::Duplicate {
                let bytes: Arc<[u8]> = bytes.into();
                let Ok(Message::Data(data)) = Message::decode(inner_payload(&bytes).unwrap())
                else {
                    panic!("the root sends data");
                };
                for leaf in &self.leaves {
                    let rank = Some(data.group);
                    let _ = self.relay.push(now, leaf.at, LOCAL, 0, rank, &bytes);
                }
            }
        }
        for leaf in &mut self.leaves {
            while let Some(Datagram(bytes)) = leaf.up.pop_ready(now) {
                let _ = self.relay.handle_datagram(now, leaf.at, LOCAL, &bytes);
            }
        }
        self.relay.handle_timeout(now);
        let mut out = Vec::new();
        while let Some(sent) = self.relay.poll_transmit(now, &mut out) {
            for bytes in out.chunks(sent.segment_bytes) {
                let link = match sent.place {
                    Where::Parent => &mut self.near[1],
                    Where::Child { to, .. } => &mut self.leaves[usize::from(to.port()) - 1].down,
                };
                let _ = link.push(now, Datagram(bytes.to_vec()), bytes.len() as u32);
            }
        }
    }

    /// Returns the counts of the hops to the relay and to a receiver: packets sent, lost, repairs.
    fn hop(&self, child: u16) -> (u64, u64, u64) {
        let relay = if child == RELAY {
            &self.root
        } else {
            &self.relay
        };
        let counters = relay.hop(address(child)).unwrap().counters;
        (counters.sent, counters.lost, counters.repairs)
    }
}

const FIXED: Latency = Latency::Fixed(Duration::from_millis(170));

/// A latency of 170 ms after the first packet of a unit, of which the unit itself takes 45 ms: as
/// SRT's latency of 120 ms after each packet.
#[test]
fn random_losses_of_one_to_five_percent_are_repaired_in_time() {
    for share in [0.01, 0.03, 0.05] {
        let mut tree = Tree::new(&lossy(0.0), &lossy(share), 4_000_000, FIXED);
        tree.run_until(60.0);
        for (leaf, number) in tree.leaves.iter().zip(1..) {
            let units = leaf.assembler.stats();
            let sent = units.units + units.units_missing;
            let whole = leaf.whole as f64 / sent as f64;
            let bytes = leaf.prefix_bytes as f64 / f64::from(PIECES * PIECE_LENGTH) / sent as f64;
            let (packets, lost, repairs) = tree.hop(number);
            println!(
                "{share}: whole {whole:.4}, bytes {bytes:.4}, {packets} sent, {lost} lost, {repairs} repairs, {} requests",
                leaf.requests
            );
            assert!(bytes >= 0.99 && whole >= 0.98, "{share}: {bytes} {whole}");
            // A repair can be lost, and a lost request is made again.
            assert!(repairs as f64 <= 1.1 * lost as f64 + 5.0, "{share}");
            assert!(leaf.requests <= 3 * lost + 5, "{share}: {}", leaf.requests);
        }
    }
}

#[test]
fn a_loss_above_a_relay_is_repaired_once_for_all_receivers() {
    let mut tree = Tree::new(&lossy(0.03), &lossy(0.0), 4_000_000, FIXED);
    tree.run_until(60.0);
    let (_, lost, repairs) = tree.hop(RELAY);
    println!("{lost} lost, {repairs} repairs");
    assert!(
        repairs as f64 <= 1.1 * lost as f64 + 5.0,
        "{lost} {repairs}"
    );
    for (leaf, number) in tree.leaves.iter().zip(1..) {
        let units = leaf.assembler.stats();
        let whole = leaf.whole as f64 / (units.units + units.units_missing) as f64;
        assert!(whole >= 0.98, "{whole}");
        let (_, lost, repairs) = tree.hop(number);
        assert_eq!((lost, repairs), (0, 0), "the receivers' hops lose nothing");
    }
}

#[test]
fn packets_that_a_queue_dropped_are_not_sent_again() {
    let mut tree = Tree::new(&lossy(0.0), &lossy(0.0), 1_000_000, FIXED);
    tree.run_until(20.0);
    let dropped = tree.relay.hop(address(1)).unwrap().counters;
    assert!(dropped.dropped + dropped.displaced > 500, "{dropped:?}");
    assert_eq!(dropped.repairs, 0);
    let leaf = &tree.leaves[0];
    assert!(leaf.requests <= 5 * leaf.soundings, "{}", leaf.requests);
}

#[test]
fn an_adaptive_latency_leaves_room_for_repairs() {
    let adaptive = Latency::Adaptive {
        min: Duration::from_millis(50),
        max: Duration::from_secs(2),
    };
    let mut tree = Tree::new(&lossy(0.0), &lossy(0.01), 4_000_000, adaptive);
    tree.run_until(10.0);
    let before = tree.leaves[0].whole;
    tree.run_until(60.0);
    let whole = (tree.leaves[0].whole - before) as f64 / 1000.0;
    let latency = tree.leaves[0].assembler.latency();
    println!("{whole}, {latency:?}");
    assert!(whole >= 0.98, "{whole}");
    assert!(latency < Duration::from_millis(250), "{latency:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn delivered_bytes_are_right_and_requests_and_repairs_bounded(
        near in 0.0..0.3, far in 0.0..0.3, duplication in 0.0..0.3, jitter_ms in 0..30_u64,
    ) {
        let faulty = |share| LinkConfig {
            duplication,
            jitter: Duration::from_millis(jitter_ms),
            ..lossy(share)
        };
        let mut tree = Tree::new(&faulty(near), &faulty(far), 4_000_000, FIXED);
        tree.run_until(5.0);
        for (leaf, number) in tree.leaves.iter().zip(1..) {
            prop_assert!(leaf.prefix_bytes > 0);
            prop_assert!(leaf.requests <= 5 * leaf.soundings + 5);
            let (sent, _, repairs) = tree.hop(number);
            // A quarter of what is sent first, and the burst.
            prop_assert!(repairs <= (sent - repairs) / 4 + 32, "{} {}", sent, repairs);
        }
    }
}
