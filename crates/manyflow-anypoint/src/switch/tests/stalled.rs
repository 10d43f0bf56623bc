//! A member that is alive but takes nothing, beside an honest one: real ends, a member that answers
//! as a test wants, and a clock that the test moves.

use std::collections::VecDeque;

use super::*;
use crate::switch::KeyRule;
use crate::{AcpConfig, Connection, Event, FlowControl, Reason};

/// The delay of each segment.
const DELAY: Duration = Duration::from_millis(5);
const HONEST: u16 = 0;
const ODD: u16 = 1;
/// A key of the honest member, and one of the odd member.
const OF_HONEST: u32 = 0;
const OF_ODD: u32 = 100;

/// The place of a segment's receiver.
#[derive(Copy, Clone, Debug, PartialEq)]
enum Place {
    /// The switch, which receives the segment from this leg.
    Switch(Leg),
    End(Leg),
}

/// Answers a segment of the switch to the odd member.
type Answer = Box<dyn FnMut(&Body) -> Vec<Body>>;

/// An initiator, a switch, an honest member that reads everything, and an odd member.
struct Stage {
    now: Time,
    switch: Switch<Length>,
    peer: Connection<Length>,
    honest: Connection<Length>,
    answer: Answer,
    on_the_way: VecDeque<(Time, Place, Segment, Length)>,
    /// Whether the application of the honest member reads.
    reads: bool,
    /// The keys that the honest member has read.
    read: Vec<u32>,
    /// The frames that the peer has read.
    answers: usize,
    /// The frames that the odd member was sent, retransmissions included.
    to_odd: usize,
    events: Vec<(f64, Event)>,
    peer_events: Vec<Event>,
}

fn acp() -> AcpConfig {
    AcpConfig::default()
}

impl Stage {
    fn new(answer: impl FnMut(&Body) -> Vec<Body> + 'static) -> Stage {
        Stage::with(acp(), answer)
    }

    fn with(acp: AcpConfig, answer: impl FnMut(&Body) -> Vec<Body> + 'static) -> Stage {
        let rules = vec![(0..=99, MemberId(HONEST)), (100..=u32::MAX, MemberId(ODD))];
        let policy: Box<dyn crate::switch::Policy<Length>> = Box::new(KeyRule::new(rules));
        Stage {
            now: Time::ZERO,
            switch: Switch::new(SwitchConfig::default(), policy, 2).unwrap(),
            peer: Connection::connect(acp.clone(), CONNECTION, Time::ZERO).unwrap(),
            honest: Connection::listen(acp).unwrap(),
            answer: Box::new(answer),
            on_the_way: VecDeque::new(),
            reads: true,
            read: Vec::new(),
            answers: 0,
            to_odd: 0,
            events: Vec::new(),
            peer_events: Vec::new(),
        }
    }

    fn end(&mut self, leg: Leg) -> Option<&mut Connection<Length>> {
        match leg {
            Leg::Peer => Some(&mut self.peer),
            Leg::Member(MemberId(HONEST)) => Some(&mut self.honest),
            Leg::Member(_) => None,
        }
    }

    /// Collects what everybody sends.
    fn collect(&mut self) {
        let due = self.now + DELAY;
        while let Some((leg, segment, payload)) = self.switch.poll_transmit() {
            self.on_the_way
                .push_back((due, Place::End(leg), segment, payload));
        }
        while let Some(event) = self.switch.poll_event() {
            self.events.push((self.seconds(), event));
        }
        let now = self.now;
        while self.reads
            && let Some(frame) = self.honest.receive(now)
        {
            self.read.push(frame.key);
        }
        while self.peer.receive(now).is_some() {
            self.answers += 1;
        }
        for leg in [Leg::Peer, member(HONEST)] {
            let mut sent = Vec::new();
            if let Some(end) = self.end(leg) {
                sent.extend(core::iter::from_fn(|| end.poll_transmit(now)));
            }
            for (segment, payload) in sent {
                let payload = payload.unwrap_or_default();
                self.on_the_way
                    .push_back((due, Place::Switch(leg), segment, payload));
            }
        }
        self.peer_events
            .extend(core::iter::from_fn(|| self.peer.poll_event()));
        while self.honest.poll_event().is_some() {}
    }

