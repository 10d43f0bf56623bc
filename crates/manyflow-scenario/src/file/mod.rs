//! A scenario file as a tree of values for each cell.
//!
//! | file | contents |
//! |---|---|
//! | `foreign.rs` | the check that sessions have no keys of other protocols |
//! | `cells.rs` | [`Scenario`], which reads a file, and its cells |
//! | `entries.rs` | tables of the schema that can be written in more than one way |
//!
//! `manyflow_model::file` parses the file and converts its tree into tables.

pub(crate) mod cells;
mod entries;
mod foreign;

pub use cells::{Form, Scenario};
