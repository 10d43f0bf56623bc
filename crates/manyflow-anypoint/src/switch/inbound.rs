//! The inbound direction: the peer's frames to the members, and the members' acknowledgements to
//! the peer.

mod abandonment;
mod candidates;
mod pass_through;
mod rounds;
mod stream;
mod suspicion;
mod uptake;

use super::acknowledgement::Acknowledgement;
use super::context::Context;
use super::ensemble::{Ensemble, MemberState};
use super::missing::Missing;
use super::numbered::Numbered;
use super::ratios::Ratios;
use super::reorder::{Arrival, Reorder};
use super::ring::Ring;
use super::routes::{Owner, Route};
use super::sequence::{MemberSeq, PeerSeq, Sequence};
use super::{Leg, MemberId, Policy, Scaling, SwitchConfig, transform};
use crate::frame::FLIGHT_FRAMES_MAX;
use crate::{Body, Data, Payload, UNLIMITED};
use candidates::Candidates;
use manyflow_core::time::Time;
use manyflow_core::xcp::{Congestion, Feedback, WindowChange};
use stream::Stream;
use suspicion::Suspicion;
pub(super) use uptake::Change;
use uptake::HELD_LIMITS;

/// How often a larger credit is reported, once in each interval of the timer: reports may be lost.
const CREDIT_REPORTS: u8 = 3;

/// The direction from the peer to the members.
#[derive(Debug)]
pub(super) struct Inbound<P> {
    scaling: Scaling,
    /// See [`SwitchConfig::bound`].
    is_bound: bool,
    suspicion: Suspicion,
    /// The peer's frames, in the order of their numbers.
    arrivals: Reorder<PeerSeq, P>,
    /// The route of each frame, from the peer's first frame that its member has not acknowledged.
    routes: Ring<PeerSeq, Route>,
    /// Frames that were lost on the way to the switch or to a member, or that a failed member did
    /// not acknowledge.
    missing: Missing<PeerSeq>,
    /// The stream to each member.
    streams: Vec<Stream>,
    candidates: Candidates,
    ratios: Ratios,
    /// XCP's header of the peer's latest frame.
    source: Congestion,
    /// The number of the peer's Close.
    close: Option<PeerSeq>,
    /// The credit that the peer was last sent, in bytes.
    reported_credit: u32,
    /// How often a larger credit remains to be reported.
    reports_due: u8,
}

impl<P: Payload + Default> Inbound<P> {
    pub(super) fn new(config: &SwitchConfig) -> Inbound<P> {
        Inbound {
            scaling: config.scaling,
            is_bound: config.bound,
            suspicion: Suspicion::new(config),
            arrivals: Reorder::new(config.held_frames_max),
            routes: Ring::new(),
            missing: Missing::new(),
            streams: Vec::new(),
            candidates: Candidates::default(),
            ratios: Ratios::new(config.histogram_frames),
            source: Congestion::default(),
            close: None,
            reported_credit: UNLIMITED,
            reports_due: 0,
        }
    }

    /// Adds the stream to the member with the next number.
    pub(super) fn add_member(&mut self) {
        self.streams.push(Stream::new());
        self.ratios.add_member();
    }

    /// Handles a frame or the Close from the peer.
    pub(super) fn handle_numbered(
        &mut self,
        cx: &mut Context<'_, P>,
        policy: &mut dyn Policy<P>,
        sequence: PeerSeq,
        item: Numbered<P>,
    ) {
        if let Numbered::Frame(data, _) = &item {
            self.source = data.congestion;
        }
        if self.close.is_some_and(|close| close.is_before(sequence)) {
            return;
        }
        match self.arrivals.classify(sequence) {
            Arrival::Known => self.repeat(cx, policy, sequence, item),
            _ if !self.routes.reaches(sequence) => {}
            Arrival::Next if self.candidates.list().is_empty() => {}
            Arrival::Next => self.route_all(cx, policy, item),
            Arrival::Beyond => {
                self.arrivals.hold(sequence, item);
                self.missing.remove(sequence);
                self.missing.extend(self.arrivals.find_missing());
                self.acknowledge(cx, Some(sequence), Feedback::default());
            }
            Arrival::TooFar => {}
        }
    }

