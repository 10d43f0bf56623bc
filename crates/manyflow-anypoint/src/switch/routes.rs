//! Where each of the peer's frames went.

use super::MemberId;
use super::sequence::{MemberSeq, Sequence};

/// Who has a frame of the peer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// This member was sent the frame.
    Member(MemberId),
    /// The frame's member has failed. The peer's retransmission goes to another one.
    Nobody,
    /// The number is that of the peer's Close, which each member gets.
    All,
}

/// Where a frame of the peer went, and what its member has said of it.
#[derive(Copy, Clone, Debug)]
pub(super) struct Route {
    owner: Owner,
    /// The frame's number in its member's stream.
    number: MemberSeq,
    /// That stream's next number when the frame was last sent: frames from there on were sent
    /// later.
    sent_before: MemberSeq,
    /// The member has the frame, or holds it beyond a gap, according to its last answer.
    is_answered: bool,
    is_acknowledged: bool,
}

impl Route {
    /// The route of a frame that is sent for the first time, under this number.
    pub(super) fn new(owner: Owner, number: MemberSeq) -> Route {
        Route {
            owner,
            number,
            sent_before: number.next(),
            is_answered: false,
            is_acknowledged: false,
        }
    }

    pub(super) fn owner(&self) -> Owner {
        self.owner
    }

    /// The frame's number in its member's stream.
    pub(super) fn number(&self) -> MemberSeq {
        self.number
    }

    /// Whether the member has the frame for good.
    pub(super) fn is_acknowledged(&self) -> bool {
        self.is_acknowledged
    }

    /// The frame is sent again, when the next number of its member's stream is `next`.
    pub(super) fn repeat(&mut self, next: MemberSeq) {
        debug_assert!(!next.is_before(self.sent_before));
        self.sent_before = next;
        self.is_answered = false;
    }

    /// The member answers the frame. Returns false if it did before.
    pub(super) fn answer(&mut self) -> bool {
        !core::mem::replace(&mut self.is_answered, true)
    }

    /// The member has the frame for good.
    pub(super) fn acknowledge(&mut self) {
        self.is_acknowledged = true;
    }

    /// Whether a report that the frame is missing is news, if it came with the answer to frame
    /// `of`: the frame was not sent again after that one.
    pub(super) fn is_lost(&self, of: MemberSeq) -> bool {
        !self.is_acknowledged && !of.is_before(self.sent_before)
    }

    /// The member has failed. Returns whether it leaves the frame to others.
    pub(super) fn abandon(&mut self, failed: MemberId) -> bool {
        let is_left = !self.is_acknowledged && self.owner == Owner::Member(failed);
        if is_left {
            self.owner = Owner::Nobody;
        }
        is_left
    }
}
