//! One connection through the switch: decides what each packet means, and lends its parts to each
//! other.

mod membership;

use super::acknowledgement::Acknowledgement;
use super::context::Context;
use super::ensemble::{Ensemble, MemberState};
use super::inbound::Inbound;
use super::lifecycle::Lifecycle;
use super::numbered::Numbered;
use super::outbound::Outbound;
use super::output::{Outbox, Output};
use super::sequence::{MemberSeq, PeerSeq, Sequence};
use super::{Leg, MemberId, ONLY_MEMBER, Policy, SwitchConfig};
use crate::Event;
use crate::{Body, Payload, Reason, Segment};
use manyflow_core::time::Time;

/// A connection between the peer and the service.
#[derive(Debug)]
pub(super) struct Connection<P> {
    config: SwitchConfig,
    lifecycle: Lifecycle,
    members: Ensemble,
    inbound: Inbound<P>,
    outbound: Outbound<P>,
    out: Outbox<P>,
}

impl<P: Payload + Default> Connection<P> {
    /// Opens connection `number` at `now`, at the peer's request; the peer grants `credit` bytes.
    /// `ensemble` holds for each member, by its number, whether it belongs to the service.
    pub(super) fn open(
        config: SwitchConfig,
        now: Time,
        number: u32,
        credit: u32,
        ensemble: &[bool],
    ) -> Connection<P> {
        let mut connection = Connection {
            lifecycle: Lifecycle::new(now, ensemble.len() == 1 && !config.bound, &config),
            members: Ensemble::new(),
            inbound: Inbound::new(&config),
            outbound: Outbound::new(&config, credit),
            out: Outbox::new(number),
            config,
        };
        for is_there in ensemble {
            let state = if *is_there {
                MemberState::Opening
            } else {
                MemberState::Left
            };
            connection.add_member(now, state);
        }
        let part = connection.outbound.credit().part(&connection.members);
        for id in connection.members.all() {
            connection.outbound.grant(id, part);
            connection.repeat_open(id);
        }
        connection
    }

    /// Returns the connection's number.
    pub(super) fn number(&self) -> u32 {
        self.out.connection()
    }

    /// Returns whether everything passes unchanged.
    pub(super) fn is_pass_through(&self) -> bool {
        self.lifecycle.is_pass_through()
    }

    /// Returns whether another connection must wait for this one to end. A connection gives way if
    /// it only passes through, or if it is finished and only answers late Closes.
    pub(super) fn is_in_use(&self) -> bool {
        !self.is_pass_through() && !self.lifecycle.is_finished()
    }

    /// Returns whether nothing is left to do for the connection, except to poll its output.
    pub(super) fn is_over(&self) -> bool {
        self.lifecycle.is_over()
    }

    /// Returns whether nothing is left to deliver: both directions are closed and acknowledged, or
    /// the connection is over.
    pub(super) fn is_finished(&self) -> bool {
        self.lifecycle.is_over() || self.lifecycle.is_finished()
    }

    /// Returns whether a member that joins now can send: the peer has not got the Close of the
    /// members.
    pub(super) fn takes_members(&self) -> bool {
        !self.outbound.is_closed() && !self.is_over()
    }

    /// Returns why each member was given up, if it was, by its number.
    pub(super) fn reasons_given_up(&self) -> Vec<Option<Reason>> {
        self.members.reasons_given_up().collect()
    }

    /// Returns the output that still waits when the connection is over.
    pub(super) fn into_output(self) -> Output<P> {
        self.out.into_output()
    }

    /// Returns both directions, and the context that they need.
    fn parts(&mut self, now: Time) -> (&mut Inbound<P>, &mut Outbound<P>, Context<'_, P>) {
        let context = Context {
            now,
            members: &self.members,
            out: &mut self.out,
        };
        (&mut self.inbound, &mut self.outbound, context)
    }

