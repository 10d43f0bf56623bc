//! Tests of the host.

use core::time::Duration;

use super::super::application::{Service, Span};
use super::*;
use crate::{Body, FlowControl};

const PEER: EndpointId = EndpointId(0);
const SERVER: EndpointId = EndpointId(1);
const MS: Duration = Duration::from_millis(1);

fn at_ms(ms: u32) -> Time {
    Time::ZERO + ms * MS
}

fn config() -> AcpConfig {
    AcpConfig {
        flow: FlowControl::Credit,
        ..AcpConfig::default()
    }
}

fn sends(spans: &[(u32, u32)]) -> Application {
    let span = |(from, to)| Span {
        from: at_ms(from),
        to: at_ms(to),
    };
    Application {
        sends: spans.iter().copied().map(span).collect(),
        ..Application::default()
    }
}

/// A peer that starts at 10 ms and a server, without any delay between them.
struct Pair {
    hosts: [Host; 2],
    /// When a frame was sent by the peer, and its key.
    sent: Vec<(Time, u32)>,
    events: [Vec<(Time, Event)>; 2],
}

impl Pair {
    fn new(peer: Application, server: Application) -> Pair {
        let peer = Host::initiator(config(), peer, SERVER, 1, at_ms(10), 1).unwrap();
        let server = Host::acceptor(config(), server, PEER, 2).unwrap();
        Pair {
            hosts: [peer, server],
            sent: Vec::new(),
            events: Default::default(),
        }
    }

    fn run_until(&mut self, end: Time) {
        let next = |hosts: &[Host; 2]| hosts.iter().filter_map(Host::poll_timeout).min();
        let mut steps = 0;
        while let Some(now) = next(&self.hosts).filter(|next| *next <= end) {
            steps += 1;
            assert!(steps < 100_000, "the hosts' timers stand still at {now}");
            self.hosts
                .iter_mut()
                .for_each(|host| host.handle_timeout(now));
            while self.exchange(now) {}
            for (host, events) in self.hosts.iter_mut().zip(&mut self.events) {
                let new = core::iter::from_fn(|| host.poll_event());
                events.extend(new.map(|event| (now, event)));
            }
        }
    }

    fn exchange(&mut self, now: Time) -> bool {
        let mut moved = false;
        for (from, source) in [(0, PEER), (1, SERVER)] {
            while let Some(Action::Send(mut packet)) = self.hosts[from].poll_action(now) {
                packet.source = source;
                if from == 0
                    && let Body::Data(data) = packet.header.body
                {
                    self.sent.push((now, data.key));
                }
                self.hosts[1 - from].handle_packet(now, &packet);
                moved = true;
            }
        }
        moved
    }

    fn delivered(&self, host: usize) -> Vec<Time> {
        let delivered = |(_, event): &&(Time, Event)| matches!(event, Event::Delivered { .. });
        let events = self.events[host].iter().filter(delivered);
        events.map(|(at, _)| *at).collect()
    }
}

#[test]
fn a_paced_application_keeps_its_times_and_its_spans() {
    let peer = Application {
        frames_per_s: Some(3.0),
        ..sends(&[(0, 1_000), (2_000, 2_500)])
    };
    let mut pair = Pair::new(peer, Application::default());
    pair.run_until(at_ms(100_000));
    let times: Vec<u64> = pair
        .sent
        .iter()
        .map(|(at, _)| at.as_nanos() / 1_000_000)
        .collect();
    assert_eq!(times, [10, 343, 676, 2_000, 2_333]);
    let keys: Vec<u32> = pair.sent.iter().map(|(_, key)| *key).collect();
    assert_eq!(keys, [0, 1, 2, 3, 4]);
}

#[test]
fn an_application_closes_after_its_frames() {
    let peer = Application {
        frames: Some(1_000),
        ..sends(&[(0, 60_000)])
    };
    let mut pair = Pair::new(peer, Application::default());
    pair.run_until(at_ms(1_000));
    assert_eq!(pair.delivered(1).len(), 1_000);
    let finished = |(_, event): &(Time, Event)| *event == Event::Finished;
    assert!(pair.events[0].iter().any(finished));
    assert!(!pair.events[1].iter().any(finished));
    pair.hosts[1].close();
    pair.run_until(at_ms(60_000));
    assert!(pair.events[1].iter().any(finished));
}

