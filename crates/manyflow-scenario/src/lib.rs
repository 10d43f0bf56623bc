//! Scenario files: what runs, what varies, what is measured and what has to come out.
//! `docs/scenarios.md` is the manual.
//!
//! ```text
//!   file --file/--> a tree for each cell --schema/--> tables --plan/--> nodes, links, sessions
//!        --scene.rs, protocols/--> endpoints in a world --run.rs, record/--> series --measure/--> numbers --results/--> pages
//! ```
//!
//! | room | what it holds |
//! |---|---|
//! | `file/` | TOML with places, parameters, sweeps and short forms: a tree of values for each cell |
//! | `expression/`, `quantity.rs` | formulas over quantities with units |
//! | [`schema`] | the tables and their keys, the observables, and the checks of a whole scenario |
//! | `plan/` | nodes, links, sessions, switches, daemons and changes, with all generators expanded |
//! | [`protocols`] | a folder for each protocol: its keys, its sessions, its events and its packets |
//! | `world.rs`, `scene.rs` | the interface of all worlds, and a plan's endpoints in one of them |
//! | `run.rs` | all runs of a scenario, on several threads |
//! | `record/` | the series of a run, its captures and its traces |
//! | `measure/` | numbers from series |
//! | [`results`] | expectations, CSV, JSON, plots and pages |
#![forbid(unsafe_code)]

mod error;
mod expression;
mod file;
mod measure;
mod plan;
pub mod protocols;
mod quantity;
mod record;
pub mod results;
mod run;
mod scene;
pub mod schema;
mod world;

#[cfg(test)]
mod tests;

pub(crate) use error::Fault;
pub use error::{Problem, ScenarioError};
pub use expression::{Environment, Expression, FUNCTIONS, Function, Samples};
pub(crate) use expression::{mean, quantile, spread};
pub use file::{Axis, Cell, Scenario};
pub use plan::{Direction, Topology};
pub use protocols::{AnyEvent, AnyHeader, Network, Packet};
pub use quantity::{Dimension, Quantity, short};
pub use record::{Inspection, Series};
pub use run::{FailedRun, Job, Outcome, Progress, Run};
pub use schema::{Combination, Observable, Statistic, Subject};
pub use world::World;
