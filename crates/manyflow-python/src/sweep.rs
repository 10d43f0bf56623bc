//! The folder of a sweep, to which workers write rows, and from which Python's libraries read them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{RecordBatch, RecordBatchIterator, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use manyflow_results::shard::{CellStore, PartWriter, RowReader, ShardError};
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::errors::scenario_error;
use crate::results::{Results, provenance};
use crate::scenario::Scenario;
use crate::table::{self, broken};

/// A folder with the rows of one scenario. Each worker has an object of its own.
#[pyclass(frozen, module = "manyflow._native")]
pub(crate) struct SweepStore {
    scenario: Arc<manyflow_scenario::Scenario>,
    store: Arc<CellStore>,
    writer: Mutex<PartWriter>,
}

#[pymethods]
impl SweepStore {
    /// Opens a folder, and creates it if it does not exist.
    #[new]
    fn new(
        py: Python<'_>,
        folder: PathBuf,
        scenario: &Scenario,
        fingerprint: &str,
    ) -> PyResult<SweepStore> {
        let scenario = Arc::clone(scenario.inner());
        let outline = scenario.outline_of([0]);
        let outline = outline.map_err(|error| scenario_error(py, &error))?;
        let store = CellStore::create(&folder, &outline, fingerprint, provenance());
        let store = Arc::new(store.map_err(failed)?);
        Ok(SweepStore {
            scenario,
            writer: Mutex::new(PartWriter::new(Arc::clone(&store))),
            store,
        })
    }

    /// The cell and the seed of each run in the folder.
    fn known(&self, py: Python<'_>) -> PyResult<BTreeSet<(usize, u64)>> {
        py.detach(|| self.store.known()).map_err(failed)
    }

    /// A sentence about each other program whose runs in the folder are left out.
    fn left_out(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        py.detach(|| self.store.left_out()).map_err(failed)
    }

    /// Adds runs, which are written with the next part.
    fn add(&self, py: Python<'_>, results: &Results) -> PyResult<()> {
        let mut cells: BTreeMap<usize, (Vec<_>, Vec<_>)> = BTreeMap::new();
        for (job, outcome) in results.runs() {
            let (jobs, outcomes) = cells.entry(job.cell).or_default();
            jobs.push(job);
            outcomes.push(outcome.clone());
        }
        for (cell, (jobs, outcomes)) in cells {
            let cell = self.scenario.cell(cell);
            let outline = cell.map_err(|error| scenario_error(py, &error))?.outline();
            let added = py.detach(|| self.writer().add(outline, &jobs, &outcomes));
            added.map_err(failed)?;
        }
        Ok(())
    }

    /// Writes the runs that are not written yet.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.writer().flush()).map_err(failed)
    }

    /// Brings all rows in order, in few files, and returns these.
    fn compact(&self, py: Python<'_>) -> PyResult<Vec<PathBuf>> {
        py.detach(|| self.store.compact()).map_err(failed)
    }

    /// The axes, measures and verdicts of the runs with these seeds in some files.
    fn measures(&self, files: Vec<PathBuf>, seeds: BTreeSet<u64>) -> PyResult<Rows> {
        let schema = self.store.columns().schema();
        let shown: Vec<&str> = self.store.columns().shown().collect();
        let places: Vec<usize> = (0..shown.len()).collect();
        let schema = Arc::new(schema.project(&places).map_err(broken)?);
        Ok(Rows {
            store: None,
            reader: Reader {
                files,
                read: Arc::clone(&schema),
                seeds,
            },
            schema,
        })
    }

    /// The points of the series of the runs with these seeds in some files.
    fn series(&self, files: Vec<PathBuf>, seeds: BTreeSet<u64>) -> PyResult<Rows> {
        let none = table::series(self.store.columns().plots(), &[]).map_err(broken)?;
        Ok(Rows {
            store: Some(Arc::clone(&self.store)),
            reader: Reader {
                files,
                read: Arc::clone(self.store.columns().schema()),
                seeds,
            },
            schema: none.schema(),
        })
    }
}

impl SweepStore {
    fn writer(&self) -> std::sync::MutexGuard<'_, PartWriter> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The files of rows, which are opened for each stream.
#[derive(Clone)]
struct Reader {
    files: Vec<PathBuf>,
    read: SchemaRef,
    seeds: BTreeSet<u64>,
}

impl Reader {
    fn open(&self) -> RowReader {
        RowReader::new(&self.files, Arc::clone(&self.read), self.seeds.clone())
    }
}

/// Rows of a sweep in Arrow's format, which are read while they are taken.
#[pyclass(frozen, module = "manyflow._native")]
pub(crate) struct Rows {
    /// The folder, if rows are made of the series in it.
    store: Option<Arc<CellStore>>,
    reader: Reader,
    schema: SchemaRef,
}

#[pymethods]
impl Rows {
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        py.detach(|| {
            let mut rows = 0;
            for batch in self.open() {
                rows += batch?.num_rows();
            }
            Ok(rows)
        })
        .map_err(broken)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        table::schema_capsule(py, &self.schema)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // A producer may ignore the wish for another schema: the consumer converts then.
        let _ = requested_schema;
        table::stream_capsule(py, self.open())
    }
}

impl Rows {
    fn open(&self) -> Box<dyn RecordBatchReader + Send> {
        let rows = self.reader.open();
        let Some(store) = self.store.clone() else {
            return Box::new(rows);
        };
        let batches = rows.map(move |rows| points(&store, &rows?));
        Box::new(RecordBatchIterator::new(batches, Arc::clone(&self.schema)))
    }
}

/// Returns the points of the series of some rows.
fn points(store: &CellStore, rows: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let runs = store.columns().decode(rows);
    let runs = runs.map_err(ArrowError::SchemaError)?;
    let outcomes: Vec<_> = runs.into_iter().map(|(_, outcome)| outcome).collect();
    table::series(store.columns().plots(), &outcomes)
}

fn failed(error: ShardError) -> PyErr {
    match error {
        // Another attempt may succeed, so it has the class that Python's files raise.
        ShardError::File { .. } => PyOSError::new_err(error.to_string()),
        _ => PyRuntimeError::new_err(error.to_string()),
    }
}
