//! Start-up on paths that lose packets without a queue.

use crate::world;

use std::sync::Arc;
use std::time::Duration;

use manyflow_core::Time;
use manyflow_core::estimate::tcp_equation::TcpEquation;
use manyflow_core::link::{LinkConfig, LossModel, QueueLimit};
use manyflow_netsim::Change;
use manyflow_webrc::{
    Cci, Event, Receiver, ReceiverConfig, Sender, Session, SessionConfig, SlowStartEnd,
};
use world::delay;

manyflow_netsim::protocols! {
    enum Packets;
    enum Events;
    /// WEBRC, whose sender receives nothing and whose receivers send nothing.
    Webrc: Cci, Event;
}

type World = world::World<Packets, Events, Sender, Receiver>;

/// A session of 200 Mbit/s, which a receiver joins after a second and `phase` of a second.
fn world_of(
    session: SessionConfig,
    receiver: ReceiverConfig,
    link: LinkConfig,
    phase: f64,
) -> World {
    let sender = Sender::new(Session::new(session.clone()).unwrap(), 0, Time::ZERO);
    let session = Arc::new(Session::new(session).unwrap());
    let start = Time::ZERO + Duration::from_secs_f64(1.0 + phase);
    let receiver = Receiver::new(session, Arc::new(receiver), 0, start).unwrap();
    let mut world = World::new(sender, 1);
    world.branch(link, delay(Duration::from_millis(5)), [receiver]);
    world
}

fn lan() -> SessionConfig {
    SessionConfig::lan("200 Mbit/s".parse().unwrap())
}

fn link(rate: &str, queue: u32) -> LinkConfig {
    LinkConfig {
        rate: Some(rate.parse().unwrap()),
        delay: Duration::from_millis(5),
        queue: QueueLimit::Packets(queue),
        ..LinkConfig::default()
    }
}

/// A path of 1 Gbit/s that loses 30 % of the packets in these intervals, in milliseconds.
fn path_with_losses(
    session: SessionConfig,
    receiver: ReceiverConfig,
    phase: f64,
    intervals: &[(u64, u64)],
) -> World {
    let clean = link("1 Gbit/s", 1000);
    let lossy = LinkConfig {
        loss: LossModel::Bernoulli(0.3),
        ..clean.clone()
    };
    let mut world = world_of(session, receiver, clean.clone(), phase);
    let down = world.branches[0].down;
    for &(from_ms, until_ms) in intervals {
        for (at_ms, link) in [(from_ms, &lossy), (until_ms, &clean)] {
            let change = Change::Configure(down, Arc::new(link.clone()));
            let at = Time::ZERO + Duration::from_millis(at_ms);
            world.network.at(at, change);
        }
    }
    world
}

/// Returns the average rate over the third time slot after a second with losses, in Mbit/s. They
/// begin so early that start-up has not found the rate.
fn recovered(session: SessionConfig, receiver: ReceiverConfig, phase: f64) -> f64 {
    let mut world = path_with_losses(session, receiver, phase, &[(1_500, 2_500)]);
    world.run_until(Duration::from_millis(4_500));
    assert!(
        count(&world, |event| matches!(
            event,
            Event::SlowStartEnded(SlowStartEnd::Loss | SlowStartEnd::LossProbability)
        )) > 0,
        "losses end start-up"
    );
    world.measure(0, Duration::from_secs(1)) / 1e6
}

fn count(world: &World, is_meant: impl Fn(&Event) -> bool) -> usize {
    let events = world.member(0).events();
    events.iter().filter(|(_, event)| is_meant(event)).count()
}

#[test]
fn a_receiver_comes_back_within_three_slots_of_losses_without_a_queue() {
    for phase in [0.0, 0.15, 0.3] {
        let trains = lan().with_packet_trains(16);
        let mbit = recovered(trains, ReceiverConfig::live(), phase);
        assert!(mbit > 140.0, "{mbit} Mbit/s, phase {phase}");
        // Wave by wave, start-up itself takes longer than that.
        let live = recovered(lan(), ReceiverConfig::live(), phase);
        let rfc = recovered(lan(), ReceiverConfig::default(), phase);
        assert!(live > 2.0 * rfc, "{live} and {rfc} Mbit/s, phase {phase}");
    }
}

#[test]
fn a_receiver_on_a_path_with_random_loss_finds_the_fair_rate_within_three_slots() {
    // The path has a round-trip time of 10 ms, and all loss events are single packets.
    let fair_mbit = TcpEquation::RENO.rate_packets_per_s(0.01, 0.01) * 1400.0 * 8.0 / 1e6;
    let third_slot = |receiver: ReceiverConfig, phase: f64| {
        let lossy = LinkConfig {
            loss: LossModel::Bernoulli(0.01),
            ..link("1 Gbit/s", 1000)
        };
        let mut world = world_of(lan(), receiver, lossy, phase);
        world.run_until(Duration::from_secs_f64(4.0 + phase));
        world.measure(0, Duration::from_secs(1)) / 1e6 / fair_mbit
    };
    let phases = [0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9];
    for phase in phases {
        let live = third_slot(ReceiverConfig::live(), phase);
        assert!((0.5..2.0).contains(&live), "{live} times, phase {phase}");
    }
    let rfc = phases.map(|phase| third_slot(ReceiverConfig::default(), phase));
    assert!(rfc.iter().any(|share| *share < 0.5), "{rfc:?}");
}

