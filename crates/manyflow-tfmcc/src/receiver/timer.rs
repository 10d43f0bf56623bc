//! The feedback timer of receivers other than the limiting one (RFC 4654 section 4.5).
//!
//! The logarithm makes early feedback rare. Of N = 10,000 timers about five expire in the first
//! sixth of the round, and their reports suppress most of the others in time.
//!
//! ```text
//!   fraction of the timers                                 |
//!   that have expired                                     /
//!                                                      _-'
//!   1/N ____________________________________......---''
//!       0                                                  T     t
//! ```

use core::time::Duration;

use manyflow_core::Time;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// Draws t for a round of duration T among up to N receivers (section 4.5). x is uniform in (0, 1].
///
/// `t = max(T * (1 + log(x) / log(N)), 0)`
pub(super) fn draw(round: Duration, receivers_max: u32, random: &mut Pcg64Mcg) -> Duration {
    let x = 1.0 - random.random::<f64>();
    let share = 1.0 + libm::log(x) / libm::log(f64::from(receivers_max));
    debug_assert!(share <= 1.0, "x is at most 1");
    round.mul_f64(share.max(0.0))
}

/// The time at which this round's report is due.
#[derive(Debug, Default)]
pub(super) struct FeedbackTimer {
    due: Option<Time>,
}

impl FeedbackTimer {
    /// Starts the timer, to expire after `t`.
    pub(super) fn start(&mut self, now: Time, t: Duration) {
        self.due = Some(now + t);
    }

    /// Cancels the timer; returns whether it was running.
    pub(super) fn cancel(&mut self) -> bool {
        self.due.take().is_some()
    }

    /// The time at which the timer expires, if it is running.
    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Scales the remaining time when the maximum round-trip time changes from R_max' to R_max:
    ///
    /// `t = t * R_max / R_max'`
    pub(super) fn rescale(&mut self, now: Time, before: Duration, after: Duration) {
        let factor = after.as_secs_f64() / before.as_secs_f64();
        debug_assert!(factor.is_finite() && factor > 0.0, "R_max is positive");
        self.due = self.due.map(|due| now + (due - now).mul_f64(factor));
    }

    /// Postpones the timer by the time without data beyond R_max:
    ///
    /// `t = t + max(tr_now - tr_i - R_max, 0)`
    pub(super) fn postpone(&mut self, by: Duration) {
        self.due = self.due.map(|due| due + by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_pcg::rand_core::SeedableRng;

    const ROUND: Duration = Duration::from_secs(6);

    #[test]
    fn timers_are_spread_as_the_formula_says() {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let mut times: Vec<Duration> = (0..100_000)
            .map(|_| draw(ROUND, 10_000, &mut random))
            .collect();
        times.sort();
        assert!(times[99_999] <= ROUND);
        // Half of the timers expire after T (1 - log 2 / log N), and 1 % of them by T / 2.
        let median = times[50_000].as_secs_f64() / 6.0;
        assert!((median - 0.92474).abs() < 0.002, "{median}");
        let early = times.partition_point(|t| *t <= ROUND / 2);
        assert!((900..1100).contains(&early), "{early}");
    }

    #[test]
    fn what_is_left_changes_with_the_maximum_round_trip() {
        let mut timer = FeedbackTimer::default();
        timer.start(Time::ZERO, ROUND);
        let now = Time::from_secs_f64(2.0);
        timer.rescale(now, Duration::from_millis(500), Duration::from_millis(250));
        assert_eq!(timer.due(), Some(Time::from_secs_f64(4.0)));
        timer.postpone(Duration::from_secs(1));
        assert_eq!(timer.due(), Some(Time::from_secs_f64(5.0)));
        assert!(timer.cancel() && !timer.cancel());
    }
}
