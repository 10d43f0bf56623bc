//! Runs from rows.

use arrow_array::cast::AsArray as _;
use arrow_array::types::{ArrowPrimitiveType, Float64Type, UInt32Type, UInt64Type};
use arrow_array::{Array as _, ArrayRef, PrimitiveArray, RecordBatch};
use manyflow_model::{FailedRun, Job, Run};

use super::{Columns, FAILURE, PLACE, RECEIVERS, REPLAY, Row, SERIES, TRANSMISSIONS, series};

impl Columns {
    /// Returns the runs of rows with these columns.
    ///
    /// # Errors
    /// Returns the reason if the rows have other columns, or contradict themselves.
    pub fn decode(&self, rows: &RecordBatch) -> Result<Vec<Row>, String> {
        let cells = numbers::<UInt32Type>(rows, "cell")?;
        let seeds = numbers::<UInt64Type>(rows, "seed")?;
        let places = numbers::<UInt32Type>(rows, PLACE)?;
        let transmissions = numbers::<UInt64Type>(rows, TRANSMISSIONS)?;
        let receivers = numbers::<UInt64Type>(rows, RECEIVERS)?;
        let failures = text(rows, FAILURE)?;
        let replays = text(rows, REPLAY)?;
        let measures = self.measures.iter().filter(|measure| !measure.is_formula);
        let columns = measures.map(|measure| numbers::<Float64Type>(rows, &measure.column));
        let measures = columns.collect::<Result<Vec<_>, _>>()?;
        let series = column(rows, SERIES)?;
        let row = |row: usize| -> Result<Row, String> {
            let job = Job {
                cell: cells.value(row) as usize,
                seed: seeds.value(row),
                place: places.value(row),
            };
            let (cell, seed) = (job.cell, job.seed);
            if failures.is_valid(row) {
                let failed = FailedRun {
                    cell,
                    seed,
                    message: failures.value(row).to_owned(),
                    replay: replays.value(row).to_owned(),
                };
                return Ok((job, Err(failed)));
            }
            let run = Run {
                cell,
                seed,
                measures: self.measured(&measures, row),
                series: series::decode(&self.plots, job.place, series, row)?,
                transmissions: transmissions.value(row),
                receivers: receivers.value(row),
            };
            Ok((job, Ok(run)))
        };
        (0..rows.num_rows()).map(row).collect()
    }

    /// Returns the numbers that a run holds: NaN for formulas and missing values.
    fn measured(&self, observed: &[&PrimitiveArray<Float64Type>], row: usize) -> Vec<f64> {
        let mut observed = observed.iter();
        let measures = self.measures.iter().map(|measure| {
            let column = match measure.is_formula {
                true => None,
                false => observed.next(),
            };
            let valid = column.filter(|column| column.is_valid(row));
            valid.map_or(f64::NAN, |column| column.value(row))
        });
        measures.collect()
    }
}

pub(super) fn column<'a>(rows: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef, String> {
    let column = rows.column_by_name(name);
    column.ok_or_else(|| format!("the column `{name}` is missing"))
}

fn numbers<'a, T: ArrowPrimitiveType>(
    rows: &'a RecordBatch,
    name: &str,
) -> Result<&'a PrimitiveArray<T>, String> {
    let numbers = column(rows, name)?.as_primitive_opt::<T>();
    numbers.ok_or_else(|| format!("the column `{name}` has another type"))
}

fn text<'a>(rows: &'a RecordBatch, name: &str) -> Result<&'a arrow_array::StringArray, String> {
    let texts = column(rows, name)?.as_string_opt::<i32>();
    texts.ok_or_else(|| format!("the column `{name}` has another type"))
}
