//! Opening a connection, members that join, leave and fail, and the end of a connection.

use super::super::ensemble::{Due, Duties, MemberState};
use super::super::inbound::Change;
use super::super::{Leg, MemberId, ONLY_MEMBER};
use super::Connection;
use crate::Event;
use crate::{Body, Payload, Reason};
use manyflow_core::time::Time;
use manyflow_core::xcp::Feedback;

impl<P: Payload + Default> Connection<P> {
    pub(super) fn add_member(&mut self, now: Time, state: MemberState) -> MemberId {
        self.inbound.add_member();
        self.outbound.add_member();
        self.members.add(now, state)
    }

    /// Sends the peer an Accept again, if the connection is accepted.
    ///
    /// While no member takes frames there is no credit to grant. The peer repeats its Open.
    pub(super) fn repeat_accept(&mut self) {
        if self.lifecycle.is_accepted() && self.inbound.has_candidates() {
            let credit = self.inbound.report_credit();
            self.out.send(Leg::Peer, Body::Accept { credit });
        }
    }

    /// Handles the credit of an opening that the peer repeats. If it is larger, repeats the
    /// openings of the members with their parts: without a first frame, no acknowledgement could
    /// bring them.
    pub(super) fn renew_credit(&mut self, now: Time, credit: u32) {
        if !self.outbound.renew_credit(credit) {
            return;
        }
        for id in self.members.active().collect::<Vec<_>>() {
            let granted = self.outbound.credit_for(&self.members, id);
            if self.members.state(id) != MemberState::Waiting && granted > self.outbound.granted(id)
            {
                self.outbound.grant(id, granted);
                let credit = granted;
                self.out.send(Leg::Member(id), Body::Open { credit });
            }
        }
        if self.lifecycle.is_accepted() {
            self.admit_waiting(now);
            let (_, outbound, mut cx) = self.parts(now);
            outbound.forward_waiting(&mut cx);
        }
    }

    /// Reports the credit to the peer. Before the first acknowledged frame there is nothing that an
    /// acknowledgement could answer, so the Accept is repeated with the present credit.
    pub(super) fn report_credit(&mut self, now: Time) {
        if self.inbound.has_acknowledged() {
            let (inbound, _, mut cx) = self.parts(now);
            inbound.acknowledge(&mut cx, None, Feedback::default());
        } else {
            self.repeat_accept();
        }
    }

    /// Reports the credit to the peer if it has become larger because a member no longer limits it.
    pub(super) fn report_larger_credit(&mut self, now: Time) {
        let is_usable = self.lifecycle.is_accepted() && !self.is_pass_through() && !self.is_over();
        if is_usable && self.inbound.take_credit_report() {
            self.report_credit(now);
        }
    }

    /// Sends a member its Open, if the member has not accepted.
    pub(super) fn repeat_open(&mut self, id: MemberId) {
        if self.members.state(id) == MemberState::Opening {
            let credit = self.outbound.granted(id);
            self.out.send(Leg::Member(id), Body::Open { credit });
        }
    }

    /// Opens the connection to a member that has joined, if there is credit for it.
    ///
    /// It waits until half its part of the peer's buffer is free: no further credit can reach it
    /// before its first frame, so the grant must suffice for that frame. The other members must
    /// have used enough of the credit that they were granted when they were fewer; what they use is
    /// reserved for the new member. Members with nothing to send use nothing, so after the failure
    /// time-out their grants are reduced as soon as no frame is on its way to the peer.
    fn admit(&mut self, now: Time, id: MemberId) {
        let credit = self.outbound.credit();
        let enough = credit.part_of_buffer(&self.members) / 2;
        let is_part_enough = credit.part(&self.members) >= enough;
        let is_due = self.members.silence(now, id) >= self.config.failure_timeout;
        let mut grant = self.outbound.credit_for_joining(&self.members, id);
        if grant < enough && is_part_enough && is_due && self.outbound.is_idle() {
            let (_, outbound, mut cx) = self.parts(now);
            outbound.reduce_grants(&mut cx);
            grant = self.outbound.credit_for_joining(&self.members, id);
            debug_assert!(grant >= enough, "the others keep only their parts");
        }
        if grant < enough {
            return;
        }
        self.members.begin_opening(now, id);
        self.outbound.grant(id, grant);
        self.repeat_open(id);
    }

