//! The receiving half of a connection: order, the receive buffer, acknowledgements.
//!
//! ```text
//!   read by the application | ready | next: missing | beyond it: arrived, or missing as well
//! ```

use std::collections::VecDeque;

use super::Payload;
use super::config::{AcpConfig, FlowControl};
use super::connection::{FLIGHT_FRAMES_MAX, Frame, Item};
use super::segment::{Ack, Data, Feedback, Gap, NO_GAPS, UNLIMITED};
use super::soft::SoftFlow;
use crate::endpoint::Event;
use crate::time::Time;

/// A frame is reported missing when so many later ones have arrived: fewer may only have overtaken it.
pub(super) const REORDERING: u32 = 3;

/// The receiving half.
#[derive(Debug)]
pub(super) struct Receiver<P> {
    capacity: u32,
    frame_bytes_max: u32,
    /// Without it there is credit.
    soft: Option<SoftFlow>,
    /// In order, to be read.
    ready: VecDeque<Frame<P>>,
    /// The next number in order.
    next: u32,
    /// What has arrived from `next` on; the first is always missing.
    beyond: VecDeque<Option<Item<P>>>,
    /// The same as ranges of numbers, end excluded: ascending, and apart.
    blocks: Vec<(u32, u32)>,
    /// Frames in `beyond`, and their bytes.
    beyond_frames: u32,
    beyond_bytes: u32,
    ready_bytes: u32,
    /// Bytes that the application has read, and what of it the sender was told.
    read: u64,
    read_told: u64,
    is_closed: bool,
    /// Frames that are to be acknowledged, each with its feedback.
    acks: VecDeque<(u32, Feedback)>,
    /// The last frame that was acknowledged.
    last: Option<u32>,
}

/// What became of a frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Placed {
    Taken,
    NoRoom,
    /// It is none that can be sent to us.
    Refused,
}

impl<P: Payload> Receiver<P> {
    pub(super) fn new(config: &AcpConfig) -> Receiver<P> {
        let soft = match config.flow {
            FlowControl::Credit => None,
            FlowControl::Soft(soft) => Some(SoftFlow::new(
                soft,
                config.receive_buffer,
                config.frame_bytes_max,
            )),
        };
        Receiver {
            capacity: config.receive_buffer,
            frame_bytes_max: config.frame_bytes_max,
            soft,
            ready: VecDeque::new(),
            next: 0,
            beyond: VecDeque::new(),
            blocks: Vec::new(),
            beyond_frames: 0,
            beyond_bytes: 0,
            ready_bytes: 0,
            read: 0,
            read_told: 0,
            is_closed: false,
            acks: VecDeque::new(),
            last: None,
        }
    }

    /// Bytes that may be sent from the next number on: beyond a gap nothing is counted, as its place was granted with it.
    pub(super) fn credit(&self) -> u32 {
        match self.soft {
            Some(_) => UNLIMITED,
            None => self.capacity - self.ready_bytes,
        }
    }

    /// All frames and the closing have arrived.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether a frame can be read.
    pub(super) fn is_readable(&self) -> bool {
        !self.ready.is_empty()
    }

    fn occupied(&self) -> u32 {
        self.ready_bytes + self.beyond_bytes
    }

    /// Takes a frame, which came in a packet of `wire_bytes`.
    pub(super) fn on_data(
        &mut self,
        now: Time,
        data: &Data,
        payload: P,
        wire_bytes: u32,
        events: &mut VecDeque<Event>,
    ) {
        if !(1..=self.frame_bytes_max).contains(&payload.length()) {
            return;
        }
        let (key, mut congestion) = (data.key, data.congestion);
        let occupied = self.occupied();
        if let Some(soft) = &mut self.soft {
            soft.on_arrival(now, &mut congestion, wire_bytes, occupied);
        }
        match self.place(data.sequence, Item::Frame(Frame { key, payload })) {
            Placed::Taken => self.acks.push_back((data.sequence, congestion.feedback)),
            Placed::Refused => {}
            Placed::NoRoom => {
                events.push_back(Event::Overflow);
                if let Some(soft) = &mut self.soft {
                    soft.on_overflow(now);
                }
            }
        }
    }

