//! A link over a connection of the kernel's TCP, which may break and be replaced.
//!
//! ```text
//!   push -> unacknowledged --Stream-->  <--Feedback-- arrivals -> poll_arrival
//!           (until acknowledged)                      (until taken; a full hop is not read)
//! ```
//!
//! TCP delivers in order and repairs losses, but a broken connection loses what was under way. Each
//! direction of a link therefore numbers its messages across connections, and the sending end keeps
//! a message until the other end has acknowledged it. When a connection replaces another, each end
//! announces the number of messages that it has received, and the other end continues there. No
//! message is lost, and none arrives twice.
//!
//! **Short buffers.** A controller sees only the daemon's queue. Messages in the buffers below it
//! are invisible, so these must stay short. The hop takes a batch of messages, and no more until
//! the driver reports that the socket has taken them; a batch takes the link some milliseconds. The
//! driver limits the socket's unsent bytes (`TCP_NOTSENT_LOWAT`). The time that
//! messages wait in TCP's window and in the queues of routers is measured for the controller
//! (`delay.rs`).

use core::time::Duration;
use std::collections::VecDeque;

use super::delay::{OneWay, Probes};
use super::{Arrival, Hop};
use crate::message::{Delay, Feedback, Frame, LENGTH_BYTES, Message};
use crate::sequence::LinkSeq;
use manyflow_core::time::Time;
use manyflow_core::{Ecn, Payload};
use manyflow_tcp as tcp;

/// Bytes of the shortest and the longest batch. The first is the shortest.
const BATCH_BYTES: (usize, usize) = (8 * 1024, 256 * 1024);
/// A batch that the socket takes in less than the first time is followed by one of twice its
/// length, and a batch that takes it longer than the second by one of half.
const BATCH_TIME: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(8));

/// The number of received messages after which the hop acknowledges them.
const ACKNOWLEDGE_MESSAGES: u32 = 256;
/// The number of received bytes after which the hop acknowledges them.
const ACKNOWLEDGE_BYTES: usize = 128 * 1024;
/// The time after which the hop acknowledges what it has received.
const ACKNOWLEDGE_AFTER: Duration = Duration::from_millis(50);
/// The number of messages that may wait for the daemon before the driver should stop reading.
const ARRIVALS_MAX: usize = 256;

/// One end of a link over the kernel's TCP.
///
/// The driver passes each message of the connection to
/// [`handle_frame`](Hop::handle_frame) as a [`Frame::Stream`], and calls
/// [`handle_connected`](Hop::handle_connected) and
/// [`handle_disconnected`](Hop::handle_disconnected).
#[derive(Debug)]
pub struct KernelHop<P> {
    /// Pushed messages that the other end has not acknowledged.
    unacknowledged: VecDeque<(Message, P)>,
    /// The number of the first unacknowledged message.
    first_unacknowledged: LinkSeq,
    /// The number of unacknowledged messages that this connection has carried.
    carried: usize,
    /// The number of the next message from the other end.
    expected: LinkSeq,
    /// The number that was last acknowledged to the other end.
    acknowledged: LinkSeq,
    /// Bytes received since then.
    unreported_bytes: usize,
    /// When the hop acknowledges what it has received.
    acknowledge_at: Option<Time>,
    is_acknowledgement_due: bool,
    /// Arrived messages that the daemon has not taken.
    arrivals: VecDeque<Arrival<P>>,
    /// Bytes of the present batch that may still be pushed; `None` while there is no connection.
    room: Option<usize>,
    /// The length of the present batch in bytes, and when it began.
    batch: usize,
    batch_began: Time,
    probes: Probes,
    /// How long the other end's probes took, and the answer to the last one.
    one_way: OneWay,
    answer: Option<Delay>,
    /// The answer to a probe of this end.
    waited: Option<Duration>,
}