    /// Admits the members that wait for credit, as far as the peer's new credit has room for them.
    pub(super) fn admit_waiting(&mut self, now: Time) {
        loop {
            let Some(id) = self.members.waiting().next() else {
                return;
            };
            self.admit(now, id);
            if self.members.state(id) == MemberState::Waiting {
                return;
            }
        }
    }

    /// Admits a waiting member. If the peer's credit has no room and no frame is on its way to the
    /// peer, probes the peer: its answer states the present credit. The update that the peer sent
    /// when it had read may have been lost, and only a frame would bring another one.
    fn admit_or_ask(&mut self, now: Time, id: MemberId) {
        self.admit(now, id);
        if self.members.state(id) == MemberState::Waiting && self.outbound.is_idle() {
            self.out.send(Leg::Peer, Body::Probe);
        }
    }

    pub(super) fn handle_accept(&mut self, now: Time, id: MemberId, credit: u32) {
        let is_first = self.members.accept(id);
        if !self.members.is_open(id) {
            return;
        }
        self.inbound.accept(id, credit);
        if !is_first {
            self.report_larger_credit(now);
            return;
        }
        self.inbound.gather_candidates(&self.members);
        self.accept_if_complete(now);
        let passes = self.is_pass_through();
        let (inbound, _, mut cx) = self.parts(now);
        // While everything passes unchanged, the member's own acknowledgements reach the peer.
        match passes {
            true => {
                inbound.report_credit();
                inbound.advance(&mut cx);
            }
            false => inbound.settle(&mut cx),
        }
        if inbound.is_done() {
            inbound.close_member(&mut cx, id);
        }
        self.report_larger_credit(now);
    }

    /// Sends the peer an Accept when a member has accepted and no other Accept is awaited.
    fn accept_if_complete(&mut self, now: Time) {
        let is_complete = self.inbound.has_candidates() && !self.members.awaits_accept();
        let passes = self.is_pass_through();
        if is_complete && self.lifecycle.accept() && !passes {
            self.repeat_accept();
        }
        if self.lifecycle.is_accepted() && !passes {
            let (_, outbound, mut cx) = self.parts(now);
            outbound.forward_waiting(&mut cx);
        }
    }

    /// Adds a member to the connection. If the service has closed its direction already, the member
    /// stays out: it could send nothing.
    pub(in super::super) fn join(&mut self, now: Time) {
        let is_late = self.outbound.is_closed();
        let state = if is_late {
            MemberState::Left
        } else {
            MemberState::Waiting
        };
        let id = self.add_member(now, state);
        self.leave_pass_through(now);
        if state == MemberState::Waiting {
            self.admit(now, id);
        }
    }

    /// Ends pass-through: frames are renumbered from now on, from the numbers that the only member
    /// and the peer have reached.
    fn leave_pass_through(&mut self, now: Time) {
        if self.lifecycle.leave_pass_through(now) {
            self.members.restart_watch(now, ONLY_MEMBER);
        }
    }

    /// Releases a member: it gets no new frames from now on, and may finish those that it has.
    pub(in super::super) fn leave(&mut self, now: Time, id: MemberId) {
        self.leave_pass_through(now);
        match self.members.state(id) {
            MemberState::Open => {
                self.members.begin_leaving(now, id);
                self.inbound.gather_candidates(&self.members);
                let (inbound, _, mut cx) = self.parts(now);
                inbound.close_member(&mut cx, id);
                self.report_larger_credit(now);
            }
            // The frames that the member has sent early are dropped.
            MemberState::Waiting | MemberState::Opening => self.remove(now, id, Reason::Aborted),
            MemberState::Leaving | MemberState::Left | MemberState::Failed => {}
        }
    }

    /// Handles the failure of a member: the peer must send again the frames that the member did not
    /// acknowledge, unless they were bound to it, and the switch retransmits the frames that it
    /// sent.
    pub(super) fn fail(&mut self, now: Time, id: MemberId, reason: Reason) {
        self.out.report(Event::MemberFailed(id));
        self.remove(now, id, reason);
    }

