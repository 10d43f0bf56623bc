//! Levels: values such as a congestion window or an allowed rate, each of which holds until the
//! next one. Statistics weight each value by the time for which it holds. A value from before
//! the window counts from the beginning of the window.

use crate::outcome::Series;

/// A level over time. Each value holds until the next one; NaN means that there is no value.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps(Vec<(f64, f64)>);

/// A value that holds for some time within a window.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Span {
    /// The beginning, in seconds.
    pub(super) start_s: f64,
    /// The duration, in seconds. Above 0.
    pub(super) length_s: f64,
    pub(super) value: f64,
}

impl Steps {
    /// Returns the lowest value of several series over time. Series without a value at a
    /// time do not count.
    pub(super) fn lowest(series: &[Series]) -> Steps {
        let mut reported = Vec::new();
        for (which, series) in series.iter().enumerate() {
            // At equal times, the stable sort below keeps an end behind the value.
            reported.extend(series.points.iter().map(|p| (p.0, which, p.1)));
            reported.extend(series.ends_s.iter().map(|&end| (end, which, f64::NAN)));
        }
        reported.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut values = vec![f64::NAN; series.len()];
        let mut steps = Steps::default();
        for (time, which, value) in reported {
            values[which] = value;
            // `f64::min` ignores NaN.
            steps.push(time, values.iter().copied().fold(f64::NAN, f64::min));
        }
        steps
    }

    /// Appends a value. Replaces the last value if it has the same time.
    pub(super) fn push(&mut self, time: f64, value: f64) {
        debug_assert!(self.0.last().is_none_or(|last| last.0 <= time));
        match self.0.last_mut() {
            Some(last) if last.0 == time => last.1 = value,
            _ => self.0.push((time, value)),
        }
    }

    /// Returns the times at which the value changes.
    pub(super) fn times(&self) -> impl Iterator<Item = f64> {
        self.0.iter().map(|step| step.0)
    }

    /// Returns the value at a time, or `None` if there is none.
    pub(super) fn at(&self, time: f64) -> Option<f64> {
        let before = self.0.partition_point(|step| step.0 <= time);
        let value = self.0[..before].last()?.1;
        (!value.is_nan()).then_some(value)
    }

    /// Returns the values within a window, in order of time.
    pub(super) fn spans(&self, from_s: f64, to_s: f64) -> Vec<Span> {
        let ends = self.times().skip(1).chain([f64::INFINITY]);
        let span = |(&(start, value), end): (&(f64, f64), f64)| {
            let start_s = start.max(from_s);
            let length_s = end.min(to_s) - start_s;
            (length_s > 0.0 && !value.is_nan()).then_some(Span {
                start_s,
                length_s,
                value,
            })
        };
        self.0.iter().zip(ends).filter_map(span).collect()
    }

    /// Returns the mean over a window, weighted by time, or `None` if there is no value at
    /// its beginning.
    pub(super) fn mean(&self, from_s: f64, to_s: f64) -> Option<f64> {
        self.at(from_s)?;
        Some(mean(&self.spans(from_s, to_s)))
    }
}

/// Returns the mean, weighted by time, or NaN if there are no spans.
pub(super) fn mean(spans: &[Span]) -> f64 {
    let area: f64 = spans.iter().map(|span| span.value * span.length_s).sum();
    area / length_s(spans)
}

/// Returns the standard deviation, weighted by time, or NaN if there are no spans.
pub(super) fn spread(spans: &[Span]) -> f64 {
    let center = mean(spans);
    let square = |span: &Span| (span.value - center) * (span.value - center) * span.length_s;
    let squares: f64 = spans.iter().map(square).sum();
    (squares / length_s(spans)).sqrt()
}

/// Returns the lowest value v such that values up to v hold for the share `q` of the time, or
/// NaN if there are no spans.
pub(super) fn quantile(spans: &[Span], q: f64) -> f64 {
    let mut sorted = spans.to_vec();
    sorted.sort_by(|a, b| a.value.total_cmp(&b.value));
    let wanted_s = q * length_s(spans);
    let mut below_s = 0.0;
    let reached = sorted.iter().find(|span| {
        below_s += span.length_s;
        below_s >= wanted_s
    });
    // Because of rounding, the sum over all spans can be slightly less than the total.
    let found = reached.or(sorted.last());
    found.map_or(f64::NAN, |span| span.value)
}

fn length_s(spans: &[Span]) -> f64 {
    spans.iter().map(|span| span.length_s).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Observable;

    fn series(points: &[(f64, f64)], ends_s: &[f64]) -> Series {
        Series {
            what: Observable::Cwnd,
            of: "A".into(),
            channel: None,
            bin_s: None,
            points: points.to_vec(),
            ends_s: ends_s.to_vec(),
            weights: Vec::new(),
        }
    }

    fn spans(points: &[(f64, f64)], ends_s: &[f64], from_s: f64, to_s: f64) -> Vec<Span> {
        Steps::lowest(&[series(points, ends_s)]).spans(from_s, to_s)
    }

    #[test]
    fn a_value_from_before_the_window_counts_from_its_beginning() {
        let standing = spans(&[(1.0, 7.0)], &[], 10.0, 20.0);
        assert_eq!(
            standing,
            [Span {
                start_s: 10.0,
                length_s: 10.0,
                value: 7.0
            }]
        );
        assert_eq!(mean(&standing), 7.0);
        assert_eq!((quantile(&standing, 0.0), spread(&standing)), (7.0, 0.0));
    }

    #[test]
    fn values_are_weighted_by_the_time_for_which_they_hold() {
        // The level is 2 for 9 s, 100 for 0.5 s in many short steps, and 4 for 0.5 s.
        let mut points = vec![(0.0, 2.0)];
        points.extend((0..50).map(|n| (9.0 + f64::from(n) * 0.01, 100.0)));
        points.push((9.5, 4.0));
        let window = spans(&points, &[], 0.0, 10.0);
        assert!((mean(&window) - (18.0 + 50.0 + 2.0) / 10.0).abs() < 1e-9);
        assert_eq!(quantile(&window, 0.5), 2.0);
        assert_eq!(quantile(&window, 0.92), 4.0);
        assert_eq!(quantile(&window, 1.0), 100.0);
    }

    #[test]
    fn a_level_that_has_ended_has_no_value() {
        let window = spans(&[(0.0, 2.0), (4.0, 8.0), (9.0, 2.0)], &[4.0], 0.0, 10.0);
        assert_eq!(window.len(), 2, "{window:?}");
        assert_eq!(mean(&window), 2.0);
        assert!(mean(&spans(&[(1.0, 2.0)], &[4.0], 5.0, 9.0)).is_nan());
        let steps = Steps::lowest(&[series(&[(0.0, 2.0)], &[4.0]), series(&[(1.0, 3.0)], &[])]);
        assert_eq!((steps.at(2.0), steps.at(5.0)), (Some(2.0), Some(3.0)));
    }

    #[test]
    fn a_mean_needs_a_value_at_the_beginning() {
        let steps = Steps::lowest(&[series(&[(2.0, 1.0), (3.0, 5.0)], &[])]);
        assert_eq!(
            (steps.mean(0.0, 4.0), steps.mean(2.0, 4.0)),
            (None, Some(3.0))
        );
    }
}