impl<P> Default for KernelHop<P> {
    fn default() -> KernelHop<P> {
        KernelHop {
            unacknowledged: VecDeque::new(),
            first_unacknowledged: LinkSeq(0),
            carried: 0,
            expected: LinkSeq(0),
            acknowledged: LinkSeq(0),
            unreported_bytes: 0,
            acknowledge_at: None,
            is_acknowledgement_due: false,
            arrivals: VecDeque::new(),
            room: None,
            batch: BATCH_BYTES.0,
            batch_began: Time::ZERO,
            probes: Probes::default(),
            one_way: OneWay::default(),
            answer: None,
            waited: None,
        }
    }
}

impl<P> KernelHop<P> {
    /// Returns one end of a link that has no connection yet.
    pub fn new() -> KernelHop<P> {
        KernelHop::default()
    }

    /// Drops the messages before `expected`, which the other end has received. Ignores numbers of
    /// messages that were never sent.
    fn handle_acknowledgement(&mut self, expected: LinkSeq) {
        let count = expected.distance_from(self.first_unacknowledged) as usize;
        if count <= self.carried {
            self.unacknowledged.drain(..count);
            self.carried -= count;
            self.first_unacknowledged = expected;
        }
    }

    fn handle_message(&mut self, now: Time, bytes: usize, arrival: Arrival<P>) {
        self.arrivals.push_back(arrival);
        self.expected = self.expected.advance(1);
        self.unreported_bytes += bytes;
        self.acknowledge_at.get_or_insert(now + ACKNOWLEDGE_AFTER);
        let unreported = self.expected.distance_from(self.acknowledged);
        self.is_acknowledgement_due |=
            unreported >= ACKNOWLEDGE_MESSAGES || self.unreported_bytes >= ACKNOWLEDGE_BYTES;
    }

    fn begin_batch(&mut self, now: Time) {
        self.batch_began = now;
        self.room = Some(self.batch);
    }

    fn acknowledge(&mut self) -> Frame {
        self.acknowledged = self.expected;
        self.unreported_bytes = 0;
        self.acknowledge_at = None;
        self.is_acknowledgement_due = false;
        Frame::Feedback(Feedback {
            expected: self.expected,
            missing: [(LinkSeq(0), LinkSeq(0)); 3],
        })
    }
}

impl<P: Payload + Default + core::fmt::Debug> Hop<P> for KernelHop<P> {
    fn overhead_bytes(&self) -> u32 {
        tcp::HEADER_BYTES + LENGTH_BYTES
    }

    fn keeps_order(&self) -> bool {
        true
    }

    fn has_room(&self) -> bool {
        self.room.is_some_and(|bytes| bytes > 0)
    }

    fn push(&mut self, now: Time, message: Message, payload: P) {
        self.probes.count(now);
        let bytes = (message.wire_bytes() + LENGTH_BYTES + payload.length()) as usize;
        self.room = self.room.map(|room| room.saturating_sub(bytes));
        self.unacknowledged.push_back((message, payload));
    }

    fn handle_frame(&mut self, now: Time, frame: &Frame, _ecn: Ecn, payload: P) {
        match *frame {
            Frame::Stream(message) => {
                let bytes = (message.wire_bytes() + payload.length()) as usize;
                self.handle_message(now, bytes, Arrival { message, payload });
            }
            Frame::Feedback(feedback) => self.handle_acknowledgement(feedback.expected),
            Frame::Delay(Delay::Asked { sent_us }) => {
                let waited_us = self.one_way.waited_us(now, sent_us);
                self.answer = Some(Delay::Answered { waited_us });
            }
            Frame::Delay(Delay::Answered { waited_us }) => {
                self.waited = Some(Duration::from_micros(waited_us.into()));
            }
            _ => {}
        }
    }

    fn keep_alive(&mut self, now: Time) {
        self.probes.keep_alive(now);
    }

    fn handle_writable(&mut self, now: Time) {
        let Some(room) = self.room else {
            return;
        };
        let (took, (shortest, longest)) = (now - self.batch_began, BATCH_BYTES);
        if took > BATCH_TIME.1 {
            self.batch = (self.batch / 2).max(shortest);
        } else if room == 0 && took < BATCH_TIME.0 {
            self.batch = (2 * self.batch).min(longest);
        }
        self.begin_batch(now);
    }

