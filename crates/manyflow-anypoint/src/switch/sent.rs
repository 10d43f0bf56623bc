//! The state of each frame on its way to the peer.

use super::MemberId;
use super::numbered::Numbered;
use super::sequence::{MemberSeq, PeerSeq, Sequence};
use crate::Payload;
use manyflow_core::xcp::{Congestion, WindowChange};

/// The sender that retransmits a frame to the peer when it is lost.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Retransmitter {
    /// The member, which knows the frame by this number.
    Member(MemberId, MemberSeq),
    /// The switch: the member has failed, or it is the switch's own Close.
    Switch,
}

/// A frame, or the Close, on its way to the peer.
#[derive(Debug)]
pub(super) struct Sent<P> {
    retransmitter: Retransmitter,
    /// The next number towards the peer when the frame was last sent. Frames from that number on
    /// were sent later.
    sent_before: PeerSeq,
    /// The peer has answered the frame since it was last sent: the peer has it, or holds it beyond
    /// a gap.
    is_answered: bool,
    /// fdbk_src: the feedback that the member asked for with the frame.
    asked: WindowChange,
    /// An XCP router between the member and the switch has handled the frame.
    is_marked: bool,
    /// The frame, kept until the peer acknowledges it, because its member may fail. `None` if the
    /// frame was lost before it reached the switch.
    item: Option<Numbered<P>>,
}

impl<P> Sent<P> {
    /// Creates the state of a frame with this number towards the peer.
    pub(super) fn new(
        retransmitter: Retransmitter,
        number: PeerSeq,
        item: Option<Numbered<P>>,
    ) -> Sent<P> {
        Sent {
            retransmitter,
            sent_before: number.next(),
            is_answered: false,
            asked: WindowChange::default(),
            is_marked: false,
            item,
        }
    }

    pub(super) fn retransmitter(&self) -> Retransmitter {
        self.retransmitter
    }

    /// Returns the feedback that the member asked for with the frame.
    pub(super) fn asked(&self) -> WindowChange {
        self.asked
    }

    /// Returns whether an XCP router between the member and the switch has handled the frame.
    pub(super) fn is_marked(&self) -> bool {
        self.is_marked
    }

    /// Returns the next number towards the peer when the frame was last sent.
    pub(super) fn sent_before(&self) -> PeerSeq {
        self.sent_before
    }

    /// Returns whether the peer has answered the frame since it was last sent.
    pub(super) fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// Returns the frame, if it has reached the switch.
    pub(super) fn item(&self) -> Option<&Numbered<P>> {
        self.item.as_ref()
    }

    /// Notes that the frame is sent. `next` is the next number towards the peer, `own` the header
    /// that came from the member.
    pub(super) fn send(&mut self, next: PeerSeq, own: Congestion, item: Numbered<P>) {
        debug_assert!(!next.is_before(self.sent_before));
        self.sent_before = next;
        self.is_answered = false;
        self.asked = own.feedback;
        self.is_marked = own.answered;
        self.item = Some(item);
    }

    /// Keeps a frame that has passed the switch unchanged.
    pub(super) fn keep(&mut self, item: Numbered<P>) {
        self.item = Some(item);
    }

    /// Notes that the peer has answered the frame.
    pub(super) fn answer(&mut self) {
        self.is_answered = true;
    }

    /// Returns whether a report that the frame is missing is new. The report came with the answer
    /// to frame `of`; it is new if the frame was not sent again after that one.
    pub(super) fn is_lost(&self, of: PeerSeq) -> bool {
        !of.is_before(self.sent_before)
    }

    /// Returns whether the switch retransmits the frame and the peer has not answered it.
    pub(super) fn is_unanswered_orphan(&self) -> bool {
        self.is_orphan() && !self.is_answered
    }

    /// Returns whether the switch retransmits the frame.
    pub(super) fn is_orphan(&self) -> bool {
        self.retransmitter == Retransmitter::Switch
    }

    /// Takes over a frame of a failed member. Returns whether the frame was that member's.
    pub(super) fn adopt(&mut self, failed: MemberId) -> bool {
        let is_its_own =
            matches!(self.retransmitter, Retransmitter::Member(owner, _) if owner == failed);
        if is_its_own {
            self.retransmitter = Retransmitter::Switch;
        }
        is_its_own
    }
}

impl<P: Payload> Sent<P> {
    /// Returns the bytes of the peer's credit that the frame takes.
    pub(super) fn bytes(&self) -> u32 {
        self.item.as_ref().map_or(0, Numbered::bytes)
    }
}
