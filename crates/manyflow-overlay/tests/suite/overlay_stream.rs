//! Tests of stream links: two hops over a pair of links, in simulated time.

use crate::hop_world;
use crate::tcp_world;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hop_world::World;
use manyflow_core::link::{LinkConfig, LossModel, QueueLimit};
use manyflow_core::{Rate, Time};
use manyflow_overlay::Frame;
use manyflow_tcp::{TcpConfig, Variant};
use tcp_world::delay;

const VARIANTS: [Variant; 3] = [Variant::NewReno, Variant::Sack, Variant::Cubic];

fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// Returns a link of 10 Mbit/s and 20 ms. A message of 1040 bytes takes 0.832 ms, and a round-trip
/// time holds 48 messages.
fn bottleneck() -> LinkConfig {
    LinkConfig {
        rate: Some(Rate::from_bits_per_s(10_000_000)),
        queue: QueueLimit::Packets(50),
        ..delay(20)
    }
}

/// Returns a log of the segments that the first end sends, with their times.
fn record(world: &mut World) -> Arc<Mutex<Vec<(Time, u32)>>> {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let log = sent.clone();
    world.ends[0].filter_packets(move |now, packet| {
        if let Frame::Segment { sequence, .. } = packet.header {
            log.lock().unwrap().push((now, sequence.0));
        }
        true
    });
    sent
}

/// Returns the number of segments sent in the millisecond from `start` on.
fn burst(sent: &[(Time, u32)], start: Duration) -> usize {
    let start = Time::ZERO + start;
    let burst = start..start + Duration::from_millis(1);
    sent.iter().filter(|(at, _)| burst.contains(at)).count()
}

#[test]
fn messages_arrive_once_and_in_order_despite_loss_duplication_and_reordering() {
    for variant in VARIANTS {
        for (loss, seed) in [(0.0, 1), (0.01, 2), (0.05, 3), (0.2, 4)] {
            let hostile = LinkConfig {
                loss: LossModel::Bernoulli(loss),
                duplication: 0.05,
                jitter: Duration::from_millis(10),
                ..bottleneck()
            };
            let tcp = TcpConfig {
                variant,
                maximum_window: 100,
                delayed_acks: seed % 2 == 0,
                send_jitter: Duration::from_millis(1),
                ..TcpConfig::default()
            };
            let mut world = World::new(tcp, [hostile.clone(), hostile], seed);
            world.ends[0].get().supply = 2000;
            world.ends[1].get().supply = 1000;
            world.run_until(secs(1800));
            assert_eq!(world.read(), [1000, 2000], "{variant:?}, {loss}");
        }
    }
}

#[test]
fn a_backlogged_stream_fills_its_link() {
    for send_jitter in [Duration::ZERO, Duration::from_millis(1)] {
        let tcp = TcpConfig {
            send_jitter,
            ..TcpConfig::default()
        };
        let mut world = World::new(tcp, [bottleneck(), delay(20)], 5);
        world.ends[0].get().supply = u32::MAX;
        world.run_until(secs(30));
        let possible = 30.0 / 0.000_832;
        let share = f64::from(world.read()[1]) / possible;
        println!("{send_jitter:?}: {share:.3} of the link");
        assert!(share > 0.9, "{share}");
    }
}

#[test]
fn a_backlogged_stream_is_as_fast_as_a_greedy_connection() {
    for variant in VARIANTS {
        let lossy = LinkConfig {
            loss: LossModel::Bernoulli(0.01),
            ..delay(20)
        };
        let tcp = TcpConfig {
            variant,
            send_jitter: Duration::from_millis(1),
            ..TcpConfig::default()
        };
        let mut greedy = tcp_world::World::new(tcp.clone(), lossy.clone(), delay(20), 11);
        greedy.run_until(secs(300));
        let mut world = World::new(tcp, [lossy, delay(20)], 11);
        world.ends[0].get().supply = u32::MAX;
        world.run_until(secs(300));
        let greedy = greedy.receiver.get().delivered_segments();
        let ratio = f64::from(world.read()[1]) / f64::from(greedy);
        println!("{variant:?}: {} to {greedy}", world.read()[1]);
        assert!((0.9..1.1).contains(&ratio), "{variant:?}: {ratio}");
    }
}

