//! The scenarios of the repository, by their ids.

use pyo3::pyfunction;

/// The id and the text of each scenario, in the order of the ids.
static SCENARIOS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/scenarios.rs"));

/// Returns the ids of all scenarios.
#[pyfunction]
pub(crate) fn builtin_names() -> Vec<&'static str> {
    SCENARIOS.iter().map(|(id, _)| *id).collect()
}

/// Returns the text of a scenario, or `None` if there is none with this id.
#[pyfunction]
pub(crate) fn builtin_text(id: &str) -> Option<&'static str> {
    let found = SCENARIOS.binary_search_by_key(&id, |(known, _)| known);
    found.ok().map(|index| SCENARIOS[index].1)
}
