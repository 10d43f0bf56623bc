//! A token bucket, which limits bursts to its depth and the long-term rate to its rate.

use core::time::Duration;

use crate::time::{Time, seconds};

/// Tokens that arrive at a rate and are kept up to a depth. The owner decides what a token stands
/// for: a byte, a message.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct TokenBucket {
    rate_per_s: f64,
    depth: f64,
    tokens: f64,
    /// The time at which there were that many tokens.
    at: Time,
}

impl TokenBucket {
    /// Creates a full bucket. Neither number is negative.
    pub fn new(now: Time, rate_per_s: f64, depth: f64) -> TokenBucket {
        TokenBucket {
            rate_per_s,
            depth,
            tokens: depth,
            at: now,
        }
    }

    /// Changes rate and depth. The present tokens remain, up to the new depth.
    pub fn set(&mut self, now: Time, rate_per_s: f64, depth: f64) {
        self.fill(now);
        self.rate_per_s = rate_per_s;
        self.depth = depth;
        self.tokens = self.tokens.min(depth);
    }

    /// Takes `tokens` if there are that many; there are never more than the depth. Returns whether
    /// it did.
    pub fn take(&mut self, now: Time, tokens: f64) -> bool {
        self.fill(now);
        // A wait is rounded to a nanosecond. The fraction of a token that is missing because of it
        // must not cause another wait.
        let enough = self.tokens + 1e-6 * tokens >= tokens;
        if enough {
            self.tokens = (self.tokens - tokens).max(0.0);
        }
        enough
    }

    /// Returns when there will be `tokens`, if none are taken and the depth allows for them.
    pub fn ready_at(&self, tokens: f64) -> Time {
        let missing = (tokens - self.tokens).max(0.0);
        if missing == 0.0 {
            return self.at;
        }
        // Always later than now, so that a caller that waits makes progress.
        self.at + seconds(missing / self.rate_per_s).max(Duration::from_nanos(1))
    }

    fn fill(&mut self, now: Time) {
        let came = (now - self.at).as_secs_f64() * self.rate_per_s;
        self.tokens = (self.tokens + came).min(self.depth);
        self.at = now;
        debug_assert!(
            self.tokens >= 0.0,
            "{} tokens: more were taken than there were",
            self.tokens
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_as_large_as_the_depth_and_the_rate_follows() {
        let mut bucket = TokenBucket::new(Time::ZERO, 10.0, 3.0);
        let burst = (0..10).filter(|_| bucket.take(Time::ZERO, 1.0)).count();
        assert_eq!(burst, 3);
        let ready = bucket.ready_at(1.0);
        assert_eq!(ready, Time::from_secs_f64(0.1));
        assert!(!bucket.take(Time::from_secs_f64(0.09), 1.0));
        assert!(bucket.take(ready, 1.0));
    }

    #[test]
    fn a_caller_that_waits_until_ready_gets_the_rate_exactly() {
        let mut bucket = TokenBucket::new(Time::ZERO, 123_456.7, 1400.0);
        let (mut now, mut taken) = (Time::ZERO, 0);
        while now < Time::from_secs_f64(100.0) {
            assert!(bucket.take(now, 1400.0), "at {now}");
            taken += 1400;
            now = bucket.ready_at(1400.0);
        }
        assert!(
            (f64::from(taken) / 12_345_670.0 - 1.0).abs() < 1e-3,
            "{taken}"
        );
    }

    #[test]
    fn a_new_rate_applies_from_its_time_on() {
        let mut bucket = TokenBucket::new(Time::ZERO, 10.0, 10.0);
        assert!(bucket.take(Time::ZERO, 10.0));
        bucket.set(Time::from_secs_f64(0.5), 1.0, 10.0);
        assert_eq!(bucket.ready_at(6.0), Time::from_secs_f64(1.5));
        bucket.set(Time::from_secs_f64(0.5), 0.0, 10.0);
        assert_eq!(bucket.ready_at(6.0), Time::MAX, "no tokens come at rate 0");
    }
}
