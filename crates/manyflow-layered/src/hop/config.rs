//! The parameters of a hop.

use core::time::Duration;

use manyflow_core::link::{Marking, Overload, RedConfig, RedVariant};
use manyflow_core::{ConfigError, Rate};

/// The rate of a hop.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum HopRate {
    /// The rate is given, at least 1 kbit/s.
    Given(Rate),
    /// The hop finds the rate of its path by the child's echoes.
    Found {
        /// The rate at the start, between the other two.
        initial: Rate,
        /// The minimum rate, at least 8 kbit/s.
        minimum: Rate,
        /// The maximum rate.
        maximum: Rate,
    },
}

impl HopRate {
    /// A found rate that starts at 200 kbit/s, between 16 kbit/s and 10 Gbit/s.
    pub const FOUND: HopRate = HopRate::Found {
        initial: Rate::from_bits_per_s(200_000),
        minimum: Rate::from_bits_per_s(16_000),
        maximum: Rate::from_bits_per_s(10_000_000_000),
    };

    /// Returns the rate at the start.
    pub fn initial(&self) -> Rate {
        match *self {
            HopRate::Given(rate) => rate,
            HopRate::Found { initial, .. } => initial,
        }
    }
}

/// The parameters of a hop.
#[derive(Clone, Debug, PartialEq)]
pub struct HopConfig {
    /// The rate of the hop, in whole packets with the headers of IP and UDP.
    pub rate: HopRate,
    /// The time for which a full queue waits at the present rate. The queue holds at least
    /// `queue_packets`.
    pub queue: Duration,
    /// The number of packets that the queue holds at any rate; at least 1.
    pub queue_packets: u32,
    /// Random early detection on the average queue. The hop marks the packets of the top subscribed
    /// group of each session and no others, whatever the marking and the overload say here.
    pub red: RedConfig,
    /// The shortest time that counts as a packet in RED's queue. If a packet takes less at the
    /// present rate, RED counts the queue in this time, so that thresholds of few packets do not
    /// take a burst on a fast hop for congestion. With zero, RED always counts packets.
    pub red_slot: Duration,
    /// The length of a typical packet in bytes, for the increase of a found rate: 64 to 65,535.
    pub packet_bytes: u32,
    /// The packets that may be sent early, as the time that they take at the hop's rate. It makes
    /// up for a driver whose timers are late.
    pub burst: Duration,
}

impl Default for HopConfig {
    /// A found rate, a queue of 100 ms or 15 packets, and the RED of the scenarios of SIM.
    fn default() -> HopConfig {
        HopConfig {
            rate: HopRate::FOUND,
            queue: Duration::from_millis(100),
            queue_packets: 15,
            red: RedConfig {
                weight: 0.1,
                marking: Marking::TopGroup,
                overload: Overload::Mark,
                variant: RedVariant::Paper,
                ..RedConfig::default()
            },
            red_slot: Duration::ZERO,
            packet_bytes: 1000,
            burst: Duration::from_millis(2),
        }
    }
}

impl HopConfig {
    /// # Errors
    /// Names the first parameter that is outside its range.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let in_order = match self.rate {
            HopRate::Given(rate) => rate.bits_per_s() >= 1000,
            HopRate::Found {
                initial,
                minimum,
                maximum,
            } => minimum.bits_per_s() >= 8000 && minimum <= initial && initial <= maximum,
        };
        ConfigError::first_of([
            (
                "the rate of a hop",
                "at least 1 kbit/s, or between a minimum of at least 8 kbit/s and its maximum",
                in_order,
            ),
            (
                "the queue of a hop",
                "at least 1 packet",
                self.queue_packets >= 1,
            ),
            (
                "the packet size",
                "64 to 65,535 bytes",
                (64..=65_535).contains(&self.packet_bytes),
            ),
            (
                "the weight of RED",
                "above 0, at most 1",
                self.red.weight > 0.0 && self.red.weight <= 1.0,
            ),
        ])
    }
}
