//! Quantities with units, as in scenario files, on the command line and in reports.

use core::error::Error;
use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::time::seconds;

/// A rate in bits per second. It counts whole packets including the IP header, unless documented
/// otherwise.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// Returns a rate of `bits` per second.
    pub const fn from_bits_per_s(bits: u64) -> Rate {
        Rate(bits)
    }

    /// Returns the rate of `packets` per second of `packet_bytes` each, rounded.
    pub fn from_packets_per_s(packets: f64, packet_bytes: u32) -> Rate {
        Rate((packets * f64::from(packet_bytes) * 8.0 + 0.5) as u64)
    }

    /// Returns the rate in bits per second.
    pub const fn bits_per_s(self) -> u64 {
        self.0
    }

    /// Returns the rate in packets per second, for packets of `packet_bytes` each.
    pub fn packets_per_s(self, packet_bytes: u32) -> f64 {
        self.0 as f64 / (f64::from(packet_bytes) * 8.0)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scale, unit) = match self.0 {
            0..1_000 => (1.0, "bit/s"),
            1_000..1_000_000 => (1e3, "kbit/s"),
            1_000_000..1_000_000_000 => (1e6, "Mbit/s"),
            _ => (1e9, "Gbit/s"),
        };
        write_short(f, self.0 as f64 / scale, unit)
    }
}

/// A number of bytes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scale, unit) = match self.0 {
            0..1_000 => (1.0, "B"),
            1_000..1_000_000 => (1e3, "kB"),
            1_000_000..1_000_000_000 => (1e6, "MB"),
            _ => (1e9, "GB"),
        };
        write_short(f, self.0 as f64 / scale, unit)
    }
}

/// Writes three significant digits and a unit, without trailing zeros: `3.2 Mbit/s`.
fn write_short(f: &mut fmt::Formatter<'_>, value: f64, unit: &str) -> fmt::Result {
    let decimals = match value {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    let digits = format!("{value:.decimals$}");
    let digits = if decimals > 0 {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        &digits
    };
    f.pad(&format!("{digits} {unit}"))
}

/// The error for a text that is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    text: String,
    expected: &'static str,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ParseError { text, expected } = self;
        write!(f, "`{text}` is not {expected}")
    }
}

impl Error for ParseError {}

/// The units of rates, with their values in bits per second.
pub const RATE_UNITS: &[(&str, f64)] = &[
    ("bit/s", 1.0),
    ("kbit/s", 1e3),
    ("Mbit/s", 1e6),
    ("Gbit/s", 1e9),
    ("bps", 1.0),
    ("kbps", 1e3),
    ("Mbps", 1e6),
    ("Gbps", 1e9),
];
/// The units of sizes, with their values in bytes.
pub const BYTE_UNITS: &[(&str, f64)] = &[
    ("B", 1.0),
    ("kB", 1e3),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
];
/// The units of times, with their values in seconds.
pub const TIME_UNITS: &[(&str, f64)] = &[
    ("ns", 1e-9),
    ("us", 1e-6),
    // The micro sign, and the Greek letter.
    ("\u{b5}s", 1e-6),
    ("\u{3bc}s", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("min", 60.0),
    ("h", 3600.0),
    ("d", 86_400.0),
];

impl FromStr for Rate {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Rate, ParseError> {
        let expected = "a rate such as `3.2 Mbit/s` or `500kbit/s`";
        quantity(text, RATE_UNITS, expected).map(|bits| Rate((bits + 0.5) as u64))
    }
}

impl FromStr for Bytes {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Bytes, ParseError> {
        quantity(text, BYTE_UNITS, "a size such as `64 kB` or `2GiB`")
            .map(|bytes| Bytes((bytes + 0.5) as u64))
    }
}

/// Parses a span of time such as `50 ms`, `10min` or `0.5 s`.
///
/// # Errors
/// Returns an error if the number is missing or negative, or if the unit is not one of ns, us (or
/// µs), ms, s, min, h and d.
pub fn parse_duration(text: &str) -> Result<Duration, ParseError> {
    quantity(
        text,
        TIME_UNITS,
        "a time such as `50 ms`, `0.5 s` or `10min`",
    )
    .map(seconds)
}

/// Parses a finite number, not negative, and one of `units`, with or without a space between them.
fn quantity(text: &str, units: &[(&str, f64)], expected: &'static str) -> Result<f64, ParseError> {
    let error = || ParseError {
        text: text.to_owned(),
        expected,
    };
    let trimmed = text.trim();
    let split = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')
        .ok_or_else(error)?;
    let (number, unit) = trimmed.split_at(split);
    let number: f64 = number.replace('_', "").parse().map_err(|_| error())?;
    let (_, scale) = units
        .iter()
        .find(|(name, _)| *name == unit.trim_start())
        .ok_or_else(error)?;
    let value = number * scale;
    if value.is_finite() {
        Ok(value)
    } else {
        Err(error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_parse_with_and_without_a_space() {
        assert_eq!("3.2 Mbit/s".parse(), Ok(Rate::from_bits_per_s(3_200_000)));
        assert_eq!("200Mbit/s".parse(), Ok(Rate::from_bits_per_s(200_000_000)));
        assert_eq!("9.6 kbps".parse(), Ok(Rate::from_bits_per_s(9_600)));
    }

    #[test]
    fn a_text_that_is_not_a_quantity_is_refused_by_name() {
        for text in ["", "fast", "10", "-3 Mbit/s", "3 MB/s", "1.2.3 Mbit/s"] {
            let error = text.parse::<Rate>().unwrap_err().to_string();
            assert!(
                error.contains(&format!("`{text}`")) && error.contains("Mbit/s"),
                "{error}"
            );
        }
        assert!(parse_duration("10 m").is_err());
    }

    #[test]
    fn quantities_print_short() {
        assert_eq!(Rate::from_bits_per_s(3_200_000).to_string(), "3.2 Mbit/s");
        assert_eq!(Rate::from_bits_per_s(999_999).to_string(), "1000 kbit/s");
        assert_eq!(Bytes(2_500_000).to_string(), "2.5 MB");
        assert_eq!(Bytes(0).to_string(), "0 B");
    }

    #[test]
    fn durations_parse_minutes() {
        assert_eq!(parse_duration("10min"), Ok(Duration::from_secs(600)));
        assert_eq!(parse_duration("0.5 ms"), Ok(Duration::from_micros(500)));
        for text in ["500us", "500 µs", "500 μs"] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_micros(500)),
                "{text}"
            );
        }
    }
}
