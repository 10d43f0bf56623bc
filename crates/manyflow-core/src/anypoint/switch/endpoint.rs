//! The switch as an [`Endpoint`]: its packets by the endpoint that sent them, and members that come and go by plan.

use super::{MemberId, Policy, SwitchConfig};
use crate::anypoint::{ConfigError, Length};
use crate::endpoint::{Action, Endpoint, Event};
use crate::packet::{EndpointId, Packet};
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
    _peer: EndpointId,
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
        let _ = (policy, members, changes, MemberId(0));
        config.check()?;
        Ok(SwitchEndpoint { _peer: peer })
    }
}

impl Endpoint for SwitchEndpoint {
    fn handle_packet(&mut self, _now: Time, _packet: &Packet) {}

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_action(&mut self, _now: Time) -> Option<Action> {
        None
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}
