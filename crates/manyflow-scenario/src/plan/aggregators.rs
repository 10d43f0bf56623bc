//! The nodes that `sessions.sim` names.

use manyflow_core::Time;
use manyflow_model::error::Fault;

use crate::plan::topology::Topology;
use crate::schema::OneOrMany;
use crate::schema::protocols::SimTable;

/// Returns the nodes that aggregate feedback, or `None` for all nodes on the paths of packets.
pub(crate) fn aggregators(
    table: &SimTable,
    topology: &Topology,
) -> Result<Option<Vec<u32>>, Fault> {
    let Some(OneOrMany(names)) = &table.aggregators else {
        return Ok(None);
    };
    if names.as_slice() == ["all"] {
        return Ok(None);
    }
    let mut nodes = Vec::new();
    for name in names {
        let named = topology.nodes_named(name);
        nodes.extend(named.map_err(|problem| Fault::at(&["aggregators"], problem))?);
    }
    Ok(Some(nodes))
}

/// Returns the outage of an aggregator: its node, the time of its crash, and the time of its
/// restart.
pub(crate) fn outage(
    table: &SimTable,
    topology: &Topology,
) -> Result<Option<(u32, Time, Time)>, Fault> {
    let Some(outage) = &table.outage else {
        return Ok(None);
    };
    let nodes = topology.nodes_named(&outage.node);
    let nodes = nodes.map_err(|problem| Fault::at(&["outage", "node"], problem))?;
    Ok(Some((nodes.start, outage.from.time(), outage.to.time())))
}
