//! Parameters of a session of RLM.

use core::ops::RangeInclusive;
use core::time::Duration;

use super::sender::HEADER_BYTES;
use crate::GROUPS_MAX;
use manyflow_core::Check;
pub use manyflow_core::ConfigError;
use manyflow_core::units::Rate;

/// The maximum rate of a group. At higher rates, the time between packets would be lost in
/// rounding.
const RATE_MAX: Rate = Rate::from_bits_per_s(1_000_000_000_000);

/// The parameters of a sender.
#[derive(Clone, Debug, PartialEq)]
pub struct SenderConfig {
    /// The rate of each group by itself, headers included: 1 to [`GROUPS_MAX`] rates, each 1 bit/s
    /// to 1 Tbit/s.
    pub rates: Vec<Rate>,
    /// The length of a packet on a link in bytes, 48 of which are headers: 48 to 65,535.
    pub packet_bytes: u32,
}

impl Default for SenderConfig {
    /// Returns five groups of 1 Mbit/s in packets of 1000 bytes: the session in section IV-H of the
    /// SIM paper.
    fn default() -> SenderConfig {
        SenderConfig {
            rates: vec![Rate::from_bits_per_s(1_000_000); 5],
            packet_bytes: 1000,
        }
    }
}

/// The parameters of a receiver.
///
/// The defaults, which end each description, are those of the paper's simulations, as far as known
/// from memory. Those marked (ns) are from `rlm.tcl`, because the paper gives none or our memory of
/// it is uncertain.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceiverConfig {
    /// T_J's shortest interval, with which every group starts; at least 1 ms. Default 5 s.
    pub join_timer_min: Duration,
    /// T_J's longest interval: at least the shortest, at most a day. Default 600 s; `rlm.tcl` ends
    /// with 60 s.
    pub join_timer_max: Duration,
    /// Alpha: the factor of T_J's interval after a failure, 1 to 1000. Default 2.
    pub backoff: f64,
    /// Beta: the factor of T_J's interval after T_D without loss, above 0 to 1. Default 2/3;
    /// `rlm.tcl` has 3/4.
    pub relaxation: f64,
    /// D: the detection time before any is measured; above 0, at most an hour. Default 5 s (ns).
    pub detection_time: Duration,
    /// Sigma: the deviation of the detection time before any is measured, at most an hour. Default
    /// 2 s (ns).
    pub detection_deviation: Duration,
    /// k1: the weight of D in T_D, above 0 to 100. Default 1.
    pub k1: f64,
    /// k2: the weight of sigma in T_D, 0 to 100. Default 2.
    pub k2: f64,
    /// g1: the weight of a measurement in D, 0 to 1. Default 1/4 (ns).
    pub g1: f64,
    /// g2: the weight of a measurement in sigma, 0 to 1. Default 1/4 (ns).
    pub g2: f64,
    /// The share of lost packets, 0 to 1, above which a measurement ends with a drop. Default 25 %.
    pub loss_threshold: f64,
    /// The number of packets that must arrive before a measurement is judged. Default 10 (ns).
    pub measured_packets: u32,
}

impl Default for ReceiverConfig {
    fn default() -> ReceiverConfig {
        ReceiverConfig {
            join_timer_min: Duration::from_secs(5),
            join_timer_max: Duration::from_secs(600),
            backoff: 2.0,
            relaxation: 2.0 / 3.0,
            detection_time: Duration::from_secs(5),
            detection_deviation: Duration::from_secs(2),
            k1: 1.0,
            k2: 2.0,
            g1: 0.25,
            g2: 0.25,
            loss_threshold: 0.25,
            measured_packets: 10,
        }
    }
}

fn groups_check(groups: usize) -> Check {
    let holds = (1..=usize::from(GROUPS_MAX)).contains(&groups);
    ("the number of groups", "1 to 32", holds)
}

impl SenderConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let rates: RangeInclusive<Rate> = Rate::from_bits_per_s(1)..=RATE_MAX;
        let bytes = HEADER_BYTES..=u32::from(u16::MAX);
        ConfigError::first_of([
            groups_check(self.rates.len()),
            (
                "the rate of a group",
                "1 bit/s to 1 Tbit/s",
                self.rates.iter().all(|rate| rates.contains(rate)),
            ),
            (
                "the packet size",
                "48 to 65,535 bytes",
                bytes.contains(&self.packet_bytes),
            ),
        ])
    }
}

impl ReceiverConfig {
    pub(super) fn check(&self, groups: u8) -> Result<(), ConfigError> {
        const HOUR: Duration = Duration::from_secs(3600);
        let join_timers = self.join_timer_min..=24 * HOUR;
        let above_zero = |x: f64, max: f64| x > 0.0 && x <= max;
        let share = |x: f64| (0.0..=1.0).contains(&x);
        ConfigError::first_of([
            groups_check(groups.into()),
            (
                "the lowest join-timer",
                "at least 1 ms",
                self.join_timer_min >= Duration::from_millis(1),
            ),
            (
                "the highest join-timer",
                "at least the lowest, at most a day",
                join_timers.contains(&self.join_timer_max),
            ),
            (
                "alpha, the back-off",
                "1 to 1000",
                (1.0..=1000.0).contains(&self.backoff),
            ),
            (
                "beta, the relaxation",
                "above 0, at most 1",
                above_zero(self.relaxation, 1.0),
            ),
            (
                "the detection time",
                "above 0, at most an hour",
                self.detection_time > Duration::ZERO && self.detection_time <= HOUR,
            ),
            (
                "the deviation of the detection time",
                "at most an hour",
                self.detection_deviation <= HOUR,
            ),
            ("k1", "above 0, at most 100", above_zero(self.k1, 100.0)),
            ("k2", "0 to 100", (0.0..=100.0).contains(&self.k2)),
            ("g1 and g2", "0 to 1", share(self.g1) && share(self.g2)),
            ("the loss threshold", "0 to 1", share(self.loss_threshold)),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_outside_its_range_is_named_with_its_range() {
        let receiver =
            |config: ReceiverConfig, groups| config.check(groups).unwrap_err().to_string();
        let default = ReceiverConfig::default;
        assert_eq!(default().check(32), Ok(()));
        assert_eq!(
            receiver(default(), 33),
            "the number of groups must be 1 to 32"
        );
        let threshold = ReceiverConfig {
            loss_threshold: f64::NAN,
            ..default()
        };
        assert_eq!(receiver(threshold, 5), "the loss threshold must be 0 to 1");
        let timers = ReceiverConfig {
            join_timer_max: Duration::from_secs(1),
            ..default()
        };
        assert!(receiver(timers, 5).contains("at least the lowest"));
        let sender = |rates: Vec<Rate>, packet_bytes| {
            let config = SenderConfig {
                rates,
                packet_bytes,
            };
            config.check().unwrap_err().to_string()
        };
        assert!(sender(vec![], 1000).contains("the number of groups"));
        assert!(sender(vec![Rate::default()], 1000).contains("1 bit/s to 1 Tbit/s"));
        assert!(sender(vec![RATE_MAX], 47).contains("48 to 65,535 bytes"));
    }
}
