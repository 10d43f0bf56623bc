//! The receiving half of a connection: restores the order, keeps the receive buffer, and
//! acknowledges.
//!
//! ```text
//!   read by the application | ready | next: missing | beyond it: arrived, or missing as well
//! ```

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use super::Payload;
use super::config::{AcpConfig, FlowControl};
use super::frame::{FLIGHT_FRAMES_MAX, Frame, Item};
use super::segment::{Ack, Data, Gap, NO_GAPS, UNLIMITED};
use super::soft::SoftFlow;
use crate::Event;
use manyflow_core::time::Time;
use manyflow_core::xcp::Feedback;

/// A frame is reported missing when this many later frames have arrived. Fewer may only have
/// overtaken it.
pub(super) const REORDERING: u32 = 3;

/// The receiving half.
#[derive(Debug)]
pub(super) struct Receiver<P> {
    capacity: u32,
    frame_bytes_max: u32,
    /// Soft flow control; `None` if the receiver grants credit.
    soft: Option<SoftFlow>,
    /// Frames in order, which the application can read.
    ready: VecDeque<Frame<P>>,
    /// The next number in order.
    next: u32,
    /// The items that have arrived beyond `next`, by their distance from it. The first is always
    /// missing.
    beyond: VecDeque<Option<Item<P>>>,
    /// The numbers of the items in `beyond` as ranges, end excluded: ascending and not adjacent.
    blocks: Vec<(u32, u32)>,
    /// The gaps below this number were named since the reports began again with the lowest.
    turn: u32,
    /// The number of items in `beyond`.
    beyond_frames: u32,
    /// The bytes of the items in `beyond`.
    beyond_bytes: u32,
    /// The bytes of the frames in `ready`.
    ready_bytes: u32,
    /// Total bytes that the application has read.
    read: u64,
    /// The value of `read` at the last acknowledgement.
    reported_read: u64,
    is_closed: bool,
    /// Acknowledgements that are due.
    due_acks: VecDeque<Due>,
    /// The last frame that was acknowledged.
    last: Option<u32>,
}

/// An acknowledgement that is due.
#[derive(Copy, Clone, Debug)]
struct Due {
    of: u32,
    feedback: Feedback,
    /// The value of `next` when the frame arrived. Frames that arrived later have feedback of their
    /// own; a sender takes it from the first acknowledgement that covers the frame.
    cumulative: u32,
}

