//! RACK-TLP, PRR and HyStart++: the parts of a connection that any variant with SACK can have.

use crate::bbr::bottleneck;
use crate::tcp_world::{World, delay};

use std::time::Duration;

use manyflow_core::link::LinkConfig;
use manyflow_tcp::{Event, LossDetection, Recovery, SlowStart, TcpConfig, Variant};

fn rack() -> TcpConfig {
    TcpConfig {
        loss_detection: LossDetection::RackTlp,
        ..TcpConfig::of(Variant::Sack)
    }
}

/// Runs a transfer of 400 segments, and loses one transmission of a segment for each time that its
/// number is in `lost`.
fn transfer(tcp: TcpConfig, lost: &[u32]) -> World {
    let tcp = TcpConfig {
        transfer: Some(400),
        // Two round-trip times are too short for a second attempt.
        minimum_rto: Duration::from_secs(1),
        ..tcp
    };
    let mut world = World::new(tcp, delay(50), delay(50), 1);
    let mut lost = lost.to_vec();
    world.sender.filter_packets(move |_, packet| {
        let place = lost.iter().position(|one| *one == packet.header.sequence);
        place.map(|place| lost.remove(place)).is_none()
    });
    world.run_until(Duration::from_secs(60));
    assert!(world.sender.get().is_finished());
    world
}

fn timeouts(world: &World) -> u64 {
    world.sender.get().counters().timeouts
}

#[test]
fn a_lost_tail_is_repaired_by_a_probe_and_without_a_time_out() {
    assert!(timeouts(&transfer(TcpConfig::of(Variant::Sack), &[398, 399])) > 0);
    let world = transfer(rack(), &[398, 399]);
    assert_eq!(timeouts(&world), 0, "{:?}", world.sender.get().counters());
}

#[test]
fn a_lost_retransmission_is_detected_without_a_time_out() {
    let lost = [100, 100];
    let first = transfer(rack(), &[100]);
    assert_eq!(first.sender.get().counters().retransmitted, 1);
    assert!(timeouts(&transfer(TcpConfig::of(Variant::Sack), &lost)) > 0);
    let world = transfer(rack(), &lost);
    let counters = world.sender.get().counters();
    assert_eq!(
        (counters.timeouts, counters.retransmitted),
        (0, 2),
        "{counters:?}"
    );
}

#[test]
fn reordering_by_less_than_a_quarter_of_the_round_trip_is_no_loss() {
    let spurious = |tcp: TcpConfig| {
        let reordering = LinkConfig {
            jitter: Duration::from_millis(15),
            ..delay(50)
        };
        let tcp = TcpConfig {
            transfer: Some(5000),
            maximum_window: 60,
            ..tcp
        };
        let mut world = World::new(tcp, reordering, delay(50), 1);
        world.run_until(Duration::from_secs(600));
        assert!(world.sender.get().is_finished());
        world.sender.get().counters().retransmitted
    };
    let (duplicates, by_time) = (spurious(TcpConfig::of(Variant::Sack)), spurious(rack()));
    println!("spurious retransmissions: {duplicates} by duplicates, {by_time} by time");
    assert!(duplicates > 30, "{duplicates}");
    assert_eq!(by_time, 0);
}

#[test]
fn with_prr_a_recovery_sends_in_every_round_and_ends_at_the_threshold() {
    // Between the loss and its repair, a sender without PRR waits for half of the window.
    let longest_pause = |recovery| {
        let tcp = TcpConfig {
            initial_window: 100,
            recovery,
            ..TcpConfig::of(Variant::Sack)
        };
        let mut world = World::new(tcp, bottleneck(1000), delay(20), 1);
        let times = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let log = times.clone();
        world.sender.filter_packets(move |now, packet| {
            log.lock().unwrap().push(now);
            packet.header.sequence != 100 || log.lock().unwrap().len() != 101
        });
        world.run_until(Duration::from_millis(700));
        assert_eq!(world.sender.get().counters().fast_recoveries, 1);
        let times = times.lock().unwrap();
        // The initial window is sent at once, and its acknowledgements come at the link's pace.
        let gaps = times[110..].windows(2).map(|pair| pair[1] - pair[0]);
        gaps.max().unwrap()
    };
    let (without, with) = (
        longest_pause(Recovery::Window),
        longest_pause(Recovery::Prr),
    );
    println!("longest pause {without:?} without, {with:?} with PRR");
    assert!(with < Duration::from_millis(5), "{with:?}");
    assert!(without > Duration::from_millis(20), "{without:?}");
}

#[test]
fn hystart_leaves_slow_start_before_the_queue_is_full() {
    let losses = |slow_start| {
        let tcp = TcpConfig {
            slow_start,
            initial_window: 10,
            ..TcpConfig::of(Variant::Cubic)
        };
        let mut world = World::new(tcp, bottleneck(600), delay(20), 1);
        world.run_until(Duration::from_secs(3));
        let highest = world
            .sender
            .events()
            .into_iter()
            .filter_map(|(_, event)| match event {
                Event::CongestionWindow { packets } => Some(packets),
                _ => None,
            });
        let highest = highest.fold(0.0, f64::max);
        (world.sender.get().counters().retransmitted, highest)
    };
    let standard = losses(SlowStart::Standard);
    assert!(standard.0 > 100, "{standard:?}");
    for slow_start in [SlowStart::HyStart, SlowStart::HyStartPlusPlus] {
        let hystart = losses(slow_start);
        println!("retransmissions and window: {standard:?}, with {slow_start:?} {hystart:?}");
        assert_eq!(hystart.0, 0, "{hystart:?}");
        assert!(hystart.1 > 49.0, "the path holds 49 segments: {hystart:?}");
    }
}
