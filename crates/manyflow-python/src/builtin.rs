//! The scenarios of the repository, by their ids.

use manyflow_figures::BUILT_IN;
use pyo3::pyfunction;

/// Returns the ids of all scenarios.
#[pyfunction]
pub(crate) fn builtin_names() -> Vec<&'static str> {
    BUILT_IN.iter().map(|(id, _)| *id).collect()
}

/// Returns the text of a scenario, or `None` if there is none with this id.
#[pyfunction]
pub(crate) fn builtin_text(id: &str) -> Option<&'static str> {
    let found = BUILT_IN.binary_search_by_key(&id, |(known, _)| known);
    found.ok().map(|index| BUILT_IN[index].1)
}
