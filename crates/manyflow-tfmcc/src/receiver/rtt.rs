//! The round-trip time of a receiver (RFC 4654 sections 4.1, 4.3.2 and 4.3.3).
//!
//! ```text
//!   sender     ----+-------------+---> ts_i         R_sample = tr_now - tr_r'
//!                 /     held      \                 D_r      = ts_i - tr_r'
//!   receiver --+-/-----------------\-+-> tr_now     R'       = D_r + tr_now - ts_j, j > i
//!             tr_r     tr_r' = tr_r + time held
//! ```
//!
//! D_r includes the difference of the two clocks, which cancels out in R'. Section 4.3.3 writes D_r
//! with the opposite sign, with which the difference would count twice.

use core::time::Duration;

use crate::config::{RTT_LIMIT, RTT_MIN};
use crate::number::Stamp;

/// A receiver's estimate of its round-trip time.
#[derive(Debug)]
pub(super) struct RttEstimate {
    /// R: the smoothed samples; `None` before the first measurement.
    smoothed: Option<Duration>,
    /// D_r in microseconds, as of the last measurement.
    reverse_us: i32,
    /// R' of the last packet since the last measurement.
    adjusted: Option<Duration>,
    /// R_max, which is used before the first measurement (sections 4.1 and 4.4).
    initial: Duration,
}

impl RttEstimate {
    /// An estimate without measurements, which takes R_max.
    pub(super) fn new(rtt_max: Duration) -> RttEstimate {
        RttEstimate {
            smoothed: None,
            reverse_us: 0,
            adjusted: None,
            initial: rtt_max.max(RTT_MIN),
        }
    }

    /// R' if there is one, else R, else R_max. At least 1 ms.
    pub(super) fn get(&self) -> Duration {
        let measured = self.adjusted.or(self.smoothed);
        measured.unwrap_or(self.initial)
    }

    /// have_RTT: whether the round-trip time was measured.
    pub(super) fn is_measured(&self) -> bool {
        self.smoothed.is_some()
    }

    /// R in seconds, without adjustments; R_max before the first measurement.
    pub(super) fn smoothed_s(&self) -> f64 {
        self.smoothed.unwrap_or(self.initial).as_secs_f64()
    }

    /// Learns the present R_max.
    pub(super) fn on_rtt_max(&mut self, rtt_max: Duration) {
        self.initial = rtt_max.max(RTT_MIN);
    }

    /// Measures the round-trip time from an echo. `weight` is q. Returns the sample, or `None` if
    /// the echo is of a report from the future.
    ///
    /// `R = q * R + (1 - q) * R_sample` (section 4.3.2)
    pub(super) fn on_echo(
        &mut self,
        now: Stamp,
        echo: Stamp,
        sent: Stamp,
        weight: f64,
    ) -> Option<Duration> {
        let sample = now.since(echo)?.clamp(RTT_MIN, RTT_LIMIT);
        self.smoothed = Some(match self.smoothed {
            None => sample,
            Some(old) => old.mul_f64(weight) + sample.mul_f64(1.0 - weight),
        });
        (self.reverse_us, self.adjusted) = (sent.minus(echo), None);
        debug_assert!(self.get() >= RTT_MIN, "section 4.3.3: strictly positive");
        Some(sample)
    }

    /// Adjusts the round-trip time by the one-way delay of a data packet (section 4.3.3).
    ///
    /// `R' = max(D_r + tr_now - ts_j, 1 ms)`
    pub(super) fn on_packet(&mut self, now: Stamp, sent: Stamp) {
        if self.is_measured() {
            let adjusted_us = self.reverse_us.wrapping_add(now.minus(sent)).max(0) as u64;
            let adjusted = Duration::from_micros(adjusted_us);
            self.adjusted = Some(adjusted.clamp(RTT_MIN, RTT_LIMIT));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The receiver's clock minus the sender's in microseconds, so that timestamps wrap.
    const SKEW_US: u32 = u32::MAX - 5_000_000;

    fn here(ms: u64) -> Stamp {
        Stamp::from_bits(SKEW_US).plus(Duration::from_millis(ms))
    }

    fn there(ms: u64) -> Stamp {
        Stamp::from_bits(0).plus(Duration::from_millis(ms))
    }

    #[test]
    fn the_maximum_stands_in_until_the_first_measurement() {
        let mut rtt = RttEstimate::new(Duration::from_millis(500));
        rtt.on_packet(here(30), there(0));
        rtt.on_rtt_max(Duration::from_millis(400));
        assert!(!rtt.is_measured());
        assert_eq!(rtt.get(), Duration::from_millis(400));
        let sample = rtt.on_echo(here(1100), here(1000), there(1060), 0.5);
        assert_eq!(sample, Some(Duration::from_millis(100)));
        assert_eq!(rtt.get(), Duration::from_millis(100));
    }

    #[test]
    fn later_samples_are_smoothed() {
        let mut rtt = RttEstimate::new(Duration::from_millis(500));
        rtt.on_echo(here(1100), here(1000), there(1060), 0.5);
        rtt.on_echo(here(2200), here(2000), there(2060), 0.9);
        assert_eq!(rtt.get(), Duration::from_millis(110));
    }

    #[test]
    fn a_change_of_the_one_way_delay_is_followed_whatever_the_clocks_say() {
        let mut rtt = RttEstimate::new(Duration::from_millis(500));
        // 60 ms to the sender, 40 ms back.
        rtt.on_echo(here(1100), here(1000), there(1060), 0.5);
        rtt.on_packet(here(1240), there(1200));
        assert_eq!(rtt.get(), Duration::from_millis(100));
        rtt.on_packet(here(1375), there(1300));
        assert_eq!(rtt.get(), Duration::from_millis(135));
        rtt.on_packet(here(1375), there(1600));
        assert_eq!(rtt.get(), RTT_MIN);
    }

    #[test]
    fn an_answer_to_a_report_of_the_future_is_ignored() {
        let mut rtt = RttEstimate::new(Duration::from_millis(500));
        assert_eq!(rtt.on_echo(here(1000), here(1001), there(1000), 0.5), None);
        assert!(!rtt.is_measured());
        let sample = rtt.on_echo(here(1000), here(1000), there(1000), 0.5);
        assert_eq!(sample, Some(RTT_MIN));
    }
}
