//! Events that the endpoints of a layered session report.

use manyflow_core::Channel;
use manyflow_core::units::Rate;

/// An event of SIM or RLM.
#[derive(Copy, Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A receiver joined a group.
    Joined(Channel),
    /// A receiver left a group.
    Left(Channel),
    /// A receiver of RLM lost packets in its steady state.
    LossEvent,
    /// This number of packets of joined groups did not reach a receiver of SIM. The receiver finds
    /// gaps in the sequence of each group, from the first packet after a join to the last before a
    /// leave, and reports them once in a round.
    Lost(u32),
    /// The sender set the cumulative rate of a group.
    GroupRate {
        /// The group's rank.
        group: u8,
        /// The cumulative rate of this group and all groups below it.
        rate: Rate,
    },
}