    /// No frame has this number or a later one.
    pub(super) fn on_close(&mut self, sequence: u32) {
        if self.place(sequence, Item::Close) == Placed::Taken {
            self.acks.push_back((sequence, Feedback(0)));
        }
    }

    /// The sender asks what has arrived and how much room there is.
    pub(super) fn repeat_ack(&mut self) {
        if let Some(last) = self.last {
            self.acks.push_back((last, Feedback(0)));
        }
    }

    fn place(&mut self, sequence: u32, item: Item<P>) -> Placed {
        let Some(ahead) = sequence.checked_sub(self.next) else {
            return Placed::Taken;
        };
        // The last number is never sent: one more would not be a number.
        if self.is_closed || ahead >= FLIGHT_FRAMES_MAX || sequence == u32::MAX {
            return Placed::Refused;
        }
        if matches!(self.beyond.get(ahead as usize), Some(Some(_))) {
            return Placed::Taken;
        }
        if !self.has_room(item.bytes(), ahead > 0) {
            return Placed::NoRoom;
        }
        if ahead == 0 && self.beyond.is_empty() {
            self.deliver(item);
        } else {
            self.hold(sequence, ahead as usize, item);
            self.deliver_held();
        }
        Placed::Taken
    }

    /// Under soft flow control frames beyond a gap leave a place for the missing one: nobody reads before it comes.
    fn has_room(&self, bytes: u32, is_beyond: bool) -> bool {
        let is_reserved = is_beyond && self.soft.is_some();
        let reserved = if is_reserved { self.frame_bytes_max } else { 0 };
        let frames = self.ready.len() as u32 + self.beyond_frames + u32::from(is_beyond);
        self.occupied() + bytes + reserved <= self.capacity && frames < FLIGHT_FRAMES_MAX
    }

    /// The next item in order.
    fn deliver(&mut self, item: Item<P>) {
        self.next += 1;
        match item {
            Item::Frame(frame) => {
                self.ready_bytes += frame.payload.length();
                self.ready.push_back(frame);
            }
            Item::Close => self.is_closed = true,
        }
    }

    fn hold(&mut self, sequence: u32, ahead: usize, item: Item<P>) {
        if self.beyond.len() <= ahead {
            self.beyond.resize_with(ahead + 1, || None);
        }
        self.beyond_frames += 1;
        self.beyond_bytes += item.bytes();
        self.beyond[ahead] = Some(item);
        self.add_to_blocks(sequence);
    }

    /// Joins a number to the blocks that it touches.
    fn add_to_blocks(&mut self, number: u32) {
        let place = self.blocks.partition_point(|block| block.1 < number);
        match self.blocks.get_mut(place) {
            Some(block) if block.1 == number => block.1 += 1,
            Some(block) if block.0 == number + 1 => block.0 = number,
            _ => self.blocks.insert(place, (number, number + 1)),
        }
        if let Some(above) = self.blocks.get(place + 1).copied()
            && above.0 == self.blocks[place].1
        {
            self.blocks[place].1 = above.1;
            self.blocks.remove(place + 1);
        }
    }

    fn deliver_held(&mut self) {
        while let Some(Some(_)) = self.beyond.front() {
            let Some(Some(item)) = self.beyond.pop_front() else {
                return;
            };
            self.beyond_frames -= 1;
            self.beyond_bytes -= item.bytes();
            self.deliver(item);
        }
        if self.is_closed {
            self.forget_beyond();
        }
        if self.blocks.first().is_some_and(|block| block.0 < self.next) {
            self.blocks.remove(0);
        }
    }

    /// Nothing can follow the closing.
    fn forget_beyond(&mut self) {
        self.beyond.clear();
        self.blocks.clear();
        (self.beyond_frames, self.beyond_bytes) = (0, 0);
    }

    /// The next frame in order.
    pub(super) fn read(&mut self, now: Time) -> Option<Frame<P>> {
        let frame = self.ready.pop_front()?;
        let bytes = frame.payload.length();
        self.ready_bytes -= bytes;
        self.read += u64::from(bytes);
        let occupied = self.occupied();
        match &mut self.soft {
            Some(soft) => soft.on_read(now, bytes, occupied),
            None => self.update_credit(),
        }
        Some(frame)
    }

