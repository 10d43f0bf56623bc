//! Tests of RLM end to end: one sender, and receivers behind own links or a shared one, in
//! simulated time.

use crate::world;

use std::sync::Arc;
use std::time::Duration;

use manyflow_core::link::{LinkConfig, QueueLimit};
use manyflow_core::{Action, Channel, Destination, Endpoint, EndpointId, Packet, Rate, Time};
use manyflow_layered::Event;
use manyflow_layered::rlm::{Receiver, ReceiverConfig, Sender, SenderConfig};
use manyflow_layered::{Data, Experiment, Membership, Message};
use manyflow_netsim::{Change, Probe};
use world::{World, delay};

const SESSION: u32 = 0;
const GROUPS: u8 = 5;
const SENDER: EndpointId = EndpointId(0);
const DELAY: Duration = Duration::from_millis(20);

type RlmWorld = World<Message, Event, Sender, Receiver>;

fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

fn link(speed: &str) -> LinkConfig {
    LinkConfig {
        rate: Some(speed.parse().expect("a rate")),
        delay: DELAY,
        queue: QueueLimit::Packets(20),
        ..LinkConfig::default()
    }
}

/// Returns a session of groups of 1 Mbit/s each.
fn world(groups: u8, seed: u64) -> RlmWorld {
    let config = SenderConfig {
        rates: vec![Rate::from_bits_per_s(1_000_000); groups.into()],
        packet_bytes: 1000,
    };
    let sender = Sender::new(config, SESSION, Time::ZERO, None);
    World::new(sender.expect("a valid sender"), seed)
}

fn receiver(groups: u8, seed: u64, stop: Option<Time>) -> Receiver {
    configured(ReceiverConfig::default(), groups, seed, stop)
}

fn configured(config: ReceiverConfig, groups: u8, seed: u64, stop: Option<Time>) -> Receiver {
    let membership = Membership {
        session: SESSION,
        groups,
        start: Time::ZERO + Duration::from_millis(100 * seed),
        stop,
    };
    Receiver::new(config, membership, SENDER, seed).expect("a valid receiver")
}

/// Returns the times at which a receiver joined the group of this rank.
fn joins(member: &Probe<Receiver>, rank: u16) -> Vec<Time> {
    let events = member.events().into_iter();
    let joins = events.filter_map(|(time, event)| match event {
        Event::Joined(channel) if channel.number == rank => Some(time),
        _ => None,
    });
    joins.collect()
}

/// Returns the share of the time between `from` and `to` that a receiver spent at each level.
fn shares(member: &Probe<Receiver>, from: Time, to: Time) -> [f64; GROUPS as usize + 1] {
    let (mut level, mut since) = (0, Time::ZERO);
    let mut shares = [0.0; GROUPS as usize + 1];
    let end = [(to, 0)];
    let events = member.events().into_iter();
    let changes = events.filter_map(|(time, event)| match event {
        Event::Joined(_) => Some((time, 1)),
        Event::Left(_) => Some((time, -1)),
        _ => None,
    });
    for (time, change) in changes.chain(end) {
        let span = time.min(to) - since.max(from);
        shares[level as usize] += span.as_secs_f64() / (to - from).as_secs_f64();
        level += change;
        since = time;
    }
    shares
}

#[test]
fn each_receiver_settles_at_the_highest_level_that_its_path_carries() {
    let speeds = [
        ("1.5 Mbit/s", 1),
        ("2.5 Mbit/s", 2),
        ("3.2 Mbit/s", 3),
        ("8 Mbit/s", 5),
    ];
    for seed in 1..5 {
        let mut world = world(GROUPS, seed);
        for (i, (speed, _)) in (0..).zip(speeds) {
            world.branch(
                link(speed),
                delay(DELAY),
                [receiver(GROUPS, 10 * seed + i, None)],
            );
        }
        world.run_until(secs(600));
        for (branch, (speed, expected)) in world.branches.iter().zip(speeds) {
            let from = Time::ZERO + secs(120);
            let shares = shares(&branch.members[0], from, world.network.now());
            println!("seed {seed}, {speed}: {shares:.3?}");
            assert!(shares[expected] > 0.9, "seed {seed}, {speed}: {shares:.3?}");
        }
    }
}