    /// Routes the next frame, and the held frames that follow it.
    fn route_all(
        &mut self,
        cx: &mut Context<'_, P>,
        policy: &mut dyn Policy<P>,
        first: Numbered<P>,
    ) {
        let mut next = Some(first);
        while let Some(item) = next {
            let sequence = self.arrivals.next();
            self.missing.remove(sequence);
            match item {
                Numbered::Frame(data, payload) => self.route(cx, policy, sequence, data, payload),
                Numbered::Close => {
                    self.close = Some(sequence);
                    self.routes.push(Route::new(Owner::All, MemberSeq::FIRST));
                    self.settle(cx);
                }
            }
            next = self.arrivals.advance();
            if self.close.is_some() {
                break;
            }
        }
        debug_assert!(
            self.routes.len() <= FLIGHT_FRAMES_MAX as usize + self.arrivals.limit() as usize,
            "the peer sent more frames than it may have in flight"
        );
    }

    /// Sends a frame to the member that the policy chooses, as the last of its stream.
    fn route(
        &mut self,
        cx: &mut Context<'_, P>,
        policy: &mut dyn Policy<P>,
        sequence: PeerSeq,
        data: Data,
        payload: P,
    ) {
        let place = policy.route(&data, &payload, self.candidates.list());
        if self.is_bound && place >= self.candidates.list().len() {
            return self.drop_frame(cx, sequence, &data);
        }
        let owner = self.candidates.charge(place);
        let stream = &mut self.streams[owner.index()];
        let number = stream.send(cx.now, sequence);
        stream.rounds.note_sent(number, cx.now);
        let route = Route::new(Owner::Member(owner), number);
        match self.routes.get_mut(sequence) {
            Some(known) => *known = route,
            None => self.routes.push(route),
        }
        self.send_frame(cx, owner, number, data, payload);
    }

    /// Handles a frame that was routed before: the frame, or its acknowledgement, was lost.
    fn repeat(
        &mut self,
        cx: &mut Context<'_, P>,
        policy: &mut dyn Policy<P>,
        sequence: PeerSeq,
        item: Numbered<P>,
    ) {
        let route = self.routes.get_mut(sequence);
        let Some(route) = route.filter(|route| !route.is_acknowledged()) else {
            self.acknowledge(cx, Some(sequence), Feedback::default());
            return;
        };
        let Numbered::Frame(data, payload) = item else {
            return;
        };
        match route.owner() {
            Owner::Member(owner) => {
                let number = route.number();
                let stream = &mut self.streams[owner.index()];
                route.repeat(stream.next_frame());
                stream.note_repeat(number);
                self.missing.remove(sequence);
                self.send_frame(cx, owner, number, data, payload);
                // Otherwise the frames of a member that takes nothing would fill the peer's window,
                // and keep it from sending to others. The answer promises nothing: only the
                // cumulative number is final.
                if self.is_stalled(owner) || self.is_suspected(cx, owner) {
                    self.acknowledge(cx, Some(sequence), Feedback::default());
                }
            }
            Owner::Nobody if !self.candidates.list().is_empty() => {
                self.missing.remove(sequence);
                self.route(cx, policy, sequence, data, payload);
            }
            Owner::Nobody | Owner::All | Owner::Dropped => {}
        }
    }

    fn send_frame(
        &mut self,
        cx: &mut Context<'_, P>,
        owner: MemberId,
        number: MemberSeq,
        data: Data,
        payload: P,
    ) {
        self.ratios.count(owner, payload.length());
        let ratio = self.ratios.of(owner);
        let data = Data {
            sequence: number.to_wire(),
            congestion: transform::split_data(data.congestion, ratio, self.scaling),
            ..data
        };
        cx.out
            .send_with(Leg::Member(owner), Body::Data(data), payload);
    }

    /// Handles a member's acknowledgement of frames, or of the Close that it was sent.
    pub(super) fn handle_ack(
        &mut self,
        cx: &mut Context<'_, P>,
        policy: &mut dyn Policy<P>,
        id: MemberId,
        ack: &Acknowledgement<MemberSeq>,
    ) {
        let stream = &self.streams[id.index()];
        let of = stream.peer_number(ack.of);
        let is_of_close = stream.close() == Some(ack.of);
        if !self.note_ack(cx.now, policy, id, ack) {
            return;
        }
        self.settle(cx);
        if !is_of_close {
            let feedback = Feedback {
                change: self.change_for_peer(cx.members, id, ack.feedback.change),
                averaged: self.source.rtt_us > 0,
                ..ack.feedback
            };
            self.acknowledge(cx, of, feedback);
        }
    }

