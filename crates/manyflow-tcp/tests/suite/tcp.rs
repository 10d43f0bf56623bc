//! TCP end to end: one connection over a pair of links, in simulated time.

use crate::tcp_world;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use manyflow_core::link::{LinkConfig, LossModel, QueueLimit};
use manyflow_core::{Ecn, Packet, Time};
use manyflow_tcp::{Event, Segment, TcpConfig, Variant};
use tcp_world::{World, delay};

pub(crate) const VARIANTS: [Variant; 3] = [Variant::NewReno, Variant::Sack, Variant::Cubic];

/// The variants with a control in place of cwnd and ssthresh.
pub(crate) const CONTROLS: [Variant; 4] =
    [Variant::Bbr, Variant::Bbr3, Variant::Dctcp, Variant::Prague];

pub(crate) fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

pub(crate) fn of(variant: Variant) -> TcpConfig {
    TcpConfig::of(variant)
}

/// Creates a world with a round-trip time of 100 ms.
fn world(tcp: TcpConfig) -> World {
    World::new(tcp, delay(50), delay(50), 1)
}

/// Loses the first transmission of each of `numbers`.
fn lose_once(world: &mut World, numbers: impl IntoIterator<Item = u32>) {
    let mut numbers: Vec<u32> = numbers.into_iter().collect();
    world.sender.filter_packets(move |_, packet| {
        let place = numbers.iter().position(|n| *n == packet.header.sequence);
        place.map(|place| numbers.remove(place)).is_none()
    });
}

/// Packets with the times at which they were sent.
type Log = Arc<Mutex<Vec<(Time, Packet<Segment>)>>>;

/// Records the packets that the sender sends, with their times.
fn record(world: &mut World) -> Log {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let log = sent.clone();
    world.sender.filter_packets(move |now, packet| {
        log.lock().unwrap().push((now, packet.clone()));
        true
    });
    sent
}

#[test]
fn a_transfer_arrives_whole_whatever_is_lost() {
    for variant in [&VARIANTS[..], &CONTROLS].concat() {
        for loss in [0.0, 0.01, 0.05, 0.2] {
            let lossy = LinkConfig {
                loss: LossModel::Bernoulli(loss),
                ..delay(20)
            };
            let tcp = TcpConfig {
                transfer: Some(2000),
                ..of(variant)
            };
            let mut world = World::new(tcp, lossy.clone(), lossy, 7);
            world.run_until(secs(3600));
            let counters = world.sender.get().counters();
            println!("{variant:?} {loss}: {counters:?}");
            assert!(world.sender.get().is_finished());
            assert_eq!(world.receiver.get().delivered_segments(), 2000);
            assert_eq!(world.sender.count(&Event::Finished), 1);
            assert_eq!(counters.sent, 2000 + counters.retransmitted);
        }
    }
}

#[test]
fn no_round_trip_sample_takes_in_the_wait_for_a_retransmission() {
    for variant in VARIANTS {
        for loss in [0.01, 0.2] {
            let lossy = LinkConfig {
                loss: LossModel::Bernoulli(loss),
                ..delay(20)
            };
            let mut world = World::new(of(variant), lossy, delay(20), 7);
            world.run_until(secs(200));
            let events = world.sender.events();
            let samples = events.iter().filter_map(|(_, event)| match event {
                Event::Rtt { sample_s, .. } => Some(*sample_s),
                _ => None,
            });
            let samples: Vec<f64> = samples.collect();
            assert!(samples.len() > 100, "{}", samples.len());
            let longest_s = samples.into_iter().fold(0.0, f64::max);
            assert!(longest_s < 0.0401, "{variant:?} {loss}: {longest_s}");
        }
    }
}

#[test]
fn slow_start_doubles_with_each_round_trip() {
    for variant in VARIANTS {
        let mut world = world(of(variant));
        let sent = record(&mut world);
        world.run_until(Duration::from_millis(550));
        let per_round = |round: u64| {
            let in_round = |t: &Time| t.as_nanos() / 100_000_000 == round;
            sent.lock()
                .unwrap()
                .iter()
                .filter(|(t, _)| in_round(t))
                .count()
        };
        let rounds: Vec<usize> = (0..6).map(per_round).collect();
        assert_eq!(rounds, [2, 4, 8, 16, 32, 64], "{variant:?}");
    }
}

#[test]
fn one_loss_is_repaired_without_a_time_out() {
    for variant in VARIANTS {
        let mut world = world(TcpConfig {
            maximum_window: 20,
            transfer: Some(1000),
            ..of(variant)
        });
        lose_once(&mut world, [300]);
        world.run_until(secs(60));
        let counters = world.sender.get().counters();
        assert_eq!(
            (counters.fast_recoveries, counters.timeouts),
            (1, 0),
            "{variant:?}"
        );
        assert_eq!(counters.retransmitted, 1);
        assert!(world.sender.get().is_finished());
    }
}

