//! The states of a hop, as reasons for its rate.

/// The present reason for the rate of a hop.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HopState {
    /// The rate is given by the configuration.
    Given,
    /// The rate doubles in each round-trip time, until a queue builds or packets are lost.
    Starting,
    /// The path's queue is short, and the rate grows slowly.
    Growing,
    /// The rate is below that of the path, so that its queue drains.
    Draining,
    /// Other senders fill the queue of the path, and the rate follows a window as TCP's does.
    Competing,
    /// The child answers no sounding, and the rate falls.
    Silent,
}

impl HopState {
    /// All states, in their order.
    pub const ALL: [HopState; 6] = [
        HopState::Given,
        HopState::Starting,
        HopState::Growing,
        HopState::Draining,
        HopState::Competing,
        HopState::Silent,
    ];

    /// Returns the place in [`HopState::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// Returns why the rate is as it is, as the end of a sentence.
    pub fn because(self) -> &'static str {
        match self {
            HopState::Given => "its rate is given",
            HopState::Starting => "it looks for the rate of its path",
            HopState::Growing => "the queue of its path is short",
            HopState::Draining => "the queue of its path drains",
            HopState::Competing => "other senders fill the queue of its path",
            HopState::Silent => "its child does not answer",
        }
    }

    /// Returns the state's name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            HopState::Given => "given",
            HopState::Starting => "starting",
            HopState::Growing => "growing",
            HopState::Draining => "draining",
            HopState::Competing => "competing",
            HopState::Silent => "silent",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_its_place_and_a_name_of_its_own() {
        for (place, state) in HopState::ALL.into_iter().enumerate() {
            assert_eq!(state.index(), place);
            let states = HopState::ALL.iter();
            let same = states.filter(|other| other.name() == state.name());
            assert_eq!(same.count(), 1);
        }
    }
}
