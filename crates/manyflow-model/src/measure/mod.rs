//! Takes measures from the series of a run.

mod compare;
pub mod groups;
mod levels;

use crate::error::Fault;
use crate::expression::{Environment, mean, quantile, spread};
use crate::observables::{Combination, Observable, Statistic};
use crate::outcome::Series;
use crate::tables::{MeasureTable, RunTable};
use levels::{Span, Steps};

/// The window and the statistic of a measure, as numbers.
struct Reduction {
    from_s: f64,
    to_s: f64,
    statistic: Statistic,
    quantile: f64,
    level: f64,
}

/// The series of a name, one after the other: there may be one for each of a million receivers.
pub type AllSeries<'a> = Box<dyn Iterator<Item = Series> + 'a>;

/// Returns the number that a measure takes from a run, or NaN if nothing was observed.
///
/// `observed` returns the series of an observable, of the subject of a name, with intervals of this
/// length in seconds.
///
/// # Errors
/// Returns an error if the level of the measure cannot be evaluated.
pub fn scalar<'a>(
    measure: &'a MeasureTable,
    run: &RunTable,
    parameters: &Environment,
    observed: &dyn Fn(Observable, &'a str, f64) -> AllSeries<'a>,
) -> Result<f64, Fault> {
    let Some(what) = measure.what else {
        return Ok(f64::NAN);
    };
    let level = measure
        .level
        .as_ref()
        .map(|level| level.evaluate(parameters))
        .transpose()?;
    let reduction = Reduction {
        from_s: measure.from.unwrap_or(run.steady_from()).0,
        to_s: measure.to.unwrap_or(run.duration).0,
        statistic: measure.statistic_or_default(what),
        quantile: measure.quantile.map_or(0.5, |q| q.0),
        level: level.map_or(f64::NAN, |level| level.value),
    };
    let bin_s = measure.bin.unwrap_or(run.bin).0;
    let channel = measure.channel.map(|channel| channel.get() as u16);
    let mut others: Vec<Series> = Vec::new();
    if let Some(against) = &measure.against {
        let of = against.of.0.iter();
        of.for_each(|of| others.extend(observed(against.what, of, bin_s)));
    }
    let mut numbers = Vec::new();
    for of in &measure.of.0 {
        let series = observed(what, of, bin_s);
        let chosen = series.filter(|s| channel.is_none() || s.channel == channel);
        numbers.extend(chosen.map(|series| match measure.against {
            Some(_) => reduction.compare(&series, &others),
            None => reduction.apply(&series),
        }));
    }
    Ok(measure.combine.apply(&numbers))
}

impl Reduction {
    /// Returns whether a time lies in the window. A tenth of a nanosecond of tolerance admits an
    /// interval that ends together with the window.
    fn has(&self, time: f64) -> bool {
        time > self.from_s + 1e-10 && time <= self.to_s + 1e-10
    }

    fn apply(&self, series: &Series) -> f64 {
        if series.is_level() {
            let steps = Steps::lowest(std::slice::from_ref(series));
            return self.apply_to_level(&steps.spans(self.from_s, self.to_s));
        }
        // The sum of no counts would be 0.
        if series.what.is_count() && series.points.is_empty() {
            return f64::NAN;
        }
        let points = series.points.iter().filter(|(time, _)| self.has(*time));
        let (times, values): (Vec<f64>, Vec<f64>) = points.copied().unzip();
        match self.statistic {
            Statistic::Mean if !series.weights.is_empty() => self.weighted_mean(series),
            Statistic::Mean => mean(&values),
            Statistic::Total => values.iter().sum(),
            Statistic::Median => quantile(&values, 0.5),
            Statistic::Quantile => quantile(&values, self.quantile),
            Statistic::Min => values.iter().copied().reduce(f64::min).unwrap_or(f64::NAN),
            Statistic::Max => values.iter().copied().reduce(f64::max).unwrap_or(f64::NAN),
            Statistic::Last => values.last().copied().unwrap_or(f64::NAN),
            Statistic::Spread => spread(&values),
            Statistic::Variation => spread(&values) / mean(&values),
            Statistic::TimeToRise => self.time_until(&times, &values, |v, level| v >= level),
            Statistic::TimeToFall => self.time_until(&times, &values, |v, level| v <= level),
            Statistic::LongestSilence => {
                longest_silence(&values) * series.bin_s.unwrap_or(f64::NAN)
            }
            // A correlation needs two series.
            Statistic::Correlation => f64::NAN,
        }
    }

