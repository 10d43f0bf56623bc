//! Tests of ACP connections over links: order, losses, flow control, windows, endings.

use crate::world;

use std::time::Duration;

use manyflow_anypoint::Event;
use manyflow_anypoint::{AcpConfig, Connection, Control, FlowControl, Frame, Length, Reason};
use manyflow_core::link::{LinkConfig, LossModel, QueueLimit};
use manyflow_core::{Contents, Time};
use world::{World, frames};

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

fn world(config: AcpConfig, link: &LinkConfig, seed: u64) -> World {
    World::pair([config.clone(), config], link, seed)
}

/// Returns the time of the first `event` of an end.
fn first(world: &World, end: u32, event: Event) -> Option<Time> {
    let events = world.events(end).into_iter();
    let mut same = events.filter(|(_, seen)| *seen == event);
    same.next().map(|(at, _)| at)
}

#[test]
fn a_transfer_arrives_complete_and_in_order() {
    for config in [AcpConfig::default(), credit()] {
        let mut world = world(config, &delay(10), 1);
        world.give(0, frames(0..5_000));
        world.close(0);
        world.run_until(Duration::from_secs(20));
        assert_eq!(world.read(1), (0..5_000).collect::<Vec<_>>());
        assert_eq!(world.count(0, Event::Finished), 1);
        assert!(world.connection(1, |c| c.is_remote_closed()));
        assert_eq!(world.count(0, Event::LossEvent), 0);
        assert_eq!(world.count(0, Event::RetransmissionTimeout), 0);
    }
}

#[test]
fn frames_survive_a_network_that_loses_duplicates_and_reorders() {
    let reno = AcpConfig {
        control: Control::Reno,
        ..credit()
    };
    for config in [AcpConfig::default(), credit(), reno, auto()] {
        for seed in 0..50 {
            let mut world = world(config.clone(), &lossy(), seed);
            for (end, count) in [(0, 400), (1, 300)] {
                world.give(end, frames(0..count));
                world.close(end);
            }
            world.run_until(Duration::from_secs(600));
            for (end, count) in [(1, 400), (0, 300)] {
                let expected = (0..count).collect::<Vec<_>>();
                assert_eq!(world.read(end), expected, "seed {seed}, {config:?}");
                assert_eq!(world.count(end, Event::Finished), 1, "seed {seed}");
                assert!(world.connection(end, |c| c.is_over()), "seed {seed}");
            }
        }
    }
}

/// Returns the frames per second that the second end reads from 2 s to 10 s.
fn read_per_s(world: &mut World) -> f64 {
    world.run_until(Duration::from_secs(2));
    let before = world.read(1).len();
    world.run_until(Duration::from_secs(10));
    (world.read(1).len() - before) as f64 / 8.0
}

#[test]
fn credit_gives_a_slow_reader_its_rate_and_never_overflows_it() {
    let reader = AcpConfig {
        receive_buffer: 40 * FRAME,
        ..credit()
    };
    let mut world = World::pair([credit(), reader], &delay(10), 1);
    world.give(0, frames(0..20_000));
    world.end(1).application().service = Duration::from_millis(1);
    let rate = read_per_s(&mut world);
    assert!((rate - 1000.0).abs() <= 1.0, "{rate} frames/s");
    assert_eq!(world.count(1, Event::Overflow), 0);
    assert_eq!(world.count(0, Event::RetransmissionTimeout), 0);
}

#[test]
fn a_receive_buffer_smaller_than_the_path_gives_one_buffer_per_round_trip() {
    let reader = AcpConfig {
        receive_buffer: 40 * FRAME,
        ..credit()
    };
    let mut world = World::pair([credit(), reader], &delay(50), 1);
    world.give(0, frames(0..20_000));
    let rate = read_per_s(&mut world);
    assert!((rate - 400.0).abs() <= 4.0, "{rate} frames/s");
    assert_eq!(world.count(1, Event::Overflow), 0);
}

#[test]
fn a_reader_that_stops_for_long_is_probed_and_resumes() {
    let mut world = world(credit(), &lossy(), 3);
    world.give(0, frames(0..1_000));
    // The application reads one frame, the second after a minute, and then each as it arrives.
    world.end(1).application().service = Duration::from_secs(60);
    world.run_until(Duration::from_secs(70));
    assert_eq!(world.read(1).len(), 2);
    world.end(1).application().service = Duration::ZERO;
    world.run_until(Duration::from_secs(240));
    assert_eq!(world.read(1), (0..1_000).collect::<Vec<_>>());
    assert_eq!(world.count(1, Event::Overflow), 0);
}

