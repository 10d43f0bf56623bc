//! A scenario for Python.

use std::collections::BTreeMap;
use std::sync::Arc;

use manyflow_results::outcomes_from_text;
use manyflow_scenario::{Cell, Form, Job, Outcome, Scenario as Inner};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::scenario_error;
use crate::results::Results;
use crate::running::Runs;

/// A scenario that has been read and checked. `manyflow.Scenario` wraps it.
#[pyclass(frozen, module = "manyflow._native")]
pub(crate) struct Scenario {
    inner: Arc<Inner>,
}

#[pymethods]
impl Scenario {
    /// Reads and checks a scenario; with `cell`, only the network of this cell is checked. `traces`
    /// has the texts of rate traces that are not read from files.
    #[new]
    #[pyo3(signature = (file, text, fast=false, settings=Vec::new(), cell=None, traces=BTreeMap::new()))]
    fn new(
        py: Python<'_>,
        file: &str,
        text: &str,
        fast: bool,
        settings: Vec<String>,
        cell: Option<usize>,
        traces: BTreeMap<String, String>,
    ) -> PyResult<Scenario> {
        let form = Form {
            fast,
            cell,
            settings,
        };
        let read = py.detach(|| Inner::parse_with(file, text, form, traces));
        let inner = Arc::new(read.map_err(|error| scenario_error(py, &error))?);
        Ok(Scenario { inner })
    }

    #[getter]
    fn id(&self) -> &str {
        self.inner.id()
    }

    #[getter]
    fn title(&self, py: Python<'_>) -> PyResult<String> {
        let cell = self.inner.cell(0);
        cell.map(|cell| cell.schema.title)
            .map_err(|error| scenario_error(py, &error))
    }

    /// The texts of the rate traces, after the paths in the scenario.
    #[getter]
    fn traces(&self) -> Vec<(String, String)> {
        let traces = self.inner.traces().iter();
        traces
            .map(|(path, text)| (path.clone(), text.clone()))
            .collect()
    }

    /// The number of cells of the sweep.
    #[getter]
    fn cells(&self) -> usize {
        self.inner.cells()
    }

    /// The key of each axis of the sweep, with its values as they are written.
    #[getter]
    fn axes(&self) -> Vec<(String, Vec<String>)> {
        let axes = self.inner.axes().iter();
        axes.map(|axis| (axis.key.clone(), axis.labels().collect()))
            .collect()
    }

    /// The values of the axes in a cell, as they are written.
    fn labels(&self, py: Python<'_>, cell: usize) -> PyResult<Vec<String>> {
        let cell = self.inner.cell(cell);
        cell.map(|cell| cell.labels)
            .map_err(|error| scenario_error(py, &error))
    }

    /// The hash that identifies the results of this scenario: see `Scenario::fingerprint`.
    #[getter]
    fn fingerprint(&self) -> String {
        self.inner.fingerprint()
    }

    /// The seeds of each cell.
    fn seeds(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        let cell = self
            .inner
            .cell(0)
            .map_err(|error| scenario_error(py, &error))?;
        let first = u64::from(cell.schema.run.first_seed.get());
        Ok((first..first + u64::from(cell.schema.run.seeds.get())).collect())
    }

    /// The simulated time of a run in seconds.
    fn duration_s(&self, py: Python<'_>, cell: usize) -> PyResult<f64> {
        let cell = self
            .inner
            .cell(cell)
            .map_err(|error| scenario_error(py, &error))?;
        Ok(cell.schema.run.duration.0)
    }

    /// Makes runs of these cells and seeds. `progress` is called with the simulated seconds and the
    /// number of runs that have ended, ten times a second. `controls` are callables that make the
    /// congestion controls of connections, by the names that sessions give.
    #[pyo3(signature = (jobs, threads, progress=None, controls=None))]
    fn run(
        &self,
        py: Python<'_>,
        jobs: Vec<(usize, u64)>,
        threads: usize,
        progress: Option<Py<PyAny>>,
        controls: Option<BTreeMap<String, Py<PyAny>>>,
    ) -> PyResult<Results> {
        // The first place in a cell keeps all series, so all runs get it.
        let job = |(cell, seed)| Job {
            cell,
            seed,
            place: 0,
        };
        let jobs = jobs.into_iter().map(job).collect();
        let runs = Runs {
            scenario: Arc::clone(&self.inner),
            jobs,
            threads,
        };
        runs.run(py, progress.as_ref(), controls.unwrap_or_default())
    }

    /// Makes the results of which `Results.outcomes` has returned the outcomes.
    fn restore(&self, py: Python<'_>, outcomes: &str) -> PyResult<Results> {
        let restored = py.detach(|| {
            let outcomes = outcomes_from_text(outcomes).map_err(|(_, error)| error.to_string())?;
            let cell = self.inner.cell(0).map_err(|error| error.to_string())?;
            match outcomes.iter().all(|outcome| self.fits(&cell, outcome)) {
                true => Ok(outcomes),
                false => Err("they are those of another scenario".to_owned()),
            }
        });
        let outcomes = restored
            .map_err(|why| PyValueError::new_err(format!("these results cannot be read: {why}")))?;
        let jobs = outcomes.iter().map(|outcome| {
            let (cell, seed) = match outcome {
                Ok(run) => (run.cell, run.seed),
                Err(failed) => (failed.cell, failed.seed),
            };
            Job {
                cell,
                seed,
                place: 0,
            }
        });
        Results::new(Arc::clone(&self.inner), jobs.collect(), outcomes)
    }
}

impl Scenario {
    /// Returns the scenario itself.
    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Returns whether an outcome has as many measures and series as runs of this scenario have.
    fn fits(&self, cell: &Cell, outcome: &Outcome) -> bool {
        let Ok(run) = outcome else {
            return true;
        };
        run.cell < self.inner.cells()
            && run.measures.len() == cell.schema.measure.len()
            && run.series.len() == cell.schema.plots.len()
    }
}