/// The result of placing an arriving item.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Placed {
    /// The item is in the buffer, or was before.
    Taken,
    /// The receive buffer has no room for the item.
    NoRoom,
    /// No valid sender would have sent the item.
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
            turn: 0,
            beyond_frames: 0,
            beyond_bytes: 0,
            ready_bytes: 0,
            read: 0,
            reported_read: 0,
            is_closed: false,
            due_acks: VecDeque::new(),
            last: None,
        }
    }

    /// Returns the credit: bytes that may be sent from the next number on. Frames beyond a gap do
    /// not reduce it, because their room was granted with it.
    pub(super) fn credit(&self) -> u32 {
        match self.soft {
            Some(_) => UNLIMITED,
            None => self.capacity - self.ready_bytes,
        }
    }

    /// Returns whether all frames and the closing have arrived.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Returns whether a frame can be read.
    pub(super) fn is_readable(&self) -> bool {
        !self.ready.is_empty()
    }

    fn occupied(&self) -> u32 {
        self.ready_bytes + self.beyond_bytes
    }

    /// Handles a frame, which came in a packet of `wire_bytes`.
    pub(super) fn handle_data(
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
            let is_readable = data.sequence == self.next;
            soft.on_arrival(now, &mut congestion, wire_bytes, occupied, is_readable);
        }
        match self.place(data.sequence, Item::Frame(Frame { key, payload })) {
            Placed::Taken => {
                let feedback = Feedback {
                    change: congestion.feedback,
                    answered: congestion.answered,
                    averaged: false,
                };
                self.acknowledge(data.sequence, feedback);
            }
            Placed::Refused => {}
            Placed::NoRoom => {
                events.push_back(Event::Overflow);
                if let Some(soft) = &mut self.soft {
                    soft.on_overflow(now);
                }
            }
        }
    }

    /// Handles a Close: no frame has this number or a later one.
    pub(super) fn handle_close(&mut self, sequence: u32) {
        if self.place(sequence, Item::Close) == Placed::Taken {
            self.acknowledge(sequence, Feedback::default());
        }
    }

    /// Acknowledges the last answered frame again, to report what has arrived and how much room
    /// there is.
    pub(super) fn repeat_ack(&mut self) {
        if let Some(last) = self.last {
            self.acknowledge(last, Feedback::default());
        }
    }

    fn acknowledge(&mut self, of: u32, feedback: Feedback) {
        self.due_acks.push_back(Due {
            of,
            feedback,
            cumulative: self.next,
        });
    }

    fn place(&mut self, sequence: u32, item: Item<P>) -> Placed {
        let Some(ahead) = sequence.checked_sub(self.next) else {
            return Placed::Taken;
        };
        // The last number is never sent: no number could follow it.
        if self.is_closed || ahead >= FLIGHT_FRAMES_MAX || sequence == u32::MAX {
            return Placed::Refused;
        }
        if matches!(self.beyond.get(ahead as usize), Some(Some(_))) {
            return Placed::Taken;
        }
        self.make_room(sequence, item.bytes());
        if !self.has_room(item.bytes(), ahead > 0) {
            return Placed::NoRoom;
        }
        if ahead == 0 && self.beyond.is_empty() {
            self.deliver(item);
        } else {
            self.hold(sequence, ahead as usize, item);
            self.deliver_held();
        }
        debug_assert!(self.occupied() <= self.capacity, "the buffer overflows");
        debug_assert!(
            !matches!(self.beyond.front(), Some(Some(_))),
            "the next frame is missing as long as frames are held beyond it"
        );
        Placed::Taken
    }

    /// Returns whether an item of `bytes` fits. Under soft flow control, an item beyond a gap
    /// leaves room for the missing frame: nothing can be read before that frame arrives.
    fn has_room(&self, bytes: u32, is_beyond: bool) -> bool {
        let is_reserved = is_beyond && self.soft.is_some();
        let reserved = if is_reserved { self.frame_bytes_max } else { 0 };
        let frames = self.ready.len() as u32 + self.beyond_frames + u32::from(is_beyond);
        self.occupied() + bytes + reserved <= self.capacity && frames < FLIGHT_FRAMES_MAX
    }

    /// Drops the items furthest beyond number `sequence`, as far as an item of `bytes` with this
    /// number needs their room: they can only be read after it. Otherwise frames of other members
    /// would keep out the frames that are missing. Dropped items were acknowledged and are sent
    /// again, because only the cumulative number is final (RFC 2018 section 8).
    fn make_room(&mut self, sequence: u32, bytes: u32) {
        let ahead = (sequence - self.next) as usize;
        while !self.has_room(bytes, ahead > 0)
            && self.beyond.len() > ahead + 1
            && let Some(furthest) = self.beyond.pop_back()
        {
            let Some(item) = furthest else { continue };
            self.beyond_frames -= 1;
            self.beyond_bytes -= item.bytes();
            if let Some(block) = self.blocks.last_mut() {
                block.1 -= 1;
            }
            self.blocks.pop_if(|block| block.0 == block.1);
        }
    }

    /// Delivers the next item in order.
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

    /// Adds a number to the blocks, and joins the blocks that it touches.
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

    /// Forgets the items beyond the closing: no valid sender sends any.
    fn forget_beyond(&mut self) {
        self.beyond.clear();
        self.blocks.clear();
        (self.beyond_frames, self.beyond_bytes) = (0, 0);
    }

    /// Reads the next frame in order.
    pub(super) fn read(&mut self, now: Time) -> Option<Frame<P>> {
        let frame = self.ready.pop_front()?;
        let bytes = frame.payload.length();
        self.ready_bytes -= bytes;
        self.read += u64::from(bytes);
        let readable = self.ready_bytes;
        match &mut self.soft {
            Some(soft) => soft.on_read(now, bytes, readable),
            None => self.update_credit(),
        }
        Some(frame)
    }

    /// Reports new room to the sender when it is worth a packet: two frames, or half the buffer
    /// (RFC 9293 section 3.8.6.2.2 asks for one frame, 4.4BSD for two).
    fn update_credit(&mut self) {
        let worth = (2 * self.frame_bytes_max).min(self.capacity / 2);
        if self.due_acks.is_empty() && self.read - self.reported_read >= u64::from(worth) {
            self.repeat_ack();
        }
    }

    /// Returns the next acknowledgement to send.
    pub(super) fn poll_transmit(&mut self) -> Option<Ack> {
        let due = self.due_acks.pop_front()?;
        self.last = Some(due.of);
        self.reported_read = self.read;
        let missing = self.report_missing(due.cumulative);
        Some(Ack {
            cumulative: due.cumulative,
            of: due.of,
            credit: self.credit(),
            feedback: due.feedback,
            missing,
        })
    }

    /// Returns gaps that enough later frames have overtaken, counted from `cumulative`: the
    /// highest, which is the news, and others in turn. Frames that arrived lie between gaps, and
    /// each of those is answered, so there are never more gaps than answers to name them.
    fn report_missing(&mut self, cumulative: u32) -> [Gap; 3] {
        let mut missing = NO_GAPS;
        let Some(limit) = self.overtaken_below() else {
            return missing;
        };
        let overtaken = self.blocks.partition_point(|block| block.0 <= limit);
        let Some(newest) = overtaken.checked_sub(1) else {
            return missing;
        };
        let older = &self.blocks[..newest];
        let named = older.partition_point(|block| block.0 <= self.turn);
        let begin = if named < newest { named } else { 0 };
        let end = newest.min(begin + missing.len() - 1);
        let due = (begin..end).chain([newest]);
        for (gap, place) in missing.iter_mut().zip(due) {
            let from = place
                .checked_sub(1)
                .map_or(self.next, |below| self.blocks[below].1);
            let offset = u16::try_from(from - cumulative);
            let frames = u16::try_from(self.blocks[place].0 - from);
            let (Ok(offset), Ok(frames)) = (offset, frames) else {
                break;
            };
            *gap = Gap { offset, frames };
        }
        self.turn = end.checked_sub(1).map_or(0, |last| self.blocks[last].0);
        missing
    }

    /// Returns the number below which every missing frame was overtaken by enough later frames.
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
