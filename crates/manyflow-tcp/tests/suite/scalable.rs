//! DCTCP and Prague behind a queue that marks above a threshold.

use crate::tcp_world::{World, delay};

use std::time::Duration;

use manyflow_core::link::{LinkConfig, QueueLimit, RedConfig};
use manyflow_core::units::Rate;
use manyflow_core::{Ecn, Time};
use manyflow_tcp::{Event, TcpConfig, Variant};

/// Returns a link of 20 Mbit/s with a delay of 10 ms that marks every packet which finds `packets`
/// in its queue or more.
fn marking(packets: f64) -> LinkConfig {
    LinkConfig {
        rate: Some(Rate::from_bits_per_s(20_000_000)),
        queue: QueueLimit::Packets(200),
        red: Some(RedConfig {
            minimum_packets: packets,
            maximum_packets: packets + 0.001,
            maximum_probability: 1.0,
            weight: 1.0,
            ecn: true,
            overload: manyflow_core::link::Overload::Mark,
            ..RedConfig::default()
        }),
        ..delay(10)
    }
}

/// Returns the use of the link, and the mean queue in milliseconds, from the fifth second on.
fn run(variant: Variant, packets: f64) -> (f64, f64) {
    let mut world = World::new(TcpConfig::of(variant), marking(packets), delay(10), 1);
    world.sender.filter_packets(move |_, packet| {
        let field = match variant {
            Variant::Prague => Ecn::L4s,
            _ => Ecn::Capable,
        };
        assert_eq!(packet.ecn, field);
        true
    });
    world.run_until(Duration::from_secs(5));
    let before = world.receiver.get().delivered_segments();
    world.run_until(Duration::from_secs(25));
    let delivered = world.receiver.get().delivered_segments() - before;
    let counters = world.sender.get().counters();
    assert_eq!(counters.retransmitted, 0);
    assert!(counters.marks_heeded > 20, "{counters:?}");
    let events = world.sender.events().into_iter();
    let samples: Vec<f64> = events
        .filter(|(time, _)| *time > Time::ZERO + Duration::from_secs(5))
        .filter_map(|(_, event)| match event {
            Event::Rtt { sample_s, .. } => Some(sample_s - 0.020_416),
            _ => None,
        })
        .collect();
    let queue_s = samples.iter().sum::<f64>() / samples.len() as f64;
    (
        f64::from(delivered) * 8.0 * 1040.0 / (20.0 * 2e7),
        1000.0 * queue_s,
    )
}

#[test]
fn with_a_low_threshold_the_link_is_used_and_the_queue_is_short() {
    for variant in [Variant::Dctcp, Variant::Prague] {
        // A seventh of the bandwidth-delay product of 48 segments (RFC 8257 section 4.1, RFC 9330).
        let (used, queue_ms) = run(variant, 7.0);
        println!("{variant:?}: use {used:.3}, queue {queue_ms:.2} ms");
        assert!(used > 0.95, "{variant:?} {used}");
        // The threshold stands for 2.9 ms.
        assert!(queue_ms < 4.0, "{variant:?} {queue_ms}");
    }
}

#[test]
fn a_window_of_marks_costs_half_of_it_only_if_most_windows_have_marks() {
    // With a threshold of half a bandwidth-delay product, few packets are marked, so the window
    // falls by less than SACK's, which halves: the queue never empties.
    let (used, queue_ms) = run(Variant::Dctcp, 24.0);
    println!("use {used:.3}, queue {queue_ms:.2} ms");
    assert!(used > 0.995, "{used}");
    assert!((4.0..12.0).contains(&queue_ms), "{queue_ms}");
}
