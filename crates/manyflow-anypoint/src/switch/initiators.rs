//! The switch of an ensemble whose members open the connection: the left one of two switches that
//! transform for each other (Fig. 2).
//!
//! ```text
//!   member 0 --Open--> +-----------+                   +--------+ --Open--> member 0
//!   member 1 --Open--> | initiator |------ Open -----> | switch | --Open--> member 1
//!                      |  switch   |                   |        |
//!   member 0 <-Accept- |           |<----- Accept ---- |        | <-Accept- member 0
//!   member 1 <-Accept- +-----------+                   +--------+ <-Accept- member 1
//! ```
//!
//! Transport equivalence lets each switch see the other as one end (section IV), so numbers,
//! acknowledgements and XCP's headers need nothing new: a frame is outbound at the first switch,
//! and inbound at the second. Only the opening is the other way round. [`InitiatorSwitch`]
//! exchanges its parts, and passes everything else to a [`Switch`]:
//!
//! | on the network | for the `Switch` inside |
//! |---|---|
//! | the peer's Accept, also with another credit | an Open of the peer |
//! | a member's Open | the member's Accept, once the switch has sent it an Open |
//! | an Accept to a member | the switch's Open to that member |
//! | none: the peer was opened before | the switch's Accept to the peer |
//!
//! All members open the connection with the same number. The first Open of a member opens the
//! connection to the peer; each repetition repeats it, so the opening has no timer of its own. A
//! member that has not opened within [`SwitchConfig::failure_timeout`] after the peer's Accept has
//! failed for this connection. Until each member has opened or failed, the peer's frames are
//! dropped, and the peer sends them again.

use std::collections::VecDeque;

use super::{Leg, MemberId, Policy, Switch, SwitchConfig};
use crate::{Body, ConfigError, Event, Payload, Reason, Segment};
use manyflow_core::time::Time;

/// A switch between a peer and members that open the connection together, with one connection at a
/// time.
///
/// The peer is an end that listens, or a [`Switch`]. Call it like a [`Switch`].
pub struct InitiatorSwitch<P, R = Box<dyn Policy<P>>> {
    switch: Switch<P, R>,
    stage: Stage,
    /// The number of the latest connection.
    number: Option<u32>,
    /// The credit that each member's Open grants, by the member's number; `None` before its Open.
    granted: Vec<Option<u32>>,
    /// The credit that the switch inside grants to each member; `None` before its Open to the
    /// member.
    offered: Vec<Option<u32>>,
    /// Whether the switch inside has given each member up.
    is_given_up: Vec<bool>,
    /// Segments of the opening.
    opening: VecDeque<(Leg, Segment)>,
    /// The time of the latest call.
    now: Time,
}

/// The stages of a connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// There is no connection.
    Idle,
    /// A member has opened the connection, and the peer has not accepted it.
    Opening,
    /// The peer has accepted the connection, and a member has neither opened it nor failed.
    Gathering,
    /// Every member has opened the connection or has failed.
    Underway,
}