    /// Returns the mean of a series with weights, or NaN if it has no points.
    fn weighted_mean(&self, series: &Series) -> f64 {
        debug_assert_eq!(series.points.len(), series.weights.len());
        let points = series.points.iter().zip(&series.weights);
        let inside = points.filter(|((time, _), _)| self.has(*time));
        let (mut sum, mut weights) = (0.0, 0.0);
        for ((_, value), weight) in inside {
            sum += value * weight;
            weights += weight;
        }
        sum / weights
    }

    /// Applies the statistic to values that each hold for some time.
    fn apply_to_level(&self, spans: &[Span]) -> f64 {
        let values = || spans.iter().map(|span| span.value);
        let until = |span: Option<&Span>| span.map_or(f64::NAN, |span| span.start_s - self.from_s);
        match self.statistic {
            Statistic::Mean => levels::mean(spans),
            Statistic::Median => levels::quantile(spans, 0.5),
            Statistic::Quantile => levels::quantile(spans, self.quantile),
            Statistic::Min => values().reduce(f64::min).unwrap_or(f64::NAN),
            Statistic::Max => values().reduce(f64::max).unwrap_or(f64::NAN),
            Statistic::Last => values().next_back().unwrap_or(f64::NAN),
            Statistic::Spread => levels::spread(spans),
            Statistic::Variation => levels::spread(spans) / levels::mean(spans),
            Statistic::TimeToRise => until(spans.iter().find(|span| span.value >= self.level)),
            Statistic::TimeToFall => until(spans.iter().find(|span| span.value <= self.level)),
            // The checks refuse these statistics, because levels do not support them.
            Statistic::Total | Statistic::LongestSilence | Statistic::Correlation => f64::NAN,
        }
    }

    /// Returns the correlation with the lowest of `others`, or the statistic of the ratio to it.
    fn compare(&self, series: &Series, others: &[Series]) -> f64 {
        let pairs = compare::pairs(series, others);
        if self.statistic == Statistic::Correlation && series.is_level() {
            return compare::correlation_of_levels(&pairs, self.from_s, self.to_s);
        }
        if self.statistic == Statistic::Correlation {
            let inside = pairs.into_iter().filter(|(time, ..)| self.has(*time));
            let values: Vec<_> = inside.map(|(_, own, other)| (own, other)).collect();
            return compare::correlation(&values);
        }
        let ratios = pairs
            .into_iter()
            .map(|(time, own, other)| (time, own / other));
        self.apply(&Series {
            points: ratios.collect(),
            weights: Vec::new(),
            ..series.clone()
        })
    }

    /// Returns the time at which a value first reaches the level, counted from the beginning of the
    /// window, or NaN if none does.
    fn time_until(&self, times: &[f64], values: &[f64], reached: fn(f64, f64) -> bool) -> f64 {
        let place = values.iter().position(|value| reached(*value, self.level));
        place.map_or(f64::NAN, |place| times[place] - self.from_s)
    }
}

/// Returns the largest number of consecutive intervals whose value is 0.
fn longest_silence(values: &[f64]) -> f64 {
    let mut longest = 0;
    let mut present = 0;
    for value in values {
        present = if *value == 0.0 { present + 1 } else { 0 };
        longest = longest.max(present);
    }
    f64::from(longest)
}

