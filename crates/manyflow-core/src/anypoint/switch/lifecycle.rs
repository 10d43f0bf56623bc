//! Opening, closing, members that come, go and fail, and the one timer that watches over it all.

use core::time::Duration;

use super::connection::Connection;
use super::inbound::Owner;
use super::member::{Member, State};
use super::{Leg, MemberId};
use crate::anypoint::Event;
use crate::anypoint::{Body, Payload, Reason};
use crate::time::Time;
use crate::xcp::WindowChange;

/// An end that has not heard that its Close arrived repeats it; so long it is answered when all is done, as by an end.
const LINGER: Duration = Duration::from_secs(30);

impl<P: Payload + Default> Connection<P> {
    /// Between two looks at what may be due: the switch does not know its members' round-trip times, and repeats four times
    /// before it gives up.
    fn interval(&self) -> Duration {
        (self.config.failure_timeout / 4).min(self.config.keep_alive)
    }

    /// When the timer is due. A connection that passes unchanged needs none: its ends have their own.
    pub(super) fn timeout(&self) -> Option<Time> {
        (!self.single && !self.over).then_some(self.tick)
    }

    /// The peer opens the connection, or has not heard that it is open.
    pub(super) fn on_open(&mut self) {
        if self.accepted {
            let credit = self.credit_for_peer();
            self.send(Leg::Peer, Body::Accept { credit });
        }
    }

    /// Opens it to all members.
    pub(super) fn open(&mut self, now: Time) {
        self.tick = now + self.interval();
        let credit = self.part_of_credit();
        for index in 0..self.members.len() {
            self.members[index].granted = credit;
            self.open_member(index);
        }
    }

    fn open_member(&mut self, index: usize) {
        let member = &self.members[index];
        if member.state == State::Opening {
            let credit = member.granted;
            self.send_to(index, Body::Open { credit });
        }
    }

    /// Opens it to a member that has joined, when the others have used up enough of what they were granted when they were fewer.
    /// Those that have nothing to send may keep their grants: the new one does not wait for that. But it waits until half its
    /// part of the peer's buffer is free: nothing can tell it of more credit before its first frame, for which the grant must suffice.
    fn admit(&mut self, now: Time, index: usize) {
        let (free, part) = (self.credit_for_member(index), self.part_of_credit());
        let waited = now - self.members[index].heard;
        let is_quiet = self.sent.is_empty() && waited >= self.config.failure_timeout;
        let grant = if is_quiet { part } else { free };
        if grant < (part / 2).max(self.part_of_buffer() / 2) {
            return;
        }
        let member = &mut self.members[index];
        member.state = State::Opening;
        member.heard = now;
        member.idle = now;
        member.granted = grant;
        self.open_member(index);
    }

    pub(super) fn on_accept(&mut self, now: Time, index: usize, credit: u32) {
        let member = &mut self.members[index];
        if member.state == State::Opening {
            member.state = State::Open;
            member.credit = credit;
            self.gather_candidates();
            self.accept(now);
            self.advance_inbound();
            if self.is_inbound_done() {
                self.close_to_member(index);
            }
        }
    }

    /// All of the peer's frames, and its Close, are acknowledged.
    fn is_inbound_done(&self) -> bool {
        self.peer_close.is_some() && self.routes.is_empty()
    }

    /// Tells the peer that the connection is open, when no member is awaited any more.
    fn accept(&mut self, now: Time) {
        let awaited = |member: &Member<P>| member.state == State::Opening;
        let complete = !self.candidates.is_empty() && !self.members.iter().any(awaited);
        if complete && !self.accepted {
            self.accepted = true;
            if !self.single {
                self.on_open();
            }
        }
        if self.accepted && !self.single {
            self.forward_early(now);
        }
    }

    /// A member joins a connection that is open.
    pub(super) fn join(&mut self, now: Time) {
        // Where the ensemble has closed its direction, a new member could say nothing.
        let late = self.close.is_some();
        let state = if late { State::Left } else { State::Waiting };
        self.add_member(now, state);
        self.leave_pass_through(now);
        if state == State::Waiting {
            self.admit(now, self.members.len() - 1);
        }
    }

    /// From here on frames are renumbered, beginning with the numbers that the first member and the peer have.
    fn leave_pass_through(&mut self, now: Time) {
        if core::mem::replace(&mut self.single, false) {
            self.tick = now + self.interval();
            self.members[0].idle = now;
        }
    }

    /// A member gets no new frames; what it has it may finish.
    pub(super) fn leave(&mut self, now: Time, index: usize) {
        self.leave_pass_through(now);
        match self.members[index].state {
            State::Open => {
                self.members[index].state = State::Leaving;
                self.gather_candidates();
                self.close_to_member(index);
            }
            // What it has sent since it accepted is not heard any more.
            State::Waiting | State::Opening => {
                self.remove(now, index, State::Failed, Reason::Aborted)
            }
            State::Leaving | State::Left | State::Failed => {}
        }
    }

