//! The outbound direction: the members' frames to the peer, and the peer's acknowledgements to the
//! members.

mod credit;
mod fallback;
mod pass_through;
mod stream;

use super::acknowledgement::Acknowledgement;
use super::context::Context;
use super::ensemble::Ensemble;
use super::numbered::Numbered;
use super::reorder::Arrival;
use super::ring::Ring;
use super::sent::{Retransmitter, Sent};
use super::sequence::{MemberSeq, PeerSeq, Sequence};
use super::transform::{self, Aggregate};
use super::{Leg, MemberId, Scaling, SwitchConfig};
use crate::frame::FLIGHT_FRAMES_MAX;
use crate::frame::frame_header_bytes;
use crate::{Body, Payload};
use credit::PeerCredit;
use fallback::Fallback;
use manyflow_core::time::Time;
use manyflow_core::xcp::{Congestion, Feedback, WindowChange};
use stream::Stream;

/// The most frames of failed members that are sent again at a time, so that they do not form a
/// burst.
const ORPHANS_AT_ONCE: usize = 64;

/// The frame that an acknowledgement of the peer answers.
struct Answered {
    retransmitter: Retransmitter,
    bytes: u32,
    /// fdbk_src: the feedback that the member asked for with the frame.
    asked: WindowChange,
    /// An XCP router between the member and the switch has handled the frame.
    is_marked: bool,
    /// The frame was not answered before.
    is_first: bool,
}

impl Answered {
    fn new<P: Payload>(sent: &Sent<P>) -> Answered {
        Answered {
            retransmitter: sent.retransmitter(),
            bytes: sent.bytes(),
            asked: sent.asked(),
            is_marked: sent.is_marked(),
            is_first: !sent.is_answered(),
        }
    }
}

/// The direction from the members to the peer.
#[derive(Debug)]
pub(super) struct Outbound<P> {
    scaling: Scaling,
    held_frames_max: u32,
    /// The stream from each member.
    streams: Vec<Stream<P>>,
    /// The frames towards the peer, from the first that it has not acknowledged.
    sent: Ring<PeerSeq, Sent<P>>,
    /// The sum of the latest headers of the sending members.
    aggregate: Aggregate,
    /// The window where no XCP router answers; `None` if there is no fallback.
    fallback: Option<Fallback>,
    credit: PeerCredit,
    /// The number of the switch's Close to the peer.
    close: Option<PeerSeq>,
}

impl<P: Payload + Default> Outbound<P> {
    /// Creates a direction without members. The peer grants `credit` bytes.
    pub(super) fn new(config: &SwitchConfig, credit: u32) -> Outbound<P> {
        Outbound {
            scaling: config.scaling,
            held_frames_max: config.held_frames_max,
            streams: Vec::new(),
            sent: Ring::new(),
            aggregate: Aggregate::default(),
            fallback: config.fallback.then(Fallback::new),
            credit: PeerCredit::new(credit),
            close: None,
        }
    }

    /// Adds the stream from the member with the next number.
    pub(super) fn add_member(&mut self) {
        self.streams.push(Stream::new(self.held_frames_max));
    }

    /// Handles a frame or the Close from a member. Unless `may_pass`, the item waits without an
    /// answer: the connection is not accepted, or the member's Accept has not arrived yet.
    pub(super) fn handle_numbered(
        &mut self,
        cx: &mut Context<'_, P>,
        id: MemberId,
        sequence: MemberSeq,
        item: Numbered<P>,
        may_pass: bool,
    ) {
        let stream = &mut self.streams[id.index()];
        if let Numbered::Frame(data, payload) = &item {
            stream.note_header(cx.now, data.congestion, payload.length());
        }
        if stream.is_beyond_close(sequence) {
            return;
        }
        let arrival = stream.classify(sequence);
        if !may_pass {
            if matches!(arrival, Arrival::Next | Arrival::Beyond) {
                stream.hold(sequence, item);
            }
            return;
        }
        match arrival {
            Arrival::Known => self.repeat(cx, id, sequence, item),
            // No frame follows the Close that was sent to the peer.
            _ if self.sent.is_full() || self.close.is_some() => {}
            Arrival::Next if self.has_room(cx.members, id, &item) => {
                self.forward_all(cx, id, item);
            }
            Arrival::Next | Arrival::Beyond => {
                self.streams[id.index()].hold(sequence, item);
                self.acknowledge(cx, id, sequence, Feedback::default());
            }
            Arrival::TooFar => {}
        }
    }

