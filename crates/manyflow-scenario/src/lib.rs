//! Scenario files: what runs, what varies, what is measured and what has to come out.
//! `docs/scenarios.md` is the manual.
//!
//! ```text
//!   file --tree.rs--> tree with places --[fast], [sweep]--> a tree for each cell --de.rs--> Schema --topology.rs, build.rs--> Network
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `tree.rs`, `de.rs` | TOML with places, and its way through serde into the schema |
//! | `schema.rs`, `links.rs`, `protocols.rs`, `observables.rs`, `entries.rs` | the tables and their keys |
//! | `expression/`, `quantity.rs` | formulas over quantities with units |
//! | `cells.rs`, `sweep.rs` | `[sweep]` and `[fast]`: the cells of a scenario |
//! | `expand.rs` | parameters, and tables that are written once and read many times |
//! | `topology.rs`, `sessions.rs`, `ensemble.rs`, `overlays.rs` | generators: nodes, links, receivers, switches and daemons written out |
//! | `build.rs` | a cell made into a network |
//! | `schedule.rs` | what changes in the course of a run |
//! | `observe.rs`, `audience.rs` | what is recorded of a run |
//! | `scalars.rs`, `levels.rs`, `compare.rs` | the numbers taken from it |
//! | `inspect.rs` | captures and traces of one run |
//! | `run.rs` | all runs, on several threads |
//! | `reports.rs` | what each protocol reports |
//! | `check.rs` | what can only be checked on the whole: names, paths, units |
#![forbid(unsafe_code)]

mod audience;
mod build;
mod cells;
mod check;
mod compare;
mod de;
mod ensemble;
mod entries;
mod error;
mod expand;
mod expression;
mod inspect;
mod levels;
pub mod links;
mod observables;
mod observe;
mod overlays;
pub mod protocols;
mod quantity;
mod reports;
pub mod results;
mod run;
mod scalars;
mod schedule;
pub mod schema;
mod sessions;
mod sweep;
mod topology;
mod tree;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_acp;
#[cfg(test)]
mod tests_capture;
#[cfg(test)]
mod tests_inspect;
#[cfg(test)]
mod tests_manual;
#[cfg(test)]
mod tests_overlay;

pub use cells::{Cell, Scenario};
pub(crate) use error::Fault;
pub use error::{Problem, ScenarioError};
pub use expression::{Environment, Expression, FUNCTIONS, Function, Samples};
pub(crate) use expression::{mean, quantile, spread};
pub use inspect::Inspection;
pub use observables::{Combination, Observable, Statistic, Subject};
pub use observe::Series;
pub use protocols::{AnyEvent, AnyHeader, Network, Packet};
pub use quantity::{Dimension, Quantity, short};
pub use run::{FailedRun, Job, Outcome, Progress, Run};
pub use sweep::Axis;
pub use topology::{Direction, Topology};
