//! An axis of a chart: its range, its ticks and their labels.

use manyflow_model::{Dimension, Quantity, short};

/// The approximate number of ticks.
const TICKS: f64 = 6.0;

/// A horizontal or vertical axis, linear or logarithmic.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    pub(super) label: String,
    pub(super) log: bool,
    /// The names of an axis of texts. The value 0 stands for the first name.
    pub(super) names: Vec<String>,
    /// The ends of the range. For a logarithmic axis, the logarithms of the values.
    pub(super) range: (f64, f64),
    /// The positions of the ticks. For a logarithmic axis, the logarithms of the values.
    pub(super) ticks: Vec<f64>,
}

impl Axis {
    /// Returns an axis that covers all of `values`. A linear axis begins at 0 if the values come
    /// close to it.
    pub(super) fn fitting(label: String, log: bool, values: impl Iterator<Item = f64>) -> Axis {
        let mut axis = Axis {
            label,
            log,
            names: Vec::new(),
            range: (0.0, 1.0),
            ticks: Vec::new(),
        };
        let placed = values
            .map(|value| axis.place(value))
            .filter(|value| value.is_finite());
        let (low, high) = placed.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let range = match (low <= high, log) {
            (false, _) => (0.0, 1.0),
            (true, true) => (
                low - 0.05 * (high - low).max(1.0),
                high + 0.05 * (high - low).max(1.0),
            ),
            (true, false) => linear_range(low, high),
        };
        axis.set_range(range);
        axis
    }

    /// Returns an axis of texts.
    pub(super) fn named(label: String, names: Vec<String>) -> Axis {
        Axis {
            label,
            log: false,
            range: (-0.5, names.len() as f64 - 0.5),
            ticks: (0..names.len()).map(|index| index as f64).collect(),
            names,
        }
    }

    /// Sets the range, in positions, and the ticks.
    pub(super) fn set_range(&mut self, (low, high): (f64, f64)) {
        self.range = (low, high);
        self.ticks = match self.log {
            true => log_ticks(low, high),
            false => linear_ticks(low, high),
        };
    }

    /// Returns the position of a value, or NaN if it has none.
    pub(super) fn place(&self, value: f64) -> f64 {
        match self.log {
            true if value > 0.0 => libm::log10(value),
            true => f64::NAN,
            false => value,
        }
    }

    /// Returns the label of a tick.
    pub(super) fn text(&self, placed: f64) -> String {
        if !self.names.is_empty() {
            return self
                .names
                .get(placed.round() as usize)
                .cloned()
                .unwrap_or_default();
        }
        let value = if self.log {
            libm::pow(10.0, placed)
        } else {
            placed
        };
        // A rounding error such as 0.1 + 0.2 - 0.3 is printed as 0.
        let span = self.range.1 - self.range.0;
        match !self.log && value.abs() < span * 1e-9 {
            true => "0".to_owned(),
            false => short(value),
        }
    }
}

fn linear_range(low: f64, high: f64) -> (f64, f64) {
    let low = if low >= 0.0 && low < 0.6 * high {
        0.0
    } else {
        low
    };
    let span = if high > low {
        high - low
    } else {
        high.abs().max(1.0)
    };
    let below = if low == 0.0 { 0.0 } else { 0.05 * span };
    (low - below, high + 0.05 * span)
}

/// Returns the multiples in the range of 1, 2 or 5 times a power of ten.
fn linear_ticks(low: f64, high: f64) -> Vec<f64> {
    let raw = (high - low) / TICKS;
    let power = libm::pow(10.0, libm::log10(raw).floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    let step = steps.into_iter().find(|step| *step >= raw).unwrap_or(raw);
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last).map(|index| index as f64 * step).collect()
}

/// Returns the powers of ten in the range, and 2 and 5 times them in a short range.
fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let factors: &[f64] = if high - low < 2.5 {
        &[1.0, 2.0, 5.0]
    } else {
        &[1.0]
    };
    let decades = (low.floor() as i32)..=(high.ceil() as i32);
    let placed = |decade: i32| {
        factors
            .iter()
            .map(move |f| f64::from(decade) + libm::log10(*f))
    };
    let all = decades.flat_map(placed);
    all.filter(|tick| *tick >= low && *tick <= high).collect()
}

/// Returns the name and the size of the unit in which values up to `largest` are shown.
pub(super) fn unit_for(dimension: Dimension, largest: f64, given: Option<&str>) -> (String, f64) {
    if let Some((name, unit)) = given.and_then(|name| Some((name, Quantity::of_unit(1.0, name)?))) {
        return (name.to_owned(), unit.value);
    }
    let scales: &[(&str, f64)] = match dimension {
        Dimension::RATE => &[
            ("Gbit/s", 1e9),
            ("Mbit/s", 1e6),
            ("kbit/s", 1e3),
            ("bit/s", 1.0),
        ],
        Dimension::TIME => &[("s", 1.0), ("ms", 1e-3)],
        _ => return (dimension.unit(), 1.0),
    };
    let fitting = scales.iter().find(|(_, size)| largest >= *size);
    let (name, size) = fitting.unwrap_or(&scales[scales.len() - 1]);
    ((*name).to_owned(), *size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers_inside_the_range() {
        assert_eq!(
            linear_ticks(0.0, 500.0),
            [0.0, 100.0, 200.0, 300.0, 400.0, 500.0]
        );
        assert_eq!(linear_ticks(0.0, 0.25).len(), 6);
        assert_eq!(log_ticks(-4.0, -1.0), [-4.0, -3.0, -2.0, -1.0]);
    }

    #[test]
    fn an_axis_without_values_has_a_range() {
        let none = Axis::fitting("x".into(), true, [0.0, -1.0, f64::NAN].into_iter());
        assert_eq!(none.range, (0.0, 1.0));
        let one = Axis::fitting("x".into(), false, [5.0].into_iter());
        assert!(one.range.0 < 5.0 && one.range.1 > 5.0);
    }

    #[test]
    fn units_fit_the_values() {
        assert_eq!(
            unit_for(Dimension::RATE, 3.2e6, None),
            ("Mbit/s".into(), 1e6)
        );
        assert_eq!(
            unit_for(Dimension::RATE, 3.2e6, Some("kbit/s")),
            ("kbit/s".into(), 1e3)
        );
        assert_eq!(unit_for(Dimension::TIME, 0.2, None), ("ms".into(), 1e-3));
        assert_eq!(unit_for(Dimension::NUMBER, 7.0, None), (String::new(), 1.0));
    }
}
