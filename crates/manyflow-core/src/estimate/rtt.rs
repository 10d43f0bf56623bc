//! The retransmission time-out (RFC 6298).

use core::time::Duration;

use crate::time::seconds;

/// G, the clock granularity, as in ns-2 (`tcpTick_`). With a constant round-trip time, it keeps the
/// time-out above that time.
const GRANULARITY_S: f64 = 0.01;
/// The time-out before the first sample (section 2.1).
const INITIAL: Duration = Duration::from_secs(1);
/// The maximum time-out (section 2.5).
const MAXIMUM: Duration = Duration::from_secs(60);

/// The average round-trip time, and the time-out that follows from it.
#[derive(Debug)]
pub struct RttEstimator {
    minimum: Duration,
    /// SRTT and RTTVAR in seconds; `None` before the first sample.
    average: Option<(f64, f64)>,
    /// The present RTO, which may be backed off.
    timeout: Duration,
}

impl RttEstimator {
    /// Creates an estimator whose time-outs are never shorter than `minimum`.
    pub fn new(minimum: Duration) -> RttEstimator {
        RttEstimator {
            minimum,
            average: None,
            timeout: INITIAL.max(minimum),
        }
    }

    /// Returns SRTT in seconds; 0 before the first sample.
    pub fn average_s(&self) -> f64 {
        self.average.map_or(0.0, |(average_s, _)| average_s)
    }

    /// Returns the present RTO, which may be backed off.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Adds a sample in seconds (sections 2.2 and 2.3), which ends the back-off (section 5, last
    /// paragraph).
    pub fn sample(&mut self, sample_s: f64) {
        let (average_s, variation_s) = match self.average {
            None => (sample_s, sample_s / 2.0),
            Some((average_s, variation_s)) => (
                average_s + (sample_s - average_s) / 8.0,
                variation_s + ((sample_s - average_s).abs() - variation_s) / 4.0,
            ),
        };
        self.average = Some((average_s, variation_s));
        self.end_back_off();
    }

    /// Ends the back-off after data was acknowledged that could not be timed because it had been
    /// sent twice. Section 5 (last paragraph) would wait for a sample, which does not come while
    /// everything is retransmitted: 2 % of the connections that `make faults` runs then hang for
    /// minutes. Linux ends its back-off with each advance as well.
    pub fn end_back_off(&mut self) {
        let timeout = self.average.map_or(INITIAL, |(average_s, variation_s)| {
            seconds(average_s + GRANULARITY_S.max(4.0 * variation_s))
        });
        self.timeout = timeout.max(self.minimum).min(MAXIMUM);
    }

    /// Doubles the time-out after the timer has expired (section 5.5).
    pub fn back_off(&mut self) {
        self.timeout = (self.timeout * 2).min(MAXIMUM);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_time_out_is_three_times_the_sample() {
        let mut rtt = RttEstimator::new(Duration::from_millis(200));
        assert_eq!(rtt.timeout(), Duration::from_secs(1));
        rtt.sample(0.1);
        assert_eq!(rtt.timeout(), Duration::from_millis(300));
    }

    #[test]
    fn a_constant_round_trip_gives_the_minimum_or_the_granularity_above_it() {
        for (sample_s, ends_ms) in [(0.05, 200), (0.4, 410)] {
            let mut rtt = RttEstimator::new(Duration::from_millis(200));
            (0..100).for_each(|_| rtt.sample(sample_s));
            assert_eq!(rtt.timeout(), Duration::from_millis(ends_ms));
        }
    }

    #[test]
    fn back_off_doubles_to_a_minute_and_a_sample_ends_it() {
        let mut rtt = RttEstimator::new(Duration::from_millis(200));
        rtt.sample(0.1);
        rtt.back_off();
        assert_eq!(rtt.timeout(), Duration::from_millis(600));
        (0..20).for_each(|_| rtt.back_off());
        assert_eq!(rtt.timeout(), Duration::from_secs(60));
        rtt.sample(0.1);
        assert_eq!(rtt.timeout(), Duration::from_millis(250));
    }
}
