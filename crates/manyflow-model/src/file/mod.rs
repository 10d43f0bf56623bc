//! TOML as a tree of values that know their places, the axes of a sweep, and the conversion of a
//! tree into tables.
//!
//! | file | contents |
//! |---|---|
//! | [`tree`] | TOML with the places of its values |
//! | [`sweep`] | `[sweep]`: the axes of the cells |
//! | [`de`] | the conversion of a tree into tables, through serde |
//! | [`expand`] | text parameters, and tables with a `count` |

pub mod de;
pub mod expand;
pub mod sweep;
pub mod tree;

use serde::de::DeserializeOwned;

use crate::error::{Fault, ScenarioError};
use crate::expression::Environment;

pub use sweep::{Axis, Sweep};
pub use tree::{Node, Value};

/// Reads a file that is not a scenario, but has tables and quantities as scenarios have. Messages
/// name `file`.
///
/// # Errors
/// Returns the first error, with file, line and key.
pub fn read_tables<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, ScenarioError> {
    let place = |fault: Fault, span| ScenarioError {
        file: file.to_owned(),
        line: tree::line_of(text, span),
        key: fault.path.join("."),
        problem: fault.problem,
    };
    let start = |fault: &Fault| fault.span.as_ref().map(|span| span.start);
    let tree = tree::parse(text).map_err(|fault| {
        let span = start(&fault).unwrap_or(0);
        place(fault, span)
    })?;
    de::read(&tree, &Environment::new()).map_err(|fault| {
        let span = start(&fault).unwrap_or_else(|| tree.locate(&fault.path).start);
        place(fault, span)
    })
}
