//! Scenarios that a user names by a file or by the id of a figure.

use std::path::Path;

use anyhow::Result;
use manyflow_figures::{Figure, FigureError, Source};
use manyflow_scenario::{Form, Scenario};

use manyflow_terminal::failure::read_description;
use manyflow_terminal::usage;

/// Reads the scenario that the user has named by a path, or by the id of a figure in `folder`.
///
/// # Errors
/// If there is none, if its file cannot be read, or if it is no valid scenario.
pub(crate) fn read(name: &str, folder: Option<&Path>, form: Form) -> Result<Scenario> {
    read_figure(&found(manyflow_figures::resolve(name, folder))?, form)
}

/// Reads the scenario of a figure.
///
/// # Errors
/// If the file cannot be read, or is no valid scenario.
pub(crate) fn read_figure(figure: &Figure, form: Form) -> Result<Scenario> {
    let (name, text) = match figure.source() {
        Source::File(path) => (path.display().to_string(), read_description(path)?),
        Source::BuiltIn(text) => (figure.id().to_owned(), (*text).to_owned()),
    };
    let scenario = Scenario::parse_form(&name, &text, form);
    scenario.map_err(|error| usage(error.to_string()))
}

/// Makes an error of the command line of the error of a look-up.
pub(crate) fn found<T>(result: Result<T, FigureError>) -> Result<T> {
    result.map_err(|error| match error {
        FigureError::Folder { .. } => error.into(),
        _ => usage(error.to_string()),
    })
}
