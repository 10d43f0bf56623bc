//! Inbound: the peer's frames to the members, and their acknowledgements to the peer.

use super::connection::{Connection, leg, missing_numbers};
use super::member::State;
use super::missing::Gaps;
use super::reorder::{Arrival, Numbered};
use super::ring::before;
use super::{Leg, Policy, transform};
use crate::anypoint::{Ack, Body, Data, Payload};
use crate::xcp::WindowChange;

/// Where a frame of the peer went.
#[derive(Copy, Clone, Debug)]
pub(super) struct Route {
    pub(super) owner: Owner,
    /// Its number there.
    number: u32,
    /// That member's next number when the frame was last sent to it: frames from there on were sent later.
    sent_before: u32,
    /// The member has it, or holds it beyond a gap, as far as it has said.
    answered: bool,
    pub(super) acknowledged: bool,
}

/// Who has a frame of the peer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Member(u16),
    /// Its member has failed: the peer's retransmission goes to another one.
    Nobody,
    /// It is the peer's Close: all members get one.
    All,
}

impl<P: Payload + Default> Connection<P> {
    /// A frame or a Close from the peer.
    pub(super) fn on_peer_numbered(
        &mut self,
        policy: &mut dyn Policy<P>,
        sequence: u32,
        item: Numbered<P>,
    ) {
        if let Numbered::Frame(data, _) = &item {
            self.source = data.congestion;
        }
        if self.peer_close.is_some_and(|close| before(close, sequence)) {
            return;
        }
        match self.arrivals.classify(sequence) {
            Arrival::Known => self.repeat_to_member(policy, sequence, item),
            _ if !self.routes.reaches(sequence) => {}
            Arrival::Next if self.candidates.is_empty() => {}
            Arrival::Next => self.route_all(policy, item),
            Arrival::Beyond => {
                self.arrivals.hold(sequence, item);
                self.acknowledge_to_peer(Some(sequence), WindowChange::default());
            }
            Arrival::TooFar => {}
        }
    }

    /// Routes the next frame, and those that have waited for it.
    fn route_all(&mut self, policy: &mut dyn Policy<P>, first: Numbered<P>) {
        let mut next = Some(first);
        while let Some(item) = next {
            match item {
                Numbered::Frame(data, payload) => self.route(policy, data, payload),
                Numbered::Close => {
                    self.peer_close = Some(self.arrivals.next());
                    self.routes.push(Route::new(Owner::All, 0));
                    self.advance_inbound();
                }
            }
            next = self.arrivals.advance();
            if self.peer_close.is_some() {
                return;
            }
        }
    }

    /// Gives a frame of the peer to the member that the policy chooses, as the last of its stream.
    fn route(&mut self, policy: &mut dyn Policy<P>, data: Data, payload: P) {
        let place = policy.route(&data, &payload, &self.candidates);
        let last = self.candidates.len() - 1;
        let candidate = &mut self.candidates[place.min(last)];
        candidate.outstanding += 1;
        let owner = candidate.member.0;
        let member = &mut self.members[usize::from(owner)];
        member.outstanding += 1;
        let number = member.sent.next();
        member.sent.push(data.sequence);
        let route = Route::new(Owner::Member(owner), number);
        match self.routes.get_mut(data.sequence) {
            Some(known) => *known = route,
            None => self.routes.push(route),
        }
        self.send_frame(owner, number, data, payload);
    }

    /// A frame that was routed before: it is lost, or its acknowledgement.
    fn repeat_to_member(&mut self, policy: &mut dyn Policy<P>, sequence: u32, item: Numbered<P>) {
        let route = self.routes.get_mut(sequence);
        let Some(route) = route.filter(|route| !route.acknowledged) else {
            self.acknowledge_to_peer(Some(sequence), WindowChange::default());
            return;
        };
        let Numbered::Frame(data, payload) = item else {
            return;
        };
        match route.owner {
            Owner::Member(owner) => {
                let number = route.number;
                route.sent_before = self.members[usize::from(owner)].sent.next();
                route.answered = false;
                self.missing.remove(sequence);
                self.send_frame(owner, number, data, payload);
            }
            Owner::Nobody if !self.candidates.is_empty() => {
                self.missing.remove(sequence);
                self.route(policy, data, payload);
            }
            Owner::Nobody | Owner::All => {}
        }
    }

    fn send_frame(&mut self, owner: u16, sequence: u32, data: Data, payload: P) {
        self.ratios.count(owner, payload.length());
        let ratio = self.ratios.of(owner);
        let congestion = transform::split_data(data.congestion, ratio, self.config.scaling);
        let data = Data {
            sequence,
            congestion,
            ..data
        };
        self.send_with(leg(usize::from(owner)), Body::Data(data), payload);
    }

    /// An acknowledgement of a member: of its frames, or of its Close.
    pub(super) fn on_member_ack(&mut self, index: usize, ack: &Ack) {
        let of = self.members[index].sent.get(ack.of).copied();
        let of_close = self.members[index].close == Some(ack.of);
        if self.take_member_ack(index, ack) && !of_close {
            let feedback = self.feedback_for_peer(index, ack.feedback);
            self.acknowledge_to_peer(of, feedback);
        }
    }

    /// Takes note of an acknowledgement; false where it speaks of what was never sent.
    ///
    /// Only its cumulative number is a promise (RFC 2018 section 8): a member may be a switch itself, which acknowledges what it
    /// holds beyond a gap, and can lose it.
    pub(super) fn take_member_ack(&mut self, index: usize, ack: &Ack) -> bool {
        let member = &mut self.members[index];
        if !Self::is_possible(ack, member.next_number()) {
            return false;
        }
        if !before(ack.cumulative, member.acknowledged) {
            member.credit = ack.credit;
        }
        let is_repeated = !self.note_answer(index, ack);
        while before(self.members[index].acknowledged, ack.cumulative) {
            self.mark_acknowledged(index);
        }
        self.note_missing(index, ack);
        if is_repeated {
            self.report_first(index);
        }
        self.advance_inbound();
        true
    }

