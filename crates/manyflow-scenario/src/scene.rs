//! The endpoints of a plan in a world.

use std::sync::Arc;

use manyflow_core::{EndpointId, Time};
use manyflow_overlay::DaemonId;

use crate::builder::{Builder, agree, draw, interval_name};
use crate::plan::Plan;
use crate::plan::ids::{Ends, Role};
use crate::plan::overlays::Affiliation;
use crate::plan::sessions::MembershipInterval;
use crate::protocols::kind;
use crate::protocols::overlay::{GroupOptions, add_daemons};
use crate::schedule::Schedule;
use crate::world::World;
use manyflow_model::error::Fault;
use manyflow_netsim::{LinkId, NodeId};

/// A plan in a world.
pub(crate) struct Scene {
    pub(crate) network: Box<dyn World>,
    pub(crate) plan: Arc<Plan>,
    pub(crate) schedule: Schedule,
}

impl Scene {
    /// Adds a checked plan to a world without nodes.
    ///
    /// # Errors
    /// Returns the errors that the checks find.
    pub(crate) fn new(plan: Arc<Plan>, mut network: Box<dyn World>) -> Result<Scene, Fault> {
        add_network(&plan, &mut *network);
        let schema = &plan.cell.schema;
        let tables = plan.overlays.0.iter().zip(&schema.overlays).enumerate();
        for (number, (made, table)) in tables {
            let groups = GroupOptions::new(number, &plan.sessions, schema);
            add_daemons(&mut *network, &plan.topology, made, table, groups)?;
        }
        for session in &plan.sessions.0 {
            let table = &schema.sessions[session.table];
            let mut builder = Builder {
                network: &mut *network,
                session,
                table,
                plan: &plan,
            };
            kind(table.protocol).add(&mut builder)?;
        }
        let schedule = Schedule::new(schema, &plan.topology)?;
        schedule.links().for_each(|link| network.keep_whole(link));
        Ok(Scene {
            network,
            plan,
            schedule,
        })
    }

    /// Returns the membership intervals of a receiver.
    pub(crate) fn intervals(&self, session: u32, receiver: u32) -> Vec<(Time, Time)> {
        let session = &self.plan.sessions.0[session as usize];
        let receiver = &session.receivers[receiver as usize];
        let times = |(index, known): (usize, &MembershipInterval)| {
            let name = interval_name(&self.plan.topology.nodes, receiver, index);
            let start = draw(&*self.network, session, known.start, &name);
            (start, known.stop.map_or(Time::MAX, |stop| stop.time()))
        };
        receiver.intervals.iter().enumerate().map(times).collect()
    }

    /// Returns the endpoints of a session's receivers, each with its own node and the receiver's
    /// node.
    pub(crate) fn hosts(
        &self,
        session: usize,
    ) -> impl Iterator<Item = (EndpointId, NodeId, NodeId)> {
        let known = &self.plan.sessions.0[session];
        let sender = NodeId(known.sender);
        known.receivers.iter().flat_map(move |receiver| {
            let node = NodeId(receiver.node);
            receiver.ends.all().map(move |(id, role)| match role {
                Role::Sending => (id, sender, node),
                Role::Receiving => (id, node, node),
            })
        })
    }

    /// Returns the endpoints of a session besides its receivers, with their nodes.
    pub(crate) fn staff(&self, session: usize) -> &[(EndpointId, NodeId)] {
        &self.plan.sessions.0[session].staff
    }

    /// Returns the endpoints that a session has at a node besides its receivers.
    pub(crate) fn staff_at(&self, session: u32, node: u32) -> impl Iterator<Item = EndpointId> {
        let staff = self.staff(session as usize).iter();
        let here = staff.filter(move |(_, at)| *at == NodeId(node));
        here.map(|(id, _)| *id)
    }

    /// Returns the overlay and group of a session.
    ///
    /// # Panics
    /// Panics if the session does not run over an overlay.
    pub(crate) fn affiliation(&self, session: u32) -> Affiliation {
        let affiliation = self.plan.sessions.0[session as usize].affiliation;
        affiliation.expect("the session runs over an overlay")
    }

    /// Returns the endpoint of an overlay's daemon.
    pub(crate) fn daemon(&self, overlay: usize, daemon: DaemonId) -> EndpointId {
        self.plan.overlays.0[overlay].endpoint(daemon)
    }

    /// Returns the name by which measures refer to a session's endpoints at a node: `webrc/R`.
    pub(crate) fn name_at(&self, session: u32, node: u32) -> String {
        let session = &self.plan.sessions.0[session as usize].name;
        format!("{session}/{}", self.plan.topology.nodes.get(node))
    }

    /// Returns the endpoints of a receiver.
    pub(crate) fn ends(&self, session: u32, receiver: u32) -> Ends {
        self.plan.sessions.0[session as usize].receivers[receiver as usize].ends
    }
}

/// Adds a plan's nodes and links, and reserves memory for its endpoints.
fn add_network(plan: &Plan, network: &mut dyn World) {
    let (topology, run) = (&plan.topology, &plan.cell.schema.run);
    network.set_leave_latency(run.leave_latency.duration());
    if let Some(packets) = run.carried_packets_max {
        network.set_carried_max(packets.get().into());
    }
    network.reserve(topology.nodes.len(), topology.links.len(), plan.endpoints);
    for (number, name) in topology.nodes.iter().enumerate() {
        agree(network.add_node(name), NodeId(number as u32));
    }
    for (number, link) in topology.links.iter().enumerate() {
        let config = Arc::clone(&link.config);
        let id = network.add_link(NodeId(link.from), NodeId(link.to), config);
        agree(id, LinkId(number as u32));
    }
}