    /// Tells the sender of new room when it is worth a packet: two frames, or half the buffer (RFC 9293 section 3.8.6.2.2
    /// asks for one frame, 4.4BSD for two).
    fn update_credit(&mut self) {
        let worth = (2 * self.frame_bytes_max).min(self.capacity / 2);
        if self.acks.is_empty() && self.read - self.read_told >= u64::from(worth) {
            self.repeat_ack();
        }
    }

    /// The next acknowledgement.
    pub(super) fn poll_ack(&mut self) -> Option<Ack> {
        let (of, feedback) = self.acks.pop_front()?;
        self.last = Some(of);
        self.read_told = self.read;
        Some(Ack {
            cumulative: self.next,
            of,
            credit: self.credit(),
            feedback,
            missing: self.missing_below(of),
        })
    }

    /// The lowest gaps below `of` above which enough frames have arrived.
    fn missing_below(&self, of: u32) -> [Gap; 3] {
        let mut missing = NO_GAPS;
        let Some(limit) = self.overtaken_below() else {
            return missing;
        };
        let limit = limit.min(of);
        let mut from = self.next;
        for (gap, (begin, end)) in missing.iter_mut().zip(&self.blocks) {
            if *begin > limit {
                break;
            }
            // Both fit: nothing is held that is further ahead than 2^16 numbers.
            *gap = Gap {
                offset: (from - self.next) as u16,
                frames: (begin - from) as u16,
            };
            from = *end;
        }
        missing
    }

