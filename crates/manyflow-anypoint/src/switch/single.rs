//! An ensemble that has had one member only: all passes as it is, and nothing is held, renumbered or answered.
//!
//! What happens is watched nevertheless: if a second member joins, renumbering starts from the numbers that the first one and the
//! peer have by then.

use super::Leg;
use super::connection::{Connection, leg};
use super::inbound::{Owner, Route};
use super::outbound::{Sender, Sent};
use super::reorder::Numbered;
use super::ring::before;
use crate::{Body, Payload, Segment};
use manyflow_core::time::Time;

impl<P: Payload + Default> Connection<P> {
    /// What the peer sends goes to the member as it is.
    pub(super) fn pass_inbound(&mut self, segment: &Segment, payload: P) {
        match segment.body {
            Body::Data(data) => {
                self.source = data.congestion;
                self.watch_peer_numbered(data.sequence, Some(payload.length()));
            }
            Body::Close { sequence } => self.watch_peer_numbered(sequence, None),
            Body::Ack(ack) => {
                self.take_peer_ack(&ack);
                self.members[0].granted = self.credit;
            }
            Body::Open { credit } => self.credit = credit,
            Body::Accept { .. } | Body::Probe | Body::Alive | Body::Reset(_) => {}
        }
        let passed = (leg(0), *segment, payload);
        self.output.transmits.push_back(passed);
    }

    /// The other way.
    pub(super) fn pass_outbound(&mut self, now: Time, segment: &Segment, payload: P) {
        match segment.body {
            Body::Data(data) => {
                let item = Numbered::Frame(data, payload.clone());
                self.watch_member_numbered(now, data.sequence, item);
            }
            Body::Close { sequence } => self.watch_member_numbered(now, sequence, Numbered::Close),
            Body::Ack(ack) => {
                self.take_member_ack(0, &ack);
            }
            Body::Accept { credit } => self.on_accept(now, 0, credit),
            Body::Open { .. } | Body::Probe | Body::Alive | Body::Reset(_) => {}
        }
        let passed = (Leg::Peer, *segment, payload);
        self.output.transmits.push_back(passed);
    }

    /// A frame or a Close that passes unchanged: all below it have passed as well, or were lost before they came here.
    fn watch_peer_numbered(&mut self, sequence: u32, bytes: Option<u32>) {
        let is_new = !before(sequence, self.routes.next());
        if !self.routes.reaches(sequence) || (is_new && self.peer_close.is_some()) {
            return;
        }
        if let Some(bytes) = bytes {
            self.ratios.count(0, bytes);
        }
        while before(self.routes.next(), sequence)
            || (self.routes.next() == sequence && bytes.is_some())
        {
            self.watch_next_route();
        }
        if is_new && bytes.is_none() {
            self.peer_close = Some(sequence);
            self.members[0].close = Some(sequence);
            self.routes.push(Route::new(Owner::All, sequence));
        }
        self.arrivals.skip_to(self.routes.next());
    }

    /// The next number is the member's.
    fn watch_next_route(&mut self) {
        let number = self.routes.next();
        self.routes.push(Route::new(Owner::Member(0), number));
        let member = &mut self.members[0];
        member.sent.push(number);
        member.outstanding += 1;
        if let Some(place) = member.place {
            self.candidates[place].outstanding += 1;
        }
    }

    /// A frame or a Close that passes unchanged: all below it have passed as well, or were lost before they came here.
    fn watch_member_numbered(&mut self, now: Time, sequence: u32, item: Numbered<P>) {
        let member = &mut self.members[0];
        if let Numbered::Frame(data, _) = &item {
            member.note_header(now, data);
        }
        let is_new = !before(sequence, self.sent.next());
        if !self.sent.reaches(sequence) || (is_new && member.closed.is_some()) {
            return;
        }
        while before(self.sent.next(), sequence) {
            self.watch_next(None);
        }
        if matches!(item, Numbered::Close) && is_new {
            self.members[0].closed = Some(sequence);
            self.close = Some(sequence);
            let close = Sent::new(Sender::Switch, sequence, Some(item));
            self.sent.push(close);
        } else if is_new {
            self.watch_next(Some(item));
        } else if let Some(sent) = self.sent.get_mut(sequence) {
            sent.item = Some(item);
        }
        self.members[0].arrivals.skip_to(self.sent.next());
    }

    /// The next number is the member's.
    fn watch_next(&mut self, item: Option<Numbered<P>>) {
        let number = self.sent.next();
        self.members[0].forwarded.push(number);
        let owner = Sender::Member(0, number);
        self.sent.push(Sent::new(owner, number, item));
    }
}
