//! Outbound: the members' frames to the peer, and its acknowledgements to them.

use core::time::Duration;

use super::Leg;
use super::connection::{Connection, missing_numbers};
use super::member::State;
use super::missing::Gaps;
use super::reorder::{Arrival, Numbered};
use super::ring::before;
use super::transform::{self, Aggregate};
use crate::anypoint::{Ack, Body, Payload, UNLIMITED};
use crate::time::Time;
use crate::xcp::{Congestion, WindowChange};

/// A member that has sent nothing for so many round trips, and at least [`QUIET`], has no share in what the ensemble sends.
const QUIET_ROUND_TRIPS: u32 = 4;
const QUIET: Duration = Duration::from_millis(100);

/// Frames of failed members that are sent again at a time, so that they do not come as a burst.
const ORPHANS_AT_ONCE: usize = 64;

/// A frame on its way to the peer.
#[derive(Debug)]
pub(super) struct Sent<P> {
    owner: Sender,
    /// Our next number towards the peer when it was last sent: frames from there on were sent later.
    sent_before: u32,
    /// The peer has answered it, and may hold it beyond a gap.
    answered: bool,
    /// fdbk_src: the feedback with which it came from its member.
    asked: WindowChange,
    /// Kept until the peer acknowledges it, as its member may fail; none where the member's frame was lost before it came here.
    pub(super) item: Option<Numbered<P>>,
}

/// Who sends a frame again.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    /// The member, by its number there.
    Member(u16, u32),
    /// The switch: the member has failed, or it is our Close.
    Switch,
}

impl<P: Payload + Default> Connection<P> {
    /// A frame or a Close from a member.
    pub(super) fn on_member_numbered(
        &mut self,
        now: Time,
        index: usize,
        sequence: u32,
        item: Numbered<P>,
    ) {
        let member = &mut self.members[index];
        if let Numbered::Frame(data, _) = &item {
            member.note_header(now, data);
        }
        if member.closed.is_some_and(|close| before(close, sequence)) {
            return;
        }
        let arrival = member.arrivals.classify(sequence);
        if !self.accepted || matches!(member.state, State::Waiting | State::Opening) {
            // It has accepted, but others have not, or its Accept is yet to come: it waits, without an answer.
            if matches!(arrival, Arrival::Next | Arrival::Beyond) {
                member.arrivals.hold(sequence, item);
            }
            return;
        }
        match arrival {
            Arrival::Known => self.repeat_to_peer(now, index, sequence, item),
            _ if self.sent.is_full() => {}
            Arrival::Next => self.forward_all(now, index, item),
            Arrival::Beyond => {
                member.arrivals.hold(sequence, item);
                self.acknowledge_to_member(index, sequence, WindowChange::default());
            }
            Arrival::TooFar => {}
        }
    }

    /// Sends on what members have sent before the connection was open.
    pub(super) fn forward_early(&mut self, now: Time) {
        for index in 0..self.members.len() {
            let member = &mut self.members[index];
            if member.is_open()
                && let Some(first) = member.arrivals.take_next()
            {
                self.forward_all(now, index, first);
            }
        }
    }

    /// Sends on the member's next frame, and those that have waited for it.
    fn forward_all(&mut self, now: Time, index: usize, first: Numbered<P>) {
        let mut next = Some(first);
        while let Some(item) = next {
            let member = &mut self.members[index];
            let sequence = member.arrivals.next();
            next = member.arrivals.advance();
            if matches!(item, Numbered::Close) {
                member.closed = Some(sequence);
                self.acknowledge_close(index);
                self.close_to_peer();
                return;
            }
            self.forward(now, index, item);
        }
    }

    fn forward(&mut self, now: Time, index: usize, item: Numbered<P>) {
        let number = self.sent.next();
        let member = &mut self.members[index];
        let owner = Sender::Member(index as u16, member.forwarded.next());
        member.forwarded.push(number);
        self.sent.push(Sent::new(owner, number, None));
        self.send_item(now, number, item);
    }

    /// A frame that was sent on before: it is lost, or its acknowledgement.
    fn repeat_to_peer(&mut self, now: Time, index: usize, sequence: u32, item: Numbered<P>) {
        let member = &mut self.members[index];
        if let Some(&number) = member.forwarded.get(sequence) {
            member.missing.remove(sequence);
            self.send_item(now, number, item);
        } else if member.closed == Some(sequence) && !member.forwarded.is_empty() {
            // Its Close is acknowledged when all that came before it is.
        } else {
            self.acknowledge_to_member(index, sequence, WindowChange::default());
        }
    }

