//! The criteria of RFC 9743.

use std::path::PathBuf;

use manyflow_results::Verdicts;
use manyflow_scenario::evaluation::{Subject, scenarios};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::scenario_error;
use crate::results::{Results, provenance};

/// Returns the protocol of this name, or TCP with the control of this name.
fn subject(name: &str, is_control: bool) -> PyResult<Subject> {
    if is_control {
        return Ok(Subject::of_control(name));
    }
    Subject::named(name).map_err(|unknown| PyValueError::new_err(unknown.to_string()))
}

/// Returns the file name and the text of each scenario for a protocol, or for a control that runs
/// get by this name.
#[pyfunction]
pub(crate) fn evaluation_texts(
    py: Python<'_>,
    name: &str,
    is_control: bool,
    fast: bool,
) -> PyResult<Vec<(String, String)>> {
    let all = scenarios(&subject(name, is_control)?, fast);
    let all = all.map_err(|error| scenario_error(py, &error))?;
    let texts = all.iter();
    Ok(texts
        .map(|scenario| (scenario.file().to_owned(), scenario.text().to_owned()))
        .collect())
}

/// Returns the table of verdicts over the results of such scenarios. Writes them as page, CSV and
/// LaTeX if there is a folder.
#[pyfunction]
#[pyo3(signature = (name, is_control, results, folder=None))]
pub(crate) fn evaluation_verdicts(
    py: Python<'_>,
    name: &str,
    is_control: bool,
    results: Vec<Py<Results>>,
    folder: Option<PathBuf>,
) -> PyResult<String> {
    let subject = subject(name, is_control)?;
    let mut verdicts = Verdicts::new(&subject.title(), subject.left_out(), provenance());
    for results in results {
        verdicts.add(results.get().conclusion(py)?);
    }
    if let Some(folder) = folder {
        verdicts.write(&folder)?;
    }
    Ok(verdicts.table())
}
