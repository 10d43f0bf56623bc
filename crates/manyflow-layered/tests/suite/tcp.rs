//! A hop beside TCP on a link with a drop-tail queue, in the simulator.

use std::time::Duration;

use manyflow_core::link::{Carried, LinkConfig, QueueLimit};
use manyflow_core::{Action, Destination, Endpoint, EndpointId, Header, Packet, Rate, Time};
use manyflow_layered::hop::{Echo, Hop, HopConfig, HopEnd, Sounding, Transmit};
use manyflow_netsim::Network;
use manyflow_tcp::{Receiver, Sender, TcpConfig, Variant};

manyflow_netsim::protocols! {
    enum AnyHeader;
    enum AnyEvent;
    Hop: HopHeader, ();
    Tcp: manyflow_tcp::Segment, manyflow_tcp::Event;
}

#[derive(Copy, Clone, Debug, PartialEq)]
enum HopHeader {
    Item,
    Sounding(Sounding),
    Echo(Echo),
}

impl Header for HopHeader {
    fn wire_bytes(&self) -> u32 {
        match self {
            HopHeader::Item => 28,
            HopHeader::Sounding(_) | HopHeader::Echo(_) => 76,
        }
    }
}

#[derive(Debug)]
struct Item;

impl Carried for Item {}

/// The parent's end, with an application that always has packets.
struct Parent {
    hop: Hop<Item>,
    child: EndpointId,
}

impl Endpoint for Parent {
    type Rx = HopHeader;
    type Tx = HopHeader;
    type Event = ();

    fn handle_packet(&mut self, now: Time, packet: &Packet<HopHeader>) {
        if let HopHeader::Echo(echo) = packet.header {
            self.hop.handle_echo(now, &echo);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.hop.handle_timeout(now);
    }

    fn poll_action(&mut self, now: Time) -> Option<Action<HopHeader>> {
        while self.hop.queued().0 < 5 {
            let _ = self.hop.push(now, Item, 1000);
        }
        let (header, payload) = match self.hop.poll_transmit(now)? {
            Transmit::Item(Item, bytes) => (HopHeader::Item, bytes - 28),
            Transmit::Sounding(sounding) => (HopHeader::Sounding(sounding), 0),
        };
        let to = Destination::Endpoint(self.child);
        Some(Action::Send(Packet::new(to, header, payload)))
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.hop.poll_timeout()
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }
}

/// The child's end.
struct Child {
    end: HopEnd,
    parent: EndpointId,
    echo: Option<Echo>,
}

impl Endpoint for Child {
    type Rx = HopHeader;
    type Tx = HopHeader;
    type Event = ();

