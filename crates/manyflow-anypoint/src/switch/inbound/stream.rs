//! The stream of frames from the switch to one member.

use core::time::Duration;

use super::super::acknowledgement::Acknowledgement;
use super::super::ring::Ring;
use super::super::sequence::{MemberSeq, PeerSeq, Sequence};
use super::rounds::Rounds;
use super::uptake::{Change, Hindrance, Uptake};
use crate::UNLIMITED;
use manyflow_core::time::Time;
use manyflow_core::xcp::{Feedback, WindowChange};

/// The weight of one acknowledgement in a member's average feedback.
///
/// A router gives neighbouring packets different parts of its budget, so the minimum of the
/// members' latest feedback is below the level of every path. The minimum of averages is not.
const FEEDBACK_WEIGHT: f64 = 1.0 / 8.0;

/// A member that has not acknowledged the frame that it waits for after this many retransmissions
/// is not the victim of losses: with a loss of a tenth, one frame in ten thousand needs more.
const REPEATS: u32 = 3;

/// The frames that were sent to one member, and its answers.
#[derive(Debug)]
pub(super) struct Stream {
    /// The peer's number of each frame, by its number in this stream. A frame is removed when the
    /// peer's cumulative number has passed it; until then, duplicate acknowledgements need its
    /// number.
    sent: Ring<MemberSeq, PeerSeq>,
    /// Every number before this one is acknowledged.
    acknowledged: MemberSeq,
    /// The number of frames that were sent and are not acknowledged.
    outstanding: u32,
    /// Since when frames have been outstanding; `None` while there are none.
    owed_since: Option<Time>,
    /// How often the first unacknowledged frame was sent again.
    repeats: u32,
    /// The number of the switch's Close.
    close: Option<MemberSeq>,
    is_close_acknowledged: bool,
    /// The credit that the member grants, in bytes.
    credit: u32,
    /// The average feedback of the member's acknowledgements.
    feedback: Option<WindowChange>,
    /// The member averages feedback: it is another switch.
    is_switch: bool,
    uptake: Uptake,
    /// Round trips to the member.
    pub(super) rounds: Rounds,
}

impl Stream {
    pub(super) fn new() -> Stream {
        Stream {
            sent: Ring::new(),
            acknowledged: MemberSeq::FIRST,
            outstanding: 0,
            owed_since: None,
            repeats: 0,
            close: None,
            is_close_acknowledged: false,
            credit: UNLIMITED,
            feedback: None,
            is_switch: false,
            uptake: Uptake::new(MemberSeq::FIRST),
            rounds: Rounds::default(),
        }
    }

    /// Adds a frame of the peer that is sent at `now`, and returns its number in this stream.
    pub(super) fn send(&mut self, now: Time, sequence: PeerSeq) -> MemberSeq {
        let number = self.sent.next();
        self.owed_since.get_or_insert(now);
        debug_assert!(self.close.is_none(), "a frame follows the Close");
        self.sent.push(sequence);
        self.outstanding += 1;
        number
    }

    /// Notes that a frame is sent again.
    pub(super) fn note_repeat(&mut self, number: MemberSeq) {
        self.rounds.note_repeat(number);
        if number == self.acknowledged {
            self.repeats = self.repeats.saturating_add(1);
        }
    }

    /// Looks at what the member takes at `now`. A frame has at most `frame_bytes_max`; after
    /// `limit` without room for one, or without an answer, the member counts as stalled. Room has
    /// no meaning for a member that is `leaving`.
    pub(super) fn watch(
        &mut self,
        now: Time,
        is_leaving: bool,
        frame_bytes_max: u32,
        limit: Duration,
    ) -> Option<Change> {
        let hindrance = Hindrance {
            has_no_room: !is_leaving && self.credit < frame_bytes_max,
            is_unanswered: match self.outstanding {
                0 => self.unacknowledged_close().is_some(),
                _ => self.repeats >= REPEATS,
            },
        };
        let limit = self.patience(limit);
        self.uptake.watch(now, self.acknowledged, hindrance, limit)
    }

    /// Returns the time for which the switch waits for this member. A switch has twice the time of
    /// a server, so that it can give up the member that takes nothing before it is given up itself.
    fn patience(&self, limit: Duration) -> Duration {
        limit * (1 + u32::from(self.is_switch))
    }

    /// Returns whether the member has kept what it was sent without an answer for `limit`.
    pub(super) fn is_stuck(&self, now: Time, limit: Duration) -> bool {
        self.uptake.held_for(now) >= self.patience(limit)
    }