    /// Forwards the frames that do not wait for an earlier one: their members sent them before the
    /// connection was accepted, or there was no room for them.
    pub(super) fn forward_waiting(&mut self, cx: &mut Context<'_, P>) {
        for id in cx.members.open() {
            if !self.sent.is_full()
                && let Some(first) = self.streams[id.index()].take_next()
            {
                self.forward_all(cx, id, first);
            }
        }
    }

    /// Forwards a member's next frame, and the held frames that follow it, as far as the member was
    /// granted room for them.
    fn forward_all(&mut self, cx: &mut Context<'_, P>, id: MemberId, first: Numbered<P>) {
        let mut next = Some(first);
        while let Some(item) = next {
            if !self.has_room(cx.members, id, &item) {
                self.streams[id.index()].hold_next(item);
                break;
            }
            let stream = &mut self.streams[id.index()];
            if matches!(item, Numbered::Close) {
                stream.close_next();
                self.acknowledge_close(cx, id);
                self.close_to_peer(cx);
                return;
            }
            next = stream.advance();
            self.forward(cx, id, item);
        }
        debug_assert!(
            self.sent.len() <= FLIGHT_FRAMES_MAX as usize + self.held_frames_max as usize,
            "more frames are kept than may be in flight"
        );
    }

    /// Returns whether a member was granted room at the peer for its next element, or can be now.
    ///
    /// A member exceeds its grant only if it does not know yet that the grant was reduced.
    fn has_room(&mut self, members: &Ensemble, id: MemberId, item: &Numbered<P>) -> bool {
        if self.streams[id.index()].has_room(item.bytes()) {
            return true;
        }
        let credit = self.credit_for(members, id);
        let stream = &mut self.streams[id.index()];
        stream.grant(credit.max(stream.granted()));
        stream.has_room(item.bytes())
    }

    /// Gives a member's frame the next number towards the peer, and sends it.
    fn forward(&mut self, cx: &mut Context<'_, P>, id: MemberId, item: Numbered<P>) {
        let number = self.sent.next();
        let sequence = self.streams[id.index()].forward(number);
        let retransmitter = Retransmitter::Member(id, sequence);
        self.sent.push(Sent::new(retransmitter, number, None));
        self.send_item(cx, number, item);
    }

    /// Handles a frame that was forwarded before: the frame, or its acknowledgement, was lost.
    fn repeat(
        &mut self,
        cx: &mut Context<'_, P>,
        id: MemberId,
        sequence: MemberSeq,
        item: Numbered<P>,
    ) {
        let stream = &mut self.streams[id.index()];
        if let Some(number) = stream.peer_number(sequence) {
            stream.note_arrived(sequence);
            self.note_loss(number);
            self.send_item(cx, number, item);
        } else if !stream.is_pending_close(sequence) {
            self.acknowledge(cx, id, sequence, Feedback::default());
        }
    }

    /// Sends an element that has a number towards the peer, and keeps it.
    fn send_item(&mut self, cx: &mut Context<'_, P>, number: PeerSeq, mut item: Numbered<P>) {
        let mut own = Congestion::default();
        if let Numbered::Frame(data, _) = &mut item {
            own = data.congestion;
            data.congestion = Congestion {
                // The peer's acknowledgement is to show whether a router between switch and peer
                // answers.
                answered: false,
                ..self.merge_headers(cx.now, cx.members, own)
            };
        }
        let (body, payload) = item.to_packet(number);
        let next = self.sent.next();
        self.keep(number, |sent| sent.send(next, own, item));
        cx.out.send_with(Leg::Peer, body, payload);
    }

    /// Puts a frame into the state of a number by `change`, and counts the frame's bytes.
    fn keep(&mut self, number: PeerSeq, change: impl FnOnce(&mut Sent<P>)) {
        if let Some(sent) = self.sent.get_mut(number) {
            let before = sent.bytes();
            change(sent);
            if let Retransmitter::Member(id, _) = sent.retransmitter() {
                self.streams[id.index()].count_bytes(before, sent.bytes());
            }
        }
    }

    /// Returns the header for the peer, which describes everything that the service sends.
    fn merge_headers(&mut self, now: Time, members: &Ensemble, own: Congestion) -> Congestion {
        let all = members.all().zip(&self.streams);
        let open = all.filter(|(id, _)| members.is_open(*id));
        self.aggregate = Aggregate::of(open.filter_map(|(_, stream)| stream.sending(now)));
        transform::merge_data(own, &self.aggregate, self.scaling)
    }

