//! Collects runs into cells, and the bounds of expectations.

use std::collections::BTreeMap;

use manyflow_model::tables::{ExpectTable, Label};
use manyflow_model::{CellOutline, Environment, Expression, OutlineAxis, Run, Samples};

/// A cell of the sweep, with the results of its runs.
#[derive(Clone, Debug)]
pub struct CellResult {
    /// The cell.
    pub cell: CellOutline,
    /// The seeds of the runs that succeeded.
    pub seeds: Vec<u64>,
    /// The parameters and measures. A measure has a sample for each seed, which is NaN if nothing
    /// was observed.
    pub environment: Environment,
}

impl CellResult {
    /// Evaluates the measures of a cell. `runs` are its runs, in the order of their seeds.
    pub fn new<'a>(cell: CellOutline, runs: impl IntoIterator<Item = &'a Run>) -> CellResult {
        let runs: Vec<&Run> = runs.into_iter().collect();
        CellResult {
            environment: environment(&cell, &runs),
            seeds: runs.iter().map(|run| run.seed).collect(),
            cell,
        }
    }

    /// Returns the values of the sweep's axes with their names: `rtt = 100 ms, loss = 1 %`.
    pub fn describe(&self, axes: &[OutlineAxis]) -> String {
        self.cell.describe(axes)
    }

    /// Returns whether the cell has the values of `only` and the condition holds. A condition
    /// without a value does not hold.
    pub(super) fn is_chosen(
        &self,
        axes: &[OutlineAxis],
        only: &BTreeMap<String, Label>,
        condition: Option<&Expression>,
    ) -> bool {
        let labels = || axes.iter().zip(&self.cell.labels);
        let has = |(key, Label(wanted)): (&String, &Label)| {
            labels().any(|(axis, label)| axis.key == *key && label == wanted)
        };
        let holds = |condition: &Expression| {
            let value = condition.evaluate(&self.environment);
            value.is_ok_and(|value| value.value != 0.0)
        };
        only.iter().all(has) && condition.is_none_or(holds)
    }
}

/// Returns the cells, with the samples of their measures.
pub(super) fn cells(cells: Vec<CellOutline>, runs: &[&Run]) -> Vec<CellResult> {
    let own = |index| runs.iter().copied().filter(move |run| run.cell == index);
    let results = cells.into_iter().map(|cell| {
        let index = cell.index;
        CellResult::new(cell, own(index))
    });
    results.collect()
}

/// Evaluates the measures in the order of the file. A formula can use the measures before it.
fn environment(cell: &CellOutline, runs: &[&Run]) -> Environment {
    let mut environment = cell.parameters.clone();
    for (index, measure) in cell.measure.iter().enumerate() {
        let samples = match &measure.value {
            Some(formula) => formula.known_samples(&environment).unwrap_or_else(|_| {
                let dimension = formula.dimension(&environment).unwrap_or_default();
                let values = vec![f64::NAN; runs.len().max(1)];
                Samples { values, dimension }
            }),
            None => {
                let mut values: Vec<f64> = runs.iter().map(|run| run.measures[index]).collect();
                if values.is_empty() {
                    values.push(f64::NAN);
                }
                let dimension = measure.dimension();
                Samples { values, dimension }
            }
        };
        environment.insert(measure.name.clone(), samples);
    }
    environment
}

/// The bounds that apply. In shortened runs, the bounds in `fast` replace the others.
pub(super) struct Bounds<'a> {
    pub(super) at_least: Option<&'a Expression>,
    pub(super) at_most: Option<&'a Expression>,
}

impl<'a> Bounds<'a> {
    pub(super) fn of(expect: &'a ExpectTable, fast: bool) -> Bounds<'a> {
        match expect.fast.as_ref().filter(|_| fast) {
            Some(own) => Bounds {
                at_least: own.at_least.as_ref(),
                at_most: own.at_most.as_ref(),
            },
            None => Bounds {
                at_least: expect.at_least.as_ref(),
                at_most: expect.at_most.as_ref(),
            },
        }
    }
}