#[test]
fn after_a_loss_the_window_is_half_and_grows_by_one_each_round_trip() {
    let rounds_after_loss = |variant| {
        let mut world = world(TcpConfig {
            maximum_window: 20,
            ..of(variant)
        });
        let sent = Arc::new(Mutex::new(Vec::new()));
        let log = sent.clone();
        world.sender.filter_packets(move |now, _| {
            log.lock().unwrap().push(now);
            log.lock().unwrap().len() != 301
        });
        world.run_until(secs(8));
        let sent = std::mem::take(&mut *sent.lock().unwrap());
        let round = |t: Time| (t - sent[300]).as_millis() / 100;
        let in_round = |r: u128| sent[301..].iter().filter(|t| round(**t) == r).count();
        (2..10).map(in_round).collect::<Vec<usize>>()
    };
    assert_eq!(
        rounds_after_loss(Variant::Sack),
        [10, 10, 11, 12, 13, 14, 15, 16]
    );
    // The receiver's window permits no new segment in recovery, so RFC 6582 ends it with two
    // segments: slow start to half the window.
    assert_eq!(
        rounds_after_loss(Variant::NewReno),
        [2, 4, 8, 10, 11, 12, 13, 14]
    );
}

#[test]
fn losses_of_one_window_halve_it_once() {
    for variant in [Variant::NewReno, Variant::Sack] {
        let mut world = world(TcpConfig {
            maximum_window: 20,
            transfer: Some(1000),
            // NewReno takes a round trip for each loss, and restarts its timer only at the first
            // partial acknowledgement.
            minimum_rto: secs(1),
            ..of(variant)
        });
        lose_once(&mut world, [300, 303, 307]);
        world.run_until(secs(60));
        let counters = world.sender.get().counters();
        assert_eq!(
            (counters.fast_recoveries, counters.timeouts),
            (1, 0),
            "{variant:?}"
        );
        assert_eq!(counters.retransmitted, 3);
    }
}

#[test]
fn new_reno_sends_half_a_window_in_each_round_trip_of_recovery() {
    let mut world = world(TcpConfig {
        minimum_rto: secs(1),
        ..of(Variant::NewReno)
    });
    let mut lost = vec![35, 45, 55];
    let sent = Arc::new(Mutex::new(Vec::new()));
    let log = sent.clone();
    world.sender.filter_packets(move |now, packet| {
        log.lock().unwrap().push(now);
        let place = lost.iter().position(|n| *n == packet.header.sequence);
        place.map(|place| lost.remove(place)).is_none()
    });
    world.run_until(secs(2));
    let round = |t: &Time| t.as_nanos() / 100_000_000;
    let in_round = |r: u64| {
        sent.lock()
            .unwrap()
            .iter()
            .filter(|t| round(t) == r)
            .count()
    };
    // The loss is found in the sixth round trip with a window of 37. Each partial acknowledgement
    // adds one (RFC 6582 section 3.2, step 3).
    let rounds: Vec<usize> = (4..9).map(in_round).collect();
    assert_eq!(rounds, [32, 16, 17, 18, 19]);
    let counters = world.sender.get().counters();
    assert_eq!((counters.fast_recoveries, counters.timeouts), (1, 0));
}

#[test]
fn a_loss_of_what_recovery_sent_is_a_loss_of_the_next_window() {
    for variant in VARIANTS {
        let mut world = world(TcpConfig {
            maximum_window: 20,
            transfer: Some(1000),
            ..of(variant)
        });
        lose_once(&mut world, [300, 324]);
        world.run_until(secs(60));
        let counters = world.sender.get().counters();
        assert_eq!(
            (counters.fast_recoveries, counters.timeouts),
            (2, 0),
            "{variant:?}"
        );
        assert_eq!(counters.retransmitted, 2);
    }
}

#[test]
fn the_seed_decides_when_segments_go() {
    let sent = |seed| {
        let tcp = TcpConfig {
            send_jitter: Duration::from_millis(5),
            transfer: Some(500),
            ..of(Variant::Sack)
        };
        let mut world = World::new(tcp, delay(50), delay(50), seed);
        let sent = record(&mut world);
        world.run_until(secs(60));
        std::mem::take(&mut *sent.lock().unwrap())
    };
    assert_eq!(sent(1), sent(1));
    assert_ne!(sent(1), sent(2));
}

