//! Round trips between the switch and one member, of one frame at a time.

use super::super::policy::Round;
use super::super::sequence::MemberSeq;
use manyflow_core::time::Time;

/// Measures one round trip after another.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// The frame that is timed, and when it was sent.
    timed: Option<(MemberSeq, Time)>,
    /// The answers since then.
    answers: u32,
}

impl Rounds {
    /// Notes a frame that is sent for the first time. It is timed unless another one is.
    pub(super) fn note_sent(&mut self, number: MemberSeq, now: Time) {
        if self.timed.is_none() {
            (self.timed, self.answers) = (Some((number, now)), 0);
        }
    }

    /// Notes a frame that is sent again: its answer would not tell which transmission it answers
    /// (Karn's rule, RFC 6298 section 3).
    pub(super) fn note_repeat(&mut self, number: MemberSeq) {
        self.timed = self.timed.filter(|(timed, _)| *timed != number);
    }

    /// Notes the first answer to a frame. Returns the round trip that it ends.
    pub(super) fn note_answer(&mut self, number: MemberSeq, now: Time) -> Option<Round> {
        self.answers += 1;
        let (_, sent) = self.timed.take_if(|(timed, _)| *timed == number)?;
        Some(Round {
            rtt: now - sent,
            answers: self.answers,
        })
    }
}
