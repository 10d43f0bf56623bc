//! The inbound direction while everything passes unchanged.
//!
//! The switch watches the passing segments nevertheless: if a second member joins, renumbering
//! starts from the numbers that the only member and the peer have reached. Until then both sides
//! have the same numbers.

use super::super::acknowledgement::Acknowledgement;
use super::super::context::Context;
use super::super::routes::{Owner, Route};
use super::super::sequence::{MemberSeq, PeerSeq, Sequence};
use super::super::{MemberId, ONLY_MEMBER, RoundRobin};
use super::Inbound;
use crate::{Data, Payload};
use manyflow_core::time::Time;

impl<P: Payload + Default> Inbound<P> {
    /// Watches a frame that passes unchanged.
    pub(in super::super) fn watch_frame(&mut self, now: Time, data: &Data, bytes: u32) {
        self.source = data.congestion;
        self.watch_numbered(now, PeerSeq::from_wire(data.sequence), Some(bytes));
    }

    /// Watches the peer's Close, which passes unchanged.
    pub(in super::super) fn watch_close(&mut self, now: Time, sequence: PeerSeq) {
        self.watch_numbered(now, sequence, None);
    }

    /// Watches an acknowledgement of the only member, which passes unchanged.
    pub(in super::super) fn watch_ack(
        &mut self,
        cx: &mut Context<'_, P>,
        ack: &Acknowledgement<MemberSeq>,
    ) {
        self.reported_credit = ack.credit;
        // One member leaves nothing to choose, and nothing to learn.
        let policy = &mut RoundRobin::default();
        if self.note_ack(cx.now, policy, ONLY_MEMBER, ack) {
            // The passing acknowledgement itself tells the peer that its Close has arrived.
            self.advance(cx);
        }
    }

    /// Watches a frame of `bytes`, or a Close (`None`). All lower numbers have passed as well, or
    /// were lost before they reached the switch.
    fn watch_numbered(&mut self, now: Time, sequence: PeerSeq, bytes: Option<u32>) {
        let is_new = !sequence.is_before(self.routes.next());
        if !self.routes.reaches(sequence) || (is_new && self.close.is_some()) {
            return;
        }
        if let Some(bytes) = bytes {
            self.ratios.count(ONLY_MEMBER, bytes);
        }
        while self.routes.next().is_before(sequence)
            || (self.routes.next() == sequence && bytes.is_some())
        {
            self.watch_next(now, ONLY_MEMBER);
        }
        if is_new && bytes.is_none() {
            let passed = sequence.passed_to_member();
            self.close = Some(sequence);
            self.streams[ONLY_MEMBER.index()].note_close(passed);
            self.routes.push(Route::new(Owner::All, passed));
        }
        self.arrivals.skip_to(self.routes.next());
    }

    /// Records the next number as that of a frame to the member.
    fn watch_next(&mut self, now: Time, member: MemberId) {
        let sequence = self.routes.next();
        let number = self.streams[member.index()].send(now, sequence);
        debug_assert_eq!(number, sequence.passed_to_member());
        self.routes.push(Route::new(Owner::Member(member), number));
        self.candidates.note_sent(member);
    }
}
