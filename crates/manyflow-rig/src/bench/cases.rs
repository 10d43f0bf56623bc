//! The cases of the comparison with ns-2.

use std::time::Duration;

use manyflow_core::link::{LinkConfig, QueueLimit};
use manyflow_core::{Channel, Destination, EndpointId, Time};
use manyflow_netsim::NodeId;
use manyflow_scenario::Network;
use manyflow_tcp::cbr::{Pattern, Sink, Source, SourceConfig};
use manyflow_tcp::{self as tcp, TcpConfig, Variant};

/// One case, which both simulators run.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) build: fn() -> Network,
    /// Simulated time in seconds.
    pub(super) seconds: f64,
    pub(super) ns2: Ns2,
    /// The speed-up of ns-2 by tuning it, in this case.
    pub(super) tuning: f64,
    /// The required ratio of our speed to that of a tuned ns-2.
    pub(super) factor: f64,
}

impl Case {
    /// The required ratio of our speed to that of an ns-2 without tuning.
    pub(super) fn bound(&self) -> f64 {
        self.tuning * self.factor
    }
}

/// The same case in ns-2.
#[derive(Copy, Clone)]
pub(super) struct Ns2 {
    pub(super) script: &'static str,
    pub(super) arguments: &'static [&'static str],
    /// Arguments for the same case without simulated time, if the set-up takes long; its time is
    /// subtracted.
    pub(super) set_up: Option<&'static [&'static str]>,
}

const DUMBBELL: &str = include_str!("../../ns2/dumbbell.tcl");
const CBR: &str = include_str!("../../ns2/cbr.tcl");
const MULTICAST: &str = include_str!("../../ns2/multicast.tcl");

pub(super) const CASES: &[Case] = &[
    Case {
        name: "dumbbell, 20 SACK flows, 100 Mbit/s, 100 s",
        build: dumbbell,
        seconds: 100.0,
        ns2: Ns2 {
            script: DUMBBELL,
            arguments: &[],
            set_up: None,
        },
        tuning: 7.8 / 6.3,
        factor: 1.5,
    },
    Case {
        name: "CBR over 3 links, 500 s",
        build: cbr_chain,
        seconds: 500.0,
        ns2: Ns2 {
            script: CBR,
            arguments: &[],
            set_up: None,
        },
        tuning: 1.0,
        factor: 3.0,
    },
    Case {
        name: "multicast CBR, tree of 16 leaves, 300 s",
        build: || multicast(16),
        seconds: 300.0,
        ns2: Ns2 {
            script: MULTICAST,
            arguments: &["16", "300"],
            set_up: None,
        },
        tuning: 8.3 / 5.7,
        factor: 2.0,
    },
    Case {
        name: "multicast CBR, tree of 1024 leaves, 20 s",
        build: || multicast(1024),
        seconds: 20.0,
        ns2: Ns2 {
            script: MULTICAST,
            arguments: &["1024", "20"],
            set_up: Some(&["1024", "0"]),
        },
        tuning: 1.0,
        factor: 5.0,
    },
];

fn link(rate: &str, delay_ms: u64, queue: u32) -> LinkConfig {
    LinkConfig {
        rate: Some(rate.parse().expect("a rate")),
        delay: Duration::from_millis(delay_ms),
        queue: QueueLimit::Packets(queue),
        ..LinkConfig::default()
    }
}

fn add_source(
    network: &mut Network,
    node: NodeId,
    destination: Destination,
    rate: &str,
    start_s: f64,
) {
    let config = SourceConfig {
        destination,
        rate: rate.parse().expect("a rate"),
        packet_bytes: 1000,
        pattern: Pattern::Constant,
        start: Time::from_secs_f64(start_s),
        stop: None,
    };
    network.add(node, Source::new(config, 1).expect("a source"));
}

fn cbr_chain() -> Network {
    let mut network = Network::new(1);
    let nodes: Vec<NodeId> = (0..4).map(|i| network.add_node(&i.to_string())).collect();
    for pair in nodes.windows(2) {
        network.add_link(pair[0], pair[1], link("100 Mbit/s", 10, 50));
    }
    let sink = network.add(nodes[3], Sink::new(None, Time::ZERO, None));
    add_source(
        &mut network,
        nodes[0],
        Destination::Endpoint(sink),
        "40 Mbit/s",
        0.0,
    );
    network
}

fn multicast(leaves: usize) -> Network {
    let mut network = Network::new(1);
    let nodes: Vec<NodeId> = (0..2 * leaves - 1)
        .map(|i| network.add_node(&i.to_string()))
        .collect();
    for i in 1..nodes.len() {
        network.add_duplex(nodes[(i - 1) / 2], nodes[i], link("100 Mbit/s", 1, 50));
    }
    let channel = Channel {
        session: network.open_session(nodes[0]),
        number: 0,
    };
    for leaf in &nodes[leaves - 1..] {
        network.add(
            *leaf,
            Sink::new(Some(channel), Time::from_secs_f64(0.1), None),
        );
    }
    add_source(
        &mut network,
        nodes[0],
        Destination::Channel(channel),
        "4 Mbit/s",
        0.5,
    );
    network
}

fn dumbbell() -> Network {
    let mut network = Network::new(1);
    let (left, right) = (network.add_node("left"), network.add_node("right"));
    network.add_duplex(left, right, link("100 Mbit/s", 8, 200));
    for i in 0..20 {
        let (source, sink) = (
            network.add_node(&format!("s{i}")),
            network.add_node(&format!("d{i}")),
        );
        network.add_duplex(source, left, link("1 Gbit/s", 1, 10_000));
        network.add_duplex(right, sink, link("1 Gbit/s", 1, 10_000));
        let config = TcpConfig {
            variant: Variant::Sack,
            segment_bytes: 960,
            maximum_window: 1000,
            start: Time::from_secs_f64(0.05 * f64::from(i)),
            send_jitter: Duration::from_micros(80),
            ..TcpConfig::default()
        };
        let sender = network.next_endpoint();
        let receiver = EndpointId(sender.0 + 1);
        let seed = network.stream(&format!("flow {i}"));
        let endpoint = tcp::Sender::new(config.clone(), receiver, seed).expect("a sender");
        network.add(source, endpoint);
        network.add(
            sink,
            tcp::Receiver::new(config, sender).expect("a receiver"),
        );
    }
    network
}