    /// Records a member's acknowledgement. Returns false if it covers frames that were not sent.
    ///
    /// Only its cumulative number is final (RFC 2018 section 8): the member may be a switch, which
    /// acknowledges frames that it holds beyond a gap and can still lose.
    fn note_ack(
        &mut self,
        now: Time,
        policy: &mut dyn Policy<P>,
        id: MemberId,
        ack: &Acknowledgement<MemberSeq>,
    ) -> bool {
        let stream = &mut self.streams[id.index()];
        if !ack.is_possible(stream.next_number()) {
            return false;
        }
        stream.note_credit(ack);
        let is_repeated = !self.note_answer(now, policy, id, ack);
        while self.streams[id.index()]
            .acknowledged()
            .is_before(ack.cumulative)
        {
            self.acknowledge_next(policy, id);
        }
        self.note_missing(policy, id, ack);
        if is_repeated {
            self.report_awaited_first(id);
        }
        true
    }

    /// Records the answer to a frame. Returns false if the frame was answered before: feedback
    /// counts once for each frame, and the answer to a Probe or to a duplicate has no feedback of
    /// its own.
    fn note_answer(
        &mut self,
        now: Time,
        policy: &mut dyn Policy<P>,
        id: MemberId,
        ack: &Acknowledgement<MemberSeq>,
    ) -> bool {
        let stream = &mut self.streams[id.index()];
        if let Some(sequence) = stream.peer_number(ack.of)
            && let Some(route) = self.routes.get_mut(sequence)
            && route.answer()
        {
            stream.note_feedback(ack.feedback);
            self.missing.remove(sequence);
            policy.note_answer(id, ack.feedback);
            if let Some(round) = stream.rounds.note_answer(ack.of, now) {
                policy.note_round(id, round);
            }
            return true;
        }
        false
    }

    /// Makes the next report to the peer begin with the frame that the member waits for.
    ///
    /// The member has answered a probe or a duplicate, so it receives nothing new. After a failure,
    /// the frame that it waits for need not have the lowest number, and a member with a full buffer
    /// accepts no other.
    fn report_awaited_first(&mut self, id: MemberId) {
        if let Some(sequence) = self.streams[id.index()].first_unacknowledged() {
            self.missing.begin_with(sequence);
        }
    }

    /// Counts the frame that a silent member waits for as missing.
    ///
    /// If a retransmission to the member is lost and no later frame follows it, the member cannot
    /// report it. The peer retransmits the frame only if it has answers to later frames.
    pub(super) fn suspect_awaited(&mut self, id: MemberId) {
        if let Some(sequence) = self.streams[id.index()].first_unacknowledged() {
            self.missing.insert(sequence);
        }
        self.report_awaited_first(id);
    }

    /// Marks the member's first unacknowledged frame, or its Close, as acknowledged.
    fn acknowledge_next(&mut self, policy: &mut dyn Policy<P>, id: MemberId) {
        let Some(sequence) = self.streams[id.index()].acknowledge_next() else {
            return;
        };
        self.candidates.discharge(id);
        policy.note_acknowledged(id);
        if let Some(route) = self.routes.get_mut(sequence) {
            debug_assert!(matches!(route.owner(), Owner::Member(owner) if owner == id));
            route.acknowledge();
            self.missing.remove(sequence);
        }
    }

    /// Marks the frames that the member reports missing as missing for the peer, unless they were
    /// sent again since.
    fn note_missing(
        &mut self,
        policy: &mut dyn Policy<P>,
        id: MemberId,
        ack: &Acknowledgement<MemberSeq>,
    ) {
        let stream = &self.streams[id.index()];
        for number in ack.missing_before(stream.next_frame()) {
            let Some(sequence) = stream.peer_number(number) else {
                continue;
            };
            let route = self.routes.get(sequence);
            if route.is_some_and(|route| route.is_lost(ack.of)) && self.missing.insert(sequence) {
                policy.note_loss(id);
            }
        }
    }

    /// Forgets the frames that are acknowledged without a gap, and acknowledges the peer's Close
    /// when all members have.
    pub(super) fn settle(&mut self, cx: &mut Context<'_, P>) {
        if self.advance(cx) {
            self.acknowledge(cx, self.close, Feedback::default());
        }
    }

