//! Numbers with units, for the formulas of scenarios.

use std::fmt;
use std::time::Duration;

use manyflow_core::Rate;
use manyflow_core::time::seconds;
use manyflow_core::units::{BYTE_UNITS, RATE_UNITS, TIME_UNITS};
use serde::Deserialize;

use crate::error::Fault;

/// The exponents of second, bit and packet in a unit.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Dimension {
    /// The exponent of the second.
    pub seconds: i8,
    /// The exponent of the bit.
    pub bits: i8,
    /// The exponent of the packet.
    pub packets: i8,
}

impl Dimension {
    /// A number without a unit.
    pub const NUMBER: Dimension = Dimension::new(0, 0, 0);
    /// A time, in seconds.
    pub const TIME: Dimension = Dimension::new(1, 0, 0);
    /// A rate, in bits per second.
    pub const RATE: Dimension = Dimension::new(-1, 1, 0);
    /// A size, in bits.
    pub const SIZE: Dimension = Dimension::new(0, 1, 0);
    /// A number of packets.
    pub const PACKETS: Dimension = Dimension::new(0, 0, 1);
    /// Packets per second.
    pub const PACKET_RATE: Dimension = Dimension::new(-1, 0, 1);

    const fn new(seconds: i8, bits: i8, packets: i8) -> Dimension {
        Dimension {
            seconds,
            bits,
            packets,
        }
    }

    /// Returns the dimension of a product (`sign` 1) or of a quotient (`sign` -1).
    pub fn combined(self, other: Dimension, sign: i8) -> Dimension {
        let sum = |a: i8, b: i8| a.saturating_add(sign.saturating_mul(b));
        Dimension::new(
            sum(self.seconds, other.seconds),
            sum(self.bits, other.bits),
            sum(self.packets, other.packets),
        )
    }

    /// Describes the dimension in messages: `a bare number`, or `in bit/s`.
    pub fn described(self) -> String {
        match self {
            Dimension::NUMBER => "a bare number".to_owned(),
            _ => format!("in {}", self.unit()),
        }
    }

    /// Returns the unit in which values of this dimension are stored, such as `bit/s`.
    pub fn unit(self) -> String {
        let part = |sign: i8| {
            let named = [
                (self.bits, "bit"),
                (self.packets, "packets"),
                (self.seconds, "s"),
            ];
            let written = named
                .into_iter()
                .filter(|(exponent, _)| exponent * sign > 0);
            let written = written.map(|(exponent, name)| match exponent.abs() {
                1 => name.to_owned(),
                power => format!("{name}^{power}"),
            });
            written.collect::<Vec<_>>().join(" ")
        };
        match (part(1), part(-1)) {
            (above, below) if below.is_empty() => above,
            (above, below) if above.is_empty() => format!("1/{below}"),
            (above, below) => format!("{above}/{below}"),
        }
    }
}

/// A number with its unit.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Quantity {
    /// The value in seconds, bits, packets and their products.
    pub value: f64,
    /// The unit of the value.
    pub dimension: Dimension,
}

impl Quantity {
    /// Returns a number without a unit.
    pub fn number(value: f64) -> Quantity {
        Quantity {
            value,
            dimension: Dimension::NUMBER,
        }
    }

    /// Returns `number` of the named unit, or `None` if there is no such unit.
    pub fn of_unit(number: f64, unit: &str) -> Option<Quantity> {
        let others: &[(&str, f64)] = match unit {
            "%" => &[("%", 0.01)],
            "bit" => &[("bit", 1.0)],
            "packet" | "packets" => &[("packet", 1.0), ("packets", 1.0)],
            "packet/s" | "packets/s" => &[("packet/s", 1.0), ("packets/s", 1.0)],
            _ => &[],
        };
        let other_dimension = match unit {
            "%" => Dimension::NUMBER,
            "bit" => Dimension::SIZE,
            "packet" | "packets" => Dimension::PACKETS,
            _ => Dimension::PACKET_RATE,
        };
        let tables = [
            (TIME_UNITS, 1.0, Dimension::TIME),
            (RATE_UNITS, 1.0, Dimension::RATE),
            (BYTE_UNITS, 8.0, Dimension::SIZE),
            (others, 1.0, other_dimension),
        ];
        tables.into_iter().find_map(|(units, factor, dimension)| {
            let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
            Some(Quantity {
                value: number * scale * factor,
                dimension,
            })
        })
    }
}

/// The serde name of a type that accepts a quantity of any dimension.
pub const ANY: &str = "quantity: any";

/// The beginning of the serde name of a type that accepts a table, too. The rest is the name of the
/// quantity.
pub const OR_TABLE: &str = "table or ";

/// The serde name of a type that accepts a time, or a range from which a time is drawn.
pub const START: &str = "quantity: start";

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Quantity, D::Error> {
        /// The four numbers that the reader provides: the value and the exponents.
        #[derive(Deserialize)]
        #[serde(rename = "quantity: any")]
        struct Parts([f64; 4]);
        let Parts([value, seconds, bits, packets]) = Parts::deserialize(deserializer)?;
        let dimension = Dimension::new(seconds as i8, bits as i8, packets as i8);
        Ok(Quantity { value, dimension })
    }
}

impl fmt::Display for Quantity {
    /// Formats the quantity briefly, such as `3.2 Mbit/s` or `0.175 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.dimension == Dimension::RATE && self.value >= 0.0 {
            return Rate::from_bits_per_s(self.value.round() as u64).fmt(f);
        }
        let unit = self.dimension.unit();
        let space = if unit.is_empty() { "" } else { " " };
        f.pad(&format!("{}{space}{unit}", short(self.value)))
    }
}

