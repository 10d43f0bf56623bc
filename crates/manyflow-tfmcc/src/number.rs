//! The number formats of TFMCC's headers: 12-bit rates, 8-bit round-trip times, timestamps
//! (RFC 4654 section 2.2).
//!
//! Headers in memory hold the rounded values too, so a simulation behaves as a live session does.

use core::time::Duration;

use manyflow_core::{Rate, Time};

/// The lowest rate that a header can carry, in bits per second (section 2.2.1).
const LOWEST_BPS: f64 = 100.0;
/// The unit of an encoded round-trip time: a sixteenth of a millisecond.
const RTT_UNIT_NANOS: u64 = 62_500;

/// A rate in a header: 100 bit/s to 428 Gbit/s with an error below 1 % (RFC 4654 section 2.2.1).
///
/// ```text
///   11       7 6             0
///  | exponent | mantissa      |     100 bit/s * (1 + mantissa / 128) * 2^exponent
/// ```
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RateCode(u16);

impl RateCode {
    /// 100 bit/s.
    pub const LOWEST: RateCode = RateCode(0);
    /// 428 Gbit/s: the suppression rate that suppresses nobody.
    pub const HIGHEST: RateCode = RateCode(0xFFF);

    /// The code nearest to a rate in bits per second. NaN and rates below the range give
    /// [`RateCode::LOWEST`], rates above it [`RateCode::HIGHEST`].
    pub fn nearest(bits_per_s: f64) -> RateCode {
        let (fraction, exponent) = libm::frexp(bits_per_s / LOWEST_BPS);
        // The fraction is in [0.5, 1), so the rate is (2 fraction) * 2^(exponent - 1).
        if bits_per_s.is_nan() || bits_per_s <= LOWEST_BPS {
            return RateCode::LOWEST;
        }
        if bits_per_s.is_infinite() || exponent > 32 {
            return RateCode::HIGHEST;
        }
        let mantissa = (fraction * 256.0 - 128.0 + 0.5) as u16;
        // A mantissa that rounds up to 128 carries into the exponent.
        RateCode((((exponent - 1) as u16) << 7) + mantissa).min(RateCode::HIGHEST)
    }

    /// Bits per second.
    pub fn bits_per_s(self) -> f64 {
        let scaled = u64::from(128 + (self.0 & 0x7F)) << (self.0 >> 7);
        scaled as f64 * (LOWEST_BPS / 128.0)
    }

    /// The rate, rounded to a bit per second.
    pub fn rate(self) -> Rate {
        Rate::from_bits_per_s((self.bits_per_s() + 0.5) as u64)
    }

    /// The 12 bits.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The code with these 12 low bits; the other bits are ignored.
    pub const fn from_bits(bits: u16) -> RateCode {
        RateCode(bits & 0xFFF)
    }
}

/// A round-trip time in a header: 1 ms to 63.5 s in steps of at most 6.25 % (RFC 4654 section
/// 2.2.1).
///
/// ```text
///   7        4 3             0
///  | exponent | mantissa      |     1 ms * (1 + mantissa / 16) * 2^exponent
/// ```
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RttCode(u8);

impl RttCode {
    /// The code of the shortest time that is at least `rtt`; the highest code for longer times.
    ///
    /// Rounding down would put the slowest receiver above the maximum, where nothing suppresses it.
    pub fn covering(rtt: Duration) -> RttCode {
        let units = rtt.as_nanos().div_ceil(u128::from(RTT_UNIT_NANOS));
        let units = u64::try_from(units).unwrap_or(u64::MAX).clamp(16, 31 << 15);
        let exponent = units.ilog2() - 4;
        let mantissa = units.div_ceil(1 << exponent) - 16;
        // A mantissa of 16 carries into the exponent.
        RttCode(((u64::from(exponent) << 4) + mantissa) as u8)
    }

    /// The time.
    pub fn duration(self) -> Duration {
        let units = u64::from(16 + (self.0 & 0xF)) << (self.0 >> 4);
        Duration::from_nanos(units * RTT_UNIT_NANOS)
    }