    /// Sends what has a number towards the peer, for the first time or again, and keeps it.
    fn send_item(&mut self, now: Time, number: u32, mut item: Numbered<P>) {
        let mut asked = WindowChange::default();
        if let Numbered::Frame(data, _) = &mut item {
            asked = data.congestion.feedback;
            data.congestion = self.merged(now, data.congestion);
        }
        let (body, payload) = item.numbered(number);
        let next = self.sent.next();
        if let Some(sent) = self.sent.get_mut(number) {
            sent.sent_before = next;
            sent.answered = false;
            sent.asked = asked;
            sent.item = Some(item);
        }
        self.send_with(Leg::Peer, body, payload);
    }

    /// The header for the peer, of all that the ensemble sends.
    fn merged(&mut self, now: Time, own: Congestion) -> Congestion {
        let sends = |at: Time, header: Congestion| {
            let round_trip = Duration::from_micros(header.rtt_us.into());
            now - at <= (round_trip * QUIET_ROUND_TRIPS).max(QUIET)
        };
        let open = self.members.iter().filter(|member| member.is_open());
        let latest = open.filter_map(|m| m.header_at.map(|at| (at, m.header)));
        let sending = latest.filter(|(at, header)| sends(*at, *header));
        self.aggregate = Aggregate::of(sending.map(|(_, header)| header));
        transform::merge_data(own, &self.aggregate, self.config.scaling)
    }

    /// An acknowledgement of the peer: it goes to the member whose frame it answers.
    pub(super) fn on_peer_ack(&mut self, now: Time, ack: &Ack) {
        let sent = self.sent.get(ack.of);
        let answered = sent.map(|sent| (sent.owner, sent.bytes(), sent.asked));
        if !self.take_peer_ack(ack) {
            return;
        }
        for number in missing_numbers(ack, self.sent.next()) {
            self.note_missing_at_peer(now, number, ack.of);
        }
        let answered = match answered {
            Some((Sender::Member(owner, number), bytes, asked)) => {
                let index = usize::from(owner);
                let own = Congestion {
                    feedback: asked,
                    ..self.members[index].header
                };
                let scaling = self.config.scaling;
                let feedback =
                    transform::split_ack(ack.feedback, bytes, own, &self.aggregate, scaling);
                self.acknowledge_to_member(index, number, feedback);
                Some(index)
            }
            Some((Sender::Switch, ..)) => {
                self.check_finished(now);
                None
            }
            None => None,
        };
        self.tell_news(answered);
        self.offer_credit();
    }

    /// Takes note of an acknowledgement; false where it speaks of what was never sent.
    ///
    /// Only its cumulative number is a promise (RFC 2018 section 8), and the peer's credit counts from there.
    pub(super) fn take_peer_ack(&mut self, ack: &Ack) -> bool {
        if !Self::is_possible(ack, self.sent.next()) {
            return false;
        }
        if !before(ack.cumulative, self.sent.base()) {
            self.credit = ack.credit;
        }
        if let Some(sent) = self.sent.get_mut(ack.of) {
            sent.answered = true;
            if let Sender::Member(owner, number) = sent.owner {
                self.members[usize::from(owner)].missing.remove(number);
            }
        }
        while before(self.sent.base(), ack.cumulative)
            && let Some(sent) = self.sent.pop()
        {
            self.forget_sent(&sent);
        }
        true
    }

    /// The peer has acknowledged a frame for good.
    fn forget_sent(&mut self, sent: &Sent<P>) {
        let bytes = sent.bytes();
        match sent.owner {
            Sender::Member(owner, number) => {
                let member = &mut self.members[usize::from(owner)];
                member.forwarded.pop();
                member.missing.remove(number);
                member.granted = member.granted.saturating_sub(bytes);
                member.has_news = true;
            }
            Sender::Switch => self.orphan_bytes = self.orphan_bytes.saturating_sub(bytes),
        }
    }

    /// Tells the members of whose frames more have reached the peer for good, but for the one that hears of its own frame. Without
    /// it they would send again what waited for another member's frame.
    fn tell_news(&mut self, answered: Option<usize>) {
        for index in 0..self.members.len() {
            if core::mem::take(&mut self.members[index].has_news) {
                if self.members[index].closed.is_some() {
                    self.acknowledge_close(index);
                } else if answered != Some(index) {
                    self.repeat_acknowledgement(index);
                }
            }
        }
    }

    /// Acknowledges a member's Close when all of its frames are acknowledged.
    fn acknowledge_close(&mut self, index: usize) {
        let member = &self.members[index];
        if let Some(close) = member.closed
            && member.forwarded.is_empty()
        {
            self.acknowledge_to_member(index, close, WindowChange::default());
        }
    }

