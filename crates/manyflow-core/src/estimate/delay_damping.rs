//! A lower sending rate while queues grow (RFC 5348 section 4.5).
//!
//! A rate that depends on the average round-trip time follows a queue only after it has grown or
//! drained, so the rate and the queue oscillate. The correction here depends on the latest sample.

use core::time::Duration;

/// The long-term average of the square root of the round-trip time, and the factor that results
/// from the latest sample.
#[derive(Clone, Debug)]
pub struct DelayDamping {
    /// q2: the weight of the past, in [0, 1).
    history: f64,
    /// R_sqmean, in square roots of seconds; `None` before the first sample.
    mean_sqrt: Option<f64>,
    factor: f64,
}

impl DelayDamping {
    /// Returns the state before the first sample. `history` is q2, the weight of the past in the
    /// average, in [0, 1); RFC 5348 recommends 0.9.
    pub fn new(history: f64) -> DelayDamping {
        debug_assert!((0.0..1.0).contains(&history), "q2 is {history}");
        DelayDamping {
            history,
            mean_sqrt: None,
            factor: 1.0,
        }
    }

    /// Adds a sample of the round-trip time. Ignores a sample of zero.
    ///
    /// `R_sqmean = q2 * R_sqmean + (1 - q2) * sqrt(R_sample)`
    pub fn sample(&mut self, rtt: Duration) {
        if rtt.is_zero() {
            return;
        }
        let root = rtt.as_secs_f64().sqrt();
        let mean = self.mean_sqrt.map_or(root, |mean| {
            self.history * mean + (1.0 - self.history) * root
        });
        self.mean_sqrt = Some(mean);
        self.factor = mean / root;
        debug_assert!(self.factor > 0.0, "the factor is {}", self.factor);
    }

    /// Returns X_inst / X, the factor by which the present rate differs from the allowed rate:
    /// `R_sqmean / sqrt(R_sample)`. It is below 1 while the round-trip time is above its average,
    /// above 1 while it is below, and 1 before the first sample.
    pub fn factor(&self) -> f64 {
        self.factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(history: f64, samples_ms: &[u64]) -> f64 {
        let mut damping = DelayDamping::new(history);
        for ms in samples_ms {
            damping.sample(Duration::from_millis(*ms));
        }
        damping.factor()
    }

    #[test]
    fn a_constant_round_trip_time_leaves_the_rate_as_it_is() {
        assert_eq!(after(0.9, &[]), 1.0);
        assert!((after(0.9, &[100; 50]) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_doubled_round_trip_time_reduces_the_rate_by_three_tenths_at_first() {
        // Section 4.5: "a factor of roughly 0.7". The average has moved by a tenth.
        let mut samples = vec![100; 50];
        samples.push(200);
        let factor = after(0.9, &samples);
        assert!(
            (factor - (0.9 / 2f64.sqrt() + 0.1)).abs() < 1e-12,
            "{factor}"
        );
    }

    #[test]
    fn the_correction_ends_when_the_average_has_followed() {
        let mut samples = vec![100; 10];
        samples.extend([200; 100]);
        assert!((after(0.9, &samples) - 1.0).abs() < 1e-4);
    }

    #[test]
    fn a_shorter_round_trip_time_raises_the_rate() {
        let factor = after(0.5, &[400, 100]);
        assert!((factor - 1.5).abs() < 1e-12, "{factor}");
    }

    #[test]
    fn a_sample_of_zero_is_ignored() {
        assert_eq!(after(0.9, &[0, 100, 0]), 1.0);
    }
}