#[test]
fn sack_repairs_many_losses_in_fewer_round_trips_than_new_reno() {
    let finished_at = |variant| {
        let mut world = world(TcpConfig {
            maximum_window: 40,
            transfer: Some(400),
            ..of(variant)
        });
        lose_once(&mut world, (200..220).step_by(2));
        world.run_until(secs(60));
        let (end, _) = *world.sender.events().last().unwrap();
        (end.as_secs_f64(), world.sender.get().counters())
    };
    let (new_reno, sack) = (finished_at(Variant::NewReno), finished_at(Variant::Sack));
    println!("{new_reno:?} {sack:?}");
    assert!(sack.0 + 0.5 < new_reno.0);
    assert_eq!((sack.1.timeouts, sack.1.retransmitted), (0, 10));
}

#[test]
fn the_time_out_doubles_until_the_path_is_back() {
    for variant in VARIANTS {
        let mut world = world(TcpConfig {
            maximum_window: 10,
            ..of(variant)
        });
        world
            .sender
            .filter_packets(|now, _| !(secs(2)..secs(20)).contains(&(now - Time::ZERO)));
        world.run_until(secs(40));
        let events = world.sender.events();
        let timeouts: Vec<f64> = events
            .iter()
            .filter(|(_, event)| *event == Event::RetransmissionTimeout)
            .map(|(time, _)| time.as_secs_f64())
            .collect();
        let gaps: Vec<f64> = timeouts.windows(2).map(|w| w[1] - w[0]).collect();
        println!("{variant:?} {timeouts:?}");
        assert!(gaps.len() >= 5);
        assert!(
            gaps.windows(2).all(|w| (w[1] / w[0] - 2.0).abs() < 1e-6),
            "{gaps:?}"
        );
        let counters = world.sender.get().counters();
        assert_eq!((counters.timeout_series, counters.fast_recoveries), (1, 0));
        // The first time-out set the threshold to half the window or more. The others left it, so
        // slow start reaches it.
        let half = events.iter().find(|(time, event)| {
            time.as_secs_f64() > *timeouts.last().unwrap()
                && matches!(event, Event::CongestionWindow { packets } if *packets >= 5.0)
        });
        let took_s = half.unwrap().0.as_secs_f64() - timeouts.last().unwrap();
        assert!(took_s < 0.35, "{took_s}");
        assert!(
            world.sender.get().retransmission_timeout() < secs(1),
            "ends with a sample"
        );
        assert_eq!(world.sender.get().congestion_window(), 10.0);
    }
}

#[test]
fn the_receivers_window_bounds_the_rate() {
    for variant in VARIANTS {
        let mut world = world(TcpConfig {
            maximum_window: 25,
            ..of(variant)
        });
        world.run_until(secs(10));
        let before = world.receiver.get().delivered_segments();
        world.run_until(secs(20));
        assert_eq!(world.receiver.get().delivered_segments() - before, 25 * 100);
    }
}

#[test]
fn delayed_acknowledgements_halve_their_number() {
    let mut counts = [false, true].map(|delayed_acks| {
        let mut world = world(TcpConfig {
            delayed_acks,
            transfer: Some(1001),
            ..of(Variant::Sack)
        });
        world.run_until(secs(60));
        assert!(world.sender.get().is_finished());
        assert_eq!(world.sender.get().counters().retransmitted, 0);
        world.network.link_counters(world.acks).pushed
    });
    counts.sort_unstable();
    assert_eq!(counts[1], 1001);
    assert!((501..510).contains(&counts[0]), "{counts:?}");
}

#[test]
fn one_connection_fills_a_bottleneck() {
    let bottleneck = LinkConfig {
        rate: Some("3.2 Mbit/s".parse().unwrap()),
        queue: QueueLimit::Packets(40),
        ..delay(50)
    };
    for variant in VARIANTS {
        let tcp = TcpConfig {
            send_jitter: Duration::from_millis(1),
            ..of(variant)
        };
        let mut world = World::new(tcp, bottleneck.clone(), delay(50), 5);
        world.run_until(secs(50));
        let before = world.network.link_counters(world.data).delivered;
        world.run_until(secs(250));
        let packets = (world.network.link_counters(world.data).delivered - before) as f64;
        let used = packets * 1040.0 * 8.0 / 200.0 / 3.2e6;
        println!(
            "{variant:?}: used {used:.3}, {:?}",
            world.sender.get().counters()
        );
        assert!(used > 0.95, "{variant:?}: {used}");
    }
}

#[test]
fn cubic_outgrows_reno_on_a_long_fat_path() {
    let fat = LinkConfig {
        loss: LossModel::Bernoulli(1e-5),
        ..delay(50)
    };
    let delivered = |variant| {
        let mut world = World::new(of(variant), fat.clone(), delay(50), 3);
        world.run_until(secs(200));
        world.receiver.get().delivered_segments()
    };
    let (reno, cubic) = (delivered(Variant::Sack), delivered(Variant::Cubic));
    println!("Reno {reno}, CUBIC {cubic}");
    assert!(f64::from(cubic) > 1.5 * f64::from(reno));
}

