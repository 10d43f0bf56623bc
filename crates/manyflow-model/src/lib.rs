//! Scenarios as data: quantities and formulas, the observables, the tables that say what to
//! measure and to draw, and the outcomes of runs. Nothing here names a protocol, so that results
//! are read and drawn without them.
//!
//! ```
//! use manyflow_model::{Environment, Expression, Quantity};
//!
//! # fn main() -> Result<(), manyflow_model::Fault> {
//! let mut names = Environment::new();
//! names.insert("rtt".to_owned(), Quantity::of_unit(100.0, "ms").unwrap().into());
//! let size = Expression::parse("8 Mbit/s * rtt / 2")?.evaluate(&names)?;
//! assert_eq!(size.to_string(), "400000 bit");
//! # Ok(())
//! # }
//! ```
//!
//! A module refers only to those above it:
//!
//! | module | contents |
//! |---|---|
//! | [`error`] | errors with file, line and key |
//! | [`quantity`] | numbers with units |
//! | [`theory`] | the bound that formulas compare with Cost-Benefit's admissions |
//! | [`expression`] | formulas over quantities |
//! | [`names`] | names with placeholders, and names in formulas |
//! | [`observables`] | the quantities that a run can record, and the statistics of them |
//! | [`tables`] | the tables of a file that name no protocol: runs, measures, plots, expectations |
//! | [`outcome`] | runs, with their measures and series |
//! | [`measure`] | numbers from series |
//! | [`outline`] | a scenario and its cells, as results show them |
//! | [`mod@file`] | TOML as a tree of values with their places, and its conversion into tables |
#![forbid(unsafe_code)]

pub mod error;
mod exact;
pub mod expression;
pub mod file;
pub mod measure;
pub mod names;
pub mod observables;
pub mod outcome;
pub mod outline;
pub mod quantity;
pub mod tables;
pub mod theory;

pub use error::{Fault, Problem, ScenarioError};
pub use expression::{
    Environment, Expression, FUNCTIONS, Function, Samples, confidence, mean, quantile, spread,
};
pub use observables::{Combination, Observable, Statistic, Subject};
pub use outcome::{FailedRun, Job, Outcome, Run, Series};
pub use outline::{CellOutline, Outline, OutlineAxis, Source};
pub use quantity::{Dimension, Quantity, short};