#[test]
fn a_host_that_is_closed_before_its_start_sends_nothing_and_finishes() {
    let mut pair = Pair::new(sends(&[(0, 60_000)]), Application::default());
    pair.hosts[0].close();
    pair.run_until(at_ms(1_000));
    assert_eq!(pair.sent, []);
    assert!(pair.events[0].contains(&(at_ms(10), Event::Finished)));
}

#[test]
fn a_reader_works_on_each_frame_before_the_next() {
    let server = Application {
        service: Service::Square {
            low: MS,
            high: 5 * MS,
            period: 100 * MS,
        },
        ..Application::default()
    };
    let mut pair = Pair::new(sends(&[(0, 60_000)]), server);
    pair.run_until(at_ms(209));
    let read = pair.delivered(1);
    let between = |from, to| {
        read.iter()
            .filter(|at| (at_ms(from)..at_ms(to)).contains(at))
            .count()
    };
    assert_eq!((between(10, 50), between(50, 100)), (40, 10));
    assert_eq!((between(100, 150), between(150, 200)), (50, 10));
}

#[test]
fn keys_are_drawn_below_their_bound_and_by_the_seed() {
    let peer = Application {
        keys: 10,
        frames: Some(1_000),
        ..sends(&[(0, 60_000)])
    };
    let mut pair = Pair::new(peer.clone(), Application::default());
    pair.run_until(at_ms(1_000));
    let mut counts = [0; 10];
    pair.sent
        .iter()
        .for_each(|(_, key)| counts[*key as usize] += 1);
    assert!(counts.iter().all(|n| (60..140).contains(n)), "{counts:?}");
    let mut again = Pair::new(peer, Application::default());
    again.run_until(at_ms(1_000));
    assert_eq!(again.sent, pair.sent);
}

#[test]
fn a_crashed_host_is_silent() {
    let peer = Application {
        frames_per_s: Some(100.0),
        ..sends(&[(0, 60_000)])
    };
    let mut pair = Pair::new(peer, Application::default());
    pair.run_until(at_ms(1_000));
    pair.hosts[1].crash();
    assert_eq!(pair.hosts[1].poll_timeout(), None);
    pair.run_until(at_ms(150_000));
    let (_, last) = pair.events[0].last().expect("events");
    assert_eq!(*last, Event::Failed(crate::Reason::TimedOut));
    assert_eq!(pair.hosts[0].poll_timeout(), None);
}

#[test]
fn an_application_outside_its_range_is_refused_by_name() {
    let refused = |application: Application| {
        let error = Host::acceptor(config(), application, PEER, 1).unwrap_err();
        error.to_string()
    };
    let none = Application::default;
    assert!(
        refused(Application {
            frame_bytes: 1025,
            ..none()
        })
        .contains("frames must be 1 byte")
    );
    assert!(refused(sends(&[(0, 20), (10, 30)])).contains("in order and apart"));
    assert!(
        refused(Application {
            frames_per_s: Some(0.0),
            ..none()
        })
        .contains("per second")
    );
}

#[test]
fn what_is_underway_is_not_opened_again() {
    let config = config();
    let mut member = crate::Connection::listen(config).unwrap();
    let hears = |member: &mut crate::Connection<Length>, body| {
        let connection = 7;
        let segment = crate::Segment { connection, body };
        member.handle_segment(Time::ZERO, &segment, Length(0));
        member.poll_transmit(Time::ZERO).is_some()
    };
    let open = Body::Open { credit: 1000 };
    assert!(hears(&mut member, open));
    assert!(hears(&mut member, open), "the Accept was lost");
    assert!(hears(&mut member, Body::Probe));
    assert!(
        !hears(&mut member, open),
        "it comes late, or from a switch that has restarted"
    );
}