    fn handle_packet(&mut self, _now: Time, packet: &Packet<HopHeader>) {
        match packet.header {
            HopHeader::Item => self.end.handle_data(packet.wire_bytes()),
            HopHeader::Sounding(sounding) => self.echo = self.end.handle_sounding(&sounding),
            HopHeader::Echo(_) => {}
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_action(&mut self, _now: Time) -> Option<Action<HopHeader>> {
        let header = HopHeader::Echo(self.echo.take()?);
        let to = Destination::Endpoint(self.parent);
        Some(Action::Send(Packet::new(to, header, 0)))
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }
}

/// Returns the rates of the hop and of TCP in Mbit/s from `from_s` to `to_s`.
fn share(
    mbit: f64,
    delay_ms: u64,
    queue_bdp: f64,
    variant: Variant,
    seed: u64,
    tcp_start_s: f64,
) -> (f64, f64) {
    let mut network = Network::<AnyHeader, AnyEvent>::new(seed);
    let [a, b, r, c] = ["A", "B", "R", "C"].map(|name| network.add_node(name));
    let fast = LinkConfig {
        rate: Some(Rate::from_bits_per_s(100_000_000)),
        delay: Duration::from_millis(1),
        ..LinkConfig::default()
    };
    network.add_duplex(a, r, fast.clone());
    network.add_duplex(b, r, fast);
    let bits = mbit * 1e6;
    let queue = (bits / 8.0 * 2.0 * (delay_ms + 1) as f64 / 1000.0 * queue_bdp) as u64;
    let narrow = LinkConfig {
        rate: Some(Rate::from_bits_per_s(bits as u64)),
        delay: Duration::from_millis(delay_ms),
        queue: QueueLimit::Bytes(queue.max(3000)),
        ..LinkConfig::default()
    };
    network.add_duplex(r, c, narrow);
    let hop = Hop::new(HopConfig::default(), 77, seed, Time::ZERO).expect("valid in this test");
    let parent = Parent {
        hop,
        child: EndpointId(1),
    };
    let parent = network.add(a, parent);
    let child = network.add(
        c,
        Child {
            end: HopEnd::new(1),
            parent,
            echo: None,
        },
    );
    let config = TcpConfig {
        variant,
        segment_bytes: 960,
        start: Time::from_secs_f64(tcp_start_s),
        send_jitter: Duration::from_millis(1),
        ..TcpConfig::default()
    };
    let tcp = Sender::new(config.clone(), EndpointId(3), seed).expect("valid in this test");
    let tcp = network.add(b, tcp);
    let receiver = network.add(c, Receiver::new(config, tcp).expect("valid in this test"));
    network
        .run_until(Time::from_secs_f64(20.0), &mut ())
        .expect("valid in this test");
    let before = (
        network.received(child).bytes,
        network.received(receiver).bytes,
    );
    network
        .run_until(Time::from_secs_f64(140.0), &mut ())
        .expect("valid in this test");
    let rate = |bytes: u64| bytes as f64 * 8e-6 / 120.0;
    (
        rate(network.received(child).bytes - before.0),
        rate(network.received(receiver).bytes - before.1),
    )
}

/// Returns the ratio of the hop's rate to that of TCP on links with queues of the given multiples
/// of the bandwidth-delay product, with the name of each case, and the share of the link in use.
///
/// Not covered: queues of less than one product, where NewReno's queue drains so often that the hop
/// takes itself for alone and yields, and links that carry fewer than three packets per RTT, where
/// TCP lives by its timer.
fn ratios(variant: Variant, queues: &[f64]) -> Vec<(String, f64, f64)> {
    let mut ratios = Vec::new();
    for (mbit, delay) in [(1.0, 25), (3.0, 10), (3.0, 25), (10.0, 10), (10.0, 25)] {
        for queue in queues {
            for start in [0.0, 5.0] {
                let (hop, tcp) = share(mbit, delay, *queue, variant, 1, start);
                let rtt = 2 * delay;
                let name =
                    format!("{variant:?}, {mbit} Mbit/s, {rtt} ms, {queue} BDP, start {start} s");
                ratios.push((name, hop / tcp, (hop + tcp) / mbit));
            }
        }
    }
    ratios
}

/// Checks that all ratios are between 1:2 and 2:1 and that the links are in use.
fn check(ratios: &[(String, f64, f64)]) {
    for (name, ratio, used) in ratios {
        let is_fair = (0.5..=2.0).contains(ratio);
        assert!(is_fair && *used > 0.9, "{name}: {ratio}");
    }
}

#[test]
fn a_hop_shares_a_link_with_new_reno() {
    let ratios = ratios(Variant::NewReno, &[1.0, 2.0]);
    for (name, ratio, used) in &ratios {
        println!("{name}: {ratio:.2}, {used:.2} in use");
    }
    check(&ratios);
}

#[test]
fn a_hop_shares_a_link_with_cubic() {
    let ratios = ratios(Variant::Cubic, &[1.0]);
    for (name, ratio, used) in &ratios {
        println!("{name}: {ratio:.2}, {used:.2} in use");
    }
    check(&ratios);
}