impl Combination {
    fn apply(self, numbers: &[f64]) -> f64 {
        let sum: f64 = numbers.iter().sum();
        match self {
            Combination::Mean => mean(numbers),
            Combination::Sum => sum,
            Combination::Min => numbers.iter().copied().reduce(f64::min).unwrap_or(f64::NAN),
            Combination::Max => numbers.iter().copied().reduce(f64::max).unwrap_or(f64::NAN),
            Combination::Median => quantile(numbers, 0.5),
            Combination::Variation => spread(numbers) / mean(numbers),
            Combination::Jain => {
                let squares: f64 = numbers.iter().map(|number| number * number).sum();
                sum * sum / (numbers.len() as f64 * squares)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Observable;

    fn apply(statistic: Statistic, values: &[f64]) -> f64 {
        let points = values.iter().enumerate().map(|(i, v)| (i as f64 + 1.0, *v));
        let series = Series {
            what: Observable::Queue,
            of: "A-B".into(),
            channel: None,
            bin_s: Some(1.0),
            points: points.collect(),
            ends_s: Vec::new(),
            weights: Vec::new(),
        };
        let reduction = Reduction {
            from_s: 1.0,
            to_s: 100.0,
            statistic,
            quantile: 0.9,
            level: 3.0,
        };
        reduction.apply(&series)
    }

    #[test]
    fn statistics_are_taken_over_the_window() {
        let values = [100.0, 1.0, 2.0, 3.0, 6.0];
        for (statistic, expected) in [
            (Statistic::Mean, 3.0),
            (Statistic::Total, 12.0),
            (Statistic::Median, 2.5),
            (Statistic::Min, 1.0),
            (Statistic::Max, 6.0),
            (Statistic::Last, 6.0),
            (Statistic::TimeToRise, 3.0),
            (Statistic::TimeToFall, 1.0),
        ] {
            assert_eq!(apply(statistic, &values), expected, "{statistic:?}");
        }
        assert_eq!(
            apply(Statistic::LongestSilence, &[0.0, 1.0, 0.0, 0.0, 2.0, 0.0]),
            2.0
        );
        assert!(apply(Statistic::TimeToFall, &[9.0, 9.0, 8.0]).is_nan());
        assert!(apply(Statistic::Mean, &[9.0]).is_nan());
    }

    #[test]
    fn only_statistics_of_levels_are_weighted_by_time() {
        let of = |what, statistic| {
            let series = Series {
                what,
                of: "tcp/R".into(),
                channel: None,
                bin_s: None,
                points: vec![(1.0, 4.0), (8.0, 2.0), (9.0, 1.0)],
                ends_s: vec![10.0],
                weights: Vec::new(),
            };
            let reduction = Reduction {
                from_s: 2.0,
                to_s: 12.0,
                statistic,
                quantile: 0.9,
                level: 2.0,
            };
            reduction.apply(&series)
        };
        for (statistic, level, sample) in [
            (Statistic::Mean, 27.0 / 8.0, 1.5),
            (Statistic::Median, 4.0, 1.5),
            (Statistic::Max, 4.0, 2.0),
            (Statistic::Min, 1.0, 1.0),
            (Statistic::Last, 1.0, 1.0),
            (Statistic::TimeToFall, 6.0, 6.0),
            (Statistic::TimeToRise, 0.0, 6.0),
        ] {
            assert_eq!(of(Observable::Cwnd, statistic), level, "{statistic:?}");
            assert_eq!(
                of(Observable::RttSample, statistic),
                sample,
                "{statistic:?}"
            );
        }
    }

    #[test]
    fn combinations_are_computed() {
        let numbers = [1.0, 2.0, 3.0];
        assert_eq!(Combination::Sum.apply(&numbers), 6.0);
        assert_eq!(Combination::Jain.apply(&[5.0, 5.0]), 1.0);
        assert_eq!(Combination::Jain.apply(&[5.0, 0.0]), 0.5);
        assert!(Combination::Mean.apply(&[]).is_nan());
    }
}
