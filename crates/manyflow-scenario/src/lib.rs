//! Reads scenario files and runs them: networks, sessions, sweeps, measures and expectations.
//! `docs/scenarios.md` is the manual.
//!
//! ```
//! use manyflow_scenario::Scenario;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let scenario = Scenario::parse(
//!     "two-nodes.toml",
//!     r#"
//! title = "A constant bit rate over one link"
//! run.duration = "10 s"
//! nodes.names = ["S", "R"]
//! [[links]]
//! between = ["S", "R"]
//! delay = "20 ms"
//! [[sessions]]
//! name = "cbr"
//! protocol = "cbr"
//! sender = "S"
//! receivers = ["R"]
//! cbr.rate = "1 Mbit/s"
//! [[measure]]
//! name = "rate"
//! what = "received-rate"
//! of = "cbr"
//! "#,
//!     false,
//! )?;
//! let run = scenario.run_one(scenario.jobs()?[0])?;
//! println!("{:.2} Mbit/s", run.measures[0] / 1e6);
//! # assert!((run.measures[0] / 1e6 - 1.0).abs() < 0.01);
//! # Ok(())
//! # }
//! ```
//!
//! A run passes through these steps:
//!
//! ```text
//!   file --file/--> a tree for each cell --manyflow-schema--> tables --plan/--> nodes, links, sessions
//!        --scene.rs, protocols/--> endpoints in a world --run.rs, record/--> series
//!        --manyflow_model::measure--> numbers --manyflow-results--> pages
//! ```
//!
//! A room refers only to those above it:
//!
//! | room | contents |
//! |---|---|
//! | `manyflow-model` | quantities, formulas, TOML, observables, measures, and the outcomes of runs |
//! | `manyflow-schema`, as [`schema`] | the tables and their keys; `protocols/` has those of protocols |
//! | `controls.rs` | congestion controls of the calling program |
//! | [`protocols`], `*/events.rs`, `*/wire.rs` | headers and events, as observables and in captures |
//! | [`plan`] | nodes, links, sessions, switches and daemons, with all generators expanded |
//! | `world.rs`, [`schedule`] | the interface of all worlds, and the changes of links in a run |
//! | `builder.rs`, `protocols/*/session.rs` | the endpoints of a session in a world |
//! | `check/` | the checks of a whole scenario |
//! | `scene.rs` | a plan's endpoints in a world |
//! | `record/` | the series of a run, its captures and its traces |
//! | `file/` | [`Scenario`], which reads and checks a file, and its cells |
//! | `run.rs` | all runs of a scenario, on several threads |
//! | [`evaluation`] | the criteria of RFC 9743 as scenarios for any protocol |
//! | `overview.rs`, `map.rs`, `paths.rs` | plots that a file lacks, and the network of a cell |
//! | `limits.rs` | the limits of worlds that cannot run every scenario |
//!
//! A protocol's folder has a file for each layer above its tables. `manyflow-results` judges and
//! draws outcomes; nothing here refers to it.
#![forbid(unsafe_code)]

mod builder;
mod check;
mod controls;
pub mod evaluation;
mod file;
mod limits;
mod map;
mod overview;
mod paths;
pub mod plan;
pub mod protocols;
mod record;
mod run;
mod scene;
pub mod schedule;
mod world;

pub use controls::Controls;
pub use file::{Form, Scenario};
pub use limits::Limits;
pub use manyflow_model::file::{Axis, read_tables};
pub use manyflow_model::{
    Combination, Dimension, Environment, Expression, FUNCTIONS, FailedRun, Function, Job,
    Observable, Outcome, Outline, Problem, Quantity, Run, Samples, ScenarioError, Series, Source,
    Statistic, Subject, short,
};
pub use manyflow_netsim::Stop;
pub use manyflow_schema as schema;
pub use map::{Map, MapLink, MapOverlay, MapSession};
pub use paths::ChosenPath;
pub use plan::{Direction, Reach, Topology};
pub use protocols::{AnyEvent, AnyHeader, Network, Packet};
pub use record::{Beginning, Inspection, LinkState, OverlayLinkState, Sample, Watch};
pub use run::Progress;
pub use schema::Cell;
pub use world::{Command, Connection, WebrcReceiver, WebrcSession, World};
