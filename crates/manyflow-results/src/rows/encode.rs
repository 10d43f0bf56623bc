//! Rows from the runs of a cell.

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, Float64Array, RecordBatch, StringArray, UInt32Array, UInt64Array,
};
use arrow_schema::ArrowError;
use manyflow_model::{CellOutline, FailedRun, Job, Outcome, Run};

use super::{Columns, Measure, series};
use crate::{CellResult, evaluate};

impl Columns {
    /// Returns a row for each of the outcomes of `jobs`, runs of one cell. Formulas and verdicts
    /// are those of these runs.
    ///
    /// # Errors
    /// Returns no error, unless the cell is of another scenario.
    pub fn encode(
        &self,
        cell: CellOutline,
        jobs: &[Job],
        outcomes: &[Outcome],
    ) -> Result<RecordBatch, ArrowError> {
        debug_assert_eq!(jobs.len(), outcomes.len());
        let (rows, number) = (outcomes.len(), cell.index as u32);
        let result = CellResult::new(cell, outcomes.iter().flatten());
        let mut columns: Vec<ArrayRef> = vec![Arc::new(UInt32Array::from(vec![number; rows]))];
        let labels = result.cell.labels.iter();
        columns.extend(labels.map(|label| texts(vec![Some(label.as_str()); rows])));
        let seeds = jobs.iter().map(|job| job.seed);
        columns.push(Arc::new(seeds.collect::<UInt64Array>()));
        for (index, measure) in self.measures.iter().enumerate() {
            columns.push(measured(&result, outcomes, index, measure));
        }
        let verdicts = evaluate::of_cell(&self.axes, self.fast, &result);
        for (_, index) in &self.verdicts {
            let word = verdicts[*index].map(|verdict| verdict.word());
            columns.push(texts(vec![word; rows]));
        }
        let places = jobs.iter().map(|job| job.place);
        columns.push(Arc::new(places.collect::<UInt32Array>()));
        columns.extend(self.outcomes(outcomes));
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
    }

    /// Returns the columns of what a run is besides its measures.
    fn outcomes(&self, outcomes: &[Outcome]) -> [ArrayRef; 5] {
        let number = |of: fn(&Run) -> u64| -> ArrayRef {
            let numbers = outcomes.iter().map(|outcome| outcome.as_ref().ok().map(of));
            Arc::new(numbers.collect::<UInt64Array>())
        };
        let text = |of: fn(&FailedRun) -> &str| -> ArrayRef {
            let failed = outcomes
                .iter()
                .map(|outcome| outcome.as_ref().err().map(of));
            texts(failed.collect())
        };
        [
            number(|run| run.transmissions),
            number(|run| run.receivers),
            text(|failed| &failed.message),
            text(|failed| &failed.replay),
            series::encode(&self.plots, outcomes),
        ]
    }
}

fn texts(values: Vec<Option<&str>>) -> ArrayRef {
    Arc::new(StringArray::from(values))
}

/// Returns the values of a measure. A formula is evaluated over the runs that succeeded. Any other
/// measure has the number that each run holds.
fn measured(
    result: &CellResult,
    outcomes: &[Outcome],
    index: usize,
    measure: &Measure,
) -> Arc<dyn Array> {
    let samples = &result.environment[&measure.name].values;
    let mut place = 0;
    let values = outcomes.iter().map(|outcome| {
        let run = outcome.as_ref().ok()?;
        let value = match measure.is_formula {
            true => samples[place.min(samples.len() - 1)],
            false => run.measures[index],
        };
        place += 1;
        Some(value).filter(|value| !value.is_nan())
    });
    Arc::new(values.collect::<Float64Array>())
}