    fn deliver(&mut self, place: Place, segment: &Segment, payload: Length) {
        let now = self.now;
        match place {
            Place::Switch(leg) => self.switch.handle_segment(now, leg, segment, payload),
            Place::End(leg) => match self.end(leg) {
                Some(end) => end.handle_segment(now, segment, payload),
                None => {
                    self.to_odd += usize::from(matches!(segment.body, Body::Data(_)));
                    let connection = segment.connection;
                    for body in (self.answer)(&segment.body) {
                        let length = Length(if matches!(body, Body::Data(_)) {
                            500
                        } else {
                            0
                        });
                        let answer = Segment { connection, body };
                        let from = Place::Switch(leg);
                        self.on_the_way
                            .push_back((now + DELAY, from, answer, length));
                    }
                }
            },
        }
    }

    fn seconds(&self) -> f64 {
        (self.now - Time::ZERO).as_secs_f64()
    }

    /// Advances the clock to `seconds`.
    fn run_until(&mut self, seconds: f64) {
        let until = at(seconds);
        self.collect();
        loop {
            let timers = [
                self.switch.poll_timeout(),
                self.peer.poll_timeout(),
                self.honest.poll_timeout(),
                self.on_the_way.front().map(|(due, ..)| *due),
            ];
            let due = timers.into_iter().flatten().min().unwrap_or(Time::MAX);
            if due > until {
                break;
            }
            self.now = self.now.max(due);
            let now = self.now;
            while let Some((due, place, segment, payload)) = self.on_the_way.front().copied()
                && due <= now
            {
                self.on_the_way.pop_front();
                self.deliver(place, &segment, payload);
            }
            self.switch.handle_timeout(now);
            self.peer.handle_timeout(now);
            self.honest.handle_timeout(now);
            self.collect();
        }
        self.now = until;
    }

    /// Queues frames of the peer with this key.
    fn send(&mut self, key: u32, frames: usize) {
        for _ in 0..frames {
            let payload = Length(1000);
            self.peer.send(key, payload).unwrap();
        }
    }

    fn leave(&mut self, number: u16) {
        self.switch.leave(self.now, MemberId(number));
    }

    /// Returns the times of this event, in seconds.
    fn times_of(&self, event: Event) -> Vec<f64> {
        let events = self.events.iter();
        let times = events.filter(|(_, seen)| *seen == event);
        times.map(|(at, _)| *at).collect()
    }

    /// Asserts that the event came once, `range` seconds after the start.
    fn expect_once(&self, event: Event, range: core::ops::Range<f64>) {
        let times = self.times_of(event);
        let is_expected = times.len() == 1 && range.contains(&times[0]);
        assert!(is_expected, "{event:?} at {times:?}, not once in {range:?}");
    }
}

const STALLED: Event = Event::MemberStalled(MemberId(ODD));
const RESUMED: Event = Event::MemberResumed(MemberId(ODD));
const FAILED: Event = Event::MemberFailed(MemberId(ODD));

/// Answers as an end does that reads everything, and grants this credit.
fn grant(body: &Body, credit: u32) -> Vec<Body> {
    match *body {
        Body::Open { .. } => vec![Body::Accept { credit }],
        Body::Data(Data { sequence, .. }) | Body::Close { sequence } => {
            vec![granting(credit, sequence + 1, sequence)]
        }
        Body::Probe => vec![Body::Alive],
        _ => Vec::new(),
    }
}

fn granting(credit: u32, cumulative: u32, of: u32) -> Body {
    let Body::Ack(ack) = ack(cumulative, of) else {
        unreachable!()
    };
    Body::Ack(Ack { credit, ..ack })
}

/// Answers everything with an Accept and an acknowledgement without credit.
fn grant_nothing(body: &Body) -> Vec<Body> {
    match body {
        Body::Reset(_) => Vec::new(),
        _ => vec![Body::Accept { credit: 0 }, granting(0, 0, 0), Body::Alive],
    }
}

/// Accepts, and answers everything else with a word that it is there.
fn talk(body: &Body) -> Vec<Body> {
    match body {
        Body::Open { .. } => grant(body, UNLIMITED),
        Body::Reset(_) => Vec::new(),
        _ => vec![Body::Alive],
    }
}

