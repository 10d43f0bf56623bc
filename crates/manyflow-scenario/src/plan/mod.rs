//! A cell with all generators expanded: nodes, links, sessions with their receivers, switches
//! and daemons.

pub(crate) mod endpoints;
pub(crate) mod ensemble;
pub(crate) mod overlays;
pub(crate) mod paths;
pub(crate) mod schedule;
pub(crate) mod sessions;
pub(crate) mod topology;

use endpoints::Allotment;
use overlays::Overlays;
pub use paths::ChosenPath;
use sessions::Sessions;
pub use topology::{Direction, Reach, Topology};

use crate::controls::Controls;
use crate::file::Cell;
use manyflow_model::error::Fault;

/// The complete description of a cell. It is made once, checked, and run with every seed.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The tables of the scenario.
    pub(crate) cell: Cell,
    pub(crate) topology: Topology,
    pub(crate) overlays: Overlays,
    pub(crate) sessions: Sessions,
    /// The number of endpoints of all overlays and sessions.
    pub(crate) endpoints: usize,
    /// The congestion controls of the calling program.
    pub(crate) controls: Controls,
}

impl Plan {
    /// Expands a cell.
    ///
    /// # Errors
    /// Returns an error if a name is unknown or a parameter is out of its range.
    pub(crate) fn new(cell: Cell) -> Result<Plan, Fault> {
        let topology = Topology::new(&cell.schema)?;
        let mut overlays = Overlays::new(&cell.schema, &topology)?;
        let mut sessions = Sessions::new(&cell.schema, &topology, &overlays)?;
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
