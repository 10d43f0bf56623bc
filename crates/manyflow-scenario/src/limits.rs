//! The limits of a world that cannot run every scenario.

use crate::file::Scenario;
use crate::plan::Plan;
use crate::schema::Cell;
use crate::schema::links::LinkProperties;
use crate::schema::rates::LinkRate;
use manyflow_core::Rate;
use manyflow_model::error::{Fault, Problem, ScenarioError};

/// The size of the networks that a world can run.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of nodes.
    pub nodes: usize,
    /// The maximum number of endpoints of all sessions.
    pub endpoints: usize,
    /// The maximum rate of a link.
    pub rate: Rate,
}

impl Scenario {
    /// Checks that a cell is within the limits of a world.
    ///
    /// # Errors
    /// Returns the first error, with file, line, key and limit.
    pub fn check_limits(&self, cell: usize, limits: &Limits) -> Result<(), ScenarioError> {
        let cell = self.cell(cell)?;
        check(cell, limits).map_err(|fault| self.place(fault))
    }
}

fn check(cell: Cell, limits: &Limits) -> Result<(), Fault> {
    for (index, link) in cell.schema.links.iter().enumerate() {
        let key = link.name.clone().unwrap_or(index.to_string());
        let within = |fault: Fault| fault.within(&key).within("links");
        check_rate(&link.properties(), limits).map_err(within)?;
        let back = check_rate(&link.back, limits).map_err(|fault| fault.within("back"));
        back.map_err(within)?;
    }
    for (index, change) in cell.schema.at.iter().enumerate() {
        let within = |fault: Fault| fault.within("set").within(&index.to_string()).within("at");
        check_rate(&change.set, limits).map_err(within)?;
    }
    let plan = Plan::new(cell)?;
    let nodes = plan.topology.nodes.len();
    check_count("nodes", "nodes", nodes, limits.nodes)?;
    check_count("sessions", "endpoints", plan.endpoints, limits.endpoints)
}

fn check_rate(link: &LinkProperties, limits: &Limits) -> Result<(), Fault> {
    match link.rate.as_ref().and_then(LinkRate::average) {
        Some(rate) if rate > limits.rate => {
            let message = format!("{rate} is too fast to be emulated: at most {}", limits.rate);
            Err(Fault::at(&["rate"], Problem::Value(message)))
        }
        _ => Ok(()),
    }
}

fn check_count(key: &str, what: &str, count: usize, limit: usize) -> Result<(), Fault> {
    if count <= limit {
        return Ok(());
    }
    let message = format!("{count} {what} are too many to be emulated: at most {limit}");
    Err(Fault::at(&[key], Problem::Value(message)))
}
