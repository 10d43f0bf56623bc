//! Single seeds: those without a value, and those outside the bounds of an expectation.

use super::cells::{Bounds, CellResult};
use manyflow_model::{Environment, Expression, Samples};

/// The maximum number of seeds that a note lists.
const LISTED_MAX: usize = 8;

impl CellResult {
    /// Returns the seeds in which a measure has no value.
    pub(super) fn seeds_without(&self, measure: &str) -> Vec<u64> {
        let Some(samples) = self.environment.get(measure) else {
            return Vec::new();
        };
        let value = |place: usize| samples.values[place.min(samples.values.len() - 1)];
        let seeds = self.seeds.iter().enumerate();
        let without = seeds.filter(|(place, _)| !value(*place).is_finite());
        without.map(|(_, seed)| *seed).collect()
    }

    /// Formats a measure of this cell by `format`. If only some seeds have a value, names the
    /// others.
    pub fn shown(&self, measure: &str, format: fn(&Samples) -> String) -> String {
        let without = self.seeds_without(measure);
        match without.len() {
            some if some > 0 && some < self.seeds.len() => {
                format!("none in {}", described(&without))
            }
            _ => format(&self.environment[measure]),
        }
    }

    /// Describes the measures without a value in a formula, with their seeds. Returns `None` if all
    /// measures have values.
    pub(super) fn missing(&self, formula: &Expression) -> Option<String> {
        let mut missing = Vec::new();
        formula
            .names()
            .into_iter()
            .for_each(|name| self.collect_missing(name, &mut missing));
        missing.dedup();
        let described = |name: &String| {
            let seeds = described(&self.seeds_without(name));
            format!("`{name}` has no value in {seeds}: nothing was observed")
        };
        let missing: Vec<String> = missing.iter().map(described).collect();
        (!missing.is_empty()).then(|| missing.join("; "))
    }

    /// Follows formulas down to observed measures. This ends, because a formula refers to earlier
    /// measures only.
    fn collect_missing(&self, name: &str, missing: &mut Vec<String>) {
        let mut measures = self.cell.measure.iter();
        let Some(measure) = measures.find(|measure| measure.name == name) else {
            return;
        };
        match &measure.value {
            Some(formula) => {
                let names = formula.names().into_iter();
                names.for_each(|name| self.collect_missing(name, missing));
            }
            None if self.seeds_without(name).is_empty() => {}
            None => missing.push(name.to_owned()),
        }
    }

    /// Returns the seeds whose own value is outside the bounds or missing.
    pub(super) fn seeds_outside(&self, value: &Expression, bounds: &Bounds<'_>) -> Vec<u64> {
        let is_outside = |place: usize| {
            let own = self.of_seed(place);
            let value_of = |formula: &Expression| formula.evaluate(&own).ok().map(|q| q.value);
            let Some(value) = value_of(value) else {
                return true;
            };
            let kept = |bound: Option<&Expression>, keeps: fn(f64, f64) -> bool| match bound {
                Some(bound) => value_of(bound).is_some_and(|bound| keeps(value, bound)),
                None => true,
            };
            !(kept(bounds.at_least, |value, low| value >= low)
                && kept(bounds.at_most, |value, high| value <= high))
        };
        let seeds = self.seeds.iter().enumerate();
        let outside = seeds.filter(|(place, _)| is_outside(*place));
        outside.map(|(_, seed)| *seed).collect()
    }

    /// Returns the values of names in one run.
    fn of_seed(&self, place: usize) -> Environment {
        let own = |(name, samples): (&String, &Samples)| {
            let place = place.min(samples.values.len() - 1);
            let values = vec![samples.values[place]];
            (
                name.clone(),
                Samples {
                    values,
                    ..samples.clone()
                },
            )
        };
        self.environment.iter().map(own).collect()
    }
}

/// Formats a list of seeds: `seed 3`, or `seeds 3, 7 and 2 more`.
pub(super) fn described(seeds: &[u64]) -> String {
    let listed: Vec<String> = seeds.iter().take(LISTED_MAX).map(u64::to_string).collect();
    let listed = listed.join(", ");
    match seeds.len() {
        1 => format!("seed {listed}"),
        count if count > LISTED_MAX => format!("seeds {listed} and {} more", count - LISTED_MAX),
        _ => format!("seeds {listed}"),
    }
}
