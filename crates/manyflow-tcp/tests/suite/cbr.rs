//! A source, a lossy link and a sink, in simulated time.

use std::time::Duration;

use manyflow_core::link::{Link, LinkConfig, LossModel};
use manyflow_core::{Action, Channel, Destination, Endpoint, Packet, Time};
use manyflow_tcp::cbr::{Datagram, Pattern, Sink, Source, SourceConfig};

#[test]
fn a_sink_counts_what_a_link_delivers_and_loses() {
    let channel = Channel {
        session: 3,
        number: 0,
    };
    let config = SourceConfig {
        destination: Destination::Channel(channel),
        rate: "1 Mbit/s".parse().unwrap(),
        packet_bytes: 500,
        pattern: Pattern::Poisson,
        start: Time::ZERO + Duration::from_secs(1),
        stop: Some(Time::ZERO + Duration::from_secs(101)),
    };
    let mut source = Source::new(config, 9).unwrap();
    let mut sink = Sink::new(Some(channel), Time::ZERO, None);
    let lossy = LinkConfig {
        loss: LossModel::Bernoulli(0.1),
        delay: Duration::from_millis(20),
        jitter: Duration::from_millis(20),
        ..LinkConfig::default()
    };
    let mut link: Link<Packet<Datagram>> = Link::new(lossy, 9);
    assert_eq!(sink.poll_action(Time::ZERO), Some(Action::Join(channel)));
    let next = |source: &Source, link: &Link<Packet<Datagram>>| {
        source
            .poll_timeout()
            .into_iter()
            .chain(link.next_time())
            .min()
    };
    while let Some(now) = next(&source, &link) {
        while let Some(Action::Send(packet)) = source.poll_action(now) {
            let bytes = packet.wire_bytes();
            let _ = link.push(now, packet, bytes);
        }
        while let Some(packet) = link.pop_ready(now) {
            sink.handle_packet(now, &packet);
        }
    }
    let counters = link.counters();
    assert_eq!(u64::from(source.sent()), counters.pushed);
    assert_eq!(sink.received(), counters.delivered);
    // Datagrams that are lost before the first arrival or after the last leave no gap between
    // numbers.
    assert!(counters.lost.abs_diff(sink.lost()) <= 5);
    assert!((counters.pushed as f64 / 25_000.0 - 1.0).abs() < 0.02);
}