#[test]
fn a_fast_network_gives_one_send_buffer_per_round_trip() {
    for config in [AcpConfig::default(), credit()] {
        let mut world = world(config, &delay(50), 1);
        world.give(0, frames(0..30_000));
        let rate = read_per_s(&mut world);
        assert!((rate / 2000.0 - 1.0).abs() < 0.05, "{rate} frames/s");
    }
}

#[test]
fn without_xcp_routers_the_window_opens_in_a_round_trip() {
    let mut world = world(credit(), &delay(50), 1);
    world.give(0, frames(0..1_000));
    // The opening takes a round trip, and so do the first two frames.
    world.run_until(Duration::from_millis(201));
    let packets = 200.0;
    assert_eq!(world.count(0, Event::CongestionWindow { packets }), 1);
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

/// Returns XCP where routers answer and CUBIC elsewhere, with soft flow control.
fn auto() -> AcpConfig {
    AcpConfig {
        control: Control::Auto,
        ..AcpConfig::default()
    }
}

#[test]
fn reno_and_auto_use_a_drop_tail_link() {
    let reno = AcpConfig {
        control: Control::Reno,
        ..credit()
    };
    let link = LinkConfig {
        rate: Some("10 Mbit/s".parse().unwrap()),
        queue: QueueLimit::Packets(25),
        ..delay(10)
    };
    for config in [reno, auto()] {
        let mut world = world(config, &link, 1);
        world.give(0, frames(0..20_000));
        let share = read_per_s(&mut world) * WIRE * 8.0 / 10e6;
        // An interval of 8 s that begins within a frame has up to one frame more than the rate.
        let most = 1.0 + WIRE * 8.0 / (8.0 * 10e6);
        assert!((0.9..=most).contains(&share), "{share} of the link");
        assert!(world.count(0, Event::LossEvent) > 1);
        assert_eq!(world.count(0, Event::RetransmissionTimeout), 0);
    }
}

#[test]
fn hundreds_of_gaps_are_repaired_in_two_round_trips() {
    let link = LinkConfig {
        rate: Some("20 Mbit/s".parse().unwrap()),
        queue: QueueLimit::Packets(400),
        ..delay(100)
    };
    let config = AcpConfig {
        send_buffer: 2 << 20,
        receive_buffer: 2 << 20,
        ..auto()
    };
    let mut world = world(config, &link, 1);
    world.give(0, frames(0..20_000));
    let mut now = Duration::ZERO;
    while world.count(0, Event::LossEvent) == 0 {
        now += Duration::from_millis(10);
        world.run_until(now);
    }
    let read = world.read(1).len();
    // With a full queue, a round trip takes 370 ms, and a window has 850 frames.
    world.run_until(now + Duration::from_millis(2 * 370));
    let repaired = world.read(1).len() - read;
    assert!(repaired > 850, "{repaired} frames");
    assert_eq!(world.count(0, Event::RetransmissionTimeout), 0);
}

#[test]
fn losses_do_not_make_an_application_look_slow_to_soft_flow_control() {
    let link = LinkConfig {
        loss: LossModel::Bernoulli(0.01),
        ..delay(10)
    };
    let rate = |flow| {
        let config = AcpConfig { flow, ..auto() };
        let mut world = world(config, &link, 1);
        world.give(0, frames(0..20_000));
        read_per_s(&mut world)
    };
    let (soft, credit) = (rate(auto().flow), rate(credit().flow));
    assert!(soft > 0.8 * credit, "{soft} and {credit} frames/s");
}

#[test]
fn one_direction_can_end_while_the_other_goes_on() {
    let mut world = world(credit(), &delay(10), 1);
    world.close(0);
    world.run_until(Duration::from_secs(1));
    assert!(world.connection(1, |c| c.is_remote_closed()));
    assert_eq!(world.count(0, Event::Finished), 1);
    world.give(1, frames(0..100));
    world.close(1);
    world.run_until(Duration::from_secs(2));
    assert_eq!(world.read(0).len(), 100);
    assert_eq!(world.count(1, Event::Finished), 1);
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
    let failed = first(&world, 0, Event::Failed(Reason::TimedOut));
    assert_eq!(failed, Some(Time::from_secs_f64(7.0)));
    assert!(world.connection(0, |c| c.is_over()));
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
    assert!(
        [0, 1]
            .iter()
            .all(|end| world.connection(*end, |c| c.is_established()))
    );
    (0..2).for_each(|end| world.set_cut(end, true));
    world.run_until(Duration::from_secs(60));
    for end in 0..2 {
        let failed = first(&world, end, Event::Failed(Reason::TimedOut)).unwrap();
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
    world.give(0, frames(0..10));
    world.run_until(Duration::from_secs(10));
    // The time-outs of 0.2, 0.4, 0.8 and 1.6 s send probes. The connection fails 3.2 s after the
    // last probe.
    let failed = first(&world, 0, Event::Failed(Reason::TimedOut));
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
    world.give(0, frames(0..50));
    world.end(1).application().service = Duration::from_secs(300);
    world.run_until(Duration::from_secs(290));
    world.end(1).application().service = Duration::ZERO;
    world.run_until(Duration::from_secs(900));
    assert!(world.count(1, Event::Overflow) > 0);
    assert!(world.connection(0, |c| c.is_established()));
    assert!(world.read(1).len() > 2);
}

#[test]
fn a_restarted_acceptor_resets_the_connection_and_reads_none_of_its_frames() {
    let mut world = world(credit(), &delay(10), 1);
    world.give(0, frames(0..100_000));
    world.run_until(Duration::from_secs(1));
    world.connection(1, |c| *c = Connection::listen(credit()).unwrap());
    world.end(1).application().read.clear();
    world.run_until(Duration::from_secs(2));
    assert_eq!(world.count(0, Event::Failed(Reason::Unknown)), 1);
    assert!(world.connection(0, |c| c.is_over()));
    assert!(world.read(1).is_empty());
    let refused = world.connection(0, |c| c.send(0, FRAME.into()));
    assert!(refused.is_err_and(|error| error.to_string().contains("closed")));
}

#[test]
fn an_aborted_connection_is_over_at_both_ends() {
    let mut world = world(credit(), &delay(10), 1);
    world.run_until(Duration::from_secs(1));
    world.connection(0, |c| c.abort());
    world.run_until(Duration::from_secs(2));
    assert_eq!(world.count(1, Event::Failed(Reason::Aborted)), 1);
    assert!(
        [0, 1]
            .iter()
            .all(|end| world.connection(*end, |c| c.is_over()))
    );
}

#[test]
fn a_full_send_buffer_refuses_frames_until_there_is_room_again() {
    let mut world = world(credit(), &delay(10), 1);
    world.give(0, frames(0..201));
    world.run_until(Duration::ZERO);
    // 200 frames fill the send buffer before the opening is answered.
    assert_eq!(world.end(0).application().to_send.len(), 1);
    let refused = world.connection(0, |c| c.send(201, FRAME.into()));
    assert!(refused.is_err_and(|error| error.into_payload() == FRAME.into()));
    assert_eq!(world.connection(0, |c| c.room()), 0);
    world.run_until(Duration::from_secs(1));
    assert_eq!(world.read(1).len(), 201);
    assert_eq!(world.connection(0, |c| c.room()), 200 * FRAME);
}

#[test]
fn real_bytes_arrive_as_they_were_sent() {
    let contents = |key: u32| -> Contents {
        let bytes: Vec<u8> = (0..=key % 700).map(|at| (at ^ key) as u8).collect();
        Contents::from(&bytes[..])
    };
    let frame = |key| Frame {
        key,
        payload: contents(key),
    };
    let mut world = world(credit(), &lossy(), 9);
    world.give(0, (0..2_000).rev().map(frame).collect());
    world.run_until(Duration::from_secs(100));
    assert_eq!(world.read(1), (0..2_000).collect::<Vec<_>>());
    for frame in &world.end(1).application().read {
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
        let mut world = World::pair(configs, &lossy(), seed);
        world.give(0, frames(0..300));
        world.close(0);
        world.run_until(Duration::from_secs(1_000));
        assert_eq!(world.read(1), (0..300).collect::<Vec<_>>());
        assert_eq!(world.count(0, Event::Finished), 1, "seed {seed}");
    }
}