#[test]
fn a_reader_that_stops_pauses_the_sender() {
    let tcp = TcpConfig {
        maximum_window: 64,
        ..TcpConfig::default()
    };
    let mut world = World::new(tcp, [bottleneck(), delay(20)], 6);
    let sent = record(&mut world);
    world.ends[0].get().supply = u32::MAX;
    world.ends[1].get().reads = false;
    world.run_until(secs(10));
    // The window is full, and 3 messages wait behind it.
    assert_eq!(world.ends[0].get().pushed, 64 + 3);
    world.ends[1].get().reads = true;
    world.run_until(secs(20));
    // The stream was idle for long, so it restarts slowly although the whole window opens at once.
    assert_eq!(
        burst(&sent.lock().unwrap(), Duration::from_millis(10_020)),
        2
    );
    assert!(world.read()[1] > 5000, "{}", world.read()[1]);
}

#[test]
fn a_reader_that_pauses_misses_nothing_on_a_lossy_link() {
    let lossy = LinkConfig {
        loss: LossModel::Bernoulli(0.05),
        jitter: Duration::from_millis(10),
        ..bottleneck()
    };
    let tcp = TcpConfig {
        maximum_window: 16,
        send_jitter: Duration::from_millis(1),
        ..TcpConfig::default()
    };
    let mut world = World::new(tcp, [lossy.clone(), lossy], 10);
    world.ends[0].get().supply = 2000;
    for half_second in 1..=1200 {
        let reads = world.ends[1].get().reads;
        world.ends[1].get().reads = !reads;
        world.run_until(Duration::from_millis(500 * half_second));
    }
    assert_eq!(world.read()[1], 2000);
}

#[test]
fn a_lost_window_update_is_probed_for() {
    let tcp = TcpConfig {
        maximum_window: 64,
        ..TcpConfig::default()
    };
    let mut world = World::new(tcp, [bottleneck(), delay(20)], 6);
    world.ends[0].get().supply = 1000;
    world.ends[1].get().reads = false;
    world.run_until(secs(10));
    // The window opens within the first second of reading, but all acknowledgements of that second
    // are lost.
    world.ends[1].get().reads = true;
    world.ends[1].filter_packets(|now, _| now > Time::ZERO + secs(11));
    world.run_until(secs(11));
    assert_eq!(world.read()[1], 64);
    world.run_until(secs(40));
    assert_eq!(world.read()[1], 1000);
}

#[test]
fn probes_of_a_closed_window_become_rare() {
    let tcp = TcpConfig {
        maximum_window: 10,
        ..TcpConfig::default()
    };
    let mut world = World::new(tcp, [delay(20), delay(20)], 7);
    let sent = record(&mut world);
    world.ends[0].get().supply = 100;
    world.ends[1].get().reads = false;
    world.run_until(secs(600));
    let probes = sent
        .lock()
        .unwrap()
        .iter()
        .filter(|(_, n)| *n == 10)
        .count();
    // Probes are sent after 0.2 s, 0.4 s and so on, up to a minute apart.
    assert!((10..=18).contains(&probes), "{probes}");
    world.ends[1].get().reads = true;
    world.run_until(secs(700));
    assert_eq!(world.read()[1], 100);
}

#[test]
fn an_idle_stream_restarts_with_the_restart_window() {
    let tcp = TcpConfig {
        initial_window: 3,
        ..TcpConfig::default()
    };
    let mut world = World::new(tcp, [bottleneck(), delay(20)], 8);
    let sent = record(&mut world);
    world.ends[0].get().supply = 5000;
    world.run_until(secs(60));
    assert_eq!(world.read()[1], 5000);
    world.ends[0].get().supply += 1000;
    world.run_until(secs(120));
    assert_eq!(world.read()[1], 6000);
    assert_eq!(burst(&sent.lock().unwrap(), secs(60)), 3);
}

#[test]
fn an_unused_window_does_not_grow() {
    for variant in VARIANTS {
        let tcp = TcpConfig {
            variant,
            ..TcpConfig::default()
        };
        let mut world = World::new(tcp, [delay(20), delay(20)], 9);
        let sent = record(&mut world);
        // A message every 5 ms keeps eight in flight.
        for tick in 1..=6000 {
            world.ends[0].get().supply += 1;
            world.run_until(Duration::from_millis(5 * tick));
        }
        // Then many messages are ready at once.
        world.ends[0].get().supply += 1000;
        world.run_until(secs(31));
        let burst = burst(&sent.lock().unwrap(), secs(30));
        println!("{variant:?}: {burst} at once");
        assert!(burst <= 16, "{variant:?}: {burst}");
    }
}
