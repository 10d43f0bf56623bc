//! The time between the packets of a constant rate.

use core::time::Duration;

use crate::units::Rate;

/// Computes the times between packets, which are exact in the long run: bits / rate, with the
/// remainder below a nanosecond carried over to the next packet.
#[derive(Debug)]
pub struct Interval {
    whole: Duration,
    remainder: u64,
    rate: u64,
    carry: u64,
}

impl Interval {
    /// Creates an interval for packets of `packet_bytes` each, sent at `rate`, which must not be
    /// zero.
    pub fn new(packet_bytes: u32, rate: Rate) -> Interval {
        let scaled_bits = u64::from(packet_bytes) * 8 * 1_000_000_000;
        let rate = rate.bits_per_s();
        Interval {
            whole: Duration::from_nanos(scaled_bits / rate),
            remainder: scaled_bits % rate,
            rate,
            carry: 0,
        }
    }

    /// Returns the time from one packet to the next.
    #[inline]
    pub fn advance(&mut self) -> Duration {
        // Both terms are below `rate`, so this adds at most one nanosecond.
        self.carry += self.remainder;
        if self.carry < self.rate {
            return self.whole;
        }
        self.carry -= self.rate;
        self.whole + Duration::from_nanos(1)
    }
}
