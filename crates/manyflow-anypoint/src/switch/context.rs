//! What the parts of a connection are lent by their owner.

use super::ensemble::Ensemble;
use super::output::Outbox;
use manyflow_core::time::Time;

/// What a call of one direction knows of the rest of the connection.
pub(super) struct Context<'a, P> {
    pub(super) now: Time,
    pub(super) members: &'a Ensemble,
    /// Where packets go.
    pub(super) out: &'a mut Outbox<P>,
}
