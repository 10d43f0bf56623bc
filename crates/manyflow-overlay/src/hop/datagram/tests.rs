use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::*;
use crate::message::{Body, ClientId, Control, DaemonId, Data, Feedback, GroupId, RoundTrip};
use crate::sequence::{LinkSeq, OriginSeq};
use manyflow_core::Length;

/// The delay of each direction, and the maximum additional delay of a datagram.
const DELAY: Duration = Duration::from_millis(25);
const JITTER_MS: u64 = 2;

fn message(sequence: u32) -> Message {
    Message {
        origin: DaemonId(0),
        copy: Default::default(),
        body: Body::Data(Data {
            group: GroupId(1),
            version: 0,
            sequence: OriginSeq::new(sequence.into()),
            sender: ClientId(0),
            sent_us: 0,
        }),
    }
}

fn sequence(arrival: &Arrival<Length>) -> u32 {
    match arrival.message.body {
        Body::Data(data) => data.sequence.number() as u32,
        other => panic!("{other:?} was not sent"),
    }
}

/// Two ends, and a path that loses, duplicates and reorders frames.
struct Path {
    now: Time,
    ends: [DatagramHop<Length>; 2],
    /// Frames in transit: arrival time, receiving end, frame and payload.
    wire: Vec<(Time, usize, Frame, Length)>,
    random: Pcg64Mcg,
    loss: f64,
    duplication: f64,
    jitter_ms: u64,
    cut: bool,
    /// Whether end 1 takes the messages that arrive.
    takes: bool,
    arrived: Vec<Arrival<Length>>,
    /// The number of frames that each end has sent.
    frames: [u32; 2],
}

impl Path {
    fn new(loss: f64, duplication: f64, seed: u64) -> Path {
        Path {
            now: Time::ZERO,
            ends: [DatagramHop::new(), DatagramHop::new()],
            wire: Vec::new(),
            random: Pcg64Mcg::seed_from_u64(seed),
            loss,
            duplication,
            jitter_ms: JITTER_MS,
            cut: false,
            takes: true,
            arrived: Vec::new(),
            frames: [0; 2],
        }
    }

    fn push(&mut self, sequence: u32) {
        self.ends[0].push(self.now, message(sequence), Length(1000));
        self.drain();
    }

    fn drain(&mut self) {
        while self.takes {
            let Some(arrival) = self.ends[1].poll_arrival(self.now) else {
                break;
            };
            self.arrived.push(arrival);
        }
        for from in [0, 1] {
            while let Some((frame, payload)) = self.ends[from].poll_transmit(self.now) {
                self.frames[from] += 1;
                self.carry(1 - from, frame, payload);
            }
        }
    }

    fn carry(&mut self, to: usize, frame: Frame, payload: Length) {
        let copies = 1 + usize::from(self.random.random_bool(self.duplication));
        for _ in 0..copies {
            if self.cut || self.random.random_bool(self.loss) {
                continue;
            }
            let jitter = Duration::from_millis(self.random.random_range(0..=self.jitter_ms));
            let at = self.now + DELAY + jitter;
            self.wire.push((at, to, frame, payload));
        }
    }

    /// Advances time to `end` and handles everything that is due.
    fn run_until(&mut self, end: Time) {
        loop {
            let arrivals = self.wire.iter().map(|(at, ..)| *at);
            let timers = self.ends.iter().filter_map(Hop::poll_timeout);
            let Some(next) = arrivals.chain(timers).min().filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            while let Some(place) = self.wire.iter().position(|(at, ..)| *at <= self.now) {
                let (_, to, frame, payload) = self.wire.remove(place);
                self.ends[to].handle_frame(self.now, &frame, Ecn::NotCapable, payload);
                self.drain();
            }
            self.ends
                .iter_mut()
                .for_each(|end| end.handle_timeout(self.now));
            self.drain();
        }
    }

    /// Sends this many messages, one each millisecond.
    fn send(&mut self, messages: u32) {
        for sequence in 0..messages {
            self.push(sequence);
            self.run_until(self.now + Duration::from_millis(1));
        }
    }

