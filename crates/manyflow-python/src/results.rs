//! The results of runs for Python.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::RecordBatch;
use manyflow_results::{Conclusion, Provenance, outcomes_to_text};
use manyflow_scenario::{Job, Outcome, Scenario};
use pyo3::prelude::*;

use crate::errors::{run_error, scenario_error};
use crate::table::{self, Table, broken};

/// Returns the commit and the compiler of this package.
pub(crate) fn provenance() -> Provenance {
    Provenance {
        commit: option_env!("MANYFLOW_COMMIT").map(str::to_owned),
        toolchain: option_env!("MANYFLOW_TOOLCHAIN").map(str::to_owned),
    }
}

/// The results of runs. `manyflow.Results` wraps them.
#[pyclass(frozen, module = "manyflow._native")]
pub(crate) struct Results {
    scenario: Arc<Scenario>,
    jobs: Vec<Job>,
    outcomes: Vec<Outcome>,
    series: RecordBatch,
}

impl Results {
    /// Keeps the results of runs of which each has all its series.
    pub(crate) fn new(
        scenario: Arc<Scenario>,
        jobs: Vec<Job>,
        outcomes: Vec<Outcome>,
    ) -> PyResult<Results> {
        let cell = scenario.cell(0);
        let cell = cell.map_err(|error| Python::attach(|py| scenario_error(py, &error)))?;
        let series = table::series(&cell.schema.plots, &outcomes).map_err(broken)?;
        Ok(Results {
            scenario,
            jobs,
            outcomes,
            series,
        })
    }

    /// Compares the runs with the expectations, and calls `take` with the result.
    fn evaluate<T: Send>(
        &self,
        py: Python<'_>,
        take: impl FnOnce(&manyflow_results::Results<'_>) -> T + Send,
    ) -> PyResult<T> {
        let taken = py.detach(|| {
            let outline = self.scenario.outline()?;
            let results =
                manyflow_results::Results::new(outline, &self.jobs, &self.outcomes, provenance());
            Ok(take(&results))
        });
        taken.map_err(|error| scenario_error(py, &error))
    }

    /// Returns the runs with their outcomes.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (Job, &Outcome)> {
        self.jobs.iter().copied().zip(&self.outcomes)
    }

    /// Returns the verdicts, without the runs.
    pub(crate) fn conclusion(&self, py: Python<'_>) -> PyResult<Conclusion> {
        self.evaluate(py, |results| results.conclusion())
    }
}

#[pymethods]
impl Results {
    /// Raises the failure of the first run that failed, if there is one.
    fn raise_failure(&self, py: Python<'_>) -> PyResult<()> {
        let failed = self
            .outcomes
            .iter()
            .find_map(|outcome| outcome.as_ref().err());
        failed.map_or(Ok(()), |failed| Err(run_error(py, failed)))
    }

    /// The outcomes of all runs as a text, from which `Scenario.restore` makes the same results.
    fn outcomes(&self, py: Python<'_>) -> String {
        py.detach(|| outcomes_to_text(&self.outcomes))
    }

    /// A line for each expectation, as `manyflow sim` prints it.
    fn lines(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let expectations = self.conclusion(py)?.expectations;
        Ok(expectations.iter().map(|checked| checked.line()).collect())
    }

    /// The text of `summary.json`.
    fn summary_json(&self, py: Python<'_>) -> PyResult<String> {
        self.evaluate(py, |results| results.summary_json())
    }

    /// The points of all series.
    fn series(&self) -> Table {
        Table::new([self.series.clone()])
    }

    /// The measures: a row for each run.
    fn measures(&self, py: Python<'_>) -> PyResult<Table> {
        let table = self.evaluate(py, |results| {
            table::measures(&self.scenario, results.cells())
        })?;
        table.map(|table| Table::new([table])).map_err(broken)
    }

    /// The name, the title and the SVG text of each figure.
    fn figures(&self, py: Python<'_>) -> PyResult<Vec<(String, String, String)>> {
        self.evaluate(py, |results| {
            let figures = results.figures().iter().cloned();
            figures
                .map(|figure| (figure.name, figure.title, figure.svg))
                .collect()
        })
    }

    /// Writes the files of `manyflow sim` into a folder.
    fn write(&self, py: Python<'_>, folder: PathBuf) -> PyResult<()> {
        Ok(self.evaluate(py, |results| results.write(&folder))??)
    }

    /// The number of packets that all links delivered in all runs.
    #[getter]
    fn transmissions(&self) -> u64 {
        self.outcomes
            .iter()
            .flatten()
            .map(|run| run.transmissions)
            .sum()
    }
}
