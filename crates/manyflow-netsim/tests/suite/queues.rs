//! TCP connections over links with active queue management.

use std::time::Duration;

use manyflow_core::link::{
    Aqm, CoDelConfig, DualPi2Config, FqCoDelConfig, LinkConfig, PieConfig, QueueLimit,
};
use manyflow_core::{EndpointId, Rate, Time};
use manyflow_netsim::{LinkId, Network};
use manyflow_tcp::{Event, Receiver, Segment, Sender, TcpConfig};

const RATE: u64 = 10_000_000;
/// The time of a segment on the bottleneck.
const SEGMENT_MS: f64 = 1040.0 * 8.0 / 10_000.0;

struct World {
    network: Network<Segment, Event>,
    bottleneck: LinkId,
    receivers: Vec<EndpointId>,
}

/// Makes a connection for each round-trip time in milliseconds, over one bottleneck of 10 Mbit/s.
fn world(aqm: Option<Aqm>, rtts_ms: &[u64], ecn: bool) -> World {
    let mut network = Network::new(3);
    let [near, far] = ["near", "far"].map(|name| network.add_node(name));
    let bottleneck = LinkConfig {
        rate: Some(Rate::from_bits_per_s(RATE)),
        queue: QueueLimit::Packets(500),
        aqm,
        ..LinkConfig::default()
    };
    let (bottleneck, _) = network.add_duplex(near, far, bottleneck);
    let mut receivers = Vec::new();
    for (index, rtt_ms) in rtts_ms.iter().enumerate() {
        let [from, to] = ["S", "R"].map(|name| network.add_node(&format!("{name}{index}")));
        network.add_duplex(from, near, delay(rtt_ms / 2));
        network.add_duplex(far, to, delay(0));
        let config = TcpConfig {
            start: Time::ZERO + Duration::from_millis(100 * index as u64),
            ecn,
            send_jitter: Duration::from_micros(832),
            ..TcpConfig::default()
        };
        let to_receiver = EndpointId(network.next_endpoint().0 + 1);
        let sender = Sender::new(config.clone(), to_receiver, index as u64).expect("valid");
        let sender = network.add(from, sender);
        let receiver = Receiver::new(config, sender).expect("valid");
        receivers.push(network.add(to, receiver));
    }
    World {
        network,
        bottleneck,
        receivers,
    }
}

fn delay(ms: u64) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(ms),
        ..LinkConfig::default()
    }
}

/// The steady state of a run: its last 40 s of 60 s.
struct Steady {
    /// The mean time of a packet in the queue.
    delay_ms: f64,
    /// The share of the link that is used.
    used: f64,
    /// Each connection's share of the link.
    shares: Vec<f64>,
    drops: u64,
    marks: u64,
}

impl World {
    fn steady(mut self) -> Steady {
        let at = |s: u64| Time::ZERO + Duration::from_secs(s);
        let run = |network: &mut Network<Segment, Event>, end| {
            network.run_until(end, &mut ()).expect("time advances");
        };
        run(&mut self.network, at(20));
        let before = self.counts();
        run(&mut self.network, at(60));
        let after = self.counts();
        self.network
            .check_accounting()
            .expect("every packet counts");
        let bits = 40.0 * RATE as f64;
        Steady {
            delay_ms: (after.queue - before.queue).as_secs_f64() / 40.0 * SEGMENT_MS,
            used: (after.bytes - before.bytes) as f64 * 8.0 / bits,
            shares: (after.received.iter().zip(before.received))
                .map(|(after, before)| (after - before) as f64 * 8.0 / bits)
                .collect(),
            drops: after.drops - before.drops,
            marks: after.marks - before.marks,
        }
    }

    fn counts(&mut self) -> Counts {
        let counters = self.network.link_counters(self.bottleneck);
        let received = self.receivers.iter();
        Counts {
            queue: self.network.queue_time(self.bottleneck),
            bytes: counters.delivered_bytes,
            drops: counters.dropped,
            marks: counters.marked,
            received: received
                .map(|receiver| self.network.received(*receiver).bytes)
                .collect(),
        }
    }
}

struct Counts {
    queue: Duration,
    bytes: u64,
    drops: u64,
    marks: u64,
    received: Vec<u64>,
}

fn codel() -> Option<Aqm> {
    Some(Aqm::CoDel(CoDelConfig::default()))
}

#[test]
fn codel_holds_the_queue_of_one_and_of_many_connections_near_its_target() {
    // A window of 60 ms and of 8 ms in the queue falls to 34 ms: one connection alone uses 83 % of
    // the link until it is back at 60 ms.
    for (flows, used, most_ms) in [(1, 0.78, 10.0), (4, 0.9, 10.0), (10, 0.95, 15.0)] {
        let steady = world(codel(), &vec![60; flows], false).steady();
        assert!(steady.delay_ms < most_ms, "{flows}: {}", steady.delay_ms);
        assert!(steady.used > used, "{flows}: {}", steady.used);
        let tail = world(None, &vec![60; flows], false).steady();
        assert!(tail.delay_ms > 100.0, "{flows}: {}", tail.delay_ms);
    }
}

#[test]
fn marks_take_the_place_of_drops() {
    for aqm in [
        Aqm::CoDel(CoDelConfig::default()),
        Aqm::FqCoDel(FqCoDelConfig::default()),
        Aqm::Pie(PieConfig::default()),
        Aqm::DualPi2(DualPi2Config::default()),
    ] {
        let steady = world(Some(aqm), &[40; 4], true).steady();
        assert!(steady.drops == 0 && steady.marks > 20, "{aqm:?}");
        assert!(steady.used > 0.95, "{aqm:?}: {}", steady.used);
    }
}

#[test]
fn fq_codel_shares_equally_among_round_trip_times() {
    // CoDel takes up to a sixth of its share from a connection with a long round-trip time.
    let rtts = [20, 40, 80];
    let aqm = Some(Aqm::FqCoDel(FqCoDelConfig::default()));
    let unequal = |shares: &[f64]| {
        let most = shares.iter().fold(0.0_f64, |most, share| most.max(*share));
        most / shares
            .iter()
            .fold(1.0_f64, |least, share| least.min(*share))
    };
    let fair = world(aqm, &rtts, false).steady();
    assert!(unequal(&fair.shares) < 1.4, "{:?}", fair.shares);
    let codel = world(codel(), &rtts, false).steady();
    assert!(unequal(&codel.shares) > 2.0, "{:?}", codel.shares);
}

#[test]
fn pie_and_dualpi2_hold_their_target() {
    for aqm in [
        Aqm::Pie(PieConfig::default()),
        Aqm::DualPi2(DualPi2Config::default()),
    ] {
        let steady = world(Some(aqm), &[100; 10], false).steady();
        let delay_ms = steady.delay_ms;
        assert!((10.0..=20.0).contains(&delay_ms), "{aqm:?}: {delay_ms}");
    }
}