    fn handle_connected(&mut self, now: Time, received: LinkSeq) {
        // The other end may have received messages whose acknowledgement was lost.
        self.carried = self.unacknowledged.len();
        self.handle_acknowledgement(received);
        self.carried = 0;
        self.acknowledged = self.expected;
        self.is_acknowledgement_due = false;
        self.acknowledge_at = None;
        // The new connection can take another path.
        (self.one_way, self.answer) = (OneWay::default(), None);
        self.batch = BATCH_BYTES.0;
        self.begin_batch(now);
    }

    fn handle_disconnected(&mut self) {
        self.room = None;
        self.carried = 0;
    }

    fn handle_timeout(&mut self, now: Time) {
        self.is_acknowledgement_due |= self.acknowledge_at.is_some_and(|due| due <= now);
    }

    fn poll_timeout(&self) -> Option<Time> {
        // Without a connection, an acknowledgement would wait in vain.
        self.room.and(self.acknowledge_at)
    }

    fn poll_transmit(&mut self, now: Time) -> Option<(Frame, P)> {
        self.room?;
        if let Some(answer) = self.answer.take() {
            return Some((Frame::Delay(answer), P::default()));
        }
        if self.is_acknowledgement_due {
            return Some((self.acknowledge(), P::default()));
        }
        if let Some(probe) = self.probes.pop(now) {
            return Some((Frame::Delay(probe), P::default()));
        }
        let (message, payload) = self.unacknowledged.get(self.carried)?.clone();
        self.carried += 1;
        Some((Frame::Stream(message), payload))
    }

    fn poll_arrival(&mut self, _now: Time) -> Option<Arrival<P>> {
        self.arrivals.pop_front()
    }

    fn is_full(&self) -> bool {
        self.arrivals.len() >= ARRIVALS_MAX
    }

    fn poll_delay(&mut self) -> Option<Duration> {
        self.waited.take()
    }