    /// Handles a segment of this connection.
    pub(super) fn handle_segment(
        &mut self,
        now: Time,
        policy: &mut dyn Policy<P>,
        from: Leg,
        segment: &Segment,
        payload: P,
    ) {
        let passes = self.is_pass_through();
        match from {
            Leg::Peer if passes => self.pass_inbound(now, segment, payload),
            Leg::Member(ONLY_MEMBER) if passes => self.pass_outbound(now, segment, payload),
            Leg::Peer => self.handle_peer(now, policy, segment.body, payload),
            Leg::Member(id) if self.members.note_packet(now, id) => {
                self.handle_member(now, policy, id, segment.body, payload);
            }
            // The member was given up, or never existed. It must not continue alone. Its first
            // Reset may have been lost, so this one has the same reason.
            Leg::Member(_) if matches!(segment.body, Body::Reset(_)) => {}
            Leg::Member(id) => {
                let reason = self.members.reason_given_up(id);
                self.out.send(from, Body::Reset(reason));
            }
        }
        if matches!(segment.body, Body::Close { .. }) {
            self.lifecycle.note_close(now);
        }
    }

    fn handle_peer(&mut self, now: Time, policy: &mut dyn Policy<P>, body: Body, payload: P) {
        let is_accepted = self.lifecycle.is_accepted();
        let (inbound, _, mut cx) = self.parts(now);
        match body {
            Body::Open { credit } => {
                self.renew_credit(now, credit);
                self.repeat_accept();
            }
            Body::Reset(reason) => self.reset_members(reason),
            Body::Alive => self.handle_peer_alive(now),
            // The peer has received an Accept that this switch did not send. The Accept belongs to
            // a connection that was lost in a restart of the switch, and whose Open arrived late.
            _ if !is_accepted => self.end(Reason::Unknown),
            Body::Data(data) => {
                let sequence = PeerSeq::from_wire(data.sequence);
                let frame = Numbered::Frame(data, payload);
                inbound.handle_numbered(&mut cx, policy, sequence, frame);
            }
            Body::Close { sequence } => {
                let sequence = PeerSeq::from_wire(sequence);
                inbound.handle_numbered(&mut cx, policy, sequence, Numbered::Close);
            }
            Body::Ack(ack) => self.handle_peer_ack(now, &Acknowledgement::from_wire(&ack)),
            Body::Probe => self.handle_peer_probe(now),
            // The peer opens connections, and accepts none.
            Body::Accept { .. } => {}
        }
    }

    fn handle_member(
        &mut self,
        now: Time,
        policy: &mut dyn Policy<P>,
        id: MemberId,
        body: Body,
        payload: P,
    ) {
        let (inbound, _, mut cx) = self.parts(now);
        match body {
            Body::Accept { credit } => self.handle_accept(now, id, credit),
            Body::Data(data) => {
                let sequence = MemberSeq::from_wire(data.sequence);
                let frame = Numbered::Frame(data, payload);
                self.handle_member_numbered(now, id, sequence, frame);
            }
            Body::Close { sequence } => {
                let sequence = MemberSeq::from_wire(sequence);
                self.handle_member_numbered(now, id, sequence, Numbered::Close);
            }
            Body::Ack(ack) => {
                let ack = Acknowledgement::from_wire(&ack);
                inbound.handle_ack(&mut cx, policy, id, &ack);
            }
            Body::Probe => self.handle_member_probe(id),
            Body::Reset(reason) if self.is_needed(id) => self.fail(now, id, reason),
            Body::Open { .. } | Body::Alive | Body::Reset(_) => {}
        }
    }

    fn handle_member_numbered(
        &mut self,
        now: Time,
        id: MemberId,
        sequence: MemberSeq,
        item: Numbered<P>,
    ) {
        let state = self.members.state(id);
        let is_opening = matches!(state, MemberState::Waiting | MemberState::Opening);
        let may_pass = self.lifecycle.is_accepted() && !is_opening;
        let (_, outbound, mut cx) = self.parts(now);
        outbound.handle_numbered(&mut cx, id, sequence, item, may_pass);
    }