/// Reads everything, and asks for a window of nothing.
fn at_rate_zero(body: &Body) -> Vec<Body> {
    let mut answers = grant(body, UNLIMITED);
    for answer in &mut answers {
        if let Body::Ack(ack) = answer {
            ack.feedback.change = WindowChange(i32::MIN);
        }
    }
    answers
}

#[test]
fn a_removed_member_without_credit_stops_nobody() {
    let mut stage = Stage::new(grant_nothing);
    stage.run_until(1.0);
    stage.send(OF_HONEST, 50);
    stage.run_until(2.0);
    assert_eq!(stage.read, [], "the peer has no credit");
    stage.leave(ODD);
    stage.run_until(3.0);
    assert_eq!(stage.read, [OF_HONEST; 50]);
    stage.run_until(20.0);
    stage.expect_once(FAILED, 11.0..14.0);
}

#[test]
fn a_member_that_grants_nothing_stops_others_for_ten_seconds_only() {
    // A credit of 999 bytes does not admit a frame.
    for credit in [0, 999] {
        let mut stage = Stage::new(move |body: &Body| grant(body, credit));
        stage.send(OF_HONEST, 50);
        stage.send(OF_ODD, 10);
        stage.run_until(9.0);
        assert_eq!(stage.read, []);
        stage.run_until(12.0);
        assert_eq!(stage.read.len(), 60, "others take its frames");
        assert_eq!(stage.to_odd, 0);
        stage.send(OF_ODD, 100);
        stage.run_until(13.0);
        assert_eq!(stage.read.len(), 160);
        stage.run_until(100.0);
        stage.expect_once(STALLED, 10.0..11.0);
        assert_eq!(stage.times_of(FAILED), [], "it holds nothing");
    }
}

#[test]
fn a_member_that_stops_to_grant_credit_stops_others_for_ten_seconds_only() {
    let mut bytes = 20_000;
    let mut stage = Stage::new(move |body: &Body| {
        bytes -= if matches!(body, Body::Data(_)) {
            1000
        } else {
            0
        };
        grant(body, bytes)
    });
    stage.send(OF_ODD, 20);
    stage.run_until(5.0);
    assert_eq!(stage.to_odd, 20);
    stage.send(OF_HONEST, 50);
    stage.run_until(9.0);
    assert_eq!(stage.read, []);
    stage.run_until(13.0);
    assert_eq!(stage.read.len(), 50);
    stage.expect_once(STALLED, 10.0..12.0);
}

#[test]
fn the_frames_of_a_member_that_acknowledges_nothing_go_to_another() {
    let mut stage = Stage::new(talk);
    stage.send(OF_ODD, 20);
    stage.send(OF_HONEST, 20);
    stage.run_until(20.0);
    stage.expect_once(STALLED, 10.0..15.0);
    // The odd member has the first frames, a window of them. All others pass them.
    let of = |stage: &Stage, key| stage.read.iter().filter(|read| **read == key).count();
    assert_eq!(of(&stage, OF_HONEST), 20);
    assert!((15..20).contains(&of(&stage, OF_ODD)), "{:?}", stage.read);
    stage.run_until(100.0);
    stage.expect_once(FAILED, 30.0..34.0);
    assert_eq!(stage.read.len(), 40, "none is lost, none comes twice");
    stage.peer.close();
    stage.honest.close();
    stage.run_until(101.0);
    assert!(stage.peer_events.contains(&Event::Finished));
}

#[test]
fn a_member_that_is_a_switch_has_twice_the_time() {
    // It has a member of its own to give up. Its first Ack says that it averages.
    let mut stage = Stage::new(|body: &Body| match body {
        Body::Data(frame) if frame.sequence > 0 => vec![Body::Alive],
        _ => {
            let mut answers = grant(body, UNLIMITED);
            if let [Body::Ack(ack)] = &mut answers[..] {
                ack.feedback.averaged = true;
            }
            answers
        }
    });
    stage.send(OF_ODD, 5);
    stage.run_until(100.0);
    stage.expect_once(STALLED, 20.0..26.0);
    stage.expect_once(FAILED, 60.0..66.0);
    assert_eq!(stage.read, [OF_ODD; 4]);
}

