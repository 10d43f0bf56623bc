//! Tests of ACP connections over links: order, losses, flow control, windows, endings.

mod acp_world;

use std::sync::Arc;
use std::time::Duration;

use acp_world::World;
use manyflow_anypoint::Event;
use manyflow_anypoint::{AcpConfig, Connection, Control, FlowControl, Length, Reason};
use manyflow_core::Time;
use manyflow_core::link::{LinkConfig, LossModel, QueueLimit};

const FRAME: u32 = 1024;
const WIRE: f64 = 1024.0 + 56.0;

fn credit() -> AcpConfig {
    AcpConfig {
        flow: FlowControl::Credit,
        ..AcpConfig::default()
    }
}

fn delay(ms: u64) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(ms),
        ..LinkConfig::default()
    }
}

fn lossy() -> LinkConfig {
    LinkConfig {
        loss: LossModel::Bernoulli(0.05),
        duplication: 0.05,
        jitter: Duration::from_millis(5),
        ..delay(10)
    }
}

fn frames(count: u32) -> Vec<(u32, Length)> {
    (0..count).rev().map(|key| (key, Length(FRAME))).collect()
}

fn world(config: AcpConfig, link: &LinkConfig, seed: u64) -> World<Length> {
    World::new([config.clone(), config], link, seed, Length(0))
}

#[test]
fn a_transfer_arrives_complete_and_in_order() {
    for config in [AcpConfig::default(), credit()] {
        let mut world = world(config, &delay(10), 1);
        world.ends[0].to_send = frames(5_000);
        world.ends[0].closes = true;
        world.run_until(Duration::from_secs(20));
        assert_eq!(world.ends[1].keys(), (0..5_000).collect::<Vec<_>>());
        assert_eq!(world.ends[0].count(Event::Finished), 1);
        assert!(world.ends[1].connection.is_remote_closed());
        assert_eq!(world.ends[0].count(Event::LossEvent), 0);
        assert_eq!(world.ends[0].count(Event::RetransmissionTimeout), 0);
    }
}

#[test]
fn frames_survive_a_network_that_loses_duplicates_and_reorders() {
    let reno = AcpConfig {
        control: Control::Reno,
        ..credit()
    };
    for config in [AcpConfig::default(), credit(), reno] {
        for seed in 0..50 {
            let mut world = world(config.clone(), &lossy(), seed);
            for (end, count) in [(0, 400), (1, 300)] {
                world.ends[end].to_send = frames(count);
                world.ends[end].closes = true;
            }
            world.run_until(Duration::from_secs(600));
            for (end, count) in [(1, 400), (0, 300)] {
                let expected = (0..count).collect::<Vec<_>>();
                assert_eq!(world.ends[end].keys(), expected, "seed {seed}, {config:?}");
                assert_eq!(world.ends[end].count(Event::Finished), 1, "seed {seed}");
                assert!(world.ends[end].connection.is_over(), "seed {seed}");
            }
        }
    }
}

/// Returns the frames per second that the second end reads from 2 s to 10 s.
fn read_per_s<P: manyflow_anypoint::Payload>(world: &mut World<P>) -> f64 {
    world.run_until(Duration::from_secs(2));
    let before = world.ends[1].read.len();
    world.run_until(Duration::from_secs(10));
    (world.ends[1].read.len() - before) as f64 / 8.0
}

#[test]
fn credit_gives_a_slow_reader_its_rate_and_never_overflows_it() {
    let reader = AcpConfig {
        receive_buffer: 40 * FRAME,
        ..credit()
    };
    let mut world = World::new([credit(), reader], &delay(10), 1, Length(0));
    world.ends[0].to_send = frames(20_000);
    world.ends[1].service = Duration::from_millis(1);
    let rate = read_per_s(&mut world);
    assert!((rate - 1000.0).abs() <= 1.0, "{rate} frames/s");
    assert_eq!(world.ends[1].count(Event::Overflow), 0);
    assert_eq!(world.ends[0].count(Event::RetransmissionTimeout), 0);
}

#[test]
fn a_receive_buffer_smaller_than_the_path_gives_one_buffer_per_round_trip() {
    let reader = AcpConfig {
        receive_buffer: 40 * FRAME,
        ..credit()
    };
    let mut world = World::new([credit(), reader], &delay(50), 1, Length(0));
    world.ends[0].to_send = frames(20_000);
    let rate = read_per_s(&mut world);
    assert!((rate - 400.0).abs() <= 4.0, "{rate} frames/s");
    assert_eq!(world.ends[1].count(Event::Overflow), 0);
}

