//! The route of each of the peer's frames.

use super::MemberId;
use super::sequence::{MemberSeq, Sequence};

/// The receiver of a frame of the peer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The switch has sent the frame to this member.
    Member(MemberId),
    /// The frame's member has failed. The peer's retransmission goes to another member.
    Nobody,
    /// The number is that of the peer's Close, which goes to every member.
    All,
    /// The frame was for a member that does not exist or no longer exists. It counts as
    /// acknowledged.
    Dropped,
}

/// The member that a frame of the peer went to, and that member's answers.
#[derive(Copy, Clone, Debug)]
pub(super) struct Route {
    owner: Owner,
    /// The frame's number in its member's stream.
    number: MemberSeq,
    /// The next number of that stream when the frame was last sent. Frames from that number on were
    /// sent later.
    sent_before: MemberSeq,
    /// The member has answered the frame since it was last sent: the member has it, or holds it
    /// beyond a gap.
    is_answered: bool,
    /// The member's cumulative acknowledgement covers the frame.
    is_acknowledged: bool,
}

impl Route {
    /// Creates the route of a frame that is sent for the first time, with this number.
    pub(super) fn new(owner: Owner, number: MemberSeq) -> Route {
        Route {
            owner,
            number,
            sent_before: number.next(),
            is_answered: false,
            is_acknowledged: false,
        }
    }

    /// Creates the route of a frame that no member gets.
    pub(super) fn dropped() -> Route {
        let mut route = Route::new(Owner::Dropped, MemberSeq::FIRST);
        route.acknowledge();
        route
    }

    pub(super) fn owner(&self) -> Owner {
        self.owner
    }

    /// Returns the frame's number in its member's stream.
    pub(super) fn number(&self) -> MemberSeq {
        self.number
    }

    /// Returns whether the member's cumulative acknowledgement covers the frame.
    pub(super) fn is_acknowledged(&self) -> bool {
        self.is_acknowledged
    }

    /// Notes that the frame is sent again. `next` is the next number of its member's stream.
    pub(super) fn repeat(&mut self, next: MemberSeq) {
        debug_assert!(!next.is_before(self.sent_before));
        self.sent_before = next;
        self.is_answered = false;
    }

    /// Notes that the member has answered the frame. Returns false if it did so before.
    pub(super) fn answer(&mut self) -> bool {
        !core::mem::replace(&mut self.is_answered, true)
    }

    /// Notes that the member's cumulative acknowledgement covers the frame.
    pub(super) fn acknowledge(&mut self) {
        self.is_acknowledged = true;
    }

    /// Returns whether a report that the frame is missing is new. The report came with the answer
    /// to frame `of`; it is new if the frame was not sent again after that one.
    pub(super) fn is_lost(&self, of: MemberSeq) -> bool {
        !self.is_acknowledged && !of.is_before(self.sent_before)
    }

    /// Gives up the route of a frame if `failed` was its member and did not acknowledge it. Returns
    /// whether it was.
    pub(super) fn abandon(&mut self, failed: MemberId) -> bool {
        let is_left = !self.is_acknowledged && self.owner == Owner::Member(failed);
        if is_left {
            self.owner = Owner::Nobody;
        }
        is_left
    }
}