    /// A member has failed: its frames are the peer's to send again, and what it has sent is ours.
    pub(super) fn fail(&mut self, now: Time, index: usize, reason: Reason) {
        let event = Event::MemberFailed(MemberId(index as u16));
        self.output.events.push_back(event);
        self.remove(now, index, State::Failed, reason);
    }

    fn remove(&mut self, now: Time, index: usize, state: State, reason: Reason) {
        self.send_to(index, Body::Reset(reason));
        self.members[index].state = state;
        self.ratios.forget(index as u16);
        self.gather_candidates();
        self.abandon_routes(index);
        if self.adopt_frames(index) {
            self.after_removal(now);
        } else {
            self.end(Reason::Aborted);
        }
    }

    /// What the member has not acknowledged belongs to nobody, and the peer is told that it is missing.
    fn abandon_routes(&mut self, index: usize) {
        let mut arrived = None;
        for (sequence, route) in self.routes.iter_mut() {
            if route.acknowledged {
                arrived = Some(sequence);
            } else if route.owner == Owner::Member(index as u16) {
                route.owner = Owner::Nobody;
                self.missing.insert(sequence);
            }
        }
        if self.accepted {
            self.acknowledge_to_peer(arrived, WindowChange::default());
        }
    }

    fn after_removal(&mut self, now: Time) {
        let is_served = self.is_inbound_done() && self.close.is_some();
        if !is_served && !self.members.iter().any(Member::is_active) {
            let refused = if self.accepted {
                Reason::Aborted
            } else {
                Reason::Refused
            };
            self.end(refused);
            return;
        }
        self.accept(now);
        self.close_to_peer();
        self.advance_inbound();
        self.check_finished(now);
    }

    /// Ends the connection for the peer and all members.
    pub(super) fn end(&mut self, reason: Reason) {
        self.send(Leg::Peer, Body::Reset(reason));
        self.reset_members(reason);
    }

    /// Ends it for the members.
    pub(super) fn reset_members(&mut self, reason: Reason) {
        for index in 0..self.members.len() {
            if self.members[index].is_active() {
                self.send_to(index, Body::Reset(reason));
            }
        }
        self.output.events.push_back(Event::Failed(reason));
        self.over = true;
    }

    /// The peer asks for the ensemble: it is alive as long as a member is.
    pub(super) fn on_peer_probe(&mut self) {
        self.send(Leg::Peer, Body::Alive);
        self.acknowledge_to_peer(None, WindowChange::default());
    }

    /// A member asks for the peer; until that is told that the connection is open, all wait for the switch alone.
    pub(super) fn on_member_probe(&mut self, index: usize) {
        if !self.accepted {
            self.send_to(index, Body::Alive);
            return;
        }
        self.members[index].asks = true;
        self.send(Leg::Peer, Body::Probe);
    }

    /// The peer is alive: whoever has asked is told, and what it may send.
    pub(super) fn on_peer_alive(&mut self) {
        for index in 0..self.members.len() {
            if core::mem::take(&mut self.members[index].asks) {
                self.send_to(index, Body::Alive);
                self.repeat_acknowledgement(index);
            }
        }
    }

    /// Does what is due.
    pub(super) fn on_timeout(&mut self, now: Time) {
        if self.timeout().is_none_or(|due| now < due) {
            return;
        }
        self.tick = now + self.interval();
        for index in 0..self.members.len() {
            if self.members[index].is_active() && !self.over {
                self.watch(now, index);
            }
        }
        self.send_orphans(now);
        self.check_finished(now);
        let lingered = |since| now - since >= LINGER;
        self.over |= self.finished.is_some_and(lingered);
    }

    /// Looks whether a member lives, and repeats what it has not answered.
    fn watch(&mut self, now: Time, index: usize) {
        let member = &mut self.members[index];
        if member.is_done() {
            if member.state == State::Leaving {
                member.state = State::Left;
                self.after_removal(now);
            }
            return;
        }
        if member.state == State::Waiting {
            self.admit(now, index);
            return;
        }
        if !member.owes_an_answer() {
            member.idle = now;
        }
        let silent = now - member.heard;
        let owing = now - member.heard.max(member.idle);
        // Whoever says other things than that it accepts has another connection in mind, of a switch that is gone.
        let is_opening = self.members[index].state == State::Opening;
        let refuses =
            is_opening && now - self.members[index].idle >= 4 * self.config.failure_timeout;
        if refuses || owing >= self.config.failure_timeout {
            self.fail(now, index, Reason::TimedOut);
            return;
        }
        self.open_member(index);
        self.repeat_close(index);
        let is_silent =
            silent >= self.config.keep_alive || owing >= self.config.failure_timeout / 2;
        // An Open asks as well, and who has not heard it knows of no connection.
        if is_silent && self.members[index].is_open() {
            self.members[index].probed = true;
            self.send_to(index, Body::Probe);
        }
    }

    fn repeat_close(&mut self, index: usize) {
        let member = &self.members[index];
        if let Some(sequence) = member.close
            && !member.close_acknowledged
        {
            self.send_to(index, Body::Close { sequence });
        }
    }
}