#[test]
fn a_reader_that_stops_for_long_is_probed_and_resumes() {
    let mut world = world(credit(), &lossy(), 3);
    world.ends[0].to_send = frames(1_000);
    // The application reads one frame, the second after a minute, and then each as it arrives.
    world.ends[1].service = Duration::from_secs(60);
    world.run_until(Duration::from_secs(70));
    assert_eq!(world.ends[1].read.len(), 2);
    world.ends[1].service = Duration::ZERO;
    world.run_until(Duration::from_secs(240));
    assert_eq!(world.ends[1].keys(), (0..1_000).collect::<Vec<_>>());
    assert_eq!(world.ends[1].count(Event::Overflow), 0);
}

#[test]
fn a_fast_network_gives_one_send_buffer_per_round_trip() {
    for config in [AcpConfig::default(), credit()] {
        let mut world = world(config, &delay(50), 1);
        world.ends[0].to_send = frames(30_000);
        let rate = read_per_s(&mut world);
        assert!((rate / 2000.0 - 1.0).abs() < 0.05, "{rate} frames/s");
    }
}

#[test]
fn without_xcp_routers_the_window_opens_in_a_round_trip() {
    let mut world = world(credit(), &delay(50), 1);
    world.ends[0].to_send = frames(1_000);
    // The opening takes a round trip, and so do the first two frames.
    world.run_until(Duration::from_millis(201));
    let packets = 200.0;
    assert_eq!(world.ends[0].count(Event::CongestionWindow { packets }), 1);
}

#[test]
fn no_feedback_is_lost_when_packets_are_handled_in_batches() {
    let mut sender = Connection::connect(credit(), 7, Time::ZERO).unwrap();
    let mut receiver = Connection::listen(credit()).unwrap();
    (0..200).for_each(|key| sender.send(key, Length(FRAME)).unwrap());
    let mut sent = Vec::new();
    for round in 0..3 {
        let now = Time::from_secs_f64(0.1 * f64::from(round));
        sent.push(0);
        while let Some((segment, payload)) = sender.poll_transmit(now) {
            receiver.handle_segment(now, &segment, payload.unwrap_or_default());
            sent[round as usize] += 1;
        }
        while let Some((segment, _)) = receiver.poll_transmit(now) {
            sender.handle_segment(now, &segment, Length(0));
        }
    }
    // Three round trips: the opening, the initial window, and then everything that the send buffer
    // holds.
    assert_eq!(sent, [1, 2, 198]);
}

#[test]
fn reno_uses_a_drop_tail_link() {
    let config = AcpConfig {
        control: Control::Reno,
        ..credit()
    };
    let link = LinkConfig {
        rate: Some("10 Mbit/s".parse().unwrap()),
        queue: QueueLimit::Packets(25),
        ..delay(10)
    };
    let mut world = world(config, &link, 1);
    world.ends[0].to_send = frames(20_000);
    let share = read_per_s(&mut world) * WIRE * 8.0 / 10e6;
    assert!((0.9..=1.0).contains(&share), "{share} of the link");
    assert!(world.ends[0].count(Event::LossEvent) > 1);
    assert_eq!(world.ends[0].count(Event::RetransmissionTimeout), 0);
}

#[test]
fn one_direction_can_end_while_the_other_goes_on() {
    let mut world = world(credit(), &delay(10), 1);
    world.ends[0].closes = true;
    world.run_until(Duration::from_secs(1));
    assert!(world.ends[1].connection.is_remote_closed());
    assert_eq!(world.ends[0].count(Event::Finished), 1);
    world.ends[1].to_send = frames(100);
    world.ends[1].closes = true;
    world.run_until(Duration::from_secs(2));
    assert_eq!(world.ends[0].read.len(), 100);
    assert_eq!(world.ends[1].count(Event::Finished), 1);
}

#[test]
fn opening_without_an_answer_fails_after_all_attempts() {
    let config = AcpConfig {
        attempts: 3,
        ..credit()
    };
    let mut world = world(config, &delay(10), 1);
    world.set_cut(0, true);
    world.run_until(Duration::from_secs(60));
    // The time-outs are 1 s, 2 s and 4 s, because no round trip was ever measured.
    let failed = world.ends[0].first(Event::Failed(Reason::TimedOut));
    assert_eq!(failed, Some(Time::from_secs_f64(7.0)));
    assert!(world.ends[0].connection.is_over());
}

#[test]
fn the_silent_death_of_the_other_end_is_found_by_probes() {
    let config = AcpConfig {
        keep_alive: Duration::from_secs(5),
        attempts: 4,
        ..credit()
    };
    let mut world = world(config, &delay(10), 1);
    world.run_until(Duration::from_secs(30));
    assert!(world.ends.iter().all(|end| end.connection.is_established()));
    (0..2).for_each(|end| world.set_cut(end, true));
    world.run_until(Duration::from_secs(60));
    for end in &world.ends {
        let failed = end.first(Event::Failed(Reason::TimedOut)).unwrap();
        // The failure comes at most 5 s after the last answer plus four time-outs; those of the
        // acceptor, which has no sample, are 1 s each.
        assert!(failed <= Time::from_secs_f64(39.1), "{failed}");
    }
}

