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

pub use sweep::{Axis, Sweep};
pub use tree::{Node, Value};