    /// Handles an acknowledgement of the peer: passes it to the member whose frame it answers.
    /// Returns true if it answers a frame of the switch itself.
    pub(super) fn handle_ack(
        &mut self,
        cx: &mut Context<'_, P>,
        ack: &Acknowledgement<PeerSeq>,
    ) -> bool {
        let answered = self.sent.get(ack.of).map(Answered::new);
        if !self.note_ack(ack) {
            return false;
        }
        for number in ack.missing_before(self.sent.next()) {
            self.handle_missing(cx, number, ack.of);
        }
        let mut informed = None;
        if let Some(answered) = &answered
            && let Retransmitter::Member(id, sequence) = answered.retransmitter
        {
            let feedback = self.feedback_for_member(cx.now, id, ack.of, answered, ack.feedback);
            self.acknowledge(cx, id, sequence, feedback);
            informed = Some(id);
        }
        self.acknowledge_progress(cx, informed);
        self.offer_credit(cx);
        self.forward_waiting(cx);
        answered.is_some_and(|answered| answered.retransmitter == Retransmitter::Switch)
    }

    /// Returns the feedback for a member's frame, which the peer knows by `number` and answers with
    /// `feedback`.
    fn feedback_for_member(
        &mut self,
        now: Time,
        id: MemberId,
        number: PeerSeq,
        answered: &Answered,
        feedback: Feedback,
    ) -> Feedback {
        let mut change = feedback.change;
        if let Some(fallback) = &mut self.fallback
            && answered.is_first
        {
            let wire_bytes = answered.bytes + frame_header_bytes();
            let base = self.sent.base();
            let all = &self.aggregate;
            let limit = fallback.on_answer(now, feedback.answered, wire_bytes, base, all);
            let limit = limit.map(
                |limit| match self.streams[id.index()].reduces_itself(number) {
                    true => limit.max(WindowChange::default()),
                    false => limit,
                },
            );
            change = limit.map_or(change, |limit| limit.min(change));
        }
        let mut member = self.streams[id.index()].latest();
        member.header.feedback = answered.asked;
        Feedback {
            change: transform::split_ack(
                change,
                answered.bytes,
                &member,
                &self.aggregate,
                self.scaling,
            ),
            answered: feedback.answered || answered.is_marked,
            averaged: feedback.averaged,
        }
    }

    /// Records an acknowledgement of the peer. Returns false if it covers frames that were not
    /// sent.
    ///
    /// Only its cumulative number is final (RFC 2018 section 8), and the peer's credit counts from
    /// there.
    fn note_ack(&mut self, ack: &Acknowledgement<PeerSeq>) -> bool {
        if !ack.is_possible(self.sent.next()) {
            return false;
        }
        if !ack.cumulative.is_before(self.sent.base()) {
            self.credit.grant(ack.credit);
        }
        if let Some(sent) = self.sent.get_mut(ack.of) {
            sent.answer();
            if let Retransmitter::Member(id, sequence) = sent.retransmitter() {
                self.streams[id.index()].note_arrived(sequence);
            }
        }
        while self.sent.base().is_before(ack.cumulative)
            && let Some(sent) = self.sent.pop()
        {
            self.forget(&sent);
        }
        true
    }

    /// Forgets a frame that the peer's cumulative acknowledgement now covers.
    fn forget(&mut self, sent: &Sent<P>) {
        match sent.retransmitter() {
            Retransmitter::Member(id, sequence) => {
                self.streams[id.index()].forget(sequence, sent.bytes());
            }
            Retransmitter::Switch => self.credit.release_orphan(sent.bytes()),
        }
    }

    /// Acknowledges to each member the frames that the peer has cumulatively acknowledged since the
    /// member's last acknowledgement, except to the member that was `informed` already.
    ///
    /// Without this, a member would retransmit frames that only waited for another member's frame.
    fn acknowledge_progress(&mut self, cx: &mut Context<'_, P>, informed: Option<MemberId>) {
        for id in cx.members.all() {
            let stream = &mut self.streams[id.index()];
            if stream.take_progress() {
                if stream.is_closed() {
                    self.acknowledge_close(cx, id);
                } else if informed != Some(id) {
                    self.repeat_acknowledgement(cx, id);
                }
            }
        }
    }

    /// Acknowledges a member's Close, if all of its frames are acknowledged.
    fn acknowledge_close(&mut self, cx: &mut Context<'_, P>, id: MemberId) {
        if let Some(close) = self.streams[id.index()].completed_close() {
            self.acknowledge(cx, id, close, Feedback::default());
        }
    }