#[test]
fn marks_do_the_work_of_drops() {
    for variant in VARIANTS {
        let mut world = world(TcpConfig {
            ecn: true,
            transfer: Some(20_000),
            ..of(variant)
        });
        world.sender.filter_packets(move |_, packet| {
            assert_eq!(packet.ecn, Ecn::Capable);
            if packet.header.sequence % 500 == 499 {
                packet.ecn = Ecn::Marked;
            }
            true
        });
        world.run_until(secs(600));
        let counters = world.sender.get().counters();
        println!("{variant:?}: {counters:?}");
        assert!(world.sender.get().is_finished());
        assert_eq!((counters.retransmitted, counters.timeouts), (0, 0));
        // Each mark falls into a window of its own, except the first, which comes in slow start
        // with more in flight.
        assert!((30..=40).contains(&counters.marks_heeded));
    }
}

#[test]
fn a_window_of_marks_is_heeded_once() {
    for variant in VARIANTS {
        let mut world = world(TcpConfig {
            ecn: true,
            maximum_window: 40,
            transfer: Some(1000),
            ..of(variant)
        });
        world.sender.filter_packets(move |_, packet| {
            if (400..430).contains(&packet.header.sequence) {
                packet.ecn = Ecn::Marked;
            }
            true
        });
        world.run_until(secs(60));
        assert_eq!(world.sender.get().counters().marks_heeded, 1, "{variant:?}");
    }
}

#[test]
fn a_mark_halves_the_whole_window() {
    // CUBIC keeps 0.7 of it (RFC 9438 section 4.6).
    for (variant, kept) in [
        (Variant::NewReno, 20.0),
        (Variant::Sack, 20.0),
        (Variant::Cubic, 28.0),
    ] {
        let mut world = world(TcpConfig {
            ecn: true,
            maximum_window: 40,
            transfer: Some(1000),
            ..of(variant)
        });
        world.sender.filter_packets(move |_, packet| {
            if packet.header.sequence == 400 {
                packet.ecn = Ecn::Marked;
            }
            true
        });
        world.run_until(secs(60));
        let window = |(_, event): &(Time, Event)| match event {
            Event::CongestionWindow { packets } => Some(*packets),
            _ => None,
        };
        let windows: Vec<f64> = world.sender.events().iter().filter_map(window).collect();
        let full = windows.iter().position(|packets| *packets == 40.0);
        let full = full.expect("the window fills before the mark");
        assert_eq!(windows[full + 1], kept, "{variant:?}");
    }
}

#[test]
fn a_retransmission_cannot_be_marked() {
    let mut world = world(TcpConfig {
        ecn: true,
        transfer: Some(500),
        ..of(Variant::Sack)
    });
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    world.sender.filter_packets(move |_, packet| {
        let mut log = log.lock().unwrap();
        log.push((packet.header.sequence, packet.ecn));
        log.len() != 101
    });
    world.run_until(secs(60));
    let ecn: Vec<Ecn> = seen
        .lock()
        .unwrap()
        .iter()
        .filter(|s| s.0 == 100)
        .map(|s| s.1)
        .collect();
    assert_eq!(ecn, [Ecn::Capable, Ecn::NotCapable]);
}

#[test]
fn a_stopped_sender_delivers_what_it_has_sent() {
    let mut world = world(TcpConfig {
        start: Time::ZERO + secs(1),
        stop: Some(Time::ZERO + secs(5)),
        maximum_window: 20,
        ..of(Variant::Sack)
    });
    let sent = record(&mut world);
    world.run_until(secs(20));
    let times = || sent.lock().unwrap().iter().map(|s| s.0).collect::<Vec<_>>();
    assert_eq!(times()[0], Time::ZERO + secs(1));
    assert!(*times().last().unwrap() < Time::ZERO + secs(5));
    assert!(world.sender.get().is_finished());
    assert_eq!(
        world.receiver.get().delivered_segments() as usize,
        times().len()
    );
}

#[test]
fn jitter_delays_segments_and_keeps_their_order() {
    let mut world = world(TcpConfig {
        send_jitter: Duration::from_millis(5),
        maximum_window: 1,
        initial_window: 1,
        transfer: Some(200),
        ..of(Variant::Sack)
    });
    let sent = record(&mut world);
    world.run_until(secs(60));
    let sent = sent.lock().unwrap();
    let mut late_s = 0.0;
    for pair in sent.windows(2) {
        assert_eq!(pair[1].1.header.sequence, pair[0].1.header.sequence + 1);
        let gap_s = (pair[1].0 - pair[0].0).as_secs_f64();
        assert!((0.1..=0.105).contains(&gap_s));
        late_s += gap_s - 0.1;
    }
    assert!((late_s / 199.0 - 0.0025).abs() < 0.0004, "{late_s}");
}