#[test]
fn failed_experiments_become_rarer_up_to_a_limit() {
    for seed in 0..5 {
        let mut world = world(GROUPS, 1);
        world.branch(
            link("1.5 Mbit/s"),
            delay(DELAY),
            [receiver(GROUPS, seed, None)],
        );
        world.run_until(secs(7200));
        let joins = joins(world.member(0), 1);
        // T_J is drawn between 0.5 and 4.5 intervals.
        let intervals = (1..).map(|failures| f64::from(5 << failures.min(20)).min(600.0));
        for (pair, interval_s) in joins.windows(2).zip(intervals) {
            let gap_s = (pair[1] - pair[0]).as_secs_f64();
            assert!(gap_s > 0.5 * interval_s, "{gap_s} s after {interval_s} s");
        }
        println!("{} experiments in two hours", joins.len());
        assert!((8..25).contains(&joins.len()), "{}", joins.len());
    }
}

/// Runs a receiver at the top level, 3, whose link then changes. Returns its level a minute later.
fn level_after(speed: &str) -> u8 {
    let mut world = world(3, 1);
    world.branch(link("4 Mbit/s"), delay(DELAY), [receiver(3, 1, None)]);
    world.run_until(secs(300));
    assert_eq!(world.member(0).get().level(), 3);
    let change = Change::Configure(world.branches[0].down, Arc::new(link(speed)));
    world.network.at(world.network.now(), change);
    world.run_until(secs(360));
    world.member(0).get().level()
}

#[test]
fn groups_are_left_if_loss_is_above_the_threshold_and_kept_if_it_is_below() {
    assert_eq!(
        level_after("2.5 Mbit/s"),
        3,
        "a sixth of the packets is lost"
    );
    assert_eq!(
        level_after("1.8 Mbit/s"),
        2,
        "two fifths are lost, then a tenth"
    );
    assert_eq!(
        level_after("1.3 Mbit/s"),
        1,
        "more than half are lost, then a third, then none"
    );
}

#[test]
fn receivers_behind_one_bottleneck_learn_from_each_others_experiments() {
    let experiments = |receivers: u64| -> usize {
        let of_seed = |seed: u64| {
            let mut world = world(GROUPS, 1);
            let members = (0..receivers).map(|i| receiver(GROUPS, 100 * seed + i, None));
            world.branch(link("2.5 Mbit/s"), delay(DELAY), members);
            world.run_until(secs(900));
            let members = &world.branches[0].members;
            members.iter().map(|m| joins(m, 2).len()).sum::<usize>()
        };
        (0..4).map(of_seed).sum()
    };
    let (alone, together) = (experiments(1), experiments(8));
    println!("{alone} failed experiments alone, {together} of eight together");
    assert!(together < 2 * alone, "{together} against {alone}");
}

/// A receiver that gets its packets one by one, and has joined its groups by experiments.
struct Driven {
    receiver: Receiver,
    now: Time,
    sequence: u32,
    sent: Vec<u8>,
}

impl Driven {
    /// Returns a receiver that has joined `level` groups and lost no packet. Packets are numbered
    /// from `sequence`.
    fn at_level(level: u8, config: ReceiverConfig, seed: u64, sequence: u32) -> Driven {
        let mut driven = Driven {
            receiver: configured(config, GROUPS, seed, None),
            now: Time::ZERO,
            sequence,
            sent: Vec::new(),
        };
        for _ in 0..100_000 {
            if driven.receiver.level() == level {
                return driven;
            }
            driven.step();
        }
        panic!("never at level {level}");
    }

    /// Advances by a hundredth of a second, and delivers a packet of each group.
    fn step(&mut self) {
        self.now += Duration::from_millis(10);
        self.receiver.handle_timeout(self.now);
        while let Some(action) = self.receiver.poll_action(self.now) {
            if let Action::Send(packet) = action {
                let Message::Experiment(experiment) = packet.header else {
                    panic!("{packet:?}");
                };
                assert_eq!(packet.destination, Destination::Endpoint(SENDER));
                self.sent.push(experiment.group);
            }
        }
        for group in 0..GROUPS {
            let data = Data {
                group,
                sequence: self.sequence,
                request: 0,
                is_for_group: false,
                rate: 0,
                rtt_us: 0,
                next_rate: 0,
                is_pair: false,
            };
            self.hear(group, Message::Data(data));
        }
        self.sequence = self.sequence.wrapping_add(1);
    }

    fn run(&mut self, seconds: u64) {
        (0..100 * seconds).for_each(|_| self.step());
    }

    fn hear(&mut self, group: u8, message: Message) {
        let packet = Packet::new(
            Destination::Channel(Channel {
                session: SESSION,
                number: group.into(),
            }),
            message,
            0,
        );
        self.receiver.handle_packet(self.now, &packet);
    }

    fn hear_of_experiment(&mut self, group: u8) {
        let session = SESSION;
        self.hear(0, Message::Experiment(Experiment { session, group }));
    }