#[test]
fn frames_into_silence_fail_after_all_attempts() {
    let config = AcpConfig {
        attempts: 4,
        ..credit()
    };
    let mut world = world(config, &delay(10), 1);
    world.run_until(Duration::from_secs(1));
    world.set_cut(0, true);
    world.ends[0].to_send = frames(10);
    world.run_until(Duration::from_secs(10));
    // The time-outs of 0.2, 0.4, 0.8 and 1.6 s send probes. The connection fails 3.2 s after the
    // last probe.
    let failed = world.ends[0].first(Event::Failed(Reason::TimedOut));
    assert_eq!(failed, Some(Time::from_secs_f64(1.0 + 6.2)));
}

#[test]
fn a_reader_that_drops_frames_for_long_is_not_taken_for_dead() {
    let config = AcpConfig {
        receive_buffer: 2 * FRAME,
        attempts: 3,
        ..AcpConfig::default()
    };
    let mut world = world(config, &delay(10), 1);
    world.ends[0].to_send = frames(50);
    world.ends[1].service = Duration::from_secs(300);
    world.run_until(Duration::from_secs(290));
    world.ends[1].service = Duration::ZERO;
    world.run_until(Duration::from_secs(900));
    assert!(world.ends[1].count(Event::Overflow) > 0);
    assert!(world.ends[0].connection.is_established());
    assert!(world.ends[1].read.len() > 2);
}

#[test]
fn a_restarted_acceptor_resets_the_connection_and_reads_none_of_its_frames() {
    let mut world = world(credit(), &delay(10), 1);
    world.ends[0].to_send = frames(100_000);
    world.run_until(Duration::from_secs(1));
    world.ends[1].connection = Connection::listen(credit()).unwrap();
    world.ends[1].read.clear();
    world.run_until(Duration::from_secs(2));
    assert_eq!(world.ends[0].count(Event::Failed(Reason::Unknown)), 1);
    assert!(world.ends[0].connection.is_over());
    assert!(world.ends[1].read.is_empty());
    let refused = world.ends[0].connection.send(0, Length(FRAME));
    assert!(refused.is_err_and(|error| error.to_string().contains("closed")));
}

#[test]
fn an_aborted_connection_is_over_at_both_ends() {
    let mut world = world(credit(), &delay(10), 1);
    world.run_until(Duration::from_secs(1));
    world.ends[0].connection.abort();
    world.run_until(Duration::from_secs(2));
    assert_eq!(world.ends[1].count(Event::Failed(Reason::Aborted)), 1);
    assert!(world.ends.iter().all(|end| end.connection.is_over()));
}

#[test]
fn a_full_send_buffer_refuses_frames_until_there_is_room_again() {
    let mut world = world(credit(), &delay(10), 1);
    world.ends[0].to_send = frames(201);
    world.run_until(Duration::ZERO);
    // 200 frames fill the send buffer before the opening is answered.
    assert_eq!(world.ends[0].to_send.len(), 1);
    assert_eq!(world.ends[0].connection.room(), 0);
    world.run_until(Duration::from_secs(1));
    assert_eq!(world.ends[1].read.len(), 201);
    assert_eq!(world.ends[0].connection.room(), 200 * FRAME);
}

#[test]
fn real_bytes_arrive_as_they_were_sent() {
    let contents = |key: u32| -> Arc<[u8]> { (0..=key % 700).map(|at| (at ^ key) as u8).collect() };
    let configs = [credit(), credit()];
    let mut world = World::new(configs, &lossy(), 9, Arc::from([]));
    world.ends[0].to_send = (0..2_000).rev().map(|key| (key, contents(key))).collect();
    world.run_until(Duration::from_secs(100));
    assert_eq!(world.ends[1].keys(), (0..2_000).collect::<Vec<_>>());
    for frame in &world.ends[1].read {
        assert_eq!(frame.payload, contents(frame.key), "{}", frame.key);
    }
}

#[test]
fn a_gap_is_filled_even_if_frames_beyond_it_could_take_the_whole_buffer() {
    // Soft flow control grants no credit: the sender may send twice the receiver's buffer.
    let writer = AcpConfig {
        send_buffer: 16 * FRAME,
        ..AcpConfig::default()
    };
    let reader = AcpConfig {
        receive_buffer: 8 * FRAME,
        ..AcpConfig::default()
    };
    for seed in 0..20 {
        let configs = [writer.clone(), reader.clone()];
        let mut world = World::new(configs, &lossy(), seed, Length(0));
        world.ends[0].to_send = frames(300);
        world.ends[0].closes = true;
        world.run_until(Duration::from_secs(1_000));
        assert_eq!(world.ends[1].keys(), (0..300).collect::<Vec<_>>());
        assert_eq!(world.ends[0].count(Event::Finished), 1, "seed {seed}");
    }
}
