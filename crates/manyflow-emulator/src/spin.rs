//! The time that the main loop may wait awake.
//!
//! A thread that sleeps until a packet is due wakes up late by 50 to 500 µs, because the processor
//! leaves its idle state first, and a virtual one has to be scheduled. The loop therefore sleeps
//! until shortly before, and polls until the packet is due. Where packets are frequent, the
//! processor is not idle, and this would take all of its time; so there is a budget.

use std::time::Duration;

use manyflow_core::Time;

/// The time before an event at which the loop wakes up.
pub(crate) const SPIN: Duration = Duration::from_micros(600);
/// The budget grows by one in this number of the time that passes.
const SHARE: u32 = 5;
/// The maximum of the budget.
const BUDGET_MAX: Duration = Duration::from_millis(20);

/// The budget for waiting awake.
#[derive(Debug)]
pub(crate) struct Budget {
    left: Duration,
    /// The time up to which the budget has grown.
    grown: Time,
}

impl Budget {
    pub(crate) fn new() -> Budget {
        Budget {
            left: BUDGET_MAX,
            grown: Time::ZERO,
        }
    }

    /// Returns whether the loop may wait awake until the next event.
    pub(crate) fn allows(&mut self, now: Time) -> bool {
        self.left = (self.left + (now - self.grown) / SHARE).min(BUDGET_MAX);
        self.grown = now;
        self.left >= SPIN
    }

    /// Takes the time of a wait from the budget.
    pub(crate) fn charge(&mut self, waited: Duration) {
        self.left = self.left.saturating_sub(waited);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_always_waits_awake_does_so_for_a_fifth_of_the_time() {
        let mut budget = Budget::new();
        let (mut now, mut awake) = (Time::ZERO, Duration::ZERO);
        let end = Time::from_secs_f64(10.0);
        while now < end {
            if budget.allows(now) {
                budget.charge(SPIN);
                awake += SPIN;
            }
            now += SPIN;
        }
        let most = Duration::from_secs(2) + BUDGET_MAX + SPIN;
        assert!(
            awake <= most && awake >= Duration::from_secs(2) - SPIN,
            "{awake:?}"
        );
    }
}
