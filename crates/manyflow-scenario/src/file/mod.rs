//! A scenario file as a tree of values for each cell.
//!
//! | file | contents |
//! |---|---|
//! | `foreign.rs` | the check that sessions have no keys of other protocols |
//! | `traces.rs` | the rate traces that a file names |
//! | `cells.rs` | [`Scenario`], which reads a file, and its cells |
//!
//! `manyflow_model::file` parses the file and converts its tree into tables.

pub(crate) mod cells;
mod foreign;
mod traces;

pub use cells::{Form, Scenario};
