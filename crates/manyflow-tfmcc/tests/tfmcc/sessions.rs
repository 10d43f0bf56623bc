//! Sessions with several receivers, that come, go and fall silent.

use std::time::Duration;

use crate::{World, lossy, receiver, world_of};
use manyflow_core::estimate::tcp_equation::TcpEquation;
use manyflow_core::link::{LinkConfig, QueueLimit};
use manyflow_core::{Rate, Time};
use manyflow_tfmcc::{Event, ReceiverId, SenderConfig};

const RTT: Duration = Duration::from_millis(100);
const DELAY: Duration = Duration::from_millis(50);

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A bottleneck with a queue of its bandwidth-delay product and some packets.
fn bottleneck(bits_per_s: u64) -> LinkConfig {
    let packets = bits_per_s as f64 * RTT.as_secs_f64() / 8000.0;
    LinkConfig {
        rate: Some(Rate::from_bits_per_s(bits_per_s)),
        queue: QueueLimit::Packets(packets as u32 + 5),
        ..lossy(DELAY, 0.0)
    }
}

fn new_world() -> World {
    world_of(SenderConfig::default())
}

/// Receivers with these links, all from the start on, numbered from 1.
fn world(links: impl IntoIterator<Item = LinkConfig>) -> World {
    let mut world = new_world();
    for (number, link) in (1..).zip(links) {
        world.branch(
            link,
            lossy(DELAY, 0.0),
            [receiver(number, Duration::ZERO, None)],
        );
    }
    world
}

#[test]
fn the_rate_is_that_of_the_slowest_receiver() {
    for (fast, slow) in [(0.002, 0.02), (0.01, 0.05)] {
        let losses = [fast, fast, slow, fast];
        let mut world = world(losses.map(|loss| lossy(DELAY, loss)));
        world.run_until(s(60));
        let rate = world.measure(0, s(300)) / 8000.0 / (1.0 - fast);
        let ratio = rate / TcpEquation::RENO.rate_packets_per_s(RTT.as_secs_f64(), slow);
        println!("{fast} and {slow}: {rate:.1} packets/s, ratio {ratio:.2}");
        assert!((0.75..1.25).contains(&ratio), "{fast}, {slow}: {ratio}");
    }
}

#[test]
fn a_bottleneck_is_filled_and_slowstart_overshoots_it_by_less_than_twice() {
    for bits_per_s in [200_000, 1_000_000, 10_000_000] {
        let mut world = world([bottleneck(bits_per_s)]);
        world.run_until(s(30));
        let events = world.sender.events();
        let ended = events
            .iter()
            .position(|(_, event)| *event == Event::SlowstartEnded);
        let set = events[..ended.unwrap()].iter();
        let highest = set.filter_map(|(_, event)| match event {
            Event::RateSet { rate } => Some(rate.bits_per_s() as f64 / bits_per_s as f64),
            _ => None,
        });
        let highest = highest.fold(0.0, f64::max);
        let used = world.measure(0, s(60)) / bits_per_s as f64;
        let counters = world.network.link_counters(world.branches[0].down);
        let dropped = counters.dropped as f64 / counters.pushed as f64;
        println!(
            "{bits_per_s} bit/s: {used:.3} used, {dropped:.4} dropped, {highest:.2} in slowstart"
        );
        assert!(
            used > 0.9 && dropped < 0.03,
            "{used} used, {dropped} dropped"
        );
        assert!((1.0..=2.05).contains(&highest), "{highest}");
    }
}

#[test]
fn when_the_slowest_leaves_the_rate_is_back_within_20_round_trips_and_20_seconds() {
    let (slow, fast) = (400_000, 2_000_000);
    let mut world = world(vec![bottleneck(fast); 4]);
    let leaver = receiver(9, Duration::ZERO, Some(s(60)));
    world.branch(bottleneck(slow), lossy(DELAY, 0.0), [leaver]);
    world.run_until(s(40));
    let before = world.measure(0, s(20));
    assert!(before < 1.25 * slow as f64, "{before}");
    world.run_until(s(80) + 20 * RTT);
    let left = world.member(4).events().into_iter().rev();
    let left = left.map(|(at, _)| at).next().unwrap();
    assert!(left < Time::ZERO + s(61), "the sender lets it go: {left}");
    let after = world.measure(0, s(20));
    println!("{before:.0} bit/s before, {after:.0} after");
    assert!(after > 0.9 * fast as f64, "{after}");
}