    /// Returns what the member takes.
    pub(super) fn uptake(&self) -> &Uptake {
        &self.uptake
    }

    /// Returns the number that the next frame gets.
    pub(super) fn next_frame(&self) -> MemberSeq {
        self.sent.next()
    }

    /// Returns the number after the last frame, or after the Close.
    pub(super) fn next_number(&self) -> MemberSeq {
        let next = self.sent.next();
        next.plus(u32::from(self.close == Some(next)))
    }

    /// Returns the peer's number of a frame, unless the frame is forgotten.
    pub(super) fn peer_number(&self, number: MemberSeq) -> Option<PeerSeq> {
        self.sent.get(number).copied()
    }

    /// Returns the peer's number of the first unacknowledged frame.
    pub(super) fn first_unacknowledged(&self) -> Option<PeerSeq> {
        self.peer_number(self.acknowledged)
    }

    /// Returns the first number that the member has not acknowledged.
    pub(super) fn acknowledged(&self) -> MemberSeq {
        self.acknowledged
    }

    /// Returns the number of frames that were sent and are not acknowledged.
    pub(super) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Returns since when frames have been outstanding without a pause.
    pub(super) fn owed_since(&self) -> Option<Time> {
        self.owed_since
    }

    /// Acknowledges the first unacknowledged number. Returns the peer's number of the frame; `None`
    /// for the Close.
    pub(super) fn acknowledge_next(&mut self) -> Option<PeerSeq> {
        let number = self.acknowledged;
        debug_assert!(
            number.is_before(self.next_number()),
            "the member acknowledges a number that was never sent"
        );
        self.acknowledged = number.next();
        self.repeats = 0;
        self.is_close_acknowledged |= self.close == Some(number);
        let sequence = self.peer_number(number)?;
        self.outstanding -= 1;
        if self.outstanding == 0 {
            self.owed_since = None;
        }
        Some(sequence)
    }

    /// Forgets the first frames, as far as their numbers at the peer are before `base`.
    pub(super) fn forget_before(&mut self, base: PeerSeq) {
        while self.sent.front().is_some_and(|first| first.is_before(base)) {
            self.sent.pop();
        }
    }

    /// Returns the number of the switch's Close.
    pub(super) fn close(&self) -> Option<MemberSeq> {
        self.close
    }

    /// Ends the stream. Returns false if it has ended already.
    pub(super) fn begin_close(&mut self) -> bool {
        let is_first = self.close.is_none();
        self.close.get_or_insert(self.sent.next());
        is_first
    }

    /// Returns the number of the Close, if it was sent and is not acknowledged.
    pub(super) fn unacknowledged_close(&self) -> Option<MemberSeq> {
        self.close.filter(|_| !self.is_close_acknowledged)
    }

    pub(super) fn is_close_acknowledged(&self) -> bool {
        self.is_close_acknowledged
    }

    /// Returns the credit that the member grants, in bytes.
    pub(super) fn credit(&self) -> u32 {
        self.credit
    }

    /// Sets the credit that the member grants.
    pub(super) fn grant(&mut self, credit: u32) {
        self.credit = credit;
    }

    /// Records the credit of an acknowledgement, unless the acknowledgement is older than one that
    /// arrived before.
    pub(super) fn note_credit(&mut self, ack: &Acknowledgement<MemberSeq>) {
        if !ack.cumulative.is_before(self.acknowledged) {
            self.credit = ack.credit;
        }
    }

    /// Returns the average feedback of the member's acknowledgements.
    pub(super) fn feedback(&self) -> Option<WindowChange> {
        self.feedback
    }

    /// Adds an acknowledgement's feedback to the average.
    ///
    /// Feedback that a later switch has averaged replaces the average. Two averages in a row would
    /// lag by more than a round trip where the slowest member has few frames in flight, and the
    /// peer's window would oscillate.
    pub(super) fn note_feedback(&mut self, latest: Feedback) {
        self.is_switch |= latest.averaged;
        let average = match self.feedback {
            Some(average) if !latest.averaged => average.bytes(),
            _ => latest.change.bytes(),
        };
        let change = FEEDBACK_WEIGHT * (latest.change.bytes() - average);
        self.feedback = Some(WindowChange::from_bytes(average + change));
    }

    /// Records the Close that the peer sends with number `close`, and that passes unchanged.
    pub(super) fn note_close(&mut self, close: MemberSeq) {
        self.close = Some(close);
    }
}
