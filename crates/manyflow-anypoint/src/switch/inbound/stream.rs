//! The stream of frames from the switch to one member.

use super::super::acknowledgement::Acknowledgement;
use super::super::ring::Ring;
use super::super::sequence::{MemberSeq, PeerSeq, Sequence};
use crate::UNLIMITED;
use manyflow_core::xcp::WindowChange;

/// The weight of one acknowledgement in a member's average feedback.
///
/// A router gives neighbouring packets different parts of its budget, so the least of the members'
/// latest feedbacks is below what any path means. The least of averages is not.
const FEEDBACK_WEIGHT: f64 = 1.0 / 8.0;

/// What was sent to one member, and what it has said of it.
#[derive(Debug)]
pub(super) struct Stream {
    /// The peer's number of each frame, by its number in this stream. A frame leaves when the
    /// peer's cumulative number has passed it: until then, duplicate acknowledgements need its
    /// number.
    sent: Ring<MemberSeq, PeerSeq>,
    /// The member has acknowledged everything before this number.
    acknowledged: MemberSeq,
    /// Frames that were sent and are not acknowledged.
    outstanding: u32,
    /// The number of the switch's Close.
    close: Option<MemberSeq>,
    is_close_acknowledged: bool,
    /// What the member grants, in bytes.
    credit: u32,
    /// The average feedback of the member's acknowledgements.
    feedback: Option<WindowChange>,
}

impl Stream {
    pub(super) fn new() -> Stream {
        Stream {
            sent: Ring::new(),
            acknowledged: MemberSeq::FIRST,
            outstanding: 0,
            close: None,
            is_close_acknowledged: false,
            credit: UNLIMITED,
            feedback: None,
        }
    }

    /// Adds a frame of the peer, and returns its number in this stream.
    pub(super) fn send(&mut self, sequence: PeerSeq) -> MemberSeq {
        let number = self.sent.next();
        debug_assert!(self.close.is_none(), "a frame follows the Close");
        self.sent.push(sequence);
        self.outstanding += 1;
        number
    }

    /// The number that the next frame gets.
    pub(super) fn next_frame(&self) -> MemberSeq {
        self.sent.next()
    }

    /// The number after the last frame, or after the Close.
    pub(super) fn next_number(&self) -> MemberSeq {
        let next = self.sent.next();
        next.plus(u32::from(self.close == Some(next)))
    }

    /// The peer's number of a frame that is not forgotten.
    pub(super) fn peer_number(&self, number: MemberSeq) -> Option<PeerSeq> {
        self.sent.get(number).copied()
    }

    /// The peer's number of the first frame that is not acknowledged.
    pub(super) fn first_unacknowledged(&self) -> Option<PeerSeq> {
        self.peer_number(self.acknowledged)
    }

    /// The member has acknowledged everything before this number.
    pub(super) fn acknowledged(&self) -> MemberSeq {
        self.acknowledged
    }

    /// Frames that were sent and are not acknowledged.
    pub(super) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// The member acknowledges the first number that it has not yet. Returns the peer's number of
    /// the frame; `None` for the Close.
    pub(super) fn acknowledge_next(&mut self) -> Option<PeerSeq> {
        let number = self.acknowledged;
        debug_assert!(number.is_before(self.next_number()), "it was never sent");
        self.acknowledged = number.next();
        self.is_close_acknowledged |= self.close == Some(number);
        let sequence = self.peer_number(number)?;
        self.outstanding -= 1;
        Some(sequence)
    }

    /// Forgets the first frames, as far as their peer's numbers are before `base`.
    pub(super) fn forget_before(&mut self, base: PeerSeq) {
        while self.sent.front().is_some_and(|first| first.is_before(base)) {
            self.sent.pop();
        }
    }

    /// The number of the switch's Close.
    pub(super) fn close(&self) -> Option<MemberSeq> {
        self.close
    }

    /// Ends the stream. Returns false if it has ended already.
    pub(super) fn begin_close(&mut self) -> bool {
        let is_first = self.close.is_none();
        self.close.get_or_insert(self.sent.next());
        is_first
    }

    /// The number of the Close, if it was sent and is not acknowledged.
    pub(super) fn unacknowledged_close(&self) -> Option<MemberSeq> {
        self.close.filter(|_| !self.is_close_acknowledged)
    }

    pub(super) fn is_close_acknowledged(&self) -> bool {
        self.is_close_acknowledged
    }

    /// What the member grants, in bytes.
    pub(super) fn credit(&self) -> u32 {
        self.credit
    }

    /// The member grants this credit.
    pub(super) fn grant(&mut self, credit: u32) {
        self.credit = credit;
    }

    /// Takes an acknowledgement's credit, unless a later one has arrived before it.
    pub(super) fn note_credit(&mut self, ack: &Acknowledgement<MemberSeq>) {
        if !ack.cumulative.is_before(self.acknowledged) {
            self.credit = ack.credit;
        }
    }

    /// The average feedback of the member's acknowledgements.
    pub(super) fn feedback(&self) -> Option<WindowChange> {
        self.feedback
    }

    /// Adds an acknowledgement's feedback to the average.
    pub(super) fn note_feedback(&mut self, latest: WindowChange) {
        let average = self.feedback.unwrap_or(latest).bytes();
        let change = FEEDBACK_WEIGHT * (latest.bytes() - average);
        self.feedback = Some(WindowChange::from_bytes(average + change));
    }

    /// Takes note of the Close that the peer sends as number `close`, and that passes unchanged.
    pub(super) fn note_close(&mut self, close: MemberSeq) {
        self.close = Some(close);
    }
}