#[test]
fn start_up_resumes_only_once() {
    let losses = [(1_500, 2_500), (4_000, 5_000), (7_000, 8_000)];
    let mut world = path_with_losses(lan(), ReceiverConfig::live(), 0.0, &losses);
    world.run_until(Duration::from_secs(20));
    assert_eq!(
        count(&world, |event| matches!(event, Event::SlowStartResumed)),
        1
    );
    assert_eq!(
        count(&world, |event| matches!(event, Event::SlowStartEnded(_))),
        2
    );
}

#[test]
fn start_up_does_not_resume_while_packets_wait_in_a_queue() {
    let mut world = path_with_losses(lan(), ReceiverConfig::live(), 0.0, &[(1_500, 2_500)]);
    let queue = LinkConfig {
        delay: Duration::from_millis(8),
        ..link("1 Gbit/s", 1000)
    };
    let change = Change::Configure(world.branches[0].down, Arc::new(queue));
    world
        .network
        .at(Time::ZERO + Duration::from_millis(2_501), change);
    world.run_until(Duration::from_secs(20));
    assert_eq!(
        count(&world, |event| matches!(event, Event::SlowStartResumed)),
        0
    );
}

#[test]
fn start_up_does_not_resume_by_the_rules_of_the_rfc() {
    let receiver = ReceiverConfig::default();
    let mut world = path_with_losses(lan(), receiver, 0.0, &[(1_500, 2_500)]);
    world.run_until(Duration::from_secs(20));
    assert_eq!(
        count(&world, |event| matches!(event, Event::SlowStartResumed)),
        0
    );
}

#[test]
fn a_receiver_with_a_share_of_the_capacity_takes_it_whatever_it_loses() {
    // With 5 % loss, the equation allows 4 Mbit/s.
    let last_slots = |capacity_share: f64| {
        let lossy = LinkConfig {
            loss: LossModel::Bernoulli(0.05),
            ..link("100 Mbit/s", 100)
        };
        let receiver = ReceiverConfig {
            capacity_share,
            ..ReceiverConfig::live()
        };
        let trains = lan().with_packet_trains(4);
        let mut world = world_of(trains, receiver, lossy, 0.0);
        world.run_until(Duration::from_secs(15));
        world.measure(0, Duration::from_secs(5)) / 1e6
    };
    let (equation, half) = (last_slots(0.0), last_slots(0.5));
    assert!(equation < 8.0, "{equation} Mbit/s");
    assert!((30.0..55.0).contains(&half), "{half} Mbit/s");
}

/// `manyflow-rig bench loss` without hosts: 20 MB in a session of 50 Mbit/s, of which the path
/// loses 1 %, with a round-trip time of 20 ms.
#[test]
fn a_file_comes_at_the_rate_of_the_equation_despite_random_loss() {
    let session = SessionConfig {
        packet_bytes: 1400,
        ..SessionConfig::lan("50 Mbit/s".parse().unwrap())
    };
    let path = LinkConfig {
        loss: LossModel::Bernoulli(0.01),
        ..delay(Duration::from_millis(15))
    };
    let (packets, symbol_bits) = (20_000_000 / 1376, 1376.0 * 8.0);
    let equation = TcpEquation::RENO.rate_packets_per_s(0.02, 0.01) * 1400.0 * 8.0;
    let mut shares = Vec::new();
    for phase in [0.0, 0.13, 0.25, 0.38, 0.5, 0.63, 0.75, 0.88] {
        let trains = session.clone().with_packet_trains(4);
        let mut world = world_of(trains, ReceiverConfig::live(), path.clone(), phase);
        let status = |world: &World| world.member(0).get().status().expect("it runs");
        world.run_until(Duration::from_secs_f64(4.0 + phase));
        let rtt_s = status(&world).rtt_s;
        assert!(
            (0.018..0.025).contains(&rtt_s),
            "{rtt_s} s after 3 s, phase {phase}"
        );
        let mut seconds = 3.0;
        while status(&world).packets_received < packets {
            world.measure(0, Duration::from_millis(100));
            seconds += 0.1;
        }
        shares.push(packets as f64 * symbol_bits / seconds / equation);
    }
    println!("multiples of the equation's rate: {shares:.2?}");
    assert!(shares.iter().all(|share| *share > 0.9), "{shares:.2?}");
}
