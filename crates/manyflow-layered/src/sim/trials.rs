//! Overload and trials: a receiver leaves a group at once if it loses many packets and the group's
//! rate does not fall. If it has just added the group, it waits longer after each such failure.

use core::time::Duration;

use super::config::ReceiverConfig;
use crate::GROUPS_MAX;
use manyflow_core::time::Time;

/// The number of lossy rounds in a row in which the rate does not fall, and after which the top
/// group is too much.
const LOSSY_ROUNDS: u32 = 3;

/// The same number if the group has rounds of its own: time for the rate to fall to what this
/// receiver reports, which takes more rounds if a queue has just grown.
const LOSSY_ROUNDS_OF_GROUP: u32 = 6;

/// The square of TCP's window in packets is this constant over the share of packets that are lost
/// (Mathis et al., "The Macroscopic Behavior of the TCP Congestion Avoidance Algorithm", 1997).
const TCP_CONSTANT: f64 = 1.5;

/// The maximum share of losses that is taken for TCP's: at a window of two packets, it lives by its
/// timer.
const TCP_SHARE_MAX: f64 = 0.25;

/// The losses of a receiver, and its failed trials.
#[derive(Clone, Debug)]
pub(super) struct Trials {
    /// The share of lost packets above which a round is lossy.
    loss_max: f64,
    /// The share that a TCP at the present rate would lose; 0 if it is not known.
    tcp_share: f64,
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
            tcp_share: 0.0,
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

    /// Returns whether the top group was added in the present selection interval.
    pub(super) fn is_trial(&self) -> bool {
        self.is_trial
    }

    /// Returns whether the receiver may subscribe to this number of groups.
    pub(super) fn may_add(&self, now: Time, groups: u8) -> bool {
        self.failed[usize::from(groups)].1 <= now
    }

    /// Sets the number of packets that arrive in a round-trip time. A TCP with this window loses a
    /// share of them, which is no reason to leave a group.
    pub(super) fn set_window(&mut self, packets: f64) {
        self.tcp_share = (TCP_CONSTANT / (packets * packets)).min(TCP_SHARE_MAX);
    }

    /// Ends a round with this number of received and lost packets, in which the rate fell by a
    /// share. Returns whether the top group is too much.
    pub(super) fn on_round(&mut self, received: u32, lost: u32, fall: f64) -> bool {
        let (received, lost) = (f64::from(received), f64::from(lost));
        let is_lossy = match self.tcp_share > 0.0 {
            // The fall will have ended as large a share of the losses.
            true => self.is_lossy(received, (lost - fall * (received + lost)).max(0.0)),
            false => self.is_lossy(received, lost) && fall == 0.0,
        };
        self.lossy_rounds = match is_lossy {
            true => self.lossy_rounds.saturating_add(1),
            false => 0,
        };
        self.lossy_rounds
            >= match self.tcp_share > 0.0 {
                true => LOSSY_ROUNDS_OF_GROUP,
                false => LOSSY_ROUNDS,
            }
    }

    /// Returns whether more than the maximum share of packets is lost. If TCP's share is known, the
    /// larger of both counts, and few packets have to show it by two standard deviations.
    fn is_lossy(&self, received: f64, lost: f64) -> bool {
        let most = self.loss_max.max(self.tcp_share) * (received + lost);
        let deviation = match self.tcp_share > 0.0 {
            true => libm::sqrt(most),
            false => 0.0,
        };
        lost > most + 2.0 * deviation
    }

    /// Returns whether congestion with these losses is a reason to leave the top group. A receiver
    /// that does not look at losses leaves it by marks alone.
    pub(super) fn is_harmful(&self, received: u32, lost: u32) -> bool {
        self.loss_max >= 1.0 || self.is_lossy(received.into(), lost.into())
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
        assert!(!trials.on_round(8, 2, 0.0) && !trials.on_round(8, 2, 0.0));
        assert!(trials.on_round(8, 2, 0.0));
        assert!(!trials.on_round(8, 2, 0.5), "the rate falls");
        assert!(!trials.on_round(8, 2, 0.0) && !trials.on_round(8, 2, 0.0));
        assert!(!trials.on_round(100, 1, 0.0), "few losses");
        assert!(!trials.on_round(0, 0, 0.0), "no packets");
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
