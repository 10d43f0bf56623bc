//! Parameters of TFMCC, with the RFC's values as defaults.

use core::time::Duration;

use manyflow_core::estimate::tcp_equation::TcpEquation;
use manyflow_core::{ConfigError, Rate};

/// The duration T of a feedback round, in maximum round-trip times, for unicast feedback
/// (RFC 4654 section 3.4). Sender and receivers must agree on it.
pub const ROUND_RTTS: u32 = 6;

/// The shortest round-trip time that the protocol knows (RFC 4654 sections 3.2, 4.3.2 and 4.3.3).
pub(crate) const RTT_MIN: Duration = Duration::from_millis(1);
/// Longer round-trip times count as this one. Above the packet spacing at the lowest rate.
pub(crate) const RTT_LIMIT: Duration = Duration::from_secs(10);
/// The packet spacing at the lowest rate (RFC 4654 section 3.3).
pub(crate) const SPACING_MAX: Duration = Duration::from_secs(8);

/// Parameters of a sender.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SenderConfig {
    /// s: the packet size in bytes, including all headers. 128 to 65,535.
    pub packet_bytes: u32,
    /// The initial value of R_max, 1 ms to 10 s. It should exceed every receiver's round-trip time
    /// and be at least 500 ms on the public Internet (section 3.1).
    pub initial_rtt_max: Duration,
    /// The application's maximum rate, at least one packet per 8 s. `None` means no limit.
    pub maximum_rate: Option<Rate>,
    /// g: a report suppresses all reports that are not lower by this fraction, between 0 and 1
    /// (section 3.4).
    pub suppression_margin: f64,
    /// ts_gran: the granularity of the world's timers, at most 1 s. The sender catches up with
    /// packets that a timer delayed by up to this (section 3.7).
    pub timer_granularity: Duration,
    /// Whether data packets are ECN-capable: routers may mark them instead of dropping them.
    pub ecn: bool,
}

impl Default for SenderConfig {
    fn default() -> SenderConfig {
        SenderConfig {
            packet_bytes: 1000,
            initial_rtt_max: Duration::from_millis(500),
            maximum_rate: None,
            suppression_margin: 0.1,
            timer_granularity: Duration::from_millis(10),
            ecn: false,
        }
    }
}

impl SenderConfig {
    /// Checks that each parameter is inside its range.
    ///
    /// # Errors
    /// Names the first parameter that is outside its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let lowest = u64::from(self.packet_bytes) * 8 / SPACING_MAX.as_secs();
        ConfigError::first_of([
            (
                "the packet size",
                "128 to 65,535 bytes",
                (128..=65_535).contains(&self.packet_bytes),
            ),
            (
                "the initial maximum RTT",
                "1 ms to 10 s",
                (RTT_MIN..=RTT_LIMIT).contains(&self.initial_rtt_max),
            ),
            (
                "the maximum rate",
                "at least one packet per 8 s",
                self.maximum_rate
                    .is_none_or(|rate| rate.bits_per_s() >= lowest),
            ),
            (
                "the suppression margin",
                "above 0 and below 1",
                is_fraction(self.suppression_margin),
            ),
            (
                "the timer granularity",
                "at most 1 s",
                self.timer_granularity <= Duration::from_secs(1),
            ),
        ])
    }
}

/// Parameters of a receiver.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ReceiverConfig {
    /// N: an upper bound on the number of receivers, 2 to 1,000,000. The same at all receivers
    /// (section 4.5).
    pub receivers_max: u32,
    /// k: the receive rate is measured over the last k/2 to k round-trip times, 2 to 16
    /// (section 4.3.4).
    pub receive_rate_rtts: u32,
    /// q of receivers other than the limiting one: the weight of the past in the smoothed
    /// round-trip time, 0 to below 1 (section 4.3.2).
    pub rtt_weight: f64,
    /// q of the limiting receiver, which measures more often: 0 to below 1 (section 4.3.2).
    pub clr_rtt_weight: f64,
    /// Whether the one-way delay adjusts the round-trip time between measurements (section 4.3.3).
    pub delay_adjustments: bool,
    /// The TCP that Eq. (1) describes. The RFC's is Reno.
    pub equation: TcpEquation,
    /// Whether a long interval without loss reduces the weight of older intervals (section 5.5).
    pub history_discounting: bool,
    /// Whether the receiver leaves after 120 s in which its calculated rate is below one packet per
    /// 8 s and the sender sends faster (section 4.4).
    pub leaves_when_too_slow: bool,
}

impl Default for ReceiverConfig {
    fn default() -> ReceiverConfig {
        ReceiverConfig {
            receivers_max: 10_000,
            receive_rate_rtts: 4,
            rtt_weight: 0.5,
            clr_rtt_weight: 0.9,
            delay_adjustments: true,
            equation: TcpEquation::RENO,
            history_discounting: true,
            leaves_when_too_slow: true,
        }
    }
}

impl ReceiverConfig {
    /// Checks that each parameter is inside its range.
    ///
    /// # Errors
    /// Names the first parameter that is outside its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let weight = |q: f64| (0.0..1.0).contains(&q);
        ConfigError::first_of([
            (
                "the maximum number of receivers",
                "2 to 1,000,000",
                (2..=1_000_000).contains(&self.receivers_max),
            ),
            ("the minimum RTO", "0 s to 60 s", self.equation.is_valid()),
            (
                "the receive rate's RTTs",
                "2 to 16",
                (2..=16).contains(&self.receive_rate_rtts),
            ),
            ("the RTT weight", "0 to below 1", weight(self.rtt_weight)),
            (
                "the limiting receiver's RTT weight",
                "0 to below 1",
                weight(self.clr_rtt_weight),
            ),
        ])
    }
}

fn is_fraction(x: f64) -> bool {
    x > 0.0 && x < 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_inside_their_ranges() {
        assert_eq!(SenderConfig::default().check(), Ok(()));
        assert_eq!(ReceiverConfig::default().check(), Ok(()));
    }

    #[test]
    fn a_parameter_outside_its_range_is_named() {
        let config = SenderConfig {
            suppression_margin: f64::NAN,
            ..SenderConfig::default()
        };
        let error = config.check().unwrap_err().to_string();
        assert!(error.contains("suppression margin"), "{error}");
        let config = ReceiverConfig {
            receivers_max: 1,
            ..ReceiverConfig::default()
        };
        let error = config.check().unwrap_err().to_string();
        assert!(error.contains("number of receivers"), "{error}");
    }
}