    /// Forgets the frames that are acknowledged without a gap. After the last of them, sends the
    /// peer's Close to the members. Returns true when all members have acknowledged the Close.
    pub(super) fn advance(&mut self, cx: &mut Context<'_, P>) -> bool {
        while let Some(route) = self.routes.front() {
            match route.owner() {
                Owner::Member(owner) if route.is_acknowledged() => {
                    let stream = &mut self.streams[owner.index()];
                    debug_assert!(
                        route.number().is_before(stream.acknowledged()),
                        "the peer's cumulative number would cover a frame that {owner:?} has not acknowledged"
                    );
                    self.routes.pop();
                    stream.forget_before(self.routes.base());
                }
                Owner::Dropped => drop(self.routes.pop()),
                Owner::All if self.close_members(cx) => {
                    self.routes.pop();
                    debug_assert!(self.routes.is_empty(), "a frame follows the peer's Close");
                    return true;
                }
                _ => return false,
            }
        }
        false
    }

    /// Closes the streams to the members. Returns true when all members have acknowledged their
    /// Close.
    ///
    /// Must be called only when all frames are acknowledged: the frames of a member that fails must
    /// go to another one, whose stream a Close would end.
    fn close_members(&mut self, cx: &mut Context<'_, P>) -> bool {
        let mut is_acknowledged = true;
        for id in cx.members.active() {
            if cx.members.state(id) == MemberState::Open {
                self.close_member(cx, id);
            }
            is_acknowledged &= self.streams[id.index()].is_close_acknowledged();
        }
        is_acknowledged
    }

    /// Closes the stream to a member, if it is still open.
    pub(super) fn close_member(&mut self, cx: &mut Context<'_, P>, id: MemberId) {
        if self.streams[id.index()].begin_close() {
            self.repeat_close(cx, id);
        }
    }

    /// Sends a member its Close, if there is one that is not acknowledged.
    pub(super) fn repeat_close(&mut self, cx: &mut Context<'_, P>, id: MemberId) {
        if let Some(close) = self.streams[id.index()].unacknowledged_close() {
            let sequence = close.to_wire();
            cx.out.send(Leg::Member(id), Body::Close { sequence });
        }
    }

    /// Acknowledges frame `of` to the peer. If `of` is `None`, acknowledges the last frame before
    /// the cumulative number; if there is no such frame, sends nothing.
    pub(super) fn acknowledge(
        &mut self,
        cx: &mut Context<'_, P>,
        of: Option<PeerSeq>,
        feedback: Feedback,
    ) {
        let cumulative = self.routes.base();
        if of.is_none() && !self.has_acknowledged() {
            return;
        }
        let ack = Acknowledgement {
            cumulative,
            of: of.unwrap_or(cumulative.previous()),
            credit: self.report_credit(),
            feedback,
            missing: self.missing.report(cumulative),
        };
        cx.out.send(Leg::Peer, ack.to_body());
    }

    /// Returns the window change for the peer when this member has answered. Members without frames
    /// on their way do not count: their last feedback may be old.
    fn change_for_peer(
        &self,
        members: &Ensemble,
        answering: MemberId,
        own: WindowChange,
    ) -> WindowChange {
        let numbered = members.all().zip(&self.streams);
        let busy = numbered.filter(|(id, stream)| {
            let is_busy = stream.outstanding() > 0 && !stream.uptake().is_stalled();
            *id == answering || (members.is_open(*id) && is_busy)
        });
        let latest = busy.filter_map(|(id, stream)| Some((stream.feedback()?, self.ratios.of(id))));
        transform::merge_acks(self.source, own, latest, self.scaling)
    }

    /// Returns the credit for the peer under the strict policy: the smallest credit of a member
    /// that takes new frames (section V). A member that was stalled a moment ago counts only if
    /// there is no other.
    fn credit(&self) -> u32 {
        let takers = self.candidates.list().iter();
        let streams = takers.map(|taker| &self.streams[taker.member.index()]);
        let proven = streams
            .clone()
            .filter(|stream| !stream.uptake().is_on_trial());
        let smallest = proven.map(Stream::credit).min();
        let smallest = smallest.or_else(|| streams.map(Stream::credit).min());
        smallest.unwrap_or(0)
    }

