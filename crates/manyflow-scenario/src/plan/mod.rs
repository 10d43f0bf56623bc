//! A cell with all generators expanded: nodes, links, sessions with their receivers, switches
//! and daemons. [`Plan::new`] allots the numbers of all endpoints; a world that adds them in this
//! order needs no names.
//!
//! A module refers only to those above it: `topology`, `routing`, `ids`, `aggregators`, `ensemble`,
//! `overlays`, `sessions`, `services` and `endpoints`.

mod aggregators;
pub mod endpoints;
pub mod ensemble;
pub mod ids;
pub mod overlays;
pub mod routing;
mod services;
pub mod sessions;
pub mod topology;

use endpoints::Allotment;
use overlays::Overlays;
use sessions::Sessions;
pub use topology::{Direction, Reach, Topology};

use crate::controls::Controls;
use crate::schema::Cell;
use manyflow_model::error::Fault;

/// The complete description of a cell. It is made once, checked, and run with every seed.
#[derive(Debug)]
pub struct Plan {
    /// The tables of the scenario.
    pub cell: Cell,
    /// The nodes and links.
    pub topology: Topology,
    /// The overlays with their daemons.
    pub overlays: Overlays,
    /// The sessions with their receivers.
    pub sessions: Sessions,
    /// The number of endpoints of all overlays and sessions.
    pub endpoints: usize,
    /// The congestion controls of the calling program.
    pub controls: Controls,
}

impl Plan {
    /// Expands a cell.
    ///
    /// # Errors
    /// Returns an error if a name is unknown or a parameter is out of its range.
    pub fn new(cell: Cell) -> Result<Plan, Fault> {
        let topology = Topology::new(&cell.schema)?;
        let mut overlays = Overlays::new(&cell.schema, &topology)?;
        let mut sessions = Sessions::new(&cell.schema, &topology, &overlays)?;
        services::check_services(&sessions, &cell.schema)?;
        let endpoints = Allotment::all(&mut overlays, &mut sessions)?;
        Ok(Plan {
            cell,
            topology,
            overlays,
            sessions,
            endpoints,
            controls: Controls::default(),
        })
    }
}
