//! Holds a receiver to the pace of the command or device that takes its image.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use manyflow_core::Time;
use manyflow_core::units::Rate;

/// The bytes of complete sections that wait for the output at which the rate is limited, and at
/// which it is no longer. A command that reads at the rate of the network leaves a section waiting,
/// of 4 MiB; the next ones arrive in the time that a limit needs to take effect.
const LIMIT_FROM: u64 = 32 << 20;
const LIMIT_TO: u64 = 8 << 20;
/// The time over which the rate of the output is measured.
const INTERVAL: Duration = Duration::from_secs(1);
/// The least limit: some packets a second, so that the session remains alive.
const RATE_MIN: Rate = Rate::from_bits_per_s(100_000);

/// The bytes of an image that could be taken, and those that were.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    complete: AtomicU64,
    taken: AtomicU64,
}

impl Waiting {
    pub(crate) fn note_complete(&self, bytes: u64) {
        self.complete.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn note_taken(&self, bytes: u64) {
        self.taken.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes that wait, and those that were taken.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let taken = self.taken.load(Ordering::Relaxed);
        let complete = self.complete.load(Ordering::Relaxed);
        (complete.saturating_sub(taken), taken)
    }
}

/// Finds the limit of the receiver's rate.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The limit without a slow output.
    configured: Option<Rate>,
    is_limited: bool,
    /// The time of the last measurement, and the bytes taken until then.
    last: (Time, u64),
}

impl Pace {
    pub(crate) fn new(configured: Option<Rate>) -> Pace {
        Pace {
            configured,
            is_limited: false,
            last: (Time::ZERO, 0),
        }
    }

    /// Returns the new limit of the rate, if it changes.
    pub(crate) fn update(&mut self, now: Time, waiting: &Waiting) -> Option<Option<Rate>> {
        let (at, before) = self.last;
        if now < at + INTERVAL {
            return None;
        }
        let (waits, taken) = waiting.bytes();
        self.last = (now, taken);
        let was_limited = self.is_limited;
        self.is_limited = waits > LIMIT_FROM || (was_limited && waits > LIMIT_TO);
        if !self.is_limited {
            return was_limited.then_some(self.configured);
        }
        let bits = (taken - before) as f64 * 8.0 / (now - at).as_secs_f64();
        let pace = Rate::from_bits_per_s(bits as u64).max(RATE_MIN);
        Some(Some(self.configured.map_or(pace, |rate| rate.min(pace))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_is_behind_limits_the_rate_until_it_has_caught_up() {
        let waiting = Waiting::default();
        let mut pace = Pace::new(Some(Rate::from_bits_per_s(40_000_000)));
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        waiting.note_complete(30 << 20);
        assert_eq!(pace.update(at(1), &waiting), None);
        waiting.note_complete(20 << 20);
        waiting.note_taken(1_000_000);
        assert_eq!(pace.update(at(1), &waiting), None, "once in an interval");
        let limit = Some(Some(Rate::from_bits_per_s(4_000_000)));
        assert_eq!(pace.update(at(3), &waiting), limit);
        // It reads nothing, then nearly all, faster than the configured rate.
        assert_eq!(pace.update(at(4), &waiting), Some(Some(RATE_MIN)));
        waiting.note_taken(30 << 20);
        let configured = Some(Some(Rate::from_bits_per_s(40_000_000)));
        assert_eq!(pace.update(at(5), &waiting), configured);
        waiting.note_taken(15 << 20);
        assert_eq!(pace.update(at(6), &waiting), configured);
        assert_eq!(pace.update(at(7), &waiting), None);
    }
}