    fn remove(&mut self, now: Time, id: MemberId, reason: Reason) {
        debug_assert!(!self.is_pass_through());
        self.out.send(Leg::Member(id), Body::Reset(reason));
        self.members.give_up(id, reason);
        self.inbound.gather_candidates(&self.members);
        let arrived = self.inbound.abandon(id);
        if self.lifecycle.is_accepted() {
            let is_bound = self.config.bound;
            let (inbound, _, mut cx) = self.parts(now);
            if is_bound {
                inbound.settle(&mut cx);
            }
            inbound.acknowledge(&mut cx, arrived, Feedback::default());
        }
        if self.outbound.adopt(id) {
            self.continue_without(now);
        } else {
            self.end(Reason::Aborted);
        }
    }

    /// Resumes the work that had to wait for a member that has left or failed.
    fn continue_without(&mut self, now: Time) {
        let is_served = self.inbound.is_done() && self.outbound.is_closed();
        if !is_served && self.members.active().next().is_none() {
            self.end(match self.lifecycle.is_accepted() {
                true => Reason::Aborted,
                false => Reason::Refused,
            });
            return;
        }
        self.accept_if_complete(now);
        let (inbound, outbound, mut cx) = self.parts(now);
        outbound.close_to_peer(&mut cx);
        inbound.settle(&mut cx);
        self.report_larger_credit(now);
        self.check_finished(now);
    }

    /// Ends the connection for the peer and all members.
    pub(super) fn end(&mut self, reason: Reason) {
        self.out.send(Leg::Peer, Body::Reset(reason));
        self.reset_members(reason);
    }

    /// Ends the connection for the members.
    pub(super) fn reset_members(&mut self, reason: Reason) {
        for id in self.members.active() {
            self.out.send(Leg::Member(id), Body::Reset(reason));
        }
        self.out.report(Event::Failed(reason));
        self.lifecycle.end();
    }

    /// Finishes the connection when both directions are closed and everything is acknowledged.
    pub(super) fn check_finished(&mut self, now: Time) {
        let is_outbound_done = self.outbound.is_closed() && self.outbound.is_idle();
        if is_outbound_done && self.inbound.is_done() {
            self.lifecycle.finish(now);
        }
    }

    /// Returns whether the connection still needs the member.
    pub(super) fn is_needed(&self, id: MemberId) -> bool {
        self.members.is_active(id) && !self.is_done(id)
    }

    /// Returns whether both streams of a member are closed and acknowledged, so that it may leave.
    fn is_done(&self, id: MemberId) -> bool {
        self.inbound.is_close_acknowledged(id) && self.outbound.has_sent_all(id)
    }

    /// Handles what is due for a member: repeats segments that it has not answered, or gives it up.
    pub(super) fn watch_member(&mut self, now: Time, id: MemberId) {
        self.watch_uptake(now, id);
        let duties = self.duties(now, id);
        match self.members.watch(now, id, duties, &self.config) {
            Due::Nothing => {}
            Due::Admission => self.admit_or_ask(now, id),
            Due::Departure => self.continue_without(now),
            Due::Failure => self.fail(now, id, Reason::TimedOut),
            Due::Reminder { probe } => self.remind(now, id, probe),
        }
    }

    /// Looks at what an open member takes. If that changes, other members take its place, or make
    /// room for it.
    fn watch_uptake(&mut self, now: Time, id: MemberId) {
        let is_leaving = self.members.state(id) == MemberState::Leaving;
        if !self.members.is_open(id) {
            return;
        }
        let event = match self.inbound.watch(now, id, is_leaving, &self.config) {
            Some(Change::Stalled) => Event::MemberStalled(id),
            Some(Change::Resumed) => Event::MemberResumed(id),
            None => return,
        };
        self.out.report(event);
        self.inbound.gather_candidates(&self.members);
    }

    fn duties(&self, now: Time, id: MemberId) -> Duties {
        let is_leaving = self.members.state(id) == MemberState::Leaving;
        let [at_switch, at_peer] = self.outbound.marks(id);
        Duties {
            is_done: self.is_done(id),
            owes_answer: self.inbound.awaits_answer(id),
            is_stuck: self.inbound.is_stuck(now, id, is_leaving, &self.config),
            marks: [self.inbound.mark(id), at_switch, at_peer],
        }
    }

    fn remind(&mut self, now: Time, id: MemberId, probe: bool) {
        self.repeat_open(id);
        let (inbound, _, mut cx) = self.parts(now);
        inbound.repeat_close(&mut cx, id);
        if probe {
            inbound.suspect_awaited(id);
            self.out.send(Leg::Member(id), Body::Probe);
        }
    }
}
