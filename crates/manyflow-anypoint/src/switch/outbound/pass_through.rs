//! The outbound direction while everything passes unchanged. The switch watches it like the inbound
//! one.

use super::super::ONLY_MEMBER;
use super::super::acknowledgement::Acknowledgement;
use super::super::numbered::Numbered;
use super::super::sent::{Retransmitter, Sent};
use super::super::sequence::{MemberSeq, PeerSeq, Sequence};
use super::Outbound;
use crate::Payload;
use manyflow_core::time::Time;

impl<P: Payload + Default> Outbound<P> {
    /// Watches an Open or an Accept of the peer, which grants this credit unless an acknowledgement
    /// has replaced it.
    pub(in super::super) fn watch_opening(&mut self, credit: u32) {
        if self.sent.base() == PeerSeq::FIRST {
            self.credit.grant(credit);
            self.streams[ONLY_MEMBER.index()].grant(credit);
        }
    }

    /// Watches an acknowledgement of the peer, which passes unchanged.
    pub(in super::super) fn watch_ack(&mut self, ack: &Acknowledgement<PeerSeq>) {
        self.note_ack(ack);
        self.streams[ONLY_MEMBER.index()].grant(self.credit.granted());
    }

    /// Watches a frame or a Close of the only member. All lower numbers have passed as well, or
    /// were lost before they reached the switch.
    pub(in super::super) fn watch_numbered(
        &mut self,
        now: Time,
        sequence: MemberSeq,
        item: Numbered<P>,
    ) {
        let number = sequence.passed_to_peer();
        let stream = &mut self.streams[ONLY_MEMBER.index()];
        if let Numbered::Frame(data, payload) = &item {
            stream.note_header(now, data.congestion, payload.length());
        }
        let is_new = !number.is_before(self.sent.next());
        if !self.sent.reaches(number) || (is_new && stream.is_closed()) {
            return;
        }
        while self.sent.next().is_before(number) {
            self.watch_next();
        }
        if matches!(item, Numbered::Close) && is_new {
            self.streams[ONLY_MEMBER.index()].note_close(sequence);
            self.close = Some(number);
            let close = Sent::new(Retransmitter::Switch, number, Some(item));
            self.sent.push(close);
        } else {
            if is_new {
                self.watch_next();
            }
            self.keep(number, |sent| sent.keep(item));
        }
        let next = self.sent.next().passed_to_member();
        self.streams[ONLY_MEMBER.index()].skip_to(next);
    }

    /// Records the next number as that of a frame of the only member.
    fn watch_next(&mut self) {
        let number = self.sent.next();
        let sequence = self.streams[ONLY_MEMBER.index()].forward(number);
        debug_assert_eq!(sequence, number.passed_to_member());
        let retransmitter = Retransmitter::Member(ONLY_MEMBER, sequence);
        self.sent.push(Sent::new(retransmitter, number, None));
    }
}