    /// Returns the seconds until the next experiment.
    fn until_next_experiment(&mut self) -> f64 {
        let (before, since) = (self.sent.len(), self.now);
        for _ in 0..1_000_000 {
            self.step();
            if self.sent.len() > before {
                return (self.now - since).as_secs_f64();
            }
        }
        panic!("no experiment");
    }
}

/// Returns a configuration whose T_J is at least 30 s, so that it does not expire within T_D, 9 s.
fn slow_to_join() -> ReceiverConfig {
    ReceiverConfig {
        join_timer_min: secs(60),
        ..ReceiverConfig::default()
    }
}

#[test]
fn the_first_loss_within_the_detection_time_ends_an_experiment() {
    for (seconds, expected) in [(8, 1), (10, 2)] {
        let mut driven = Driven::at_level(2, slow_to_join(), 1, 0);
        driven.run(seconds);
        driven.sequence += 1;
        driven.step();
        let level = driven.receiver.level();
        assert_eq!(level, expected, "a loss {seconds} s after the join");
    }
}

#[test]
fn a_burst_of_losses_passes_without_a_leave() {
    let mut driven = Driven::at_level(2, slow_to_join(), 1, 0);
    driven.run(10);
    for _ in 0..10 {
        // Half of the packets are lost, for less than T_D.
        driven.sequence += 1;
        driven.step();
    }
    driven.run(19);
    assert_eq!(driven.receiver.level(), 2);
}

#[test]
fn a_loss_during_another_receivers_experiment_counts_as_an_own_failure() {
    let mean_wait_s = |experiment: bool| {
        let wait_s = |seed| {
            let mut driven = Driven::at_level(2, slow_to_join(), seed, 0);
            driven.run(10);
            if experiment {
                driven.hear_of_experiment(2);
            }
            driven.sequence += 1;
            driven.until_next_experiment()
        };
        (0..40).map(wait_s).sum::<f64>() / 40.0
    };
    let (alone, warned) = (mean_wait_s(false), mean_wait_s(true));
    println!("{alone:.1} s without, {warned:.1} s with another's experiment");
    assert!(
        (1.7..3.0).contains(&(warned / alone)),
        "{warned} against {alone}"
    );
}

#[test]
fn no_experiment_begins_while_a_lower_group_is_tried() {
    let mut driven = Driven::at_level(2, ReceiverConfig::default(), 1, 0);
    let before = driven.sent.len();
    for _ in 0..20 {
        driven.hear_of_experiment(1);
        driven.run(8);
    }
    assert_eq!(driven.sent.len(), before);
    // An experiment on the same group or a higher one is no obstacle.
    driven.hear_of_experiment(2);
    driven.hear_of_experiment(4);
    driven.run(60);
    assert!(driven.sent.len() > before);
}

#[test]
fn the_sequence_may_wrap() {
    let mut driven = Driven::at_level(2, ReceiverConfig::default(), 1, u32::MAX - 5_000);
    driven.run(100);
    assert!(driven.sequence < u32::MAX / 2, "the sequence has wrapped");
    let losses = std::iter::from_fn(|| driven.receiver.poll_event())
        .filter(|event| matches!(event, Event::LossEvent));
    assert_eq!(losses.count(), 0);
    assert_eq!(driven.receiver.level(), GROUPS);
}

#[test]
fn joins_depend_only_on_the_seeds() {
    let events = |seed: u64| {
        let mut world = world(GROUPS, 1);
        world.branch(
            link("2.5 Mbit/s"),
            delay(DELAY),
            [0, 1].map(|i| receiver(GROUPS, seed + i, None)),
        );
        world.run_until(secs(200));
        let members = &world.branches[0].members;
        members.iter().map(Probe::events).collect::<Vec<_>>()
    };
    assert_eq!(events(5), events(5));
    assert_ne!(events(5), events(6));
}

#[test]
fn at_the_stop_all_groups_are_left() {
    let stop = Time::from_secs_f64(100.0);
    let mut world = world(GROUPS, 1);
    world.branch(
        link("3.5 Mbit/s"),
        delay(DELAY),
        [receiver(GROUPS, 1, Some(stop))],
    );
    world.run_until(secs(99));
    assert!(world.member(0).get().level() >= 2);
    world.run_until(secs(130));
    let member = world.member(0);
    let count = |joined: bool| {
        let events = member
            .events()
            .into_iter()
            .filter(|(_, event)| match event {
                Event::Joined(_) => joined,
                Event::Left(_) => !joined,
                _ => false,
            });
        events.count()
    };
    assert_eq!(count(true), count(false));
    assert_eq!(member.events().last().map(|(time, _)| *time), Some(stop));
    assert_eq!(member.get().level(), 0);
    assert_eq!(member.get().poll_timeout(), None);
}
