//! A link of two streams, one in each direction. Each message is a TCP segment of its own, over
//! [`tcp`].
//!
//! ```text
//!   push -> unacknowledged --Segment-->  <--Ack-- arrivals -> poll_arrival
//!           (until its Ack)                       (until taken: waiting arrivals close the window)
//! ```
//!
//! The streams do not use ECN, because the acknowledgements of [`Frame::Ack`] cannot echo marks.

use std::collections::VecDeque;

use super::{Arrival, Hop};
use crate::message::{Ack, Frame, LENGTH_BYTES, Message};
use crate::sequence::LinkSeq;
use manyflow_core::ConfigError;
use manyflow_core::Endpoint;
use manyflow_core::Payload;
use manyflow_core::time::Time;
use manyflow_core::{Ecn, EndpointId};
use manyflow_tcp::{self as tcp, Receiver, Segment, Sender, TcpConfig};

/// The maximum number of messages that wait in the hop for the congestion window. Further messages
/// wait in the daemon's queue, where they have a price.
const UNSENT: u32 = 2;

/// One end of a stream link. Each direction carries at most 2^32 - 1 messages.
#[derive(Debug)]
pub struct StreamHop<P> {
    sender: Sender,
    /// Pushed messages that are not acknowledged yet.
    unacknowledged: VecDeque<(Message, P)>,
    /// The number of the first unacknowledged message's segment.
    first_unacknowledged: LinkSeq,
    receiver: Receiver,
    /// Arrived messages that the daemon has not taken, and gaps between them. The receiver's window
    /// limits their number.
    arrivals: VecDeque<Option<Arrival<P>>>,
    /// The number of the first arrival's segment, or of the first gap.
    next_arrival: LinkSeq,
}

impl<P: Payload> StreamHop<P> {
    /// Returns an end whose jitter is drawn from `seed`. Both ends have the same configuration, in
    /// which `start`, `stop`, `transfer`, `ecn` and `segment_bytes` have no effect.
    /// `maximum_window`, at most 65,534, limits the messages that an end holds for a daemon that
    /// does not take them.
    ///
    /// # Errors
    /// Returns an error if a parameter is outside its range.
    pub fn new(config: TcpConfig, seed: u64) -> Result<StreamHop<P>, ConfigError> {
        let most = u32::from(Segment::UNLIMITED) - 1;
        let config = TcpConfig {
            ecn: false,
            maximum_window: config.maximum_window.min(most),
            ..config
        };
        Ok(StreamHop {
            sender: Sender::of_stream(config.clone(), EndpointId::UNSET, seed)?,
            unacknowledged: VecDeque::new(),
            first_unacknowledged: LinkSeq(0),
            receiver: Receiver::of_stream(config, EndpointId::UNSET)?,
            arrivals: VecDeque::new(),
            next_arrival: LinkSeq(0),
        })
    }

    fn handle_segment(&mut self, now: Time, sequence: LinkSeq, arrival: Arrival<P>) {
        let segment = Segment {
            sequence: sequence.0,
            ..Segment::default()
        };
        if self.receiver.handle_segment(now, &segment, Ecn::NotCapable) {
            // The segment is within the receiver's window, which limits `place`.
            let place = sequence.distance_from(self.next_arrival) as usize;
            if place >= self.arrivals.len() {
                self.arrivals.resize_with(place + 1, || None);
            }
            debug_assert!(
                self.arrivals[place].is_none(),
                "the receiver took segment {sequence:?} twice"
            );
            self.arrivals[place] = Some(arrival);
        }
    }

    fn handle_ack(&mut self, now: Time, ack: &Ack) {
        self.sender.handle_segment(now, &ack.segment());
        let acknowledged = LinkSeq(self.sender.acknowledged_segments());
        let count = acknowledged.distance_from(self.first_unacknowledged);
        debug_assert!(
            count as usize <= self.unacknowledged.len(),
            "{acknowledged:?} is acknowledged but was never pushed"
        );
        self.unacknowledged.drain(..count as usize);
        self.first_unacknowledged = acknowledged;
        self.forget_events();
    }

    /// Drops TCP's events, which would otherwise accumulate: a hop does not report them.
    fn forget_events(&mut self) {
        while self.sender.poll_event().is_some() {}
    }

    fn next_segment(&mut self, now: Time) -> Option<(Frame, P)> {
        let (segment, _) = self.sender.poll_transmit(now)?;
        let sequence = LinkSeq(segment.sequence);
        let place = sequence.distance_from(self.first_unacknowledged) as usize;
        let (message, payload) = self.unacknowledged.get(place)?.clone();
        Some((Frame::Segment { sequence, message }, payload))
    }
}

impl<P: Payload + Default + core::fmt::Debug + Send> Hop<P> for StreamHop<P> {
    fn overhead_bytes(&self) -> u32 {
        tcp::HEADER_BYTES + LENGTH_BYTES
    }

