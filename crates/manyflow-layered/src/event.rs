//! What the endpoints of a layered session report.

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
    /// A receiver of RLM lost more packets than it tolerates.
    LossEvent,
    /// The sender set the cumulative rate of a group.
    GroupRate {
        /// The group's rank.
        group: u8,
        /// The rate of this group and all below it.
        rate: Rate,
    },
}