    /// A frame is answered; false if it was before. WindowChange counts once for each frame: what answers a Probe or a duplicate has
    /// none of its own.
    fn note_answer(&mut self, index: usize, ack: &Ack) -> bool {
        let member = &mut self.members[index];
        if let Some(&sequence) = member.sent.get(ack.of)
            && let Some(route) = self.routes.get_mut(sequence)
            && !core::mem::replace(&mut route.answered, true)
        {
            member.note_feedback(ack.feedback);
            self.missing.remove(sequence);
            return true;
        }
        false
    }

    /// A member that is asked, as nothing new comes through to it, tells the peer first of the frame that it waits for. After a
    /// failure that need not be the lowest number, and with a full buffer it takes no other.
    fn report_first(&mut self, index: usize) {
        let member = &self.members[index];
        if let Some(&sequence) = member.sent.get(member.acknowledged) {
            self.missing.begin_with(sequence);
        }
    }

    /// The first of the member's frames that are not acknowledged is, or its Close.
    fn mark_acknowledged(&mut self, index: usize) {
        let member = &mut self.members[index];
        let number = member.acknowledged;
        member.acknowledged = number.wrapping_add(1);
        member.close_acknowledged |= member.close == Some(number);
        let Some(&sequence) = member.sent.get(number) else {
            return;
        };
        member.outstanding -= 1;
        if let Some(place) = member.place {
            self.candidates[place].outstanding -= 1;
        }
        if let Some(route) = self.routes.get_mut(sequence) {
            route.acknowledged = true;
            self.missing.remove(sequence);
        }
    }

    /// What the member misses is missing for the peer, unless it has been sent again since.
    fn note_missing(&mut self, index: usize, ack: &Ack) {
        let member = &self.members[index];
        for number in missing_numbers(ack, member.sent.next()) {
            let Some(&sequence) = member.sent.get(number) else {
                continue;
            };
            let route = self.routes.get(sequence);
            let is_lost = |r: &&Route| !r.acknowledged && !before(ack.of, r.sent_before);
            if route.is_some_and(|route| is_lost(&route)) {
                self.missing.insert(sequence);
            }
        }
    }

    /// Forgets the frames that are acknowledged without a gap; behind the last of them the peer's Close goes out.
    pub(super) fn advance_inbound(&mut self) {
        while let Some(&route) = self.routes.front() {
            match route.owner {
                Owner::Member(owner) if route.acknowledged => {
                    self.routes.pop();
                    self.forget_acknowledged(owner);
                }
                Owner::All if self.close_to_members() => {
                    self.routes.pop();
                    self.acknowledge_to_peer(self.peer_close, WindowChange::default());
                }
                _ => return,
            }
        }
    }

    /// The peer's number is of use until the peer's cumulative number has passed it: duplicates are answered with it.
    fn forget_acknowledged(&mut self, owner: u16) {
        let base = self.routes.base();
        let sent = &mut self.members[usize::from(owner)].sent;
        while sent.front().is_some_and(|sequence| before(*sequence, base)) {
            sent.pop();
        }
    }

    /// Closes the streams to the members; true when all have acknowledged it. Not before all frames are acknowledged: those
    /// of a member that fails must go to another one, which its Close would end.
    fn close_to_members(&mut self) -> bool {
        let mut acknowledged = true;
        for index in 0..self.members.len() {
            if self.members[index].state == State::Open {
                self.close_to_member(index);
            }
            let member = &self.members[index];
            acknowledged &= !member.is_active() || member.close_acknowledged;
        }
        acknowledged
    }

    /// Closes the stream to a member, once.
    pub(super) fn close_to_member(&mut self, index: usize) {
        let member = &mut self.members[index];
        if member.close.is_some() {
            return;
        }
        let sequence = member.sent.next();
        member.close = Some(sequence);
        self.send_to(index, Body::Close { sequence });
    }

    /// Acknowledges to the peer: its frame `of`, or where that is not known any more, the last below the cumulative number.
    pub(super) fn acknowledge_to_peer(&mut self, of: Option<u32>, feedback: WindowChange) {
        let cumulative = self.routes.base();
        if self.single || (of.is_none() && cumulative == 0) {
            return;
        }
        let mut gaps = Gaps::new(cumulative);
        self.missing.report(&mut gaps);
        self.arrivals.report(&mut gaps);
        let body = Body::Ack(Ack {
            cumulative,
            of: of.unwrap_or(cumulative.wrapping_sub(1)),
            credit: self.credit_for_peer(),
            feedback,
            missing: gaps.list(),
        });
        self.send(Leg::Peer, body);
    }

    /// The feedback for the peer when this member has answered. A member to which nothing is on its way has no say: what it last
    /// said may be old.
    fn feedback_for_peer(&self, index: usize, own: WindowChange) -> WindowChange {
        let members = self.members.iter().enumerate();
        let busy = members.filter(|(i, m)| *i == index || (m.is_open() && m.outstanding > 0));
        let latest = busy.filter_map(|(i, m)| Some((m.feedback?, self.ratios.of(i as u16))));
        transform::merge_acks(self.source, own, latest, self.config.scaling)
    }
}

impl Route {
    pub(super) fn new(owner: Owner, number: u32) -> Route {
        Route {
            owner,
            number,
            sent_before: number.wrapping_add(1),
            answered: false,
            acknowledged: false,
        }
    }
}