    /// The peer misses a frame: its member hears of it with its next acknowledgement; the switch's own goes again at once.
    fn note_missing_at_peer(&mut self, now: Time, number: u32, of: u32) {
        let Some(sent) = self.sent.get(number) else {
            return;
        };
        if before(of, sent.sent_before) {
            return;
        }
        match sent.owner {
            Sender::Member(owner, number) => {
                self.members[usize::from(owner)].missing.insert(number);
            }
            Sender::Switch => self.send_again(now, number),
        }
    }

    fn send_again(&mut self, now: Time, number: u32) {
        let sent = self.sent.get(number);
        if let Some(item) = sent.and_then(|sent| sent.item.clone()) {
            self.send_item(now, number, item);
        }
    }

    /// Acknowledges to a member: its frame `of`.
    pub(super) fn acknowledge_to_member(&mut self, index: usize, of: u32, feedback: WindowChange) {
        let free = self.credit_for_member(index);
        let member = &mut self.members[index];
        // What was granted is not taken back: it may be on its way.
        let credit = free.max(member.granted);
        member.granted = credit;
        let mut gaps = Gaps::new(member.cumulative());
        member.missing.report(&mut gaps);
        member.arrivals.report(&mut gaps);
        let ack = Ack {
            cumulative: member.cumulative(),
            of,
            credit,
            feedback,
            missing: gaps.list(),
        };
        self.send_to(index, Body::Ack(ack));
    }

    /// Tells members that may send much more than they know, by an acknowledgement of their last frame. The least worth a packet is
    /// half of their part, or one of them would get the room of others in crumbs (RFC 9293 section 3.8.6.2.2).
    fn offer_credit(&mut self) {
        let part = self.part_of_credit();
        if part == UNLIMITED {
            return;
        }
        for index in 0..self.members.len() {
            let worth = self.members[index].granted.saturating_add(part / 2).max(1);
            if self.credit_for_member(index) >= worth {
                self.repeat_acknowledgement(index);
            }
        }
    }

    /// Acknowledges the last of a member's frames that has reached the peer, if one has.
    pub(super) fn repeat_acknowledgement(&mut self, index: usize) {
        let member = &self.members[index];
        let cumulative = member.cumulative();
        if member.is_open() && cumulative != 0 {
            let last = cumulative.wrapping_sub(1);
            self.acknowledge_to_member(index, last, WindowChange::default());
        }
    }

    /// Closes the stream to the peer when all members have closed theirs.
    pub(super) fn close_to_peer(&mut self) {
        let mut active = self.members.iter().filter(|member| member.is_active());
        let some_closed = self.members.iter().any(|member| member.closed.is_some());
        if self.close.is_some() || !some_closed || active.any(|m| m.closed.is_none()) {
            return;
        }
        let number = self.sent.next();
        self.close = Some(number);
        self.sent
            .push(Sent::new(Sender::Switch, number, Some(Numbered::Close)));
        self.send(Leg::Peer, Body::Close { sequence: number });
    }

    /// The peer has acknowledged our Close, and the members its own.
    pub(super) fn check_finished(&mut self, now: Time) {
        let both = self.close.is_some() && self.peer_close.is_some();
        if both && self.sent.is_empty() && self.routes.is_empty() && self.finished.is_none() {
            self.finished = Some(now);
        }
    }

    /// The switch takes over what a failed member has sent. False where a frame is missing that nobody can send again.
    pub(super) fn adopt_frames(&mut self, index: usize) -> bool {
        let mut complete = true;
        for (_, sent) in self.sent.iter_mut() {
            if matches!(sent.owner, Sender::Member(owner, _) if usize::from(owner) == index) {
                sent.owner = Sender::Switch;
                self.orphan_bytes = self.orphan_bytes.saturating_add(sent.bytes());
                complete &= sent.item.is_some();
            }
        }
        complete
    }

    /// Sends again what only the switch can send, the first frames first. What the peer has answered goes too if nothing else holds
    /// its cumulative number back.
    pub(super) fn send_orphans(&mut self, now: Time) {
        let base = self.sent.base();
        let orphans = self.sent.iter_mut().filter(|(number, sent)| {
            sent.owner == Sender::Switch && (!sent.answered || *number == base)
        });
        let due: Vec<u32> = orphans.take(ORPHANS_AT_ONCE).map(|(n, _)| n).collect();
        for number in due {
            self.send_again(now, number);
        }
    }
}

impl<P: Payload> Sent<P> {
    /// What it takes of the peer's credit.
    fn bytes(&self) -> u32 {
        match &self.item {
            Some(Numbered::Frame(_, payload)) => payload.length(),
            Some(Numbered::Close) | None => 0,
        }
    }
}

impl<P> Sent<P> {
    pub(super) fn new(owner: Sender, number: u32, item: Option<Numbered<P>>) -> Sent<P> {
        Sent {
            owner,
            sent_before: number.wrapping_add(1),
            answered: false,
            asked: WindowChange::default(),
            item,
        }
    }
}