    fn keeps_order(&self) -> bool {
        true
    }

    fn has_room(&self) -> bool {
        self.sender.unsent_segments() <= UNSENT
    }

    fn push(&mut self, now: Time, message: Message, payload: P) {
        self.unacknowledged.push_back((message, payload));
        self.sender.offer(now, 1);
    }

    fn handle_frame(&mut self, now: Time, frame: &Frame, _ecn: Ecn, payload: P) {
        match *frame {
            Frame::Segment { sequence, message } => {
                self.handle_segment(now, sequence, Arrival { message, payload });
            }
            Frame::Ack(ref ack) => self.handle_ack(now, ack),
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.sender.handle_timeout(now);
        self.receiver.handle_timeout(now);
        self.forget_events();
    }

    fn poll_timeout(&self) -> Option<Time> {
        let ends = [self.sender.poll_timeout(), self.receiver.poll_timeout()];
        ends.into_iter().flatten().min()
    }

    fn poll_transmit(&mut self, now: Time) -> Option<(Frame, P)> {
        match self.receiver.poll_transmit() {
            Some(segment) => Some((Frame::Ack(Ack::from(segment)), P::default())),
            None => self.next_segment(now),
        }
    }

    fn poll_arrival(&mut self, _now: Time) -> Option<Arrival<P>> {
        self.arrivals.front()?.as_ref()?;
        self.next_arrival = self.next_arrival.advance(1);
        self.receiver.take();
        self.arrivals.pop_front()?
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::message::{Body, DaemonId, Summary};
    use crate::sequence::ChangeSeq;
    use manyflow_core::Length;

    const WINDOW: u32 = 8;

    fn config() -> TcpConfig {
        TcpConfig {
            maximum_window: WINDOW,
            ..TcpConfig::default()
        }
    }

    fn hop(config: TcpConfig) -> StreamHop<Length> {
        StreamHop::new(config, 1).unwrap()
    }

    /// Returns the message of a segment.
    fn message(sequence: u32) -> Message {
        Message {
            origin: DaemonId(0),
            copy: Default::default(),
            body: Body::Summary(Summary {
                incarnation: sequence,
                change: ChangeSeq(1),
            }),
        }
    }

    fn segment(sequence: u32) -> Frame {
        Frame::Segment {
            sequence: LinkSeq(sequence),
            message: message(sequence),
        }
    }

    fn ack(acknowledgement: u32, window: u16) -> Frame {
        Frame::Ack(Ack {
            acknowledgement: LinkSeq(acknowledgement),
            window,
            sack: [(LinkSeq(0), LinkSeq(0)); 3],
        })
    }

    fn push(hop: &mut StreamHop<Length>, now: Time, numbers: core::ops::Range<u32>) {
        numbers.for_each(|n| hop.push(now, message(n), Length(n)));
    }

    fn handle(hop: &mut StreamHop<Length>, now: Time, frame: Frame) {
        let payload = match frame {
            Frame::Segment { sequence, .. } => Length(sequence.0),
            _ => Length(0),
        };
        hop.handle_frame(now, &frame, Ecn::NotCapable, payload);
    }

    fn drain(hop: &mut StreamHop<Length>, now: Time) -> Vec<Frame> {
        core::iter::from_fn(|| hop.poll_transmit(now))
            .map(|(frame, _)| frame)
            .collect()
    }

    fn at_ms(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_hop_has_room_for_three_unsent_messages() {
        let mut hop = hop(config());
        let mut pushed = 0;
        while hop.has_room() {
            push(&mut hop, Time::ZERO, pushed..pushed + 1);
            pushed += 1;
        }
        assert_eq!(pushed, 3);
        // The initial window is two segments.
        assert_eq!(drain(&mut hop, Time::ZERO), [segment(0), segment(1)]);
        assert!(hop.has_room());
    }

    #[test]
    fn early_messages_wait_for_the_missing_ones() {
        let mut hop = hop(config());
        for number in [2, 1, 2] {
            handle(&mut hop, Time::ZERO, segment(number));
            assert_eq!(hop.poll_arrival(Time::ZERO), None);
        }
        handle(&mut hop, Time::ZERO, segment(0));
        for number in 0..3 {
            let arrival = hop.poll_arrival(Time::ZERO).unwrap();
            assert_eq!(
                (arrival.message, arrival.payload),
                (message(number), Length(number))
            );
        }
        assert_eq!(drain(&mut hop, Time::ZERO), [ack(3, WINDOW as u16)]);
    }

    #[test]
    fn an_opening_window_is_announced_at_once() {
        let mut hop = hop(config());
        (0..WINDOW + 1).for_each(|n| handle(&mut hop, Time::ZERO, segment(n)));
        assert_eq!(drain(&mut hop, Time::ZERO), [ack(WINDOW, 0)]);
        assert!(hop.poll_arrival(Time::ZERO).is_some());
        assert_eq!(drain(&mut hop, Time::ZERO), [ack(WINDOW, 1)]);
        assert!(hop.poll_arrival(Time::ZERO).is_some());
        assert_eq!(drain(&mut hop, Time::ZERO), []);
    }

    #[test]
    fn a_closed_window_is_probed_with_the_next_message() {
        let mut hop = hop(TcpConfig {
            initial_window: WINDOW,
            ..config()
        });
        push(&mut hop, Time::ZERO, 0..WINDOW + 1);
        assert_eq!(drain(&mut hop, Time::ZERO).len() as u32, WINDOW);
        handle(&mut hop, at_ms(100), ack(WINDOW, 0));
        assert_eq!(drain(&mut hop, at_ms(100)), []);
        let due = hop.poll_timeout().unwrap();
        hop.handle_timeout(due);
        assert_eq!(drain(&mut hop, due), [segment(WINDOW)]);
        // The probe is acknowledged and the window is open again.
        handle(&mut hop, due, ack(WINDOW + 1, 5));
        assert!(hop.unacknowledged.is_empty());
        assert_eq!(hop.poll_timeout(), None);
    }

    #[test]
    fn a_message_waits_for_its_jitter_and_later_ones_do_not_wait_again() {
        let jitter = Duration::from_millis(10);
        let mut hop = hop(TcpConfig {
            send_jitter: jitter,
            ..config()
        });
        push(&mut hop, Time::ZERO, 0..1);
        assert_eq!(drain(&mut hop, Time::ZERO), []);
        let due = hop.poll_timeout().unwrap();
        assert!(Time::ZERO < due && due < Time::ZERO + jitter);
        hop.handle_timeout(due);
        assert_eq!(drain(&mut hop, due), [segment(0)]);
        push(&mut hop, due, 1..2);
        assert_eq!(drain(&mut hop, due), [segment(1)]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push,
        Read,
        Frame(Frame),
        Wait(u64),
    }

    fn any_number() -> impl Strategy<Value = u32> {
        prop_oneof![8 => 0..40u32, 1 => any::<u32>(), 1 => Just(u32::MAX)]
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let block = || (any_number(), any_number()).prop_map(|(a, b)| (LinkSeq(a), LinkSeq(b)));
        let window = prop_oneof![0..10u16, any::<u16>()];
        let acks = (any_number(), window, [block(), block(), block()]).prop_map(
            |(acknowledgement, window, sack)| {
                Frame::Ack(Ack {
                    acknowledgement: LinkSeq(acknowledgement),
                    window,
                    sack,
                })
            },
        );
        prop_oneof![
            4 => Just(Step::Push),
            2 => Just(Step::Read),
            6 => any_number().prop_map(|n| Step::Frame(segment(n))),
            6 => acks.prop_map(Step::Frame),
            2 => (0..3000u64).prop_map(Step::Wait),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Arbitrary and wrong numbers cause no panic. The hop holds at most the window and the
        /// pushed messages, delivers arrivals in order, and sends each message in its own segment.
        #[test]
        fn arbitrary_frames_break_no_invariant(
            steps in prop::collection::vec(any_step(), 1..120), newreno: bool, delayed_acks: bool, backlog in 0..20u32,
        ) {
            let variant = if newreno { manyflow_tcp::Variant::NewReno } else { manyflow_tcp::Variant::Sack };
            let mut hop = hop(TcpConfig { variant, delayed_acks, ..config() });
            let (mut now, mut pushed, mut read) = (Time::ZERO, backlog, 0);
            push(&mut hop, now, 0..backlog);
            for step in steps {
                match step {
                    Step::Push => {
                        push(&mut hop, now, pushed..pushed + 1);
                        pushed += 1;
                    }
                    Step::Read => while let Some(arrival) = hop.poll_arrival(now) {
                        prop_assert_eq!((arrival.message, arrival.payload), (message(read), Length(read)));
                        read += 1;
                    },
                    Step::Frame(frame) => handle(&mut hop, now, frame),
                    Step::Wait(ms) => {
                        now += Duration::from_millis(ms);
                        hop.handle_timeout(now);
                    }
                }
                let mut frames = 0;
                while let Some((frame, payload)) = hop.poll_transmit(now) {
                    if let Frame::Segment { sequence, message: sent } = frame {
                        prop_assert_eq!((sent, payload), (message(sequence.0), Length(sequence.0)));
                    }
                    frames += 1;
                }
                // At most one acknowledgement, one probe, and the window.
                prop_assert!(frames <= WINDOW + 2);
                prop_assert!(hop.arrivals.len() <= WINDOW as usize);
                prop_assert_eq!(hop.unacknowledged.len() as u32, pushed - hop.first_unacknowledged.0);
                prop_assert!(hop.poll_timeout().is_none_or(|due| due > now));
            }
        }
    }
}
