//! Limits how often announcements are verified.

use manyflow_core::Time;

/// Verifications in a second, of which each takes less than a tenth of a millisecond: so a flood
/// takes a tenth of a processor.
const PER_S: f64 = 1_000.0;
/// Verifications at one moment.
const BURST: f64 = 1_000.0;

/// A token bucket.
#[derive(Debug)]
pub(super) struct Bucket {
    tokens: f64,
    filled: Time,
}

impl Default for Bucket {
    fn default() -> Bucket {
        Bucket {
            tokens: BURST,
            filled: Time::ZERO,
        }
    }
}

impl Bucket {
    /// Takes a token, if there is one.
    pub(super) fn take(&mut self, now: Time) -> bool {
        let new = (now - self.filled).as_secs_f64() * PER_S;
        self.filled = now;
        self.tokens = (self.tokens + new).min(BURST);
        let has_one = self.tokens >= 1.0;
        if has_one {
            self.tokens -= 1.0;
        }
        has_one
    }
}
