//! Errors as the exceptions of `manyflow.errors`.

use manyflow_scenario::{FailedRun, ScenarioError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// Creates an exception of a class of `manyflow.errors`.
fn raise<A>(py: Python<'_>, class: &PyOnceLock<Py<PyType>>, name: &str, arguments: A) -> PyErr
where
    A: for<'py> pyo3::call::PyCallArgs<'py>,
{
    let made = class
        .import(py, "manyflow.errors", name)
        .and_then(|class| class.call1(arguments));
    made.map_or_else(|error| error, PyErr::from_value)
}

/// Converts an error in a scenario. Settings have the name of the method that sets them.
pub(crate) fn scenario_error(py: Python<'_>, error: &ScenarioError) -> PyErr {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let file = match error.file.as_str() {
        "--set" => "with_",
        file => file,
    };
    let problem = error.problem.to_string();
    raise(
        py,
        &CLASS,
        "ScenarioError",
        (file, error.line, &error.key, problem),
    )
}

/// Converts the failure of a run.
pub(crate) fn run_error(py: Python<'_>, failed: &FailedRun) -> PyErr {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let FailedRun {
        cell,
        seed,
        message,
        replay,
        ..
    } = failed;
    raise(py, &CLASS, "RunError", (cell, seed, message, replay))
}

/// Replaces the options of the command line in a message by the keyword arguments of this package:
/// `--ca FILE` by `ca=FILE`, and `--group-key` by `group_key`. Commands, which are in backquotes,
/// keep their options.
pub(crate) fn in_python(message: &str) -> String {
    let parts = message.split('`').enumerate();
    let parts: Vec<_> = parts
        .map(|(index, part)| match index % 2 {
            0 => with_arguments(part),
            _ => part.to_owned(),
        })
        .collect();
    parts.join("`")
}

/// Replaces all options in a text by keyword arguments.
fn with_arguments(text: &str) -> String {
    let mut parts = text.split("--");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_lowercase() && c != '-');
        let (name, rest) = part.split_at(end.unwrap_or(part.len()));
        text += &name.replace('-', "_");
        // The value's placeholder has capital letters.
        let value = rest.strip_prefix(' ');
        match value.filter(|value| value.starts_with(|c: char| c.is_ascii_uppercase())) {
            Some(value) => text.extend(["=", value]),
            None => text += rest,
        }
    }
    text
}

/// Creates the error of a client of the daemon at `address`.
pub(crate) fn live_error(py: Python<'_>, address: &str, problem: &str) -> PyErr {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    raise(py, &CLASS, "LiveError", (address, problem))
}

/// Creates the error of a transfer of files. `subject` is the file or address that it concerns.
pub(crate) fn transfer_error(py: Python<'_>, subject: &str, problem: &str) -> PyErr {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    raise(py, &CLASS, "TransferError", (subject, problem))
}
