//! Events that a sink reports.

use manyflow_core::Channel;

/// An event at a sink.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The sink joined its channel.
    Joined(Channel),
    /// The sink left its channel.
    Left(Channel),
}