    fn handle_peer_ack(&mut self, now: Time, ack: &Acknowledgement<PeerSeq>) {
        let (_, outbound, mut cx) = self.parts(now);
        let answers_switch = outbound.handle_ack(&mut cx, ack);
        self.admit_waiting(now);
        if answers_switch {
            self.check_finished(now);
        }
    }

    /// Answers a probe of the peer: the service is alive as long as one member is.
    fn handle_peer_probe(&mut self, now: Time) {
        self.out.send(Leg::Peer, Body::Alive);
        self.report_credit(now);
    }

    /// Passes a member's probe to the peer. Before the connection is accepted, members wait only
    /// for the switch, so the switch answers.
    fn handle_member_probe(&mut self, id: MemberId) {
        if self.lifecycle.is_accepted() {
            self.members.note_probe(id);
            self.out.send(Leg::Peer, Body::Probe);
        } else {
            self.out.send(Leg::Member(id), Body::Alive);
        }
    }

    /// Answers each member that has probed the peer, and acknowledges its last frame again.
    fn handle_peer_alive(&mut self, now: Time) {
        for id in self.members.all() {
            if self.members.take_probe(id) {
                self.out.send(Leg::Member(id), Body::Alive);
                let (_, outbound, mut cx) = self.parts(now);
                outbound.repeat_acknowledgement(&mut cx, id);
            }
        }
    }

    /// Passes a packet of the peer to the only member.
    fn pass_inbound(&mut self, now: Time, segment: &Segment, payload: P) {
        let (inbound, outbound, _) = self.parts(now);
        match segment.body {
            Body::Data(data) => inbound.watch_frame(now, &data, payload.length()),
            Body::Close { sequence } => inbound.watch_close(now, PeerSeq::from_wire(sequence)),
            Body::Ack(ack) => outbound.watch_ack(&Acknowledgement::from_wire(&ack)),
            Body::Open { credit } | Body::Accept { credit } => outbound.watch_opening(credit),
            Body::Probe | Body::Alive | Body::Reset(_) => {}
        }
        let to = Leg::Member(ONLY_MEMBER);
        self.out.send_with(to, segment.body, payload);
    }

    /// Passes a packet of the only member to the peer.
    fn pass_outbound(&mut self, now: Time, segment: &Segment, payload: P) {
        let (inbound, outbound, mut cx) = self.parts(now);
        match segment.body {
            Body::Data(data) => {
                let sequence = MemberSeq::from_wire(data.sequence);
                let frame = Numbered::Frame(data, payload.clone());
                outbound.watch_numbered(now, sequence, frame);
            }
            Body::Close { sequence } => {
                outbound.watch_numbered(now, MemberSeq::from_wire(sequence), Numbered::Close);
            }
            Body::Ack(ack) => inbound.watch_ack(&mut cx, &Acknowledgement::from_wire(&ack)),
            Body::Accept { credit } => self.handle_accept(now, ONLY_MEMBER, credit),
            Body::Open { .. } | Body::Probe | Body::Alive | Body::Reset(_) => {}
        }
        self.out.send_with(Leg::Peer, segment.body, payload);
    }

    /// Handles the timer if it is due at `now`. A spurious call does nothing.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        if !self.lifecycle.take_timeout(now) {
            return;
        }
        for id in self.members.all() {
            if self.members.is_active(id) && !self.is_over() {
                self.watch_member(now, id);
            }
        }
        let (_, outbound, mut cx) = self.parts(now);
        outbound.send_orphans(&mut cx);
        self.report_larger_credit(now);
        self.check_finished(now);
        self.lifecycle.expire(now);
    }

    /// Returns when to call [`handle_timeout`](Connection::handle_timeout) next, if at all.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.lifecycle.poll_timeout()
    }

    /// Returns the next segment to send, its leg and its payload.
    pub(super) fn poll_transmit(&mut self) -> Option<(Leg, Segment, P)> {
        self.out.poll_transmit()
    }

    /// Returns the next event.
    pub(super) fn poll_event(&mut self) -> Option<Event> {
        self.out.poll_event()
    }
}
