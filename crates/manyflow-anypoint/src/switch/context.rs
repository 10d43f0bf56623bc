//! The parts of a connection that it lends to one of its directions during a call.

use super::ensemble::Ensemble;
use super::output::Outbox;
use manyflow_core::time::Time;

/// The rest of the connection, as a call of one direction sees it.
pub(super) struct Context<'a, P> {
    pub(super) now: Time,
    pub(super) members: &'a Ensemble,
    /// The queue of packets to send.
    pub(super) out: &'a mut Outbox<P>,
}
