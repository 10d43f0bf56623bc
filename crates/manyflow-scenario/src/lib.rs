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
//!   file --file/--> a tree for each cell --schema/--> tables --plan/--> nodes, links, sessions
//!        --scene.rs, protocols/--> endpoints in a world --run.rs, record/--> series --measure/--> numbers --results/--> pages
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `file/` | TOML with source positions, parameters, sweeps and short forms: a tree of values for each cell |
//! | `expression/`, `quantity.rs` | formulas over quantities with units |
//! | [`schema`] | the tables and their keys, the observables, and the checks of a whole scenario |
//! | `plan/` | nodes, links, sessions, switches, daemons and changes, with all generators expanded |
//! | [`protocols`] | a folder for each protocol: its keys, its sessions, its events and its packets |
//! | `world.rs`, `scene.rs` | the interface of all worlds, and a plan's endpoints in one of them |
//! | `controls.rs` | congestion controls of the calling program |
//! | `run.rs` | all runs of a scenario, on several threads |
//! | `record/` | the series of a run, its captures and its traces |
//! | `measure/` | numbers from series |
//! | `overview.rs`, `map.rs` | plots that a file lacks, and the network as a picture needs it |
//! | [`results`] | expectations, CSV, JSON, plots and pages |
//! | [`shard`] | parts of a scenario for batch queues, and their merged results |
#![forbid(unsafe_code)]

mod controls;
mod file;
mod limits;
mod map;
mod overview;
pub mod plan;
pub mod protocols;
mod record;
mod run;
mod scene;
pub mod schema;
mod world;

pub use controls::Controls;
pub use file::{Cell, Form, Scenario};
pub use limits::Limits;
pub use manyflow_model::file::Axis;
pub use manyflow_model::{
    Combination, Dimension, Environment, Expression, FUNCTIONS, FailedRun, Function, Job,
    Observable, Outcome, Outline, Problem, Quantity, Run, Samples, ScenarioError, Series, Source,
    Statistic, Subject, short,
};
pub use manyflow_netsim::Stop;
pub use map::{Map, MapLink, MapOverlay, MapSession};
pub use plan::{ChosenPath, Direction, Reach, Topology};
pub use protocols::{AnyEvent, AnyHeader, Network, Packet};
pub use record::{Beginning, Inspection, LinkState, OverlayLinkState, Sample, Watch};
pub use run::Progress;
pub use world::{Command, Connection, WebrcReceiver, WebrcSession, World};
