//! Two observables at the same times, for a measure with `against`.

use super::expression::mean;
use super::observe::Series;

/// The lowest of several series over time. A value stands until the next one.
struct Steps(Vec<(f64, f64)>);

impl Steps {
    fn lowest(series: &[Series]) -> Steps {
        let told = series.iter().enumerate();
        let told = told.flat_map(|(which, s)| s.points.iter().map(move |p| (p.0, which, p.1)));
        let mut told: Vec<_> = told.collect();
        told.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut values = vec![f64::INFINITY; series.len()];
        let mut steps: Vec<(f64, f64)> = Vec::new();
        for (time, which, value) in told {
            values[which] = value;
            let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
            match steps.last_mut() {
                Some(last) if last.0 == time => last.1 = lowest,
                _ => steps.push((time, lowest)),
            }
        }
        Steps(steps)
    }

    /// How many steps there were up to a time.
    fn until(&self, time: f64) -> usize {
        self.0.partition_point(|step| step.0 <= time)
    }

    fn at(&self, time: f64) -> Option<f64> {
        Some(self.0[..self.until(time)].last()?.1)
    }

    /// The mean over a time at whose beginning there was a value.
    fn mean(&self, from: f64, to: f64) -> Option<f64> {
        let (mut time, mut value) = (from, self.at(from)?);
        let mut area = 0.0;
        for &(next, stands) in &self.0[self.until(from)..self.until(to)] {
            area += value * (next - time);
            (time, value) = (next, stands);
        }
        Some((area + value * (to - time)) / (to - from))
    }
}

/// Times, values of a series, and the lowest value of the others there. Values at events are compared whenever either changes; with those of
/// an interval the others' mean over the interval is.
pub(super) fn pairs(series: &Series, others: &[Series]) -> Vec<(f64, f64, f64)> {
    let lowest = Steps::lowest(others);
    let are_events = others.iter().all(|other| other.bin_s.is_none());
    let Some(bin_s) = series.bin_s else {
        let own = Steps::lowest(std::slice::from_ref(series));
        let mut times: Vec<f64> = own.0.iter().chain(&lowest.0).map(|step| step.0).collect();
        times.sort_by(f64::total_cmp);
        times.dedup();
        let pair = |time: f64| Some((time, own.at(time)?, lowest.at(time)?));
        return times.into_iter().filter_map(pair).collect();
    };
    let pair = |&(time, value): &(f64, f64)| {
        let other = match are_events {
            true => lowest.mean(time - bin_s, time),
            false => lowest.at(time),
        };
        Some((time, value, other?))
    };
    series.points.iter().filter_map(pair).collect()
}

/// Pearson's correlation coefficient, from -1 to 1; NaN where either does not vary.
pub(super) fn correlation(pairs: &[(f64, f64)]) -> f64 {
    let (first, second): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let (mean_1, mean_2) = (mean(&first), mean(&second));
    let products = |f: fn(f64, f64) -> f64| -> f64 {
        let products = pairs.iter().map(|(a, b)| f(a - mean_1, b - mean_2));
        products.sum()
    };
    products(|a, b| a * b) / (products(|a, _| a * a) * products(|_, b| b * b)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Observable;

    fn series(bin_s: Option<f64>, points: &[(f64, f64)]) -> Series {
        Series {
            what: Observable::AllowedRate,
            of: "A".into(),
            channel: None,
            bin_s,
            points: points.to_vec(),
        }
    }

    #[test]
    fn values_at_events_are_compared_with_the_lowest_whenever_either_changes() {
        let own = series(None, &[(2.0, 5.0), (4.0, 6.0)]);
        let others = [
            series(None, &[(1.0, 7.0), (4.0, 9.0)]),
            series(None, &[(3.0, 5.0)]),
        ];
        let expected = [(2.0, 5.0, 7.0), (3.0, 5.0, 5.0), (4.0, 6.0, 5.0)];
        assert_eq!(pairs(&own, &others), expected);
    }

    #[test]
    fn values_of_intervals_are_compared_with_the_mean_over_each() {
        let own = series(Some(2.0), &[(2.0, 1.0), (4.0, 2.0), (6.0, 3.0)]);
        let other = series(None, &[(1.0, 10.0), (3.0, 20.0)]);
        // Nothing was known at the beginning of the first.
        let expected = [(4.0, 2.0, 15.0), (6.0, 3.0, 20.0)];
        assert_eq!(pairs(&own, &[other]), expected);
        let binned = series(Some(2.0), &[(2.0, 4.0), (4.0, 5.0), (6.0, 6.0)]);
        let expected = [(2.0, 1.0, 4.0), (4.0, 2.0, 5.0), (6.0, 3.0, 6.0)];
        assert_eq!(pairs(&own, &[binned]), expected);
    }

    #[test]
    fn correlation_is_one_where_one_follows_the_other() {
        assert!((correlation(&[(1.0, 3.0), (2.0, 5.0), (4.0, 9.0)]) - 1.0).abs() < 1e-12);
        assert!((correlation(&[(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)]) + 1.0).abs() < 1e-12);
        assert!(correlation(&[(1.0, 3.0), (2.0, 3.0)]).is_nan());
    }
}