    /// Handles a missing frame, which the peer reports with the answer to frame `of`. A member gets
    /// the report with its next acknowledgement; the switch retransmits its own frames at once.
    fn handle_missing(&mut self, cx: &mut Context<'_, P>, number: PeerSeq, of: PeerSeq) {
        let Some(sent) = self.sent.get(number).filter(|sent| sent.is_lost(of)) else {
            return;
        };
        let retransmitter = sent.retransmitter();
        self.note_loss(number);
        match retransmitter {
            Retransmitter::Member(id, sequence) => {
                self.streams[id.index()].note_missing(sequence);
            }
            Retransmitter::Switch => self.send_again(cx, number),
        }
    }

    /// Notes that a frame was lost between the switch and the peer.
    fn note_loss(&mut self, number: PeerSeq) {
        if let Some(fallback) = &mut self.fallback
            && let Some(sent) = self.sent.get(number)
        {
            let (sent_before, next) = (sent.sent_before(), self.sent.next());
            fallback.on_loss(sent_before, next);
            if let Retransmitter::Member(id, _) = sent.retransmitter() {
                self.streams[id.index()].note_loss(sent_before, next);
            }
        }
    }

    fn send_again(&mut self, cx: &mut Context<'_, P>, number: PeerSeq) {
        let item = self.sent.get(number).and_then(Sent::item);
        if let Some(item) = item.cloned() {
            self.send_item(cx, number, item);
        }
    }

    /// Acknowledges frame `of` to its member.
    fn acknowledge(
        &mut self,
        cx: &mut Context<'_, P>,
        id: MemberId,
        of: MemberSeq,
        feedback: Feedback,
    ) {
        let credit = self.credit_for(cx.members, id);
        let stream = &mut self.streams[id.index()];
        debug_assert!(
            stream
                .first_unacknowledged()
                .is_none_or(|first| !first.is_before(self.sent.base())),
            "{id:?} was not sent the acknowledgement of a frame that the peer has"
        );
        let ack = stream.acknowledge(of, credit, feedback);
        cx.out.send(Leg::Member(id), ack.to_body());
    }

    /// Grants credit to members that may send much more than they were granted, by an
    /// acknowledgement of their last frame.
    ///
    /// The minimum that is worth a packet is half of a member's part. Otherwise one member would
    /// get the room of others in small pieces (RFC 9293 section 3.8.6.2.2).
    fn offer_credit(&mut self, cx: &mut Context<'_, P>) {
        let Some(part) = self.credit.limited_part(cx.members) else {
            return;
        };
        for id in cx.members.all() {
            let granted = self.streams[id.index()].granted();
            let worth = granted.saturating_add(part / 2).max(1);
            if self.credit_for(cx.members, id) >= worth {
                self.repeat_acknowledgement(cx, id);
            }
        }
    }

    /// Acknowledges the last frame of an open member that has reached the peer, if there is one.
    pub(super) fn repeat_acknowledgement(&mut self, cx: &mut Context<'_, P>, id: MemberId) {
        let cumulative = self.streams[id.index()].cumulative();
        if cx.members.is_open(id) && cumulative != MemberSeq::FIRST {
            let last = cumulative.previous();
            self.acknowledge(cx, id, last, Feedback::default());
        }
    }

    /// Closes the stream to the peer, if all members have closed theirs.
    pub(super) fn close_to_peer(&mut self, cx: &mut Context<'_, P>) {
        let some_closed = self.streams.iter().any(Stream::is_closed);
        let mut active = cx.members.active().map(|id| &self.streams[id.index()]);
        if self.close.is_some() || !some_closed || !active.all(Stream::is_closed) {
            return;
        }
        let number = self.sent.next();
        self.close = Some(number);
        let close = Sent::new(Retransmitter::Switch, number, Some(Numbered::Close));
        self.sent.push(close);
        let sequence = number.to_wire();
        cx.out.send(Leg::Peer, Body::Close { sequence });
    }

    /// Takes over the frames of a failed member. Returns false if one of them never reached the
    /// switch, so that it cannot be sent again.
    pub(super) fn adopt(&mut self, failed: MemberId) -> bool {
        let mut is_complete = true;
        for (_, sent) in self.sent.iter_mut() {
            if sent.adopt(failed) {
                self.credit.charge_orphan(sent.bytes());
                is_complete &= sent.item().is_some();
            }
        }
        is_complete
    }

