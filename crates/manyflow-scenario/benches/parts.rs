//! Benchmarks of the simulator's parts, in elements per second.

use std::time::Duration;

use criterion::{Criterion, Throughput};
use manyflow_core::link::{LinkConfig, QueueLimit};
use manyflow_tcp::cbr::{Pattern, Sink, Source, SourceConfig};
use std::convert::Infallible;

use manyflow_core::{Action, Channel, Destination, Endpoint, Packet, Time};
use manyflow_netsim::NodeId;
use manyflow_scenario::Network;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    let mut run = |name: &str, mut network: Network, per_slice: u64| {
        network
            .run_until(Time::from_secs_f64(1.0), &mut ())
            .expect("time advances");
        let mut group = criterion.benchmark_group("netsim");
        group.throughput(Throughput::Elements(per_slice));
        let mut now = Time::from_secs_f64(1.0);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                now += Duration::from_millis(10);
                network.run_until(now, &mut ()).expect("time advances");
            });
        });
    };
    run("events, 10,000 pending", tickers(10_000), 100);
    run("packets over three links", chain(), 50);
    run("copies to 100 receivers", star(100), 1000);
    criterion.final_summary();
}

/// An endpoint whose timer expires each second: one event is taken from the queue, and one is
/// added.
struct Ticker(Time);

impl Endpoint for Ticker {
    type Rx = Infallible;
    type Tx = Infallible;
    type Event = Infallible;

    fn handle_packet(&mut self, _now: Time, _packet: &Packet<Infallible>) {}

    fn handle_timeout(&mut self, now: Time) {
        if now >= self.0 {
            self.0 += Duration::from_secs(1);
        }
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action<Infallible>> {
        None
    }

    fn poll_timeout(&self) -> Option<Time> {
        Some(self.0)
    }

    fn poll_event(&mut self) -> Option<Infallible> {
        None
    }
}

/// Builds this number of timers, spread evenly over a second.
fn tickers(count: u64) -> Network {
    let mut network = Network::new(1);
    let node = network.add_node("n");
    for i in 0..count {
        // The order differs from that of the times.
        let place = i * 7919 % count;
        let first = Time::from_nanos(place * 1_000_000_000 / count);
        network.add(node, Ticker(first));
    }
    network
}

fn link() -> LinkConfig {
    LinkConfig {
        rate: Some("100 Mbit/s".parse().expect("the rate is valid")),
        delay: Duration::from_millis(10),
        queue: QueueLimit::Packets(50),
        ..LinkConfig::default()
    }
}

fn add_source(network: &mut Network, node: NodeId, destination: Destination, rate: &str) {
    let config = SourceConfig {
        destination,
        rate: rate.parse().expect("the rate is valid"),
        packet_bytes: 1000,
        pattern: Pattern::Constant,
        start: Time::ZERO,
        stop: None,
    };
    network.add(
        node,
        Source::new(config, 1).expect("the configuration is valid"),
    );
}

/// Builds a flow of 5000 packets/s over three links.
fn chain() -> Network {
    let mut network = Network::new(1);
    let nodes = ["a", "b", "c", "d"].map(|name| network.add_node(name));
    for pair in nodes.windows(2) {
        network.add_link(pair[0], pair[1], link());
    }
    let sink = network.add(nodes[3], Sink::new(None, Time::ZERO, None));
    add_source(
        &mut network,
        nodes[0],
        Destination::Endpoint(sink),
        "40 Mbit/s",
    );
    network
}

/// Builds a flow of 1000 packets/s to a channel that this number of receivers behind one router
/// have joined.
fn star(receivers: u32) -> Network {
    let mut network = Network::new(1);
    let [source, router] = ["S", "r"].map(|name| network.add_node(name));
    network.add_duplex(source, router, link());
    let channel = Channel {
        session: network.open_session(source),
        number: 0,
    };
    for i in 0..receivers {
        let host = network.add_node(&format!("h{i}"));
        network.add_duplex(router, host, link());
        network.add(host, Sink::new(Some(channel), Time::ZERO, None));
    }
    add_source(
        &mut network,
        source,
        Destination::Channel(channel),
        "8 Mbit/s",
    );
    network
}