    /// Looks at what an open member takes. Then call
    /// [`gather_candidates`](Inbound::gather_candidates) if it has changed.
    pub(super) fn watch(
        &mut self,
        now: Time,
        id: MemberId,
        is_leaving: bool,
        config: &SwitchConfig,
    ) -> Option<Change> {
        let stream = &mut self.streams[id.index()];
        stream.watch(
            now,
            is_leaving,
            config.frame_bytes_max,
            config.stall_timeout,
        )
    }

    /// Returns whether to give up a member because it keeps what it was sent without an answer: the
    /// frames then go to another member, which must exist. A member that `is_leaving` has less
    /// time, and needs no other.
    pub(super) fn is_stuck(
        &self,
        now: Time,
        id: MemberId,
        is_leaving: bool,
        config: &SwitchConfig,
    ) -> bool {
        let limits = if is_leaving { 1 } else { HELD_LIMITS };
        let mut others = self.candidates.list().iter().map(|taker| taker.member);
        let has_heir = others.any(|other| other != id && !self.is_stalled(other));
        let is_stuck = self.streams[id.index()].is_stuck(now, limits * config.stall_timeout);
        is_stuck && (is_leaving || has_heir)
    }

    /// Returns the credit for a segment to the peer.
    pub(super) fn report_credit(&mut self) -> u32 {
        self.reported_credit = self.credit();
        self.reported_credit
    }

    /// Returns whether to report the credit to the peer although no frame is answered: it has
    /// become larger without a packet of a member, or such a report may have been lost. Without
    /// the report a peer without credit would learn of the larger one by a probe, which may come a
    /// minute later.
    pub(super) fn take_credit_report(&mut self) -> bool {
        if self.credit() > self.reported_credit {
            self.reports_due = CREDIT_REPORTS;
        }
        let is_due = self.reports_due > 0;
        self.reports_due -= u8::from(is_due);
        is_due
    }

    /// Returns whether an acknowledgement can be sent to the peer at any time: it answers the last
    /// frame before the cumulative number.
    pub(super) fn has_acknowledged(&self) -> bool {
        self.routes.base() != PeerSeq::FIRST
    }

    /// Sets the credit of a member that accepts the connection. An Accept that comes later counts
    /// as long as the member has acknowledged nothing.
    pub(super) fn accept(&mut self, id: MemberId, credit: u32) {
        let stream = &mut self.streams[id.index()];
        if stream.acknowledged() == MemberSeq::FIRST {
            stream.grant(credit);
        }
    }

    /// Makes the open members that are not stalled the candidates of the policy, or all if each is
    /// stalled: then the peer has to wait. A frame that is bound to a member waits for it. Must be
    /// called whenever that set changes.
    pub(super) fn gather_candidates(&mut self, members: &Ensemble) {
        let is_open = |id: &MemberId| members.state(*id) == MemberState::Open;
        let all_stalled = members.open().filter(is_open).all(|id| self.is_stalled(id));
        let (streams, takes_all) = (&self.streams, all_stalled || self.is_bound);
        let takes = |id: &MemberId| takes_all || !streams[id.index()].uptake().is_stalled();
        let takers = members.open().filter(is_open).filter(takes);
        let loads = takers.map(|id| (id, streams[id.index()].outstanding()));
        self.candidates.gather(loads);
    }

    /// Returns whether any member takes frames.
    pub(super) fn has_candidates(&self) -> bool {
        !self.candidates.list().is_empty()
    }

    /// Returns whether all of the peer's frames, and its Close, are acknowledged.
    pub(super) fn is_done(&self) -> bool {
        self.close.is_some() && self.routes.is_empty()
    }

    /// Returns whether the member owes an acknowledgement of a frame or of its Close.
    pub(super) fn awaits_answer(&self, id: MemberId) -> bool {
        let stream = &self.streams[id.index()];
        stream.outstanding() > 0 || stream.unacknowledged_close().is_some()
    }

    /// Returns the first number that the member has not acknowledged, for comparisons.
    pub(super) fn mark(&self, id: MemberId) -> u32 {
        self.streams[id.index()].acknowledged().to_wire()
    }

    /// Returns whether the member has acknowledged its Close, and therefore every frame.
    pub(super) fn is_close_acknowledged(&self, id: MemberId) -> bool {
        self.streams[id.index()].is_close_acknowledged()
    }
}
