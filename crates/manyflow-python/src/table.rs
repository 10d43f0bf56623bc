//! Columns that Python's libraries take over by Arrow's C interface, without a copy.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, DictionaryArray, Float64Array, Int32Array, RecordBatch, RecordBatchIterator,
    RecordBatchReader, StringArray, UInt16Array, UInt32Array, UInt64Array,
};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, Schema};
use manyflow_results::CellResult;
use manyflow_scenario::schema::PlotTable;
use manyflow_scenario::{Outcome, Scenario, Series};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// A table in Arrow's format. Any library that knows Arrow's PyCapsule interface reads it.
#[pyclass(frozen, module = "manyflow._native")]
#[derive(Debug)]
pub(crate) struct Table(Vec<RecordBatch>);

impl Table {
    /// Creates a table of batches with the same schema; at least one.
    pub(crate) fn new(batches: impl Into<Vec<RecordBatch>>) -> Table {
        let batches = batches.into();
        debug_assert!(
            batches
                .windows(2)
                .all(|pair| pair[0].schema() == pair[1].schema())
        );
        Table(batches)
    }
}

#[pymethods]
impl Table {
    fn __len__(&self) -> usize {
        self.0.iter().map(RecordBatch::num_rows).sum()
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, self.0[0].schema_ref())
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // A producer may ignore the wish for another schema: the consumer converts then.
        let _ = requested_schema;
        let batches = self.0.clone().into_iter().map(Ok);
        let batches = RecordBatchIterator::new(batches, self.0[0].schema());
        stream_capsule(py, Box::new(batches))
    }
}

/// Returns a schema as Arrow's PyCapsule interface passes it.
pub(crate) fn schema_capsule<'py>(
    py: Python<'py>,
    schema: &Schema,
) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema).map_err(broken)?;
    PyCapsule::new_with_value(py, schema, c"arrow_schema")
}

/// Returns batches of rows as Arrow's PyCapsule interface passes them.
pub(crate) fn stream_capsule(
    py: Python<'_>,
    batches: Box<dyn RecordBatchReader + Send>,
) -> PyResult<Bound<'_, PyCapsule>> {
    let stream = FFI_ArrowArrayStream::new(batches);
    PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
}