impl<P: Payload + Default, R: Policy<P>> InitiatorSwitch<P, R> {
    /// Creates a switch with members 0 to `members`, excluded.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn new(
        config: SwitchConfig,
        policy: R,
        members: usize,
    ) -> Result<InitiatorSwitch<P, R>, ConfigError> {
        Ok(InitiatorSwitch {
            switch: Switch::new(config, policy, members)?,
            stage: Stage::Idle,
            number: None,
            granted: vec![None; members],
            offered: vec![None; members],
            is_given_up: vec![false; members],
            opening: VecDeque::new(),
            now: Time::ZERO,
        })
    }

    /// Handles a segment that arrived at `now`. `payload` is the frame's; with any other segment it
    /// has no meaning.
    pub fn handle_segment(&mut self, now: Time, from: Leg, segment: &Segment, payload: P) {
        self.now = now;
        let is_current = self.number == Some(segment.connection);
        let is_opening = is_current && self.is_opening();
        match (from, segment.body) {
            (Leg::Member(id), Body::Open { credit }) => self.handle_open(id, segment, credit),
            (Leg::Peer, Body::Open { .. }) => self.refuse(from, segment.connection),
            (Leg::Member(_), Body::Accept { .. }) => {}
            (Leg::Member(id), Body::Reset(reason)) if self.is_asking(segment.connection) => {
                self.withdraw(id, reason);
            }
            (Leg::Peer, Body::Accept { credit }) if self.is_asking(segment.connection) => {
                self.stage = Stage::Gathering;
                self.pass(Leg::Peer, Body::Open { credit });
            }
            // Before the first acknowledgement the peer repeats its Accept to grant more.
            (Leg::Peer, Body::Accept { credit }) if is_current && !self.switch.is_idle() => {
                self.pass(Leg::Peer, Body::Open { credit });
            }
            (Leg::Peer, Body::Reset(reason)) if self.is_asking(segment.connection) => {
                self.give_up(reason);
            }
            (Leg::Peer, Body::Probe) if is_opening => self.answer(Leg::Peer, Body::Alive),
            (Leg::Peer, body) if is_opening && !matches!(body, Body::Reset(_)) => {}
            _ => self.switch.handle_segment(now, from, segment, payload),
        }
    }

    /// Returns whether the connection exists, and frames cannot pass yet.
    fn is_opening(&self) -> bool {
        match self.stage {
            Stage::Opening => true,
            Stage::Gathering => !self.switch.is_idle(),
            Stage::Idle | Stage::Underway => false,
        }
    }

    /// Returns whether the peer has not yet accepted the connection with this number.
    fn is_asking(&self, connection: u32) -> bool {
        self.stage == Stage::Opening && self.number == Some(connection)
    }

    fn handle_open(&mut self, id: MemberId, segment: &Segment, credit: u32) {
        if self.number != Some(segment.connection) {
            if self.switch.is_in_use() {
                self.refuse(Leg::Member(id), segment.connection);
                return;
            }
            // Members that wait for a peer in vain may have crashed, and nobody else would notice.
            if self.stage == Stage::Opening {
                self.give_up(Reason::Refused);
            }
            self.begin(segment.connection);
        }
        let index = id.index();
        match self.stage {
            Stage::Opening => {
                self.granted[index] = Some(credit);
                self.answer(Leg::Peer, Body::Open { credit });
            }
            Stage::Gathering | Stage::Underway if self.may_open(id) => {
                self.granted[index] = Some(credit);
                self.admit(id);
            }
            // The member was given up.
            Stage::Gathering | Stage::Underway if !self.switch.is_idle() => {
                self.refuse(Leg::Member(id), segment.connection);
            }
            // The connection is over: the switch inside knows why.
            _ => self.pass(Leg::Member(id), segment.body),
        }
    }

    /// Returns whether the connection exists and has not given the member up. A member for which
    /// there is no credit yet may open it, and gets its Accept later.
    fn may_open(&self, id: MemberId) -> bool {
        !self.switch.is_idle() && !self.is_given_up[id.index()]
    }

    fn begin(&mut self, connection: u32) {
        self.number = Some(connection);
        self.stage = Stage::Opening;
        self.granted.fill(None);
        self.offered.fill(None);
        self.is_given_up.fill(false);
    }

    /// Accepts a member that has opened the connection, if there is credit for it.
    fn admit(&mut self, id: MemberId) {
        let index = id.index();
        if let (Some(granted), Some(offered)) = (self.granted[index], self.offered[index]) {
            self.answer(Leg::Member(id), Body::Accept { credit: offered });
            self.pass(Leg::Member(id), Body::Accept { credit: granted });
        }
    }

    /// Handles the end of a member before the peer has accepted.
    fn withdraw(&mut self, id: MemberId, reason: Reason) {
        self.granted[id.index()] = None;
        if self.granted.iter().all(Option::is_none) {
            self.answer(Leg::Peer, Body::Reset(reason));
            self.stage = Stage::Idle;
        }
    }

    /// Ends a connection that the peer has not accepted.
    fn give_up(&mut self, reason: Reason) {
        for index in 0..self.granted.len() {
            if self.granted[index].take().is_some() {
                let member = Leg::Member(MemberId(index as u16));
                self.answer(member, Body::Reset(reason));
            }
        }
        self.stage = Stage::Idle;
    }

    /// Hands a segment of the current connection to the switch inside.
    fn pass(&mut self, from: Leg, body: Body) {
        if let Some(connection) = self.number {
            let segment = Segment { connection, body };
            let none = P::default();
            self.switch.handle_segment(self.now, from, &segment, none);
        }
    }

    /// Sends a segment of the current connection.
    fn answer(&mut self, to: Leg, body: Body) {
        if let Some(connection) = self.number {
            self.opening.push_back((to, Segment { connection, body }));
        }
    }

    fn refuse(&mut self, to: Leg, connection: u32) {
        let body = Body::Reset(Reason::Refused);
        self.opening.push_back((to, Segment { connection, body }));
    }

    /// Adds a member, and returns its number: the next one.
    pub fn join(&mut self, now: Time) -> MemberId {
        self.now = now;
        self.granted.push(None);
        self.offered.push(None);
        self.is_given_up.push(false);
        self.switch.join(now)
    }

    /// Returns whether there is a connection in which a member that joins can take part, as
    /// [`Switch::takes_members`] does.
    pub fn takes_members(&self) -> bool {
        self.stage == Stage::Opening || self.switch.takes_members()
    }

    /// Releases a member, as [`Switch::leave`] does.
    pub fn leave(&mut self, now: Time, member: MemberId) {
        self.now = now;
        self.switch.leave(now, member);
    }

    /// Returns whether there is no connection: none was opened, or the last one is over.
    pub fn is_idle(&self) -> bool {
        self.stage != Stage::Opening && self.switch.is_idle()
    }

    /// Returns whether nothing is left to deliver, as [`Switch::is_finished`] does.
    pub fn is_finished(&self) -> bool {
        self.stage != Stage::Opening && self.switch.is_finished()
    }

    /// Handles the timer if it is due at `now`. A spurious call does nothing.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        self.switch.handle_timeout(now);
    }

    /// Returns when to call [`handle_timeout`](InitiatorSwitch::handle_timeout) next, if at all.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.switch.poll_timeout()
    }

    /// Returns the next segment to send, its leg, and its payload. The payload of a segment that is
    /// not a frame is the default.
    pub fn poll_transmit(&mut self) -> Option<(Leg, Segment, P)> {
        loop {
            if let Some((to, segment)) = self.opening.pop_front() {
                return Some((to, segment, P::default()));
            }
            let (to, segment, payload) = self.switch.poll_transmit()?;
            match (to, segment.body) {
                (Leg::Member(id), Body::Open { credit }) => {
                    self.offered[id.index()] = Some(credit);
                    self.admit(id);
                }
                (Leg::Peer, Body::Accept { .. }) => self.stage = Stage::Underway,
                (Leg::Member(id), Body::Reset(_)) if self.number == Some(segment.connection) => {
                    self.is_given_up[id.index()] = true;
                    return Some((to, segment, payload));
                }
                _ => return Some((to, segment, payload)),
            }
        }
    }

    /// Returns the next event, as [`Switch::poll_event`] does.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.switch.poll_event()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::switch::RoundRobin;
    use crate::{Data, Length, UNLIMITED};
    use manyflow_core::xcp::Congestion;

    const OPEN: Body = Body::Open { credit: UNLIMITED };
    const ACCEPT: Body = Body::Accept { credit: UNLIMITED };
    const MEMBERS: [Leg; 2] = [Leg::Member(MemberId(0)), Leg::Member(MemberId(1))];

    type Initiators = InitiatorSwitch<Length, RoundRobin>;

    fn initiators() -> Initiators {
        let config = SwitchConfig::default();
        InitiatorSwitch::new(config, RoundRobin::default(), 2).expect("a switch")
    }

    /// Returns what the switch sends when `body` arrives from a leg at this time in milliseconds.
    fn answers(switch: &mut Initiators, at_ms: u64, from: Leg, body: Body) -> Vec<(Leg, Body)> {
        let now = Time::from_nanos(at_ms * 1_000_000);
        let connection = 7;
        let segment = Segment { connection, body };
        switch.handle_segment(now, from, &segment, Length(0));
        drain(switch)
    }

    fn drain(switch: &mut Initiators) -> Vec<(Leg, Body)> {
        let sent = core::iter::from_fn(|| switch.poll_transmit());
        sent.map(|(to, segment, _)| (to, segment.body)).collect()
    }

    #[test]
    fn members_are_accepted_once_the_peer_has_accepted() {
        let mut switch = initiators();
        assert_eq!(
            answers(&mut switch, 0, MEMBERS[0], OPEN),
            [(Leg::Peer, OPEN)]
        );
        let accepted = answers(&mut switch, 10, Leg::Peer, ACCEPT);
        assert_eq!(accepted, [(MEMBERS[0], ACCEPT)], "member 1 has not opened");
        let probed = answers(&mut switch, 15, Leg::Peer, Body::Probe);
        assert_eq!(probed, [(Leg::Peer, Body::Alive)]);
        let late = answers(&mut switch, 20, MEMBERS[1], OPEN);
        assert_eq!(late, [(MEMBERS[1], ACCEPT)]);
        let repeated = answers(&mut switch, 30, MEMBERS[1], OPEN);
        assert_eq!(repeated, [(MEMBERS[1], ACCEPT)], "its Accept was lost");
        assert_eq!(switch.stage, Stage::Underway);
    }

    #[test]
    fn a_refusal_reaches_the_members_that_have_opened() {
        let refused = Body::Reset(Reason::Refused);
        let mut switch = initiators();
        answers(&mut switch, 0, MEMBERS[1], OPEN);
        let reset = answers(&mut switch, 10, Leg::Peer, refused);
        assert_eq!(reset, [(MEMBERS[1], refused)]);
        assert!(switch.is_idle());
    }

    #[test]
    fn a_member_that_does_not_open_in_time_has_no_part_in_the_connection() {
        let mut switch = initiators();
        answers(&mut switch, 0, MEMBERS[0], OPEN);
        answers(&mut switch, 10, Leg::Peer, ACCEPT);
        for at_ms in (0..4000).step_by(100) {
            switch.handle_timeout(Time::from_nanos(at_ms * 1_000_000));
            answers(&mut switch, at_ms, MEMBERS[0], Body::Alive);
        }
        let failed = Event::MemberFailed(MemberId(1));
        assert!(core::iter::from_fn(|| switch.poll_event()).any(|event| event == failed));
        let late = answers(&mut switch, 4000, MEMBERS[1], OPEN);
        assert!(
            matches!(late[..], [(to, Body::Reset(_))] if to == MEMBERS[1]),
            "{late:?}"
        );
    }

    /// Returns what the switch sends for a member's first frame, of 1000 bytes.
    fn answers_to_frame(switch: &mut Initiators, from: Leg) -> Vec<(Leg, Body)> {
        let body = Body::Data(Data {
            sequence: 0,
            key: 0,
            congestion: Congestion::default(),
        });
        let connection = 7;
        let segment = Segment { connection, body };
        switch.handle_segment(switch.now, from, &segment, Length(1000));
        drain(switch)
    }

    fn has_frame_to_peer(sent: &[(Leg, Body)]) -> bool {
        let is_frame = |(to, body): &(Leg, Body)| *to == Leg::Peer && matches!(body, Body::Data(_));
        sent.iter().any(is_frame)
    }

    #[test]
    fn several_members_share_the_credit_of_a_repeated_accept() {
        let part = Body::Accept { credit: 2500 };
        // The larger credit comes after all members have opened, or before.
        for is_gathering in [false, true] {
            let mut switch = initiators();
            answers(&mut switch, 0, MEMBERS[0], OPEN);
            answers(&mut switch, 10, Leg::Peer, Body::Accept { credit: 0 });
            if !is_gathering {
                answers(&mut switch, 15, MEMBERS[1], OPEN);
            }
            let mut passed = answers(&mut switch, 20, Leg::Peer, Body::Accept { credit: 5000 });
            if is_gathering {
                passed.extend(answers(&mut switch, 25, MEMBERS[1], OPEN));
            }
            assert_eq!(passed, MEMBERS.map(|member| (member, part)));
            for member in MEMBERS {
                let sent = answers_to_frame(&mut switch, member);
                assert!(has_frame_to_peer(&sent), "{sent:?}");
            }
            let older = answers(&mut switch, 30, Leg::Peer, Body::Accept { credit: 0 });
            assert_eq!(older, [], "it was delayed on its way");
        }
    }

    #[test]
    fn a_member_uses_the_credit_of_a_repeated_accept_after_another_has_joined() {
        let config = SwitchConfig::default();
        let mut switch: Initiators =
            InitiatorSwitch::new(config, RoundRobin::default(), 1).expect("a switch");
        answers(&mut switch, 0, MEMBERS[0], OPEN);
        answers(&mut switch, 10, Leg::Peer, Body::Accept { credit: 0 });
        let renewed = Body::Accept { credit: 5000 };
        let passed = answers(&mut switch, 20, Leg::Peer, renewed);
        assert_eq!(passed, [(MEMBERS[0], renewed)]);
        switch.join(Time::from_nanos(30_000_000));
        let sent = answers_to_frame(&mut switch, MEMBERS[0]);
        assert!(has_frame_to_peer(&sent), "{sent:?}");
    }
}