    /// The 8 bits.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The code with these bits.
    pub const fn from_bits(bits: u8) -> RttCode {
        RttCode(bits)
    }
}

/// A timestamp of one host's clock: microseconds modulo 2^32, about 71 minutes (RFC 4654 section
/// 2.2.1).
///
/// Only differences count, so the clocks of sender and receivers need not agree (section 4.3.3).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stamp(u32);

impl Stamp {
    /// The timestamp of `now`.
    pub fn at(now: Time) -> Stamp {
        Stamp((now.as_nanos() / 1_000) as u32)
    }

    /// This timestamp plus the time for which its echo was held.
    pub fn plus(self, held: Duration) -> Stamp {
        Stamp(self.0.wrapping_add(held.as_micros() as u32))
    }

    /// The time since `earlier`; `None` if `earlier` is in fact later.
    pub fn since(self, earlier: Stamp) -> Option<Duration> {
        let micros = u64::try_from(self.minus(earlier)).ok()?;
        Some(Duration::from_micros(micros))
    }

    /// The signed difference in microseconds. Between timestamps of two clocks it is a delay plus
    /// the difference of the clocks.
    pub fn minus(self, other: Stamp) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    /// The 32 bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The timestamp with these bits.
    pub const fn from_bits(bits: u32) -> Stamp {
        Stamp(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rates_span_the_range_that_the_rfc_gives() {
        assert_eq!(RateCode::LOWEST.bits_per_s(), 100.0);
        assert!(RateCode::HIGHEST.bits_per_s() > 400e9);
    }

    #[test]
    fn rates_that_are_no_rates_give_the_ends_of_the_range() {
        for bits_per_s in [
            f64::NAN,
            f64::NEG_INFINITY,
            -5.0,
            0.0,
            99.0,
            f64::MIN_POSITIVE,
        ] {
            assert_eq!(RateCode::nearest(bits_per_s), RateCode::LOWEST);
        }
        for bits_per_s in [f64::INFINITY, f64::MAX, 1e12] {
            assert_eq!(RateCode::nearest(bits_per_s), RateCode::HIGHEST);
        }
    }

    #[test]
    fn times_span_the_range_that_the_rfc_gives() {
        let ends = [Duration::ZERO, Duration::MAX].map(|rtt| RttCode::covering(rtt).duration());
        assert_eq!(
            ends,
            [Duration::from_millis(1), Duration::from_millis(63_488)]
        );
    }

    #[test]
    fn timestamps_wrap() {
        let before = Stamp::from_bits(u32::MAX - 9);
        let after = before.plus(Duration::from_micros(30));
        assert_eq!(after.bits(), 20);
        assert_eq!(after.since(before), Some(Duration::from_micros(30)));
        assert_eq!(before.since(after), None);
        assert_eq!(before.minus(after), -30);
    }

    proptest! {
        #[test]
        fn each_rate_code_is_the_nearest_to_its_rate(bits in 0..4096u16) {
            let code = RateCode::from_bits(bits);
            prop_assert_eq!(RateCode::nearest(code.bits_per_s()), code);
        }

        #[test]
        fn a_rate_is_kept_to_half_a_percent_and_in_order(exponent in 2.0..11.6f64, above in 1.0..2.0f64) {
            let rate = libm::pow(10.0, exponent);
            let code = RateCode::nearest(rate);
            prop_assert!((code.bits_per_s() / rate - 1.0).abs() < 0.004);
            prop_assert!(RateCode::nearest(rate * above) >= code);
        }

        #[test]
        fn a_time_is_covered_by_the_next_code(micros in 1_000..63_000_000u64) {
            let rtt = Duration::from_micros(micros);
            let code = RttCode::covering(rtt);
            prop_assert!(code.duration() >= rtt && code.duration() <= rtt.mul_f64(1.0626));
            prop_assert_eq!(RttCode::covering(code.duration()), code);
        }
    }
}
