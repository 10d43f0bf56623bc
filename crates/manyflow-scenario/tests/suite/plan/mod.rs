//! Tests of plans: what a cell becomes before it runs.

mod acp;
mod endpoints;
mod overlay;
mod schedule;
mod sessions;
mod topology;

use manyflow_core::EndpointId;
use manyflow_netsim::NodeId;
use manyflow_scenario::plan::Plan;
use manyflow_scenario::plan::ids::Role;
use manyflow_scenario::{Scenario, ScenarioError};

/// Plans the first cell, and runs it once: the run fails if the world numbers endpoints in another
/// way.
fn plan(scenario: &Scenario) -> Plan {
    let plan = Plan::new(scenario.cell(0).unwrap()).unwrap();
    scenario.run_one(scenario.jobs().unwrap()[0]).unwrap();
    plan
}

/// Returns the endpoints of a session's receivers.
fn hosts(plan: &Plan, session: usize) -> Vec<(EndpointId, NodeId)> {
    let session = &plan.sessions.0[session];
    let hosts = session.receivers.iter().flat_map(|receiver| {
        receiver.ends.all().map(|(id, role)| match role {
            Role::Sending => (id, NodeId(session.sender)),
            Role::Receiving => (id, NodeId(receiver.node)),
        })
    });
    hosts.collect()
}

/// Returns the numbers of endpoints with the names of their nodes.
fn placed(plan: &Plan, ends: impl AsRef<[(EndpointId, NodeId)]>) -> Vec<(u32, &str)> {
    let name = |node: NodeId| plan.topology.nodes.get(node.0);
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