#[test]
fn old_acknowledgements_are_no_progress() {
    // The first frame is acknowledged again and again, with fresh feedback and news of gaps.
    let old = |body: &Body| match *body {
        Body::Data(Data { sequence, .. }) => {
            let Body::Ack(mut ack) = granting(UNLIMITED, 1, sequence) else {
                unreachable!()
            };
            ack.missing[0].frames = 1;
            let repeated = Body::Ack(Ack { of: 0, ..ack });
            vec![Body::Ack(ack), repeated]
        }
        Body::Probe => vec![Body::Alive, granting(UNLIMITED, 1, 0)],
        _ => grant(body, UNLIMITED),
    };
    let mut stage = Stage::new(old);
    stage.send(OF_ODD, 20);
    stage.send(OF_HONEST, 20);
    stage.run_until(60.0);
    stage.expect_once(STALLED, 10.0..15.0);
    stage.expect_once(FAILED, 30.0..36.0);
    assert_eq!(stage.read.len(), 39, "all but the first");
}

#[test]
fn the_last_feedback_of_a_stalled_member_does_not_limit_the_peer() {
    let mut stage = Stage::new(|body: &Body| match body {
        Body::Data(frame) if frame.sequence >= 3 => vec![Body::Alive],
        _ => at_rate_zero(body),
    });
    stage.send(OF_ODD, 5);
    stage.run_until(15.0);
    stage.expect_once(STALLED, 10.0..15.0);
    stage.send(OF_HONEST, 190);
    stage.run_until(16.0);
    // Without that, one frame in each round trip of 20 ms.
    let read = stage.read.iter().filter(|key| **key == OF_HONEST);
    assert_eq!(read.count(), 190);
}

#[test]
fn a_member_at_rate_zero_slows_the_connection_and_does_not_stop_it() {
    let mut stage = Stage::new(at_rate_zero);
    for _ in 0..50 {
        stage.send(OF_ODD, 1);
        stage.send(OF_HONEST, 1);
    }
    // At least one frame in each round trip of 20 ms.
    stage.run_until(2.2);
    assert_eq!((stage.read.len(), stage.to_odd), (50, 50));
    assert_eq!(stage.events, []);
}

#[test]
fn a_member_that_grants_and_withdraws_stops_others_for_half_of_the_time_at_most() {
    let mut asked = 0;
    let mut stage = Stage::new(move |body: &Body| {
        asked += u32::from(*body == Body::Probe);
        // Each Probe comes after a pause: the credit lasts for one of them in three.
        let credit = if asked % 3 == 1 { 100_000 } else { 0 };
        let mut answers = grant(body, credit);
        if *body == Body::Probe {
            answers.push(granting(credit, 0, u32::MAX));
        }
        answers
    });
    let mut free = 0;
    for second in 1..=200_u32 {
        let before = stage.read.len();
        stage.send(OF_HONEST, usize::from(stage.peer.room() > 10_000));
        stage.run_until(f64::from(second));
        free += usize::from(stage.read.len() > before);
    }
    assert!(free >= 95, "{free} s of 200");
    assert_eq!(stage.times_of(FAILED), []);
}

#[test]
fn a_member_that_reads_again_gets_frames_again() {
    let acp = AcpConfig {
        flow: FlowControl::Credit,
        ..acp()
    };
    let mut stage = Stage::with(acp, |body: &Body| grant(body, UNLIMITED));
    stage.reads = false;
    stage.send(OF_HONEST, 200);
    stage.run_until(5.0);
    stage.send(OF_HONEST, 50);
    stage.send(OF_ODD, 50);
    stage.run_until(60.0);
    let stalled = Event::MemberStalled(MemberId(HONEST));
    stage.expect_once(stalled, 14.0..16.0);
    let taken = stage.to_odd;
    assert!(taken >= 90, "{taken}");
    stage.reads = true;
    stage.run_until(62.0);
    stage.expect_once(Event::MemberResumed(MemberId(HONEST)), 60.0..61.0);
    stage.send(OF_HONEST, 50);
    stage.run_until(63.0);
    assert_eq!(stage.read.len() + taken, 350, "and none was lost");
    assert_eq!(stage.to_odd, taken);
    stage.run_until(100.0);
    assert_eq!(stage.events.len(), 2, "{:?}", stage.events);
}

