//! Overload and trials: a receiver leaves a group at once if it loses many packets and the group's
//! rate does not fall. If it has just added the group, it waits longer after each such failure.

use core::time::Duration;

use super::config::ReceiverConfig;
use crate::GROUPS_MAX;
use manyflow_core::time::Time;

/// The number of lossy rounds in a row in which the rate does not fall, and after which the top
/// group is too much.
const LOSSY_ROUNDS: u32 = 3;

/// The losses of a receiver, and its failed trials.
#[derive(Clone, Debug)]
pub(super) struct Trials {
    /// The share of lost packets above which a round is lossy.
    loss_max: f64,
    /// The maximum number of failures that lengthen the wait.
    backoffs: u32,
    /// The number of lossy rounds in a row in which the top group's rate did not fall.
    lossy_rounds: u32,
    /// Whether the top group was added in the present selection interval.
    is_trial: bool,
    /// For each number of subscribed groups, the failures in a row, and the end of the wait.
    failed: Vec<(u32, Time)>,
}

impl Trials {
    pub(super) fn new(config: &ReceiverConfig) -> Trials {
        Trials {
            loss_max: config.loss_max,
            backoffs: config.backoffs,
            lossy_rounds: 0,
            is_trial: false,
            failed: vec![(0, Time::ZERO); usize::from(GROUPS_MAX) + 1],
        }
    }

    /// Begins the trial of a group that was just added.
    pub(super) fn begin(&mut self) {
        (self.is_trial, self.lossy_rounds) = (true, 0);
    }

    /// Returns whether the receiver may subscribe to this number of groups.
    pub(super) fn may_add(&self, now: Time, groups: u8) -> bool {
        self.failed[usize::from(groups)].1 <= now
    }

    /// Ends a round with this number of received and lost packets. Returns whether the top group is
    /// too much.
    pub(super) fn on_round(&mut self, received: u32, lost: u32, rate_fell: bool) -> bool {
        self.lossy_rounds = match self.is_lossy(received, lost) && !rate_fell {
            true => self.lossy_rounds.saturating_add(1),
            false => 0,
        };
        self.lossy_rounds >= LOSSY_ROUNDS
    }

    /// Returns whether more than the maximum share of packets is lost.
    fn is_lossy(&self, received: u32, lost: u32) -> bool {
        let all = f64::from(received) + f64::from(lost);
        f64::from(lost) > self.loss_max * all
    }

    /// Returns whether congestion with these losses is a reason to leave the top group. A receiver
    /// that does not look at losses leaves it by marks alone.
    pub(super) fn is_harmful(&self, received: u32, lost: u32) -> bool {
        self.loss_max >= 1.0 || self.is_lossy(received, lost)
    }

    /// Handles an interruption of the path, which ends a trial without a result.
    pub(super) fn on_interruption(&mut self) {
        (self.is_trial, self.lossy_rounds) = (false, 0);
    }

    /// Handles a drop of the top group, from this number of groups. After the n-th failed trial in
    /// a row, the group is not added again for 2^n - 1 selection intervals.
    pub(super) fn on_failure(&mut self, now: Time, groups: u8, interval: Duration) {
        self.lossy_rounds = 0;
        if !core::mem::take(&mut self.is_trial) {
            return;
        }
        let (failures, end) = &mut self.failed[usize::from(groups)];
        *failures = (*failures + 1).min(self.backoffs);
        debug_assert!(*failures <= super::config::BACKOFFS_MAX);
        *end = now + interval.saturating_mul((1 << *failures) - 1);
    }

    /// Handles a selection interval at whose end the top group is kept.
    pub(super) fn on_interval(&mut self, groups: u8) {
        if core::mem::take(&mut self.is_trial) {
            self.failed[usize::from(groups)] = (0, Time::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_group_is_too_much_if_losses_persist_and_its_rate_does_not_fall() {
        let mut trials = Trials::new(&ReceiverConfig {
            loss_max: 0.0625,
            ..ReceiverConfig::default()
        });
        assert!(!trials.on_round(8, 2, false) && !trials.on_round(8, 2, false));
        assert!(trials.on_round(8, 2, false));
        assert!(!trials.on_round(8, 2, true), "the rate falls");
        assert!(!trials.on_round(8, 2, false) && !trials.on_round(8, 2, false));
        assert!(!trials.on_round(100, 1, false), "few losses");
        assert!(!trials.on_round(0, 0, false), "no packets");
    }

    #[test]
    fn failed_trials_double_the_wait_until_one_succeeds() {
        let mut trials = Trials::new(&ReceiverConfig::default());
        let mut wait = |seconds: u64| {
            trials.begin();
            trials.on_failure(at(100), 2, INTERVAL);
            assert!(trials.may_add(at(100), 3), "other groups are not concerned");
            !trials.may_add(at(100 + seconds - 1), 2) && trials.may_add(at(100 + seconds), 2)
        };
        assert!(wait(1) && wait(3) && wait(7));
        trials.begin();
        trials.on_interval(2);
        assert!(trials.may_add(at(100), 2));
        trials.on_failure(at(100), 2, INTERVAL);
        assert!(trials.may_add(at(100), 2), "it was no trial");
    }
}