    /// Retransmits the first frames that only the switch can retransmit. A frame that the peer has
    /// answered is sent again only if it is the one that holds the peer's cumulative number back.
    pub(super) fn send_orphans(&mut self, cx: &mut Context<'_, P>) {
        let base = self.sent.base();
        let orphans = self.sent.iter_mut().filter(|(number, sent)| {
            sent.is_unanswered_orphan() || (*number == base && sent.is_orphan())
        });
        let numbers = orphans.map(|(number, _)| number);
        let due: Vec<PeerSeq> = numbers.take(ORPHANS_AT_ONCE).collect();
        for number in due {
            self.send_again(cx, number);
        }
    }

    /// Returns the credit that a member may be granted: its part of the peer's credit (section V),
    /// but at most what the grants of the other members, and the room that is reserved for members
    /// that wait to join, leave.
    ///
    /// Without the second limit, room that was granted when the peer had more would be granted
    /// twice. Without the reserve, members that always have something to send could use all that
    /// the peer frees, and a member that joins would wait as long as they send.
    pub(super) fn credit_for(&self, members: &Ensemble, id: MemberId) -> u32 {
        let waiting = members.waiting().count() as u32;
        let reserve = self.credit.part_of_buffer(members).saturating_mul(waiting);
        let part = self.credit.part(members);
        self.credit
            .within(part, self.granted_to_others(members, id), reserve)
    }

    /// Returns the first credit for a member that waits to join: its part of the peer's receive
    /// buffer, but at most what the grants of the other members leave.
    pub(super) fn credit_for_joining(&self, members: &Ensemble, id: MemberId) -> u32 {
        let part = self.credit.part_of_buffer(members);
        self.credit
            .within(part, self.granted_to_others(members, id), 0)
    }

    /// Reduces each larger grant to a part of the peer's credit, and reports that to the member. No
    /// frame may be on its way to the peer.
    ///
    /// A sender must cope with a smaller credit (RFC 9293 section 3.8.6). But it may have sent more
    /// before, and the report may be lost. Frames beyond the grant wait at the switch for room.
    pub(super) fn reduce_grants(&mut self, cx: &mut Context<'_, P>) {
        debug_assert!(
            self.is_idle(),
            "a grant that frames use cannot be taken back"
        );
        let part = self.credit.part(cx.members);
        for id in cx.members.all() {
            let stream = &mut self.streams[id.index()];
            if stream.granted() > part {
                stream.grant(part);
                self.repeat_acknowledgement(cx, id);
            }
        }
    }

    /// Iterates over the bytes that the other members were granted and may still use.
    fn granted_to_others(&self, members: &Ensemble, id: MemberId) -> impl Iterator<Item = u32> {
        let others = members.active().filter(move |other| *other != id);
        let senders = others.map(|other| &self.streams[other.index()]);
        let granted = senders.filter(|stream| !stream.has_sent_all());
        granted.map(Stream::granted)
    }

    /// Returns the peer's credit.
    pub(super) fn credit(&self) -> &PeerCredit {
        &self.credit
    }

    /// Takes the larger credit in bytes of an opening that the peer repeats, unless an
    /// acknowledgement has replaced it. Returns whether it is larger.
    pub(super) fn renew_credit(&mut self, credit: u32) -> bool {
        let is_larger = credit > self.credit.granted() && self.sent.base() == PeerSeq::FIRST;
        if is_larger {
            self.credit.renew(credit);
        }
        is_larger
    }

    /// Records the credit in bytes that a member gets with its Open.
    pub(super) fn grant(&mut self, id: MemberId, credit: u32) {
        self.streams[id.index()].grant(credit);
    }

    /// Returns the bytes that a member was granted.
    pub(super) fn granted(&self, id: MemberId) -> u32 {
        self.streams[id.index()].granted()
    }

    /// Returns whether everything that the member sends, its Close included, has reached the peer.
    pub(super) fn has_sent_all(&self, id: MemberId) -> bool {
        self.streams[id.index()].has_sent_all()
    }

    /// Returns the numbers that the member's stream has reached at the switch and at the peer, for
    /// comparisons.
    pub(super) fn marks(&self, id: MemberId) -> [u32; 2] {
        self.streams[id.index()].marks()
    }

    /// Returns whether the stream to the peer was closed.
    pub(super) fn is_closed(&self) -> bool {
        self.close.is_some()
    }

    /// Returns whether the peer has acknowledged everything that was sent so far.
    pub(super) fn is_idle(&self) -> bool {
        self.sent.is_empty()
    }
}
