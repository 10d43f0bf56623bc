//! Parameters of a session of RLC.

use core::time::Duration;

use crate::GROUPS_MAX;
pub use manyflow_core::ConfigError;
use manyflow_core::units::Rate;

/// The bytes of a packet that are not payload: 28 of IPv4 and UDP, and 20 of the data header.
pub(super) const HEADER_BYTES: u32 = 48;

/// The maximum cumulative rate of all groups. At higher rates, the time between packets would be
/// lost in rounding.
const RATE_MAX_BITS_PER_S: u64 = 1_000_000_000_000;

/// The parameters of a sender.
#[derive(Clone, Debug, PartialEq)]
pub struct SenderConfig {
    /// The number of groups, 1 to [`GROUPS_MAX`].
    pub groups: u8,
    /// The rate of group 0, headers included. The cumulative rate doubles with each group, to at
    /// most 1 Tbit/s.
    pub rate: Rate,
    /// The length of a packet on a link in bytes, 48 of which are headers: 48 to 65,535.
    pub packet_bytes: u32,
    /// The time between two synchronisation points of group 0, 1 ms to an hour.
    pub point_interval: Duration,
    /// The duration of a burst, and of the relaxation after it: at most half of the interval
    /// between points. Zero means no bursts.
    pub burst: Duration,
}

impl Default for SenderConfig {
    /// Returns five groups, the lowest with 250 kbit/s, in packets of 1000 bytes.
    fn default() -> SenderConfig {
        SenderConfig {
            groups: 5,
            rate: Rate::from_bits_per_s(250_000),
            packet_bytes: 1000,
            point_interval: Duration::from_millis(500),
            burst: Duration::from_millis(125),
        }
    }
}

/// The parameters of a receiver.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceiverConfig {
    /// The time after a drop in which losses have no consequence, at most an hour. It has to be
    /// longer than routers take to end the forwarding of a group.
    pub deaf_time: Duration,
}

impl Default for ReceiverConfig {
    fn default() -> ReceiverConfig {
        ReceiverConfig {
            deaf_time: Duration::from_secs(1),
        }
    }
}

const HOUR: Duration = Duration::from_secs(3600);

impl SenderConfig {
    /// Returns the rate of a group and all groups below it, in bits per second.
    pub(super) fn cumulative_bits_per_s(&self, group: u8) -> u64 {
        self.rate.bits_per_s().saturating_mul(1 << group)
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let groups = (1..=GROUPS_MAX).contains(&self.groups);
        let highest = self.cumulative_bits_per_s(self.groups.clamp(1, GROUPS_MAX) - 1);
        ConfigError::first_of([
            ("the number of groups", "1 to 32", groups),
            (
                "the rate of the lowest group",
                "at least 1 bit/s, and of all groups at most 1 Tbit/s",
                (1..=RATE_MAX_BITS_PER_S).contains(&highest),
            ),
            (
                "the packet size",
                "48 to 65,535 bytes",
                (HEADER_BYTES..=u32::from(u16::MAX)).contains(&self.packet_bytes),
            ),
            (
                "the interval of synchronisation points",
                "1 ms to an hour",
                (Duration::from_millis(1)..=HOUR).contains(&self.point_interval),
            ),
            (
                "the burst",
                "at most half of the interval of synchronisation points",
                self.burst <= self.point_interval / 2,
            ),
        ])
    }
}

impl ReceiverConfig {
    pub(super) fn check(&self, groups: u8) -> Result<(), ConfigError> {
        ConfigError::first_of([
            (
                "the number of groups",
                "1 to 32",
                (1..=GROUPS_MAX).contains(&groups),
            ),
            ("the deaf time", "at most an hour", self.deaf_time <= HOUR),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_outside_its_range_is_named_with_its_range() {
        let refused = |config: SenderConfig| config.check().unwrap_err().to_string();
        let default = SenderConfig::default;
        assert_eq!(default().check(), Ok(()));
        let groups = |groups| SenderConfig {
            groups,
            ..default()
        };
        assert!(refused(groups(0)).contains("1 to 32"));
        assert!(refused(groups(33)).contains("1 to 32"));
        assert!(refused(groups(32)).contains("at most 1 Tbit/s"));
        let burst = Duration::from_millis(251);
        assert!(refused(SenderConfig { burst, ..default() }).contains("half of the interval"));
        let deaf_time = Duration::from_secs(3601);
        let error = ReceiverConfig { deaf_time }.check(5).unwrap_err();
        assert_eq!(error.to_string(), "the deaf time must be at most an hour");
    }
}
