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
    /// The sender set the cumulative rate of a group.
    GroupRate {
        /// The group's rank.
        group: u8,
        /// The cumulative rate of this group and all groups below it.
        rate: Rate,
    },
}