    /// What is missing below this number has been overtaken by enough frames.
    fn overtaken_below(&self) -> Option<u32> {
        let mut wanted = REORDERING;
        for (begin, end) in self.blocks.iter().rev() {
            if end - begin >= wanted {
                return Some(end - wanted);
            }
            wanted -= end - begin;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::segment::Congestion;
    use super::super::{Length, SoftConfig};
    use super::*;

    fn receiver(frames: u32, flow: FlowControl) -> Receiver<Length> {
        Receiver::new(&AcpConfig {
            flow,
            frame_bytes_max: 1000,
            receive_buffer: frames * 1000,
            ..AcpConfig::default()
        })
    }

    fn by_credit(frames: u32) -> Receiver<Length> {
        receiver(frames, FlowControl::Credit)
    }

    /// Hands over a frame; returns its acknowledgement, and whether it was dropped for want of room.
    fn take(receiver: &mut Receiver<Length>, sequence: u32, bytes: u32) -> (Option<Ack>, bool) {
        let mut events = VecDeque::new();
        let data = Data {
            sequence,
            key: sequence,
            congestion: Congestion::default(),
        };
        receiver.on_data(Time::ZERO, &data, Length(bytes), bytes + 56, &mut events);
        (receiver.poll_ack(), events.contains(&Event::Overflow))
    }

    /// The acknowledgement's numbers: cumulative, and the gaps from first to last.
    fn told(ack: Option<Ack>) -> (u32, Vec<(u32, u32)>) {
        let ack = ack.expect("an acknowledgement");
        let used = ack.missing.iter().filter(|gap| gap.frames > 0);
        let gaps = used.map(|gap| {
            let from = ack.cumulative + u32::from(gap.offset);
            (from, from + u32::from(gap.frames) - 1)
        });
        (ack.cumulative, gaps.collect())
    }

    #[test]
    fn a_gap_is_reported_when_three_later_frames_have_come() {
        let mut receiver = by_credit(100);
        assert_eq!(told(take(&mut receiver, 0, 1000).0), (1, vec![]));
        assert_eq!(told(take(&mut receiver, 3, 1000).0), (1, vec![]));
        assert_eq!(told(take(&mut receiver, 5, 1000).0), (1, vec![]));
        assert_eq!(told(take(&mut receiver, 6, 1000).0), (1, vec![(1, 2)]));
        // Two frames are above the gap at 4, then three.
        assert_eq!(
            told(take(&mut receiver, 7, 1000).0),
            (1, vec![(1, 2), (4, 4)])
        );
        assert_eq!(told(take(&mut receiver, 1, 1000).0), (2, vec![]));
        assert_eq!(told(take(&mut receiver, 2, 1000).0), (4, vec![]));
        assert_eq!(told(take(&mut receiver, 8, 1000).0), (4, vec![(4, 4)]));
        assert_eq!(told(take(&mut receiver, 4, 1000).0), (9, vec![]));
        assert_eq!(core::iter::from_fn(|| receiver.read(Time::ZERO)).count(), 9);
    }

    #[test]
    fn the_three_lowest_gaps_are_reported() {
        let mut receiver = by_credit(100);
        let last = [1, 3, 5, 7, 9, 11, 12].map(|n| take(&mut receiver, n, 1000).0);
        assert_eq!(told(last[6]), (0, vec![(0, 0), (2, 2), (4, 4)]));
    }

    #[test]
    fn credit_is_what_the_unread_frames_leave() {
        let mut receiver = by_credit(4);
        assert_eq!(receiver.credit(), 4000);
        assert_eq!(
            take(&mut receiver, 0, 1000).0.map(|ack| ack.credit),
            Some(3000)
        );
        // Beyond a gap: its place was granted already.
        assert_eq!(
            take(&mut receiver, 2, 1000).0.map(|ack| ack.credit),
            Some(3000)
        );
        assert_eq!(
            take(&mut receiver, 1, 1000).0.map(|ack| ack.credit),
            Some(1000)
        );
        assert!(take(&mut receiver, 3, 1000).0.is_some());
        assert_eq!(take(&mut receiver, 4, 1000), (None, true));
        // Two frames are worth a packet, one is not.
        receiver.read(Time::ZERO);
        assert_eq!(receiver.poll_ack(), None);
        receiver.read(Time::ZERO);
        let update = receiver.poll_ack().expect("an update");
        assert_eq!((update.cumulative, update.of, update.credit), (4, 3, 2000));
    }

    #[test]
    fn soft_flow_control_keeps_a_place_for_the_frame_that_is_next() {
        let mut receiver = receiver(4, FlowControl::Soft(SoftConfig::default()));
        for sequence in 1..4 {
            assert!(take(&mut receiver, sequence, 1000).0.is_some());
        }
        assert_eq!(take(&mut receiver, 4, 1000), (None, true));
        assert_eq!(told(take(&mut receiver, 0, 1000).0), (4, vec![]));
    }

    #[test]
    fn frames_of_a_byte_are_held_up_to_a_number() {
        let mut receiver = by_credit(1000);
        let taken = (0..70_000).filter(|n| take(&mut receiver, *n, 1).0.is_some());
        assert_eq!(taken.count(), FLIGHT_FRAMES_MAX as usize);
        assert!(take(&mut receiver, FLIGHT_FRAMES_MAX, 1).1);
        receiver.read(Time::ZERO);
        assert!(take(&mut receiver, FLIGHT_FRAMES_MAX, 1).0.is_some());
    }

    #[test]
    fn the_farthest_frame_that_can_be_reported_is_the_farthest_that_is_held() {
        let mut receiver = by_credit(1000);
        assert_eq!(take(&mut receiver, FLIGHT_FRAMES_MAX, 1), (None, false));
        let far = FLIGHT_FRAMES_MAX - 3..FLIGHT_FRAMES_MAX;
        let last = far.map(|n| take(&mut receiver, n, 1).0).last().flatten();
        assert_eq!(told(last), (0, vec![(0, FLIGHT_FRAMES_MAX - 4)]));
    }

    #[test]
    fn the_last_number_is_taken_and_none_follows() {
        let mut receiver = by_credit(10);
        receiver.next = u32::MAX - 2;
        assert!(take(&mut receiver, u32::MAX, 1000).0.is_none());
        assert!(take(&mut receiver, u32::MAX - 2, 1000).0.is_some());
        receiver.on_close(u32::MAX - 1);
        assert_eq!(told(receiver.poll_ack()), (u32::MAX, vec![]));
        assert!(receiver.is_closed());
        assert!(take(&mut receiver, u32::MAX, 1000).0.is_none());
    }

    #[test]
    fn what_lies_beyond_the_closing_is_forgotten() {
        let mut receiver = by_credit(10);
        take(&mut receiver, 3, 1000);
        receiver.on_close(1);
        take(&mut receiver, 0, 1000);
        assert!(receiver.is_closed());
        assert_eq!((receiver.occupied(), receiver.beyond.len()), (1000, 0));
    }
}