#[test]
fn the_peer_waits_while_no_member_takes_frames() {
    let mut stage = Stage::new(talk);
    stage.send(OF_ODD, 5);
    stage.run_until(1.0);
    stage.leave(HONEST);
    stage.honest.close();
    stage.run_until(100.0);
    stage.expect_once(STALLED, 10.0..15.0);
    assert_eq!(stage.times_of(FAILED), [], "no other could take its frames");
    stage.switch.join(stage.now);
    stage.run_until(102.0);
    stage.expect_once(FAILED, 100.0..102.0);
}

#[test]
fn a_leaving_member_that_keeps_its_frames_is_given_up_after_ten_seconds() {
    let mut stage = Stage::new(talk);
    stage.send(OF_ODD, 5);
    stage.run_until(1.0);
    stage.leave(ODD);
    stage.run_until(60.0);
    stage.expect_once(FAILED, 10.0..15.0);
    assert_eq!(stage.read, [OF_ODD; 5]);
}

#[test]
fn a_removed_member_that_kept_its_frames_for_long_is_given_up_at_the_next_look() {
    let mut stage = Stage::new(talk);
    stage.send(OF_ODD, 5);
    stage.run_until(20.0);
    stage.leave(ODD);
    stage.run_until(22.0);
    stage.expect_once(FAILED, 20.0..20.6);
    assert_eq!(stage.read, [OF_ODD; 5]);
}

#[test]
fn a_leaving_member_that_talks_but_never_closes_is_given_up_after_two_minutes() {
    let mut stage = Stage::new(|body: &Body| {
        let mut answers = grant(body, UNLIMITED);
        answers.push(Body::Alive);
        answers
    });
    stage.send(OF_ODD, 5);
    stage.run_until(1.0);
    stage.leave(ODD);
    stage.peer.close();
    stage.honest.close();
    stage.run_until(119.0);
    assert!(!stage.peer.is_remote_closed());
    stage.run_until(123.0);
    stage.expect_once(FAILED, 120.0..122.0);
    assert!(stage.peer.is_remote_closed(), "the others have closed");
}

#[test]
fn a_leaving_member_that_sends_may_go_on() {
    let mut sequence = 0;
    let mut stage = Stage::new(move |body: &Body| {
        let mut answers = grant(body, UNLIMITED);
        if *body == Body::Probe {
            answers.push(data(sequence));
            sequence += 1;
        }
        answers
    });
    stage.send(OF_ODD, 5);
    stage.run_until(1.0);
    stage.leave(ODD);
    stage.run_until(400.0);
    assert_eq!(stage.times_of(FAILED), []);
    assert!(stage.answers > 100, "{}", stage.answers);
}

#[test]
fn without_another_member_the_connection_of_a_leaving_one_ends_and_names_it() {
    let mut stage = Stage::new(talk);
    stage.send(OF_ODD, 5);
    stage.run_until(1.0);
    stage.leave(HONEST);
    stage.honest.close();
    stage.run_until(2.0);
    stage.leave(ODD);
    stage.run_until(60.0);
    stage.expect_once(FAILED, 10.0..15.0);
    let ended = Event::Failed(Reason::Aborted);
    stage.expect_once(ended, 10.0..15.0);
    assert_eq!(stage.peer_events.last(), Some(&ended));
}

#[test]
fn a_member_that_never_acknowledges_its_close_does_not_keep_the_peer() {
    let mut stage = Stage::new(|body: &Body| match body {
        Body::Close { .. } => vec![Body::Alive, Body::Close { sequence: 0 }],
        _ => grant(body, UNLIMITED),
    });
    stage.run_until(1.0);
    stage.peer.close();
    stage.honest.close();
    stage.run_until(60.0);
    stage.expect_once(FAILED, 30.0..34.0);
    assert!(stage.peer_events.contains(&Event::Finished));
    assert!(stage.peer.is_remote_closed());
    assert!(stage.times_of(RESUMED).is_empty());
}