#[test]
fn when_the_slowest_of_lossy_receivers_leaves_the_rate_is_back_as_fast() {
    let (mut back, mut later) = (0.0, 0.0);
    for seed in 0..6 {
        let mut world = new_world();
        for number in 1..=4 {
            let link = lossy(DELAY, 0.003);
            world.branch(
                link,
                lossy(DELAY, 0.0),
                [receiver(10 * seed + number, Duration::ZERO, None)],
            );
        }
        let leaver = receiver(10 * seed + 9, Duration::ZERO, Some(s(100)));
        world.branch(lossy(DELAY, 0.05), lossy(DELAY, 0.0), [leaver]);
        world.run_until(s(120) + 20 * RTT);
        back += world.measure(0, s(30));
        later += world.measure(0, s(300)) * 0.1;
    }
    let share = back / (10.0 * later);
    println!("{share:.2} of the later rate");
    assert!(share > 0.9, "{share}");
}

#[test]
fn a_limiting_receiver_that_vanishes_is_given_up() {
    let mut world = world([bottleneck(2_000_000), bottleneck(400_000)]);
    world.run_until(s(60));
    assert_eq!(world.sender.get().limiting_receiver(), Some(ReceiverId(2)));
    world.member(1).stop();
    // Ten round-trip times of silence, and a feedback round in which the other one reports.
    let rtt = world.sender.get().rtt_max();
    world.run_until(s(60) + 22 * rtt);
    assert_eq!(world.sender.get().limiting_receiver(), Some(ReceiverId(1)));
    world.run_until(s(80) + 20 * rtt);
    let after = world.measure(0, s(20));
    assert!(after > 0.9 * 2e6, "{after}");
}

#[test]
fn receivers_that_come_late_do_not_disturb() {
    let mut world = world([bottleneck(1_000_000)]);
    for number in 2..=20 {
        let start = s(60) + Duration::from_millis(130) * number;
        world.branch(
            bottleneck(2_000_000),
            lossy(DELAY, 0.0),
            [receiver(number, start, None)],
        );
    }
    world.run_until(s(60));
    let used: Vec<f64> = (0..10).map(|_| world.measure(0, s(2)) / 1e6).collect();
    println!("{used:.2?}");
    assert!(used.iter().all(|used| *used > 0.8), "{used:.2?}");
}

#[test]
fn a_session_that_is_cut_off_slows_down_and_comes_back() {
    let mut world = world([bottleneck(1_000_000)]);
    world.run_until(s(60));
    world.set_cut(0, true);
    world.run_until(s(90));
    let during = world.sender.get().rate(world.network.now()).bits_per_s();
    assert!(during < 50_000, "{during}");
    world.set_cut(0, false);
    world.run_until(s(150));
    let after = world.measure(0, s(20));
    println!("{during} bit/s while cut, {after:.0} afterwards");
    assert!(after > 0.8e6, "{after}");
}

#[test]
fn of_many_receivers_with_independent_losses_the_slowest_sets_the_rate_and_few_report() {
    let losses = (0..300).map(|place| if place < 2 { 0.03 } else { 0.002 });
    let mut world = world(losses.map(|loss| lossy(DELAY, loss)));
    world.run_until(s(40));
    let rate = world.measure(0, s(120)) / 8000.0 / 0.97;
    let ratio = rate / TcpEquation::RENO.rate_packets_per_s(RTT.as_secs_f64(), 0.03);
    let events = world.sender.events();
    let late = events.iter().filter(|(at, _)| *at > Time::ZERO + s(40));
    let (mut rounds, mut reports) = (0, 0);
    for (_, event) in late {
        if let Event::RoundEnded { reports: more, .. } = event {
            (rounds, reports) = (rounds + 1, reports + more);
        }
    }
    let mean = f64::from(reports) / f64::from(rounds);
    println!("ratio {ratio:.2}, {mean:.1} reports in a round");
    assert!((0.75..1.25).contains(&ratio), "{ratio}");
    assert!(mean < 20.0, "{mean}");
}
