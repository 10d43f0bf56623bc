//! Parameters of a session of FLID-DL.

use core::time::Duration;

use crate::GROUPS_MAX;
pub use manyflow_core::ConfigError;
use manyflow_core::units::Rate;

/// The bytes of a packet that are not payload: 28 of IPv4 and UDP, and 20 of the data header.
pub(super) const HEADER_BYTES: u32 = 48;

/// The maximum cumulative rate of all layers. At higher rates, the time between packets would be
/// lost in rounding.
const RATE_MAX_BITS_PER_S: f64 = 1e12;

/// The parameters of a sender.
#[derive(Clone, Debug, PartialEq)]
pub struct SenderConfig {
    /// The number of layers above the base, 0 to 30. A receiver has as many levels, and one
    /// without any of them.
    pub layers: u8,
    /// B_0: the rate of the base, headers included. The cumulative rate grows by `factor` with each
    /// layer, to at most 1 Tbit/s.
    pub rate: Rate,
    /// c: the ratio of the rates of successive levels, 1.01 to 2.
    pub factor: f64,
    /// The length of a packet on a link in bytes, 48 of which are headers: 48 to 65,535.
    pub packet_bytes: u32,
    /// T: the length of a time slot, 10 ms to a minute. The base needs a packet in each slot.
    pub slot: Duration,
    /// R: the round-trip time of the TCP that the signals are fair to, 1 ms to 10 s.
    pub rtt: Duration,
    /// The number of slots for which a channel is quiet, at least 1. With the layers it is at most
    /// 31. The time has to be longer than routers take to end the forwarding of a channel.
    pub quiet_slots: u8,
}

impl Default for SenderConfig {
    /// Returns 13 layers above a base of 250 kbit/s, up to 7.6 Mbit/s, in packets of 1000 bytes.
    fn default() -> SenderConfig {
        SenderConfig {
            layers: 13,
            rate: Rate::from_bits_per_s(250_000),
            factor: 1.3,
            packet_bytes: 1000,
            slot: Duration::from_millis(500),
            rtt: Duration::from_millis(100),
            quiet_slots: 4,
        }
    }
}

/// The parameters of a receiver.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceiverConfig {
    /// The number of the sender's layers above the base, at most the number of the session's
    /// channels besides that of the base.
    pub layers: u8,
}

impl Default for ReceiverConfig {
    fn default() -> ReceiverConfig {
        ReceiverConfig {
            layers: SenderConfig::default().layers,
        }
    }
}

const MINUTE: Duration = Duration::from_secs(60);

impl SenderConfig {
    /// Returns the number of channels: that of the base and the dynamic ones.
    pub fn channels(&self) -> u8 {
        1 + self.dynamic()
    }

    /// Returns the number of dynamic channels; 0 without layers.
    pub(super) fn dynamic(&self) -> u8 {
        match self.layers {
            0 => 0,
            layers => layers.saturating_add(self.quiet_slots),
        }
    }

    /// Returns B_i, the rate of a level, in bits per second.
    pub(super) fn level_bits_per_s(&self, level: u8) -> f64 {
        self.rate.bits_per_s() as f64 * libm::pow(self.factor, level.into())
    }

    /// Returns p_i: the probability of a signal in a slot for receivers at a level.
    pub(super) fn signal_probability(&self, level: u8) -> f64 {
        let kept = 1.0 / self.factor;
        let packets = 3.0 * (1.0 - kept) / (1.0 + kept);
        let packet_bits = 8.0 * f64::from(self.packet_bytes);
        let rtt_s = self.rtt.as_secs_f64();
        let growth = packets * packet_bits * self.slot.as_secs_f64() / (rtt_s * rtt_s);
        growth / (self.level_bits_per_s(level + 1) - self.level_bits_per_s(level))
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let highest = self.level_bits_per_s(self.layers.min(GROUPS_MAX));
        let in_slot = self.rate.bits_per_s() as f64 * self.slot.as_secs_f64();
        ConfigError::first_of([
            (
                "the number of layers and quiet slots",
                "at most 31 together, with at least 1 quiet slot",
                self.quiet_slots > 0 && self.layers.saturating_add(self.quiet_slots) < GROUPS_MAX,
            ),
            (
                "the factor between levels",
                "1.01 to 2",
                (1.01..=2.0).contains(&self.factor),
            ),
            (
                "the rate of all layers",
                "at most 1 Tbit/s",
                highest <= RATE_MAX_BITS_PER_S,
            ),
            (
                "the packet size",
                "48 to 65,535 bytes",
                (HEADER_BYTES..=u32::from(u16::MAX)).contains(&self.packet_bytes),
            ),
            (
                "the time slot",
                "10 ms to a minute",
                (Duration::from_millis(10)..=MINUTE).contains(&self.slot),
            ),
            (
                "the rate of the base",
                "at least two packets in a time slot",
                in_slot >= 16.0 * f64::from(self.packet_bytes),
            ),
            (
                "the round-trip time",
                "1 ms to 10 s",
                (Duration::from_millis(1)..=Duration::from_secs(10)).contains(&self.rtt),
            ),
        ])
    }
}

impl ReceiverConfig {
    pub(super) fn check(&self, channels: u8) -> Result<(), ConfigError> {
        ConfigError::first_of([
            (
                "the number of channels",
                "1 to 32",
                (1..=GROUPS_MAX).contains(&channels),
            ),
            (
                "the number of layers",
                "below the number of channels",
                self.layers < channels.max(1),
            ),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_outside_its_range_is_named_with_its_range() {
        let default = SenderConfig::default;
        let refused = |config: SenderConfig| config.check().unwrap_err().to_string();
        assert_eq!(default().check(), Ok(()));
        let layers = SenderConfig {
            layers: 28,
            ..default()
        };
        assert!(refused(layers).contains("at most 31"));
        let factor = SenderConfig {
            factor: 1.0,
            ..default()
        };
        assert!(refused(factor).contains("1.01 to 2"));
        let rate = SenderConfig {
            rate: Rate::from_bits_per_s(20_000),
            ..default()
        };
        assert!(refused(rate).contains("two packets"));
        let error = ReceiverConfig { layers: 5 }.check(5).unwrap_err();
        assert!(error.to_string().contains("below the number of channels"));
        assert_eq!(ReceiverConfig { layers: 0 }.check(1), Ok(()));
    }

    #[test]
    fn signals_let_a_rate_grow_by_the_packets_of_a_fair_increase() {
        let config = SenderConfig {
            factor: 2.0,
            ..SenderConfig::default()
        };
        // With b = 1/2, as TCP: a packet in each round-trip time, so 8 kbit / (100 ms)^2.
        for level in 2..6 {
            let step = config.level_bits_per_s(level + 1) - config.level_bits_per_s(level);
            let bits_per_s2 = config.signal_probability(level) * step / 0.5;
            assert!((bits_per_s2 - 8000.0 / 0.01).abs() < 1.0, "{bits_per_s2}");
        }
        let probabilities: Vec<_> = (0..8).map(|i| config.signal_probability(i)).collect();
        assert!(probabilities.is_sorted_by(|low, high| low > high));
    }
}
