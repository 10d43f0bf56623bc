//! Tests of a modelled end, and of the worker above it.

use core::time::Duration;

use super::super::{Service, Span, Worker, Workload};
use super::*;
use manyflow_anypoint::{Body, FlowControl, Length, Reason};

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

fn sends(spans: &[(u32, u32)]) -> Workload {
    let span = |(from, to)| Span {
        from: at_ms(from),
        to: at_ms(to),
    };
    Workload {
        sends: spans.iter().copied().map(span).collect(),
        ..Workload::default()
    }
}

fn worker(workload: Workload, seed: u64) -> Worker {
    Worker::new(workload, config().frame_bytes_max, seed).unwrap()
}

/// A peer that starts at 10 ms, and a server, without any delay between them.
struct Pair {
    ends: [ModelledEnd<Worker>; 2],
    /// The time and key of each frame that the peer sent.
    sent: Vec<(Time, u32)>,
    events: [Vec<(Time, Event)>; 2],
}

impl Pair {
    fn new(peer: Workload, server: Workload) -> Pair {
        let peer = ModelledEnd::initiator(config(), worker(peer, 1), SERVER, 1, at_ms(10));
        let server = ModelledEnd::acceptor(config(), worker(server, 2), PEER);
        Pair {
            ends: [peer.unwrap(), server.unwrap()],
            sent: Vec::new(),
            events: Default::default(),
        }
    }

    fn run_until(&mut self, end: Time) {
        let next = |ends: &[ModelledEnd<Worker>; 2]| {
            ends.iter().filter_map(ModelledEnd::poll_timeout).min()
        };
        let mut steps = 0;
        while let Some(now) = next(&self.ends).filter(|next| *next <= end) {
            steps += 1;
            assert!(steps < 100_000, "time does not advance beyond {now}");
            self.ends.iter_mut().for_each(|end| end.handle_timeout(now));
            while self.exchange(now) {}
            for (end, events) in self.ends.iter_mut().zip(&mut self.events) {
                let new = core::iter::from_fn(|| end.poll_event());
                events.extend(new.map(|event| (now, event)));
            }
        }
    }

    fn exchange(&mut self, now: Time) -> bool {
        let mut moved = false;
        for (from, source) in [(0, PEER), (1, SERVER)] {
            while let Some(Action::Send(mut packet)) = self.ends[from].poll_action(now) {
                packet.source = source;
                if from == 0
                    && let Body::Data(data) = packet.header.body
                {
                    self.sent.push((now, data.key));
                }
                self.ends[1 - from].handle_packet(now, &packet);
                moved = true;
            }
        }
        moved
    }

    fn delivered(&self, end: usize) -> Vec<Time> {
        let delivered = |(_, event): &&(Time, Event)| matches!(event, Event::Delivered { .. });
        let events = self.events[end].iter().filter(delivered);
        events.map(|(at, _)| *at).collect()
    }
}

#[test]
fn a_paced_application_keeps_its_times_and_spans() {
    let peer = Workload {
        frames_per_s: Some(3.0),
        ..sends(&[(0, 1_000), (2_000, 2_500)])
    };
    let mut pair = Pair::new(peer, Workload::default());
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
    let peer = Workload {
        frames: Some(1_000),
        ..sends(&[(0, 60_000)])
    };
    let mut pair = Pair::new(peer, Workload::default());
    pair.run_until(at_ms(1_000));
    assert_eq!(pair.delivered(1).len(), 1_000);
    let finished = |(_, event): &(Time, Event)| *event == Event::Finished;
    assert!(pair.events[0].iter().any(finished));
    assert!(!pair.events[1].iter().any(finished));
    pair.ends[1].close();
    pair.run_until(at_ms(60_000));
    assert!(pair.events[1].iter().any(finished));
}

#[test]
fn an_end_that_is_closed_before_its_start_sends_nothing_and_finishes() {
    let mut pair = Pair::new(sends(&[(0, 60_000)]), Workload::default());
    pair.ends[0].close();
    pair.run_until(at_ms(1_000));
    assert_eq!(pair.sent, []);
    assert!(pair.events[0].contains(&(at_ms(10), Event::Finished)));
}

#[test]
fn a_reader_works_on_each_frame_before_the_next() {
    let server = Workload {
        service: Service::Square {
            low: MS,
            high: 5 * MS,
            period: 100 * MS,
        },
        ..Workload::default()
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
    let peer = Workload {
        keys: 10,
        frames: Some(1_000),
        ..sends(&[(0, 60_000)])
    };
    let mut pair = Pair::new(peer.clone(), Workload::default());
    pair.run_until(at_ms(1_000));
    let mut counts = [0; 10];
    pair.sent
        .iter()
        .for_each(|(_, key)| counts[*key as usize] += 1);
    assert!(counts.iter().all(|n| (60..140).contains(n)), "{counts:?}");
    let mut again = Pair::new(peer, Workload::default());
    again.run_until(at_ms(1_000));
    assert_eq!(again.sent, pair.sent);
}

#[test]
fn a_crashed_end_is_silent() {
    let peer = Workload {
        frames_per_s: Some(100.0),
        ..sends(&[(0, 60_000)])
    };
    let mut pair = Pair::new(peer, Workload::default());
    pair.run_until(at_ms(1_000));
    pair.ends[1].crash();
    assert_eq!(pair.ends[1].poll_timeout(), None);
    pair.run_until(at_ms(150_000));
    let (_, last) = pair.events[0].last().expect("events");
    assert_eq!(*last, Event::Failed(Reason::TimedOut));
    assert_eq!(pair.ends[0].poll_timeout(), None);
}

#[test]
fn a_workload_outside_its_range_is_refused_by_name() {
    let refused = |workload: Workload| {
        let error = Worker::new(workload, 1024, 1).unwrap_err();
        error.to_string()
    };
    let none = Workload::default;
    assert!(
        refused(Workload {
            frame_bytes: 1025,
            ..none()
        })
        .contains("frames must be 1 byte")
    );
    assert!(refused(sends(&[(0, 20), (10, 30)])).contains("in order and apart"));
    assert!(
        refused(Workload {
            frames_per_s: Some(0.0),
            ..none()
        })
        .contains("per second")
    );
}

#[test]
fn a_connection_that_is_underway_is_not_opened_again() {
    let config = config();
    let mut member = Connection::listen(config).unwrap();
    let hears = |member: &mut Connection<Length>, body| {
        let connection = 7;
        let segment = Segment { connection, body };
        member.handle_segment(Time::ZERO, &segment, Length(0));
        member.poll_transmit(Time::ZERO).is_some()
    };
    let open = Body::Open { credit: 1000 };
    assert!(hears(&mut member, open));
    assert!(hears(&mut member, open), "the Accept was lost");
    assert!(hears(&mut member, Body::Probe));
    assert!(
        !hears(&mut member, open),
        "a late Open, or one from a restarted switch, gets no answer"
    );
}
