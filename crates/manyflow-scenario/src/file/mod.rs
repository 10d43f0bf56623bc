//! A scenario file as a tree of values for each cell.
//!
//! | file | contents |
//! |---|---|
//! | `tree.rs` | TOML with the places of its values |
//! | `expand.rs` | text parameters, and tables with a `count` |
//! | `foreign.rs` | the check that sessions have no keys of other protocols |
//! | `sweep.rs` | `[sweep]`: the axes of the cells |
//! | `cells.rs` | [`Scenario`], which reads a file, and its cells |
//! | `de.rs`, `entries.rs` | the conversion of a tree into the tables of the schema |

pub(crate) mod cells;
pub(crate) mod de;
mod entries;
pub(crate) mod expand;
mod foreign;
pub(crate) mod sweep;
pub(crate) mod tree;

pub use cells::{Cell, Form, Scenario};
pub use sweep::Axis;
