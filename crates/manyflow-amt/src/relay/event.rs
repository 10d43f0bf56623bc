//! The events of a relay.

/// A change in what the gateways of a relay have joined. Flows are indexes into the list given to
/// [`Relay::new`](super::Relay::new).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayEvent {
    /// The first gateway has joined this flow.
    Joined(usize),
    /// The last gateway of this flow no longer receives it, for this reason.
    Left(usize, LeaveReason),
}

/// The reason why a gateway no longer receives a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaveReason {
    /// The gateway has left the flow, or has torn its tunnel down.
    Left,
    /// The gateway has not refreshed its join.
    Expired,
    /// Another gateway of the same address has taken the place of this one, which was silent.
    GaveWay,
}