    fn received(&self) -> LinkSeq {
        self.expected
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ClientId;
    use crate::message::{Body, DaemonId, Data, GroupId};
    use crate::sequence::OriginSeq;
    use manyflow_core::Length;

    fn message(number: u32) -> Message {
        Message {
            origin: DaemonId(0),
            copy: Default::default(),
            body: Body::Data(Data {
                group: GroupId(1),
                version: 0,
                sequence: OriginSeq::new(u64::from(number) + 1),
                sender: ClientId(0),
                sent_us: 0,
            }),
        }
    }

    fn number(arrival: &Arrival<Length>) -> u32 {
        arrival.payload.0
    }

    /// Two hops, and the frames under way between them.
    struct Pair {
        now: Time,
        hops: [KernelHop<Length>; 2],
        wires: [VecDeque<(Frame, Length)>; 2],
        pushed: [u32; 2],
        read: [Vec<u32>; 2],
    }

    impl Pair {
        fn new() -> Pair {
            let mut pair = Pair {
                now: Time::ZERO,
                hops: [KernelHop::new(), KernelHop::new()],
                wires: Default::default(),
                pushed: [0; 2],
                read: Default::default(),
            };
            pair.connect();
            pair
        }

        fn connect(&mut self) {
            let received = [self.hops[0].received(), self.hops[1].received()];
            self.hops[0].handle_connected(self.now, received[1]);
            self.hops[1].handle_connected(self.now, received[0]);
        }

        fn disconnect(&mut self) {
            for end in [0, 1] {
                self.hops[end].handle_disconnected();
                self.wires[end].clear();
            }
        }

        fn push(&mut self, end: usize) {
            if self.hops[end].has_room() {
                let next = self.pushed[end];
                self.hops[end].push(self.now, message(next), Length(next));
                self.pushed[end] += 1;
            }
        }

        fn transmit(&mut self, end: usize) {
            while let Some(frame) = self.hops[end].poll_transmit(self.now) {
                self.wires[end].push_back(frame);
            }
            self.hops[end].handle_writable(self.now);
        }

        fn deliver(&mut self, end: usize, most: usize) {
            for _ in 0..most {
                let Some((frame, payload)) = self.wires[end].pop_front() else {
                    break;
                };
                self.hops[1 - end].handle_frame(self.now, &frame, Ecn::NotCapable, payload);
            }
            while let Some(arrival) = self.hops[1 - end].poll_arrival(self.now) {
                self.read[1 - end].push(number(&arrival));
            }
        }

        fn wait(&mut self) {
            self.now += ACKNOWLEDGE_AFTER;
            self.hops
                .iter_mut()
                .for_each(|hop| hop.handle_timeout(self.now));
        }
    }

    proptest! {
        #[test]
        fn a_link_whose_connections_break_delivers_each_message_once_and_in_order(
            steps in prop::collection::vec((0..6u8, 0..2usize, 0..20usize), 0..300)
        ) {
            let mut pair = Pair::new();
            for (step, end, most) in steps {
                match step {
                    0 | 1 => (0..most).for_each(|_| pair.push(end)),
                    2 => pair.transmit(end),
                    3 => pair.deliver(end, most),
                    4 => pair.wait(),
                    _ => {
                        pair.disconnect();
                        pair.connect();
                    }
                }
            }
            for _ in 0..2 {
                for end in [0, 1] {
                    pair.transmit(end);
                    pair.deliver(end, usize::MAX);
                }
                pair.wait();
            }
            for end in [0, 1] {
                let sent: Vec<_> = (0..pair.pushed[end]).collect();
                prop_assert_eq!(&pair.read[1 - end], &sent);
                prop_assert!(pair.hops[end].unacknowledged.is_empty());
            }
        }
    }

    #[test]
    fn a_hop_without_a_connection_has_no_room_and_sends_nothing() {
        let mut hop = KernelHop::<Length>::new();
        assert!(!hop.has_room());
        hop.handle_connected(Time::ZERO, LinkSeq(0));
        assert!(hop.has_room());
        hop.push(Time::ZERO, message(0), Length(0));
        hop.handle_disconnected();
        assert!(!hop.has_room());
        assert_eq!(hop.poll_transmit(Time::ZERO), None);
    }

    /// Pushes a batch that the socket takes in `time`. Returns the length of the next.
    fn batch(hop: &mut KernelHop<Length>, now: &mut Time, time: Duration) -> usize {
        hop.push(*now, message(0), Length(BATCH_BYTES.1 as u32));
        assert!(!hop.has_room());
        *now += time;
        hop.handle_writable(*now);
        hop.room.unwrap()
    }

    #[test]
    fn batches_grow_on_fast_links_and_shrink_on_slow_ones() {
        let (mut hop, mut now) = (KernelHop::<Length>::new(), Time::ZERO);
        hop.handle_connected(now, LinkSeq(0));
        let fast = [(); 6].map(|()| batch(&mut hop, &mut now, Duration::from_millis(1)) / 1024);
        assert_eq!(fast, [16, 32, 64, 128, 256, 256]);
        assert_eq!(
            batch(&mut hop, &mut now, Duration::from_millis(5)) / 1024,
            256
        );
        let slow = [(); 6].map(|()| batch(&mut hop, &mut now, Duration::from_millis(9)) / 1024);
        assert_eq!(slow, [128, 64, 32, 16, 8, 8]);
    }

    #[test]
    fn an_acknowledgement_of_messages_that_were_never_sent_is_ignored() {
        let mut hop = KernelHop::<Length>::new();
        hop.handle_connected(Time::ZERO, LinkSeq(7));
        hop.push(Time::ZERO, message(0), Length(1));
        hop.handle_acknowledgement(LinkSeq(1));
        assert_eq!(hop.unacknowledged.len(), 1);
    }
}