/// Formats a number with about four significant digits, without trailing zeros.
pub fn short(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let magnitude = libm::log10(value.abs()).floor() as i32;
    if !(-4..7).contains(&magnitude) {
        return format!("{value:.3e}");
    }
    let text = format!("{value:.*}", (3 - magnitude).max(0) as usize);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// The kind of quantity that a key of the schema takes. The serde names of the types below select
/// it.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Kind {
    /// A time, at least 0.
    Time,
    /// A rate in bits per second, at least 0.
    Rate,
    /// A size, at least 0.
    Size,
    /// A rate in packets per second, at least 0.
    PacketRate,
    /// A probability, from 0 to 1.
    Probability,
    /// A whole number, from 0 to 4 * 10^9.
    Count,
    /// A number without a unit.
    Number,
}

impl Kind {
    /// Returns the kind that the serde name of a type selects.
    pub fn named(name: &str) -> Option<Kind> {
        Some(match name {
            "quantity: time" => Kind::Time,
            "quantity: rate" => Kind::Rate,
            "quantity: size" => Kind::Size,
            "quantity: packet rate" => Kind::PacketRate,
            "quantity: probability" => Kind::Probability,
            "quantity: count" => Kind::Count,
            "quantity: number" => Kind::Number,
            _ => return None,
        })
    }

    fn wants(self) -> (Dimension, &'static str) {
        match self {
            Kind::Time => (Dimension::TIME, "a time such as `50 ms`"),
            Kind::Rate => (Dimension::RATE, "a rate such as `3.2 Mbit/s`"),
            Kind::Size => (Dimension::SIZE, "a size such as `1000 B`"),
            Kind::PacketRate => (Dimension::PACKET_RATE, "a rate such as `4 packets/s`"),
            Kind::Probability => (Dimension::NUMBER, "a probability such as `1 %` or 0.01"),
            Kind::Count => (Dimension::NUMBER, "a whole number such as 16"),
            Kind::Number => (Dimension::NUMBER, "a number such as 0.75"),
        }
    }

    /// Returns the number.
    ///
    /// # Errors
    /// Returns an error if its unit or its range is not that of the kind.
    pub fn check(self, quantity: Quantity) -> Result<f64, Fault> {
        let (dimension, expected) = self.wants();
        let refuse = |why: &str| Fault::value(format!("{why}, where {expected} is expected"));
        if quantity.dimension != dimension {
            let given = quantity.dimension.described();
            return Err(refuse(&format!("this is {given}")));
        }
        let value = quantity.value;
        let in_range = match self {
            Kind::Number => true,
            Kind::Probability => (0.0..=1.0).contains(&value),
            Kind::Count => value >= 0.0 && value.fract() == 0.0 && value <= 4e9,
            _ => value >= 0.0,
        };
        if in_range && value.is_finite() {
            return Ok(value);
        }
        let given = short(value);
        Err(match self {
            _ if value < 0.0 => refuse(&format!("{given} is negative")),
            _ => refuse(&format!("{given} is out of range")),
        })
    }
}

macro_rules! quantities {
    ($($(#[$doc:meta])* $name:ident = $kind:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Copy, Clone, Debug, Default, PartialEq, PartialOrd, Deserialize)]
        #[serde(rename = $kind)]
        pub struct $name(pub f64);
    )*};
}

quantities! {
    /// A time in seconds, at least 0.
    Seconds = "quantity: time";
    /// A rate in bits per second, at least 0.
    BitsPerSecond = "quantity: rate";
    /// A size in bits, at least 0.
    Bits = "quantity: size";
    /// A rate in packets per second, at least 0.
    PacketsPerSecond = "quantity: packet rate";
    /// A probability, from 0 to 1.
    Probability = "quantity: probability";
    /// A whole number, at least 0.
    Count = "quantity: count";
    /// A number without a unit.
    Number = "quantity: number";
}

impl Seconds {
    /// Returns the time as a duration.
    pub fn duration(self) -> Duration {
        seconds(self.0)
    }

    /// Returns the time as an instant of the run.
    pub fn time(self) -> manyflow_core::Time {
        manyflow_core::Time::from_secs_f64(self.0)
    }
}

impl BitsPerSecond {
    /// Returns the rate, rounded to whole bits per second.
    pub fn rate(self) -> Rate {
        Rate::from_bits_per_s(self.0.round() as u64)
    }
}

impl Bits {
    /// Returns the size in bytes, rounded.
    pub fn bytes(self) -> u64 {
        (self.0 / 8.0).round() as u64
    }
}

impl Count {
    /// Returns the number as an integer. The reader has checked that it fits.
    pub fn get(self) -> u32 {
        self.0 as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_of_products_add_up() {
        assert_eq!(Dimension::RATE.unit(), "bit/s");
        assert_eq!(
            Dimension::RATE.combined(Dimension::TIME, 1),
            Dimension::SIZE
        );
        let size = Quantity::of_unit(2.0, "kB").unwrap();
        assert_eq!((size.value, size.dimension), (16_000.0, Dimension::SIZE));
        assert!(Quantity::of_unit(2.0, "furlong").is_none());
    }

    #[test]
    fn numbers_print_with_four_digits() {
        let printed = [0.0, 1.0, 0.17512345, 1234.56, 94.96, 1e-9, -0.5].map(short);
        assert_eq!(
            printed,
            ["0", "1", "0.1751", "1235", "94.96", "1.000e-9", "-0.5"]
        );
    }
}