    fn assert_each_once(&self, messages: u32) {
        let mut numbers: Vec<u32> = self.arrived.iter().map(sequence).collect();
        numbers.sort_unstable();
        let wrong = (0..)
            .zip(&numbers)
            .find(|(expected, number)| expected != *number);
        assert_eq!((wrong, numbers.len()), (None, messages as usize));
    }
}

fn at(seconds: f64) -> Time {
    Time::from_secs_f64(seconds)
}

#[test]
fn every_message_arrives_once_despite_losses_duplicates_and_reordering() {
    for (seed, loss, duplication) in [(1, 0.0, 0.0), (2, 0.02, 0.0), (3, 0.2, 0.1), (4, 0.5, 0.5)] {
        let mut path = Path::new(loss, duplication, seed);
        path.jitter_ms = 8 * JITTER_MS;
        path.send(2000);
        path.run_until(path.now + Duration::from_secs(120));
        path.assert_each_once(2000);
        assert_eq!(
            path.ends[0].outbound.len(),
            0,
            "not all is acknowledged, seed {seed}"
        );
        assert_eq!(
            path.ends[0].poll_timeout(),
            None,
            "a timer is set without work"
        );
    }
}

#[test]
fn a_repair_takes_about_a_round_trip_and_is_flagged() {
    let mut path = Path::new(0.0, 0.0, 5);
    path.send(200);
    path.cut = true;
    path.push(200);
    path.cut = false;
    for sequence in 201..230 {
        path.push(sequence);
        path.run_until(path.now + Duration::from_millis(1));
    }
    // The message is lost at 0.2 s. Three times the path's delay and jitter: later datagram, NACK,
    // repair.
    path.run_until(at(0.2 + 0.004 + 3.0 * (0.025 + 0.008)));
    let flagged = path
        .arrived
        .iter()
        .filter(|arrival| { arrival.message.copy }.has(CopyFlags::REPAIRED));
    let flagged: Vec<u32> = flagged.map(sequence).collect();
    assert_eq!(flagged, [200]);
}

#[test]
fn slightly_reordered_datagrams_are_not_reported_missing() {
    let mut hop = DatagramHop::<Length>::new();
    for number in [0, 2, 1, 4, 5, 3, 7, 6] {
        let frame = Frame::Datagram {
            number: LinkSeq(number),
            message: message(number),
        };
        hop.handle_frame(Time::ZERO, &frame, Ecn::NotCapable, Length(1000));
        while hop.poll_arrival(Time::ZERO).is_some() {}
        while let Some((frame, _)) = hop.poll_transmit(Time::ZERO) {
            assert!(
                matches!(
                    frame,
                    Frame::Feedback(Feedback {
                        missing: [(LinkSeq(0), LinkSeq(0)), ..],
                        ..
                    })
                ),
                "{frame:?}"
            );
        }
    }
}

#[test]
fn a_lost_last_datagram_is_retransmitted() {
    let mut path = Path::new(0.0, 0.0, 6);
    path.send(20);
    path.cut = true;
    path.push(20);
    path.cut = false;
    path.run_until(path.now + Duration::from_secs(1));
    path.assert_each_once(21);
}

#[test]
fn a_link_resumes_after_a_cut_of_seconds() {
    let mut path = Path::new(0.0, 0.0, 7);
    path.send(100);
    path.cut = true;
    for sequence in 100..110 {
        path.push(sequence);
    }
    path.run_until(path.now + Duration::from_secs(10));
    assert!(path.frames[0] < 130, "no back-off: {:?}", path.frames);
    path.cut = false;
    path.run_until(path.now + Duration::from_secs(12));
    path.assert_each_once(110);
}

#[test]
fn a_link_continues_over_its_next_connection() {
    let mut path = Path::new(0.02, 0.0, 11);
    for round in 0..5 {
        for message in 0..200 {
            path.push(201 * round + message);
            path.run_until(path.now + Duration::from_millis(1));
        }
        path.wire.clear();
        for end in &mut path.ends {
            end.handle_disconnected();
            assert_eq!(end.poll_timeout(), None);
        }
        path.push(201 * round + 200);
        assert!(path.wire.is_empty(), "nothing is sent without a connection");
        let now = path.now + Duration::from_secs(3);
        path.run_until(now);
        path.ends
            .iter_mut()
            .for_each(|end| end.handle_connected(now, LinkSeq(0)));
        path.drain();
    }
    let end = path.now + Duration::from_secs(5);
    path.run_until(end);
    path.assert_each_once(5 * 201);
    assert!(path.ends[0].retransmissions() > 0);
}

