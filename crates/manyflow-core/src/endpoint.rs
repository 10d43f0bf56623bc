//! The contract between a protocol and the world that runs it.
//!
//! A protocol has no clock and no sockets. The world hands it packets and the time, then drains its
//! actions and events:
//!
//! ```text
//!   handle_packet | handle_timeout  ->  poll_action until None  ->  poll_event until None  ->  poll_timeout
//! ```
//!
//! Time never goes back. Random choices come from a seed that is given to the protocol's
//! constructor.

use crate::packet::{Channel, Header, Packet};
use crate::time::Time;

/// A protocol state machine at one node.
pub trait Endpoint: Send {
    /// The header of the packets that the endpoint receives.
    type Rx: Header;
    /// The header of the packets that the endpoint sends; [`Infallible`](core::convert::Infallible)
    /// for endpoints that never send.
    type Tx: Header;
    /// The events that the endpoint reports to observers.
    type Event;

    /// Handles a packet that arrived at `now`.
    fn handle_packet(&mut self, now: Time, packet: &Packet<Self::Rx>);

    /// Handles all timers that are due at `now`. Spurious calls do nothing.
    fn handle_timeout(&mut self, now: Time);

    /// Returns the next action of the protocol. The world drains all actions after each `handle_*`.
    fn poll_action(&mut self, now: Time) -> Option<Action<Self::Tx>>;

    /// Returns when [`handle_timeout`](Endpoint::handle_timeout) is wanted next, if at all.
    fn poll_timeout(&self) -> Option<Time>;

    /// Returns the next event, for traces and metrics. The world drains all events after the
    /// actions.
    fn poll_event(&mut self) -> Option<Self::Event>;
}

/// A request of a protocol to its world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<H> {
    /// Send this packet.
    Send(Packet<H>),
    /// Join this channel.
    Join(Channel),
    /// Leave this channel.
    Leave(Channel),
}