/// Arrow's error, which columns of different lengths cause.
pub(crate) fn broken(error: ArrowError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

/// A column of few different texts, each of which is stored once.
#[derive(Default)]
struct Texts {
    keys: Vec<i32>,
    known: Vec<String>,
    numbers: BTreeMap<String, i32>,
}

impl Texts {
    /// Appends the same text for `rows` rows.
    fn extend(&mut self, text: &str, rows: usize) {
        let next = self.known.len() as i32;
        let number = match self.numbers.get(text) {
            Some(number) => *number,
            None => {
                self.numbers.insert(text.to_owned(), next);
                self.known.push(text.to_owned());
                next
            }
        };
        self.keys.resize(self.keys.len() + rows, number);
    }

    fn finish(self) -> Result<ArrayRef, ArrowError> {
        let values = Arc::new(StringArray::from(self.known));
        let column = DictionaryArray::<Int32Type>::try_new(Int32Array::from(self.keys), values)?;
        Ok(Arc::new(column))
    }
}

/// The columns of the series of runs, one row for each point.
#[derive(Default)]
struct Points {
    cell: Vec<u32>,
    seed: Vec<u64>,
    plot: Texts,
    time_s: Vec<f64>,
    observable: Texts,
    subject: Texts,
    channel: Vec<Option<u16>>,
    unit: Texts,
    value: Vec<f64>,
}

impl Points {
    fn with_capacity(rows: usize) -> Points {
        let mut points = Points {
            cell: Vec::with_capacity(rows),
            seed: Vec::with_capacity(rows),
            time_s: Vec::with_capacity(rows),
            channel: Vec::with_capacity(rows),
            value: Vec::with_capacity(rows),
            ..Points::default()
        };
        for texts in [
            &mut points.plot,
            &mut points.observable,
            &mut points.subject,
            &mut points.unit,
        ] {
            texts.keys.reserve(rows);
        }
        points
    }

    fn add(&mut self, cell: usize, seed: u64, plot: &str, series: &Series) {
        let rows = series.points.len();
        let end = self.value.len() + rows;
        self.cell.resize(end, cell as u32);
        self.seed.resize(end, seed);
        self.channel.resize(end, series.channel);
        self.plot.extend(plot, rows);
        self.observable.extend(&series.what.name(), rows);
        self.subject.extend(&series.of, rows);
        self.unit.extend(&series.what.dimension().unit(), rows);
        self.time_s
            .extend(series.points.iter().map(|(time_s, _)| time_s));
        self.value
            .extend(series.points.iter().map(|(_, value)| value));
    }

    fn finish(self) -> Result<RecordBatch, ArrowError> {
        let columns: [(&str, ArrayRef, bool); 9] = [
            ("cell", Arc::new(UInt32Array::from(self.cell)), false),
            ("seed", Arc::new(UInt64Array::from(self.seed)), false),
            ("plot", self.plot.finish()?, false),
            ("time_s", Arc::new(Float64Array::from(self.time_s)), false),
            ("observable", self.observable.finish()?, false),
            ("subject", self.subject.finish()?, false),
            ("channel", Arc::new(UInt16Array::from(self.channel)), true),
            ("unit", self.unit.finish()?, false),
            ("value", Arc::new(Float64Array::from(self.value)), false),
        ];
        RecordBatch::try_from_iter_with_nullable(columns)
    }
}

/// Returns the points of all series of runs, which belong to these plots.
pub(crate) fn series(plots: &[PlotTable], outcomes: &[Outcome]) -> Result<RecordBatch, ArrowError> {
    let runs = || outcomes.iter().flatten();
    let all = runs().flat_map(|run| run.series.iter().flatten().flatten());
    let mut points = Points::with_capacity(all.map(|series| series.points.len()).sum());
    for run in runs() {
        for (plot, lines) in plots.iter().zip(&run.series) {
            for series in lines.iter().flatten() {
                points.add(run.cell, run.seed, &plot.name, series);
            }
        }
    }
    points.finish()
}

/// Returns the measures of runs: a row for each run, with the values of the sweep's axes.
pub(crate) fn measures(
    scenario: &Scenario,
    cells: &[CellResult],
) -> Result<RecordBatch, ArrowError> {
    let rows = || {
        cells
            .iter()
            .flat_map(|cell| cell.seeds.iter().map(move |seed| (cell, *seed)))
    };
    let numbers: Vec<u32> = rows().map(|(cell, _)| cell.cell.index as u32).collect();
    let seeds: Vec<u64> = rows().map(|(_, seed)| seed).collect();
    let mut columns: Vec<(String, ArrayRef)> = vec![
        ("cell".to_owned(), Arc::new(UInt32Array::from(numbers))),
        ("seed".to_owned(), Arc::new(UInt64Array::from(seeds))),
    ];
    for (place, axis) in scenario.axes().iter().enumerate() {
        let mut labels = Texts::default();
        rows().for_each(|(cell, _)| labels.extend(&cell.cell.labels[place], 1));
        columns.push((axis.key.clone(), labels.finish()?));
    }
    let measures = cells.first().map(|cell| cell.cell.measure.as_slice());
    for measure in measures.unwrap_or_default() {
        let values = cells.iter().flat_map(|cell| samples(cell, &measure.name));
        columns.push((
            measure.name.clone(),
            Arc::new(values.collect::<Float64Array>()),
        ));
    }
    RecordBatch::try_from_iter(columns)
}

/// Returns a measure of each run of a cell, or `None` where nothing was observed. A formula over
/// parameters alone has one value for all runs.
fn samples<'a>(cell: &'a CellResult, measure: &str) -> impl Iterator<Item = Option<f64>> + use<'a> {
    let values = cell
        .environment
        .get(measure)
        .map(|samples| samples.values.as_slice());
    let values = values.unwrap_or_default();
    (0..cell.seeds.len()).map(move |place| {
        let last = values.len().checked_sub(1)?;
        Some(values[place.min(last)]).filter(|value| value.is_finite())
    })
}
