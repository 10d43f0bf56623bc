//! The switch as an [`Endpoint`]: finds the leg of a packet by its source, and changes the members
//! at given times.

use std::collections::VecDeque;

use manyflow_core::{Action, Contents, Destination, Endpoint, EndpointId, Packet, Time};

use manyflow_anypoint::switch::{InitiatorSwitch, Leg, MemberId, Policy, Switch, SwitchConfig};
use manyflow_anypoint::{ConfigError, Event, Segment};

/// A change of the members of a service, and when it happens.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The time of the change.
    pub at: Time,
    /// The change.
    pub change: MemberChange,
}

/// A change of the members of a service.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// The endpoint joins as a member, and gets the next number.
    Join(EndpointId),
    /// The member is released: see [`Switch::leave`].
    Leave(MemberId),
}

/// The side of a connection that a switch stands for.
enum Side {
    /// The members accept the connection.
    Service(Switch<Contents>),
    /// The members open the connection.
    Initiators(InitiatorSwitch<Contents>),
}

/// Calls a method of the switch on either side.
macro_rules! on_switch {
    ($side:expr, $switch:ident => $call:expr) => {
        match $side {
            Side::Service($switch) => $call,
            Side::Initiators($switch) => $call,
        }
    };
}

/// A switch between endpoints.
pub struct SwitchEndpoint {
    side: Side,
    peer: EndpointId,
    /// The endpoint of each member, by its number.
    members: Vec<EndpointId>,
    changes: VecDeque<Change>,
}

impl SwitchEndpoint {
    /// Creates a switch between `peer` and `members`, which have the numbers 0, 1 and so on.
    /// `changes` must be in the order of their times.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn new(
        config: SwitchConfig,
        policy: Box<dyn Policy<Contents>>,
        peer: EndpointId,
        members: Vec<EndpointId>,
        changes: Vec<Change>,
    ) -> Result<SwitchEndpoint, ConfigError> {
        let side = Side::Service(Switch::new(config, policy, members.len())?);
        Ok(SwitchEndpoint::on(side, peer, members, changes))
    }

    /// Creates a switch whose `members` open the connection to `peer` together, which is an end
    /// that accepts, or the switch of another ensemble.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn of_initiators(
        config: SwitchConfig,
        policy: Box<dyn Policy<Contents>>,
        peer: EndpointId,
        members: Vec<EndpointId>,
        changes: Vec<Change>,
    ) -> Result<SwitchEndpoint, ConfigError> {
        let side = Side::Initiators(InitiatorSwitch::new(config, policy, members.len())?);
        Ok(SwitchEndpoint::on(side, peer, members, changes))
    }

    fn on(
        side: Side,
        peer: EndpointId,
        members: Vec<EndpointId>,
        changes: Vec<Change>,
    ) -> SwitchEndpoint {
        SwitchEndpoint {
            side,
            peer,
            members,
            changes: changes.into(),
        }
    }

    fn leg_of(&self, source: EndpointId) -> Option<Leg> {
        if source == self.peer {
            return Some(Leg::Peer);
        }
        // The last match counts: an endpoint that has left may join again.
        let index = self.members.iter().rposition(|member| *member == source)?;
        Some(Leg::Member(MemberId(index as u16)))
    }

    fn endpoint_of(&self, leg: Leg) -> EndpointId {
        match leg {
            Leg::Peer => self.peer,
            Leg::Member(MemberId(member)) => self.members[usize::from(member)],
        }
    }

    /// Changes the members now.
    pub fn change(&mut self, now: Time, change: MemberChange) {
        match change {
            MemberChange::Join(endpoint) => {
                self.members.push(endpoint);
                on_switch!(&mut self.side, switch => switch.join(now));
            }
            MemberChange::Leave(member) => {
                on_switch!(&mut self.side, switch => switch.leave(now, member));
            }
        }
    }
}

impl Endpoint for SwitchEndpoint {
    type Rx = Segment;
    type Tx = Segment;
    type Event = Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Segment>) {
        if let Some(from) = self.leg_of(packet.source) {
            let payload = packet.payload();
            on_switch!(&mut self.side, switch => {
                switch.handle_segment(now, from, &packet.header, payload);
            });
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(&Change { at, change }) = self.changes.front()
            && at <= now
        {
            self.changes.pop_front();
            self.change(now, change);
        }
        on_switch!(&mut self.side, switch => switch.handle_timeout(now));
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action<Segment>> {
        let (to, segment, payload) = on_switch!(&mut self.side, switch => switch.poll_transmit())?;
        Some(Action::Send(Packet::new(
            Destination::Endpoint(self.endpoint_of(to)),
            segment,
            payload,
        )))
    }

    fn poll_timeout(&self) -> Option<Time> {
        let change = self.changes.front().map(|change| change.at);
        let timer = on_switch!(&self.side, switch => switch.poll_timeout());
        [change, timer].into_iter().flatten().min()
    }

    fn poll_event(&mut self) -> Option<Event> {
        on_switch!(&mut self.side, switch => switch.poll_event())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manyflow_anypoint::switch::RoundRobin;
    use manyflow_anypoint::{Body, Segment, UNLIMITED};

    /// Returns what the switch sends, and to which endpoint, when `body` arrives from an endpoint.
    fn answers(switch: &mut SwitchEndpoint, now: Time, from: u32, body: Body) -> Vec<(u32, Body)> {
        let connection = 1;
        let packet = Packet::new(
            Destination::Endpoint(EndpointId(0)),
            Segment { connection, body },
            0,
        )
        .with_source(EndpointId(from));
        switch.handle_packet(now, &packet);
        drain(switch, now)
    }

    fn drain(switch: &mut SwitchEndpoint, now: Time) -> Vec<(u32, Body)> {
        let mut sent = Vec::new();
        while let Some(Action::Send(packet)) = switch.poll_action(now) {
            if let Destination::Endpoint(to) = packet.destination {
                sent.push((to.0, packet.header.body));
            }
        }
        sent
    }

    #[test]
    fn sources_identify_legs_and_members_change_at_given_times() {
        let second = Time::from_secs_f64(1.0);
        let join = Change {
            at: second,
            change: MemberChange::Join(EndpointId(7)),
        };
        let config = SwitchConfig::default();
        let policy = Box::<RoundRobin>::default();
        let members = vec![EndpointId(5), EndpointId(6)];
        let switch = SwitchEndpoint::new(config, policy, EndpointId(9), members, vec![join]);
        let mut switch = switch.expect("a switch");
        assert_eq!(switch.poll_timeout(), Some(second));

        let credit = UNLIMITED;
        let (open, accept) = (Body::Open { credit }, Body::Accept { credit });
        let stranger = answers(&mut switch, Time::ZERO, 4, open);
        assert_eq!(stranger, [], "the stranger belongs to no leg");
        let opened = answers(&mut switch, Time::ZERO, 9, open);
        assert_eq!(opened, [(5, open), (6, open)]);
        assert_eq!(answers(&mut switch, Time::ZERO, 5, accept), []);
        assert_eq!(answers(&mut switch, Time::ZERO, 6, accept), [(9, accept)]);
        switch.handle_timeout(second);
        let joined = drain(&mut switch, second);
        assert!(joined.contains(&(7, open)), "{joined:?}");
    }
}
