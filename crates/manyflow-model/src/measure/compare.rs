//! Pairs the values of two observables at the same times, for a measure with `against`.

use crate::measure::levels::{self, Span, Steps};
use crate::outcome::Series;

/// Returns times, values of `series`, and the lowest value of `others` at these times. Levels
/// are compared whenever either changes. A sample is compared when it is taken. The value of an
/// interval is compared with the others' value at its end, or with their mean over the interval
/// if they are reported at events. For levels, both values are NaN where either is missing.
pub(super) fn pairs(series: &Series, others: &[Series]) -> Vec<(f64, f64, f64)> {
    let lowest = Steps::lowest(others);
    let are_events = others.iter().all(|other| other.bin_s.is_none());
    if series.is_level() {
        let own = Steps::lowest(std::slice::from_ref(series));
        let mut times: Vec<f64> = own.times().chain(lowest.times()).collect();
        times.sort_by(f64::total_cmp);
        times.dedup();
        let known = |time: f64| own.at(time).zip(lowest.at(time));
        let pair = |time: f64| {
            let (own, other) = known(time).unwrap_or((f64::NAN, f64::NAN));
            (time, own, other)
        };
        return times.into_iter().map(pair).collect();
    }
    let pair = |&(time, value): &(f64, f64)| {
        let other = match series.bin_s {
            Some(bin_s) if are_events => lowest.mean(time - bin_s, time),
            _ => lowest.at(time),
        };
        Some((time, value, other?))
    };
    series.points.iter().filter_map(pair).collect()
}

/// Returns Pearson's correlation coefficient, from -1 to 1, of values with equal weights.
/// Returns NaN if either side does not vary.
pub(super) fn correlation(pairs: &[(f64, f64)]) -> f64 {
    let span = |value| Span {
        start_s: 0.0,
        length_s: 1.0,
        value,
    };
    let spans = pairs.iter().map(|&(a, b)| (span(a), span(b)));
    let (first, second): (Vec<Span>, Vec<Span>) = spans.unzip();
    weighted_correlation(&first, &second)
}

/// Returns the correlation coefficient of two levels within a window, weighted by time.
pub(super) fn correlation_of_levels(pairs: &[(f64, f64, f64)], from_s: f64, to_s: f64) -> f64 {
    let (mut own, mut other) = (Steps::default(), Steps::default());
    for &(time, own_value, other_value) in pairs {
        own.push(time, own_value);
        other.push(time, other_value);
    }
    weighted_correlation(&own.spans(from_s, to_s), &other.spans(from_s, to_s))
}

/// Returns the correlation coefficient of spans that cover the same times.
fn weighted_correlation(first: &[Span], second: &[Span]) -> f64 {
    debug_assert_eq!(first.len(), second.len());
    let (mean_1, mean_2) = (levels::mean(first), levels::mean(second));
    let products = |f: fn(f64, f64) -> f64| -> f64 {
        let both = first.iter().zip(second);
        let products = both.map(|(a, b)| f(a.value - mean_1, b.value - mean_2) * a.length_s);
        products.sum()
    };
    products(|a, b| a * b) / (products(|a, _| a * a) * products(|_, b| b * b)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Observable;

    fn series(bin_s: Option<f64>, points: &[(f64, f64)]) -> Series {
        Series {
            what: Observable::AllowedRate,
            of: "A".into(),
            channel: None,
            bin_s,
            points: points.to_vec(),
            ends_s: Vec::new(),
            weights: Vec::new(),
        }
    }

    #[test]
    fn levels_are_compared_with_the_lowest_other_at_each_change() {
        let own = series(None, &[(2.0, 5.0), (4.0, 6.0)]);
        let others = [
            series(None, &[(1.0, 7.0), (4.0, 9.0)]),
            series(None, &[(3.0, 5.0)]),
        ];
        let expected = [(2.0, 5.0, 7.0), (3.0, 5.0, 5.0), (4.0, 6.0, 5.0)];
        let pairs = pairs(&own, &others);
        assert!(pairs[0].1.is_nan(), "at 1 s only the others have a value");
        assert_eq!(pairs[1..], expected);
    }

    #[test]
    fn a_sample_is_compared_once_when_it_is_taken() {
        let samples = Series {
            what: Observable::Latency,
            ..series(None, &[(2.0, 5.0), (6.0, 7.0)])
        };
        let others = [series(None, &[(1.0, 4.0), (3.0, 2.0), (4.0, 1.0)])];
        assert_eq!(pairs(&samples, &others), [(2.0, 5.0, 4.0), (6.0, 7.0, 1.0)]);
    }

    #[test]
    fn the_correlation_of_levels_is_weighted_by_time() {
        let own = series(None, &[(0.0, 1.0), (8.0, 2.0), (9.0, 3.0)]);
        let other = series(None, &[(0.0, 1.0), (8.0, 3.0), (9.0, 2.0)]);
        let pairs = pairs(&own, &[other]);
        let weighted = correlation_of_levels(&pairs, 0.0, 10.0);
        assert!((weighted - 31.0 / 41.0).abs() < 1e-12, "{weighted}");
        let tail = correlation_of_levels(&pairs, 8.5, 9.5);
        assert!((tail + 1.0).abs() < 1e-12, "{tail}");
    }

    #[test]
    fn values_of_intervals_are_compared_with_the_mean_over_each() {
        let own = series(Some(2.0), &[(2.0, 1.0), (4.0, 2.0), (6.0, 3.0)]);
        let other = series(None, &[(1.0, 10.0), (3.0, 20.0)]);
        // The others have no value at the beginning of the first interval.
        let expected = [(4.0, 2.0, 15.0), (6.0, 3.0, 20.0)];
        assert_eq!(pairs(&own, &[other]), expected);
        let binned = series(Some(2.0), &[(2.0, 4.0), (4.0, 5.0), (6.0, 6.0)]);
        let expected = [(2.0, 1.0, 4.0), (4.0, 2.0, 5.0), (6.0, 3.0, 6.0)];
        assert_eq!(pairs(&own, &[binned]), expected);
    }

    #[test]
    fn a_linear_relation_has_correlation_one() {
        assert!((correlation(&[(1.0, 3.0), (2.0, 5.0), (4.0, 9.0)]) - 1.0).abs() < 1e-12);
        assert!((correlation(&[(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)]) + 1.0).abs() < 1e-12);
        assert!(correlation(&[(1.0, 3.0), (2.0, 3.0)]).is_nan());
    }
}
