//! Time as protocols see it: nanoseconds since the start of the world, which passes the time as an
//! argument.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// A point in time, in whole nanoseconds since the start of the world. The start is that of a
/// simulation run or of a process.
///
/// Time is an integer, so that the same scenario gives the same bytes on every machine. It covers
/// 584 years.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The start of the world.
    pub const ZERO: Time = Time(0);
    /// Later than anything that happens.
    pub const MAX: Time = Time(u64::MAX);

    /// Returns the point `nanos` nanoseconds after the start.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Returns the point `seconds` after the start, rounded to a nanosecond. Negative values and
    /// NaN give [`Time::ZERO`].
    pub fn from_secs_f64(seconds: f64) -> Time {
        Time((seconds * 1e9 + 0.5) as u64)
    }

    /// Returns the nanoseconds since the start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the seconds since the start.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    /// Adds a span. Saturates at [`Time::MAX`].
    #[inline]
    fn add(self, span: Duration) -> Time {
        let whole = span.as_secs().saturating_mul(1_000_000_000);
        let nanos = whole.saturating_add(u64::from(span.subsec_nanos()));
        Time(self.0.saturating_add(nanos))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub for Time {
    type Output = Duration;

    /// Returns the span from `earlier` to this point; zero if `earlier` is later.
    #[inline]
    fn sub(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{:06} s",
            self.0 / 1_000_000_000,
            self.0 % 1_000_000_000 / 1_000
        )
    }
}

/// Returns a span of `seconds`. Negative values and NaN give zero; values beyond 584 years give the
/// longest span.
pub fn seconds(seconds: f64) -> Duration {
    Duration::from_nanos((seconds * 1e9 + 0.5) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_round_to_the_nearest_nanosecond() {
        assert_eq!(Time::from_secs_f64(0.1).as_nanos(), 100_000_000);
        assert_eq!(Time::from_secs_f64(-1.0), Time::ZERO);
        assert_eq!(seconds(f64::NAN), Duration::ZERO);
    }

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Time::MAX + Duration::from_secs(1), Time::MAX);
        assert_eq!(Time::ZERO - Time::from_secs_f64(1.0), Duration::ZERO);
    }
}
