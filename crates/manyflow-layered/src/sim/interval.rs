//! The observations of a receiver in a selection interval, and their result.

use manyflow_core::time::Time;

/// The share of congested rounds from which a receiver counts as congested over an interval.
const PERSISTENT: f64 = 0.9;

/// The observations of a selection interval.
#[derive(Clone, Debug, Default)]
pub(super) struct Interval {
    /// The number of rounds until the interval begins.
    pub(super) settling: u32,
    pub(super) since: Option<Time>,
    /// Whether the interval began with the full queue of a path that has become far slower. Its
    /// marks and losses say nothing about the groups that were kept.
    pub(super) is_draining: bool,
    pub(super) rounds: u32,
    pub(super) congested: u32,
    /// The packets that arrived in the interval, and those that are missing.
    pub(super) received: u32,
    pub(super) lost: u32,
    /// The last rate of the top subscribed group.
    pub(super) top_rate: Option<u32>,
    /// The share by which the rate decreased in this round.
    pub(super) round_fall: f64,
    /// The rate increased.
    pub(super) rose: bool,
    /// The rate decreased, and this receiver did not cause it.
    pub(super) fell: bool,
}

impl Interval {
    /// Creates an interval that begins after this number of settling rounds, when the subscription
    /// has changed.
    pub(super) fn settling(rounds: u32) -> Interval {
        Interval {
            settling: rounds,
            ..Interval::default()
        }
    }

    pub(super) fn on_top_rate(&mut self, rate: u32, is_own_doing: bool) {
        if let Some(last) = self.top_rate {
            self.rose |= rate > last;
            self.fell |= rate < last && !is_own_doing;
            let kept = f64::from(rate) / f64::from(last.max(1));
            self.round_fall = 1.0 - (1.0 - self.round_fall) * kept.min(1.0);
        }
        self.top_rate = Some(rate);
    }

    /// Returns whether at most this share of the rounds was congested.
    pub(super) fn is_calm(&self, share: f64) -> bool {
        f64::from(self.congested) <= share * f64::from(self.rounds)
    }

    pub(super) fn is_congested(&self) -> bool {
        f64::from(self.congested) >= PERSISTENT * f64::from(self.rounds)
    }
}
