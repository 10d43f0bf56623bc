//! Tests that read, check and run scenarios.

mod acp;
mod overlay;

use std::sync::Arc;

use manyflow_core::EndpointId;
use manyflow_netsim::NodeId;

use crate::plan::Plan;
use crate::scene::Scene;
use crate::*;

/// Builds the scene of a cell with seed 1.
fn scene(cell: Cell) -> Scene {
    let plan = Arc::new(Plan::new(cell).unwrap());
    Scene::new(plan, Box::new(Network::new(1))).unwrap()
}

/// Returns the endpoints of a session's receivers.
fn hosts(scene: &Scene, session: usize) -> Vec<(EndpointId, NodeId)> {
    let hosts = scene.hosts(session).map(|(id, node, _)| (id, node));
    hosts.collect()
}

/// Returns the numbers of endpoints with the names of their nodes.
fn placed(scene: &Scene, ends: impl AsRef<[(EndpointId, NodeId)]>) -> Vec<(u32, &str)> {
    let name = |node: NodeId| scene.plan.topology.nodes.get(node.0);
    let ends = ends.as_ref().iter();
    ends.map(|(id, node)| (id.0, name(*node))).collect()
}

/// A part of a scenario, its replacement, and a part of the expected message.
type Refusal = (&'static str, &'static str, &'static str);

/// Asserts that a scenario is refused with each of these replacements.
fn assert_refused(
    parse: fn(&str) -> Result<Scenario, ScenarioError>,
    text: &str,
    refusals: &[Refusal],
) {
    for (part, other, expected) in refusals {
        assert!(text.contains(part), "the scenario has no {part}");
        let error = parse(&text.replacen(part, other, 1));
        let message = error.err().map(|error| error.to_string());
        let message = message.unwrap_or_else(|| panic!("accepted {other}"));
        assert!(message.contains(expected), "{message}\nnot\n{expected}");
    }
}
