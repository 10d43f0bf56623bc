//! Marks of routers: as losses, and by L4S' law.

use crate::world;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use manyflow_core::link::{Aqm, CoDelConfig, DualPi2Config, LinkConfig, QueueLimit};
use manyflow_core::{Action, Destination, Ecn, Endpoint, Time};
use manyflow_webrc::{
    Cci, Event, Receiver, ReceiverConfig, Sender, Session, SessionConfig, SlowStartEnd, Status,
};
use world::delay;

manyflow_netsim::protocols! {
    enum Packets;
    enum Events;
    /// WEBRC, whose sender receives nothing and whose receivers send nothing.
    Webrc: Cci, Event;
}

type World = world::World<Packets, Events, Sender, Receiver>;

fn session(ecn: Ecn) -> SessionConfig {
    SessionConfig {
        ecn,
        ..SessionConfig::lan("20 Mbit/s".parse().unwrap())
    }
}

/// A receiver of a session behind a link of 4 Mbit/s and a round-trip time of 40 ms with this
/// queue.
fn world_of(ecn: Ecn, aqm: Aqm) -> World {
    let session = Session::new(session(ecn)).unwrap();
    let mut world = World::new(Sender::new(session.clone(), 0, Time::ZERO), 1);
    // Pairs of packets would show the capacity before the first mark.
    let config = Arc::new(ReceiverConfig {
        capacity_check: false,
        ..ReceiverConfig::live()
    });
    let start = Time::ZERO + Duration::from_millis(300);
    let receiver = Receiver::new(Arc::new(session), config, 0, start).unwrap();
    let link = LinkConfig {
        rate: Some("4 Mbit/s".parse().unwrap()),
        delay: Duration::from_millis(20),
        queue: QueueLimit::Packets(1000),
        aqm: Some(aqm),
        ..LinkConfig::default()
    };
    world.branch(link, delay(Duration::from_millis(20)), [receiver]);
    world
}

fn status(world: &World) -> Status {
    world.member(0).get().status().expect("it runs")
}

fn start_up_end(world: &World) -> Option<SlowStartEnd> {
    let events = world.member(0).events().into_iter();
    let mut ends = events.filter_map(|(_, event)| match event {
        Event::SlowStartEnded(why) => Some(why),
        _ => None,
    });
    ends.next()
}

#[test]
fn a_receiver_behind_a_marking_queue_loses_nothing_and_uses_the_link() {
    for (ecn, aqm) in [
        (Ecn::Capable, Aqm::CoDel(CoDelConfig::default())),
        (Ecn::L4s, Aqm::DualPi2(DualPi2Config::default())),
    ] {
        let mut world = world_of(ecn, aqm);
        world.run_until(Duration::from_secs(20));
        let rate = world.measure(0, Duration::from_secs(40));
        let status = status(&world);
        assert_eq!(start_up_end(&world), Some(SlowStartEnd::Mark), "{ecn:?}");
        assert_eq!(status.packets_lost, 0, "{ecn:?}: {status:?}");
        assert!(status.packets_marked > 10, "{ecn:?}: {status:?}");
        assert!((2e6..4e6).contains(&rate), "{ecn:?}: {rate}");
    }
}

/// Runs a receiver on a path without a queue, on which `mark` gives each packet its ECN field, by
/// the packet's number. Each packet arrives `copies` times, 20 ms after it was sent. Returns the
/// status and the number of loss events after a minute.
fn run(ecn: Ecn, copies: usize, mark: impl Fn(u64) -> Ecn) -> (Status, usize) {
    let session = Session::new(session(ecn)).unwrap();
    let mut sender = Sender::new(session.clone(), 0, Time::ZERO);
    let config = Arc::new(ReceiverConfig::live());
    let mut receiver = Receiver::new(Arc::new(session), config, 0, Time::ZERO).unwrap();
    let mut joined = BTreeSet::new();
    let (mut number, mut events) = (0, 0);
    let mut on_the_way = VecDeque::new();
    loop {
        let arrival = on_the_way.front().map(|(at, _)| *at);
        let times = [sender.poll_timeout(), receiver.poll_timeout(), arrival];
        let now = times.into_iter().flatten().min().unwrap();
        if now > Time::from_secs_f64(60.0) {
            return (receiver.status().unwrap(), events);
        }
        sender.handle_timeout(now);
        while let Some(Action::Send(packet)) = sender.poll_action(now) {
            assert_eq!(packet.ecn, ecn);
            if matches!(packet.destination, Destination::Channel(c) if joined.contains(&c)) {
                on_the_way.push_back((now + Duration::from_millis(20), packet));
            }
        }
        while on_the_way.front().is_some_and(|(at, _)| *at <= now)
            && let Some((_, packet)) = on_the_way.pop_front()
        {
            number += 1;
            let packet = packet.with_ecn(mark(number));
            (0..copies).for_each(|_| receiver.handle_packet(now, &packet));
        }
        receiver.handle_timeout(now);
        while let Some(action) = receiver.poll_action(now) {
            match action {
                Action::Join(channel) => joined.insert(channel),
                Action::Leave(channel) => joined.remove(&channel),
                Action::Send(never) => match never.header {},
            };
        }
        while let Some(event) = receiver.poll_event() {
            events += usize::from(event == Event::LossEvent);
        }
    }
}

#[test]
fn a_mark_counts_once_and_begins_at_most_one_loss_event_in_the_time_of_one() {
    let each_tenth = |number| match number % 10 {
        0 => Ecn::Marked,
        _ => Ecn::Capable,
    };
    let (once, events) = run(Ecn::Capable, 1, each_tenth);
    let (twice, _) = run(Ecn::Capable, 2, each_tenth);
    assert_eq!(once, twice);
    assert_eq!(once.packets_lost, 0);
    assert!(once.packets_marked.abs_diff(once.packets_received / 10) <= 1);
    let rtts = 60.0 / once.rtt_s;
    assert!(events > 20 && (events as f64) < rtts, "{events} in {rtts}");
}

#[test]
fn an_l4s_receiver_follows_two_marks_in_each_round_trip_time() {
    let (status, events) = run(Ecn::L4s, 1, |number| match number % 20 {
        0 => Ecn::Marked,
        _ => Ecn::L4s,
    });
    // 40 packets in 25 ms, the shortest time that counts: the path's is 20 ms.
    let law = 2.0 * 20.0 / 0.025 * 1024.0 * 8.0;
    // The equation's factor, ln(1/P) / (1 - P).
    let peak = 1.1507;
    let equation = status.equation.expect("start-up has ended").bits_per_s() as f64;
    let error = equation / (law * peak);
    assert!((0.9..1.1).contains(&error), "{error} times the law's rate");
    assert_eq!(events, 0, "marks of L4S begin no loss events");
    assert!((0.7..1.3).contains(&(status.received.bits_per_s() as f64 / law)));
}
