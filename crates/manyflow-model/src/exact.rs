//! Numbers in the texts of outcomes: a number that is read back has the same bits, so that results
//! that were sent to another process have the same bytes.
//!
//! Rust writes the shortest decimal that identifies a number. serde_json's own parser may be off by
//! the last bit, so numbers are read from their text by the standard library. JSON has neither NaN
//! nor infinity; they are texts.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// A number with all its bits.
#[derive(Copy, Clone)]
struct Exact(f64);

impl Serialize for Exact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.is_finite() {
            true => serializer.serialize_f64(self.0),
            false => serializer.collect_str(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Exact, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        let number = raw.get().trim_matches('"').parse();
        number.map(Exact).map_err(D::Error::custom)
    }
}

/// Lists of numbers.
pub(crate) mod numbers {
    use super::{Deserialize, Deserializer, Exact, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        numbers: &[f64],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(numbers.iter().copied().map(Exact))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<f64>, D::Error> {
        let numbers = Vec::<Exact>::deserialize(deserializer)?;
        Ok(numbers.into_iter().map(|Exact(number)| number).collect())
    }
}

/// Lists of points.
pub(crate) mod points {
    use super::{Deserialize, Deserializer, Exact, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        points: &[(f64, f64)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(points.iter().map(|(x, y)| (Exact(*x), Exact(*y))))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(f64, f64)>, D::Error> {
        let points = Vec::<(Exact, Exact)>::deserialize(deserializer)?;
        let points = points.into_iter().map(|(Exact(x), Exact(y))| (x, y));
        Ok(points.collect())
    }
}

/// A number that may be missing.
pub(crate) mod optional {
    use super::{Deserialize, Deserializer, Exact, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        number: &Option<f64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        number.map(Exact).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<f64>, D::Error> {
        let number = Option::<Exact>::deserialize(deserializer)?;
        Ok(number.map(|Exact(number)| number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read_back(number: f64) -> f64 {
        let text = serde_json::to_string(&Exact(number)).unwrap();
        serde_json::from_str::<Exact>(&text).unwrap().0
    }

    #[test]
    fn numbers_that_json_lacks_are_read_back() {
        assert!(read_back(f64::NAN).is_nan());
        for number in [f64::INFINITY, f64::NEG_INFINITY, -0.0, f64::MIN_POSITIVE] {
            assert_eq!(read_back(number).to_bits(), number.to_bits());
        }
    }

    proptest! {
        #[test]
        fn every_bit_of_a_number_is_read_back(bits: u64) {
            let number = f64::from_bits(bits);
            prop_assume!(number.is_finite());
            prop_assert_eq!(read_back(number).to_bits(), bits);
        }
    }
}