#[test]
fn a_daemon_that_takes_nothing_stops_the_sender_until_it_does() {
    let mut path = Path::new(0.0, 0.0, 8);
    path.takes = false;
    let mut pushed = 0;
    while path.ends[0].has_room() {
        path.push(pushed);
        pushed += 1;
    }
    path.run_until(at(20.0));
    assert!(!path.ends[0].has_room());
    assert_eq!(
        (path.ends[1].inbound.held(), pushed),
        ((ROOM as usize, 0), ROOM)
    );
    path.takes = true;
    path.run_until(path.now + Duration::from_secs(60));
    assert!(path.ends[0].has_room());
    path.assert_each_once(ROOM);
}

#[test]
fn a_datagram_is_not_repaired_twice_within_a_round_trip() {
    let mut path = Path::new(0.0, 0.0, 9);
    path.send(100);
    path.push(100);
    let frames = path.frames[0];
    let now = path.now;
    let nack = Frame::Feedback(Feedback {
        expected: LinkSeq(100),
        missing: [(100, 101), (100, 101), (0, 0)].map(|(a, b)| (LinkSeq(a), LinkSeq(b))),
    });
    for _ in 0..10 {
        path.ends[0].handle_frame(now, &nack, Ecn::NotCapable, Length(0));
        path.drain();
    }
    assert_eq!(path.frames[0], frames + 1);
}

#[test]
fn numbers_may_wrap() {
    let mut path = Path::new(0.1, 0.1, 10);
    let near_the_end = u32::MAX - 50;
    path.ends[0].outbound.start_at(near_the_end);
    path.ends[1].inbound.start_at(near_the_end);
    path.send(200);
    path.run_until(path.now + Duration::from_secs(30));
    path.assert_each_once(200);
}

/// Numbers near 0, near the limits of the window and of the number space, and arbitrary ones.
fn any_number() -> impl Strategy<Value = u32> + Clone {
    prop_oneof![4 => 0..64u32, 2 => WINDOW - 4..WINDOW + 4, 1 => any::<u32>(), 1 => u32::MAX - 3..=u32::MAX]
}

fn any_frame() -> impl Strategy<Value = Frame> {
    let range = (any_number(), any_number()).prop_map(|(a, b)| (LinkSeq(a), LinkSeq(b)));
    prop_oneof![
        3 => any_number().prop_map(|number| Frame::Datagram { number: LinkSeq(number), message: message(number) }),
        2 => (any_number(), [range.clone(), range.clone(), range])
            .prop_map(|(expected, missing)| Frame::Feedback(Feedback { expected: LinkSeq(expected), missing })),
        1 => Just(Frame::Direct(Message {
            origin: DaemonId(9),
            copy: CopyFlags::REPAIRED,
            body: Body::Control(Control::RoundTrip(RoundTrip { rtt_us: 0 })),
        })),
    ]
}

proptest! {
    #[test]
    fn hostile_frames_neither_panic_nor_fill_memory(
        steps in proptest::collection::vec((any_frame(), 0..100u64, any::<bool>()), 1..300),
    ) {
        let mut hop = DatagramHop::<Length>::new();
        let mut now = Time::ZERO;
        for (frame, wait_ms, takes) in steps {
            now += Duration::from_millis(wait_ms);
            hop.push(now, message(0), Length(10));
            hop.handle_frame(now, &frame, Ecn::NotCapable, Length(10));
            hop.handle_timeout(now);
            while takes && hop.poll_arrival(now).is_some() {}
            let mut frames = 0;
            while hop.poll_transmit(now).is_some() {
                frames += 1;
                prop_assert!(frames < 1000, "one frame caused 1000 frames");
            }
            let (waiting, gaps) = hop.inbound.held();
            prop_assert!(waiting <= WINDOW as usize && gaps <= WINDOW as usize);
            prop_assert!(hop.poll_timeout().is_none_or(|due| due > now), "a timer is due after handle_timeout");
        }
    }
}
