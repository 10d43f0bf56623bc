//! The switch as an [`Endpoint`]: its packets by the endpoint that sent them, and members that come and go by plan.

use std::collections::VecDeque;

use super::{Leg, MemberId, Policy, Switch, SwitchConfig};
use crate::anypoint::{ConfigError, Length};
use crate::endpoint::{Action, Endpoint, Event};
use crate::packet::{Destination, Ecn, EndpointId, Header, Packet};
use crate::time::Time;

/// What happens to the ensemble at a time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// When.
    pub at: Time,
    /// What.
    pub change: MemberChange,
}

/// What happens to the ensemble.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// A member joins, and gets the next number.
    Join(EndpointId),
    /// A member gets no new frames, and is released when all that it has is acknowledged.
    Leave(MemberId),
}

/// A switch with one connection.
pub struct SwitchEndpoint {
    switch: Switch<Length>,
    peer: EndpointId,
    /// By number.
    members: Vec<EndpointId>,
    changes: VecDeque<Change>,
}

impl SwitchEndpoint {
    /// Between `peer` and `members`, which have the numbers 0, 1 and so on; `changes` are in the order of their times.
    ///
    /// # Errors
    /// Where a parameter is outside its range.
    pub fn new(
        config: SwitchConfig,
        policy: Box<dyn Policy<Length>>,
        peer: EndpointId,
        members: Vec<EndpointId>,
        changes: Vec<Change>,
    ) -> Result<SwitchEndpoint, ConfigError> {
        Ok(SwitchEndpoint {
            switch: Switch::new(config, policy, members.len())?,
            peer,
            members,
            changes: changes.into(),
        })
    }

    fn leg_of(&self, source: EndpointId) -> Option<Leg> {
        if source == self.peer {
            return Some(Leg::Peer);
        }
        // The latest: a host that has left may join again.
        let index = self.members.iter().rposition(|member| *member == source)?;
        Some(Leg::Member(MemberId(index as u16)))
    }

    fn endpoint_of(&self, leg: Leg) -> EndpointId {
        match leg {
            Leg::Peer => self.peer,
            Leg::Member(MemberId(member)) => self.members[usize::from(member)],
        }
    }

    fn apply(&mut self, now: Time, change: MemberChange) {
        match change {
            MemberChange::Join(endpoint) => {
                self.members.push(endpoint);
                self.switch.join(now);
            }
            MemberChange::Leave(member) => self.switch.leave(now, member),
        }
    }
}

impl Endpoint for SwitchEndpoint {
    fn handle_packet(&mut self, now: Time, packet: &Packet) {
        if let Header::Anypoint(segment) = &packet.header
            && let Some(from) = self.leg_of(packet.source)
        {
            let payload = Length(packet.payload_bytes);
            self.switch.handle_segment(now, from, segment, payload);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(&Change { at, change }) = self.changes.front()
            && at <= now
        {
            self.changes.pop_front();
            self.apply(now, change);
        }
        self.switch.handle_timeout(now);
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action> {
        let (to, segment, payload) = self.switch.poll_transmit()?;
        Some(Action::Send(Packet {
            source: EndpointId::UNSET,
            destination: Destination::Endpoint(self.endpoint_of(to)),
            ecn: Ecn::NotCapable,
            header: Header::Anypoint(segment),
            payload_bytes: payload.0,
        }))
    }

    fn poll_timeout(&self) -> Option<Time> {
        let change = self.changes.front().map(|change| change.at);
        [change, self.switch.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.switch.poll_event()
    }
}
