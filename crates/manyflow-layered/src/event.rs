//! Events that the endpoints of a layered session report.

use manyflow_core::Channel;
use manyflow_core::units::Rate;

/// The reason for a change of a receiver's groups.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The receiver entered the session.
    Entered,
    /// The receiver left the session.
    Stopped,
    /// The paper's rule to add a group: no congestion over a selection interval, and a rate that
    /// other receivers have lowered.
    Calm,
    /// The rate that the path carries, as measured, allows the next group.
    RateAllows,
    /// The paper's rule to drop a group: congestion over a selection interval, and a rate that
    /// increases.
    Congested,
    /// More packets of the top group were lost, or late, than the bound allows.
    Lost,
    /// No request of the top group, which has its own, arrived for long: its packets do not.
    Unheard,
    /// The sender announced a rate of the top group above the rate that the path carries.
    RateExceeds,
    /// RLM's join timer has expired: the receiver tries the next group.
    Trial,
}

impl Reason {
    /// All reasons, in their order.
    pub const ALL: [Reason; 9] = [
        Reason::Entered,
        Reason::Stopped,
        Reason::Calm,
        Reason::RateAllows,
        Reason::Congested,
        Reason::Lost,
        Reason::Unheard,
        Reason::RateExceeds,
        Reason::Trial,
    ];

    /// Returns the place in [`Reason::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// Returns why the groups change, as the end of a sentence.
    pub fn because(self) -> &'static str {
        match self {
            Reason::Entered => "it enters the session",
            Reason::Stopped => "it leaves the session",
            Reason::Calm => "it saw no congestion while others lowered the rate of its top group",
            Reason::RateAllows => "its path carries the rate of the next group",
            Reason::Congested => "it was congested while the rate of its top group increased",
            Reason::Lost => "it lost more packets than its bound allows",
            Reason::Unheard => "the requests of its top group do not arrive",
            Reason::RateExceeds => "the rate of its top group exceeds what its path carries",
            Reason::Trial => "it tries the next group",
        }
    }

    /// Returns the reason's name in logs, traces and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Entered => "entered",
            Reason::Stopped => "stopped",
            Reason::Calm => "calm",
            Reason::RateAllows => "rate-allows",
            Reason::Congested => "congested",
            Reason::Lost => "lost",
            Reason::Unheard => "unheard",
            Reason::RateExceeds => "rate-exceeds",
            Reason::Trial => "trial",
        }
    }
}

/// The reason why a sender of SIM has changed the rate of a group.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RateReason {
    /// The group grows by a factor: it was never congested, or is far above the rate at which it
    /// was.
    Starting,
    /// The receivers of the group report no congestion, and the rate grows by a step.
    Calm,
    /// Receivers of the group report congestion.
    Congested,
    /// The rate has reached the bound that the menu has for the group.
    Menu,
    /// No receiver has the group as its top group.
    Idle,
    /// No report of the session has arrived for several rounds.
    Silent,
    /// The rate was at its minimum, and is raised a little so that receivers can see it fall.
    Raised,
    /// The minimum of this group or the rates of the groups beside it leave no other rate.
    Order,
    /// The second edition's menu moves groups to rates that receivers can use.
    Moved,
}

impl RateReason {
    /// All reasons, in their order.
    pub const ALL: [RateReason; 9] = [
        RateReason::Starting,
        RateReason::Calm,
        RateReason::Congested,
        RateReason::Menu,
        RateReason::Idle,
        RateReason::Silent,
        RateReason::Raised,
        RateReason::Order,
        RateReason::Moved,
    ];

    /// Returns the place in [`RateReason::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// Returns whether the rate of a group in use changes for this reason again and again, so that
    /// a log of all changes would be long.
    pub fn is_routine(self) -> bool {
        matches!(self, RateReason::Calm | RateReason::Congested)
    }

    /// Returns why the rate changes, as the end of a sentence.
    pub fn because(self) -> &'static str {
        match self {
            RateReason::Starting => "it grows until its receivers report congestion",
            RateReason::Calm => "its receivers report no congestion",
            RateReason::Congested => "its receivers report congestion",
            RateReason::Menu => "it has reached its bound in the menu",
            RateReason::Idle => "it is the top group of no receiver",
            RateReason::Silent => "no report arrives",
            RateReason::Raised => "it was at its minimum",
            RateReason::Order => "the groups beside it leave no other rate",
            RateReason::Moved => "the menu moves to rates that receivers can use",
        }
    }

    /// Returns the reason's name in logs, traces and metrics.
    pub fn name(self) -> &'static str {
        match self {
            RateReason::Starting => "starting",
            RateReason::Calm => "calm",
            RateReason::Congested => "congested",
            RateReason::Menu => "menu",
            RateReason::Idle => "idle",
            RateReason::Silent => "silent",
            RateReason::Raised => "raised",
            RateReason::Order => "order",
            RateReason::Moved => "moved",
        }
    }
}

/// An event of SIM, RLM, RLC or FLID-DL.
#[derive(Copy, Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A receiver joined a group.
    Joined(Channel),
    /// A receiver left a group.
    Left(Channel),
    /// A receiver has changed its groups. This event follows that of the channel,
    /// [`Joined`](Event::Joined) or [`Left`](Event::Left).
    Changed {
        /// The number of groups from now on.
        groups: u8,
        /// The reason for the change.
        reason: Reason,
    },
    /// A receiver of RLM lost packets in its steady state, one of RLC outside of bursts and its
    /// deaf time, or one of FLID-DL in a slot that has ended.
    LossEvent,
    /// This number of packets of joined groups did not reach a receiver. The receiver finds gaps in
    /// the sequence of each group, from the first packet after a join to the last before a leave.
    /// That of SIM reports them once in a round, the others report each gap.
    Lost(u32),
    /// The sender set the cumulative rate of a group.
    GroupRate {
        /// The group's rank.
        group: u8,
        /// The cumulative rate of this group and all groups below it.
        rate: Rate,
        /// The reason for the change; `None` if the rate is that of the group's event before.
        reason: Option<RateReason>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_place_and_a_name_of_its_own() {
        for (place, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), place);
            let same = Reason::ALL
                .iter()
                .filter(|other| other.name() == reason.name());
            assert_eq!(same.count(), 1);
        }
        for (place, reason) in RateReason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), place);
            let same = RateReason::ALL
                .iter()
                .filter(|other| other.name() == reason.name());
            assert_eq!(same.count(), 1);
        }
    }
}
