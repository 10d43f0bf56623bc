//! The endpoints of a plan in a world.

use std::sync::Arc;

use manyflow_core::{EndpointId, Time};
use manyflow_overlay::DaemonId;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::error::Fault;
use crate::plan::Plan;
use crate::plan::overlays::Affiliation;
use crate::plan::schedule::Schedule;
use crate::plan::sessions::{MembershipInterval, Receiver, Session};
use crate::protocols::IntoBoxed;
use crate::protocols::overlay::{self, add_daemons, slow_groups};
use crate::quantity::Seconds;
use crate::schema::{Lie, ReceiverTable, SessionTable, Start};
use crate::world::World;
use manyflow_netsim::models::Listener;
use manyflow_netsim::{Names, NodeId};

/// A plan in a world, with the endpoints of each receiver.
pub(crate) struct Scene {
    pub(crate) network: Box<dyn World>,
    pub(crate) plan: Arc<Plan>,
    /// The first daemon of each overlay. The other daemons have the following numbers.
    pub(crate) daemons: Vec<EndpointId>,
    /// The endpoints of each receiver of each session.
    pub(crate) members: Vec<Vec<Member>>,
    /// The other endpoints of each session, with their nodes: the sender and then the aggregators
    /// of a multicast session, the sender's ends and then the switches of an ACP session, the
    /// sending clients of an overlay session.
    pub(crate) staff: Vec<Vec<(EndpointId, NodeId)>>,
    pub(crate) schedule: Schedule,
}

/// The endpoints of a receiver, which have consecutive numbers. There is one for each membership
/// interval, or two with a unicast protocol: first the sending end, then the receiving end.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Member {
    first: EndpointId,
    intervals: u32,
    is_unicast: bool,
}

impl Member {
    /// Returns the receiving endpoints.
    pub(crate) fn receiving(self) -> impl Iterator<Item = EndpointId> {
        let (step, offset) = if self.is_unicast { (2, 1) } else { (1, 0) };
        let first = self.first.0 + offset;
        (0..self.intervals).map(move |interval| EndpointId(first + step * interval))
    }

    /// Returns whether this endpoint is a sending end.
    fn is_sending(self, id: EndpointId) -> bool {
        debug_assert!(id.0 >= self.first.0);
        self.is_unicast && (id.0 - self.first.0).is_multiple_of(2)
    }

    /// Returns all endpoints. With a unicast protocol, the sending ends report round-trip time and
    /// window.
    pub(crate) fn all(self) -> impl Iterator<Item = EndpointId> {
        let count = self.intervals * if self.is_unicast { 2 } else { 1 };
        (0..count).map(move |index| EndpointId(self.first.0 + index))
    }
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
        let daemons = tables.map(|(number, (made, table))| {
            let slow_groups = slow_groups(number, &plan.sessions, schema);
            add_daemons(&mut *network, &plan.topology, made, table, slow_groups)
        });
        let daemons: Vec<EndpointId> = daemons.collect::<Result<_, _>>()?;
        let mut members = Vec::with_capacity(plan.sessions.0.len());
        let mut staff = Vec::with_capacity(plan.sessions.0.len());
        for session in &plan.sessions.0 {
            let table = &schema.sessions[session.table];
            let mut builder = Builder {
                network: &mut *network,
                session,
                table,
                plan: &plan,
                daemons: &daemons,
                staff: Vec::new(),
            };
            members.push(table.protocol.kind().add(&mut builder)?);
            staff.push(builder.staff);
        }
        let schedule = Schedule::new(schema, &plan.topology)?;
        Ok(Scene {
            network,
            plan,
            daemons,
            members,
            staff,
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
        let members = known.receivers.iter().zip(&self.members[session]);
        members.flat_map(move |(receiver, member)| {
            let node = NodeId(receiver.node);
            // Each sending end directly precedes its receiving end.
            member.all().map(move |id| {
                let at = if member.is_sending(id) { sender } else { node };
                (id, at, node)
            })
        })
    }

    /// Returns the endpoints that a session has at a node besides its receivers.
    pub(crate) fn staff_at(&self, session: u32, node: u32) -> impl Iterator<Item = EndpointId> {
        let staff = self.staff[session as usize].iter();
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
        overlay::endpoint(self.daemons[overlay], daemon)
    }

    /// Returns the name by which measures refer to a session's endpoints at a node: `webrc/R`.
    pub(crate) fn name_at(&self, session: u32, node: u32) -> String {
        let session = &self.plan.sessions.0[session as usize].name;
        format!("{session}/{}", self.plan.topology.nodes.get(node))
    }

    /// Returns the endpoints of a receiver.
    pub(crate) fn member(&self, session: u32, receiver: u32) -> Member {
        self.members[session as usize][receiver as usize]
    }
}

/// Adds a plan's nodes and links, and reserves memory for its endpoints.
fn add_network(plan: &Plan, network: &mut dyn World) {
    let (topology, run) = (&plan.topology, &plan.cell.schema.run);
    network.set_leave_latency(run.leave_latency.duration());
    if let Some(packets) = run.carried_packets_max {
        network.set_carried_max(packets.get().into());
    }
    let endpoints: usize = plan.sessions.0.iter().map(Session::endpoints).sum();
    let endpoints = plan.overlays.daemons() + endpoints;
    network.reserve(topology.nodes.len(), topology.links.len(), endpoints);
    for name in topology.nodes.iter() {
        network.add_node(name);
    }
    for link in &topology.links {
        let config = Arc::clone(&link.config);
        network.add_link(NodeId(link.from), NodeId(link.to), config);
    }
}

/// Returns a seed for a part of a session. It does not depend on the rest of the scenario.
fn seed(network: &dyn World, session: &Session, of: &str) -> u64 {
    network.stream(&format!("{}: {of}", session.name))
}

/// Draws a time from a range, with a random stream of its own.
fn draw(network: &dyn World, session: &Session, start: Start, of: &str) -> Time {
    let mut random = Pcg64Mcg::seed_from_u64(seed(network, session, of));
    let share: f64 = random.random();
    Time::from_secs_f64(start.from.0 + (start.to.0 - start.from.0) * share)
}

/// Returns the name of a membership interval. It selects random streams: a different name would
/// change every result.
fn interval_name(nodes: &Names, receiver: &Receiver, index: usize) -> String {
    let node = nodes.get(receiver.node);
    format!("stay {index} at {node}")
}

/// Adds the endpoints of one session to a world.
pub(crate) struct Builder<'a> {
    pub(crate) network: &'a mut dyn World,
    pub(crate) session: &'a Session,
    pub(crate) table: &'a SessionTable,
    pub(crate) plan: &'a Plan,
    /// The first daemon of each overlay.
    pub(crate) daemons: &'a [EndpointId],
    pub(crate) staff: Vec<(EndpointId, NodeId)>,
}

impl Builder<'_> {
    /// Returns a seed for a part of this session. It does not depend on the rest of the scenario.
    pub(crate) fn seed(&self, of: &str) -> u64 {
        seed(self.network, self.session, of)
    }

    /// Draws a time from a range, with a random stream of its own.
    pub(crate) fn draw(&self, start: Start, of: &str) -> Time {
        draw(self.network, self.session, start, of)
    }

    /// Returns the entry of a receiver in the session's table.
    pub(crate) fn entry(&self, receiver: &Receiver) -> &ReceiverTable {
        &self.table.receivers[receiver.entry as usize].0
    }

    /// Returns the name of a receiver's membership interval, which selects its random streams.
    pub(crate) fn interval_name(&self, receiver: &Receiver, index: usize) -> String {
        interval_name(&self.plan.topology.nodes, receiver, index)
    }

    /// Adds the sender of a multicast session.
    pub(crate) fn add_sender(&mut self, sender: impl IntoBoxed) -> EndpointId {
        self.add_staff(NodeId(self.session.sender), sender)
    }

    /// Adds an endpoint that does not belong to a receiver.
    pub(crate) fn add_staff(&mut self, node: NodeId, endpoint: impl IntoBoxed) -> EndpointId {
        let id = self.add_endpoint(node, endpoint);
        self.staff.push((id, node));
        id
    }

    pub(crate) fn add_endpoint(&mut self, node: NodeId, endpoint: impl IntoBoxed) -> EndpointId {
        self.network.add_endpoint(node, endpoint.into_boxed())
    }

    /// Returns the endpoints of a receiver, which the caller adds next.
    pub(crate) fn member(&self, receiver: &Receiver, is_unicast: bool) -> Member {
        Member {
            first: self.network.next_endpoint(),
            intervals: receiver.intervals.len() as u32,
            is_unicast,
        }
    }

    /// Opens a multicast session. Returns its number, and the times at which its sender starts and
    /// stops.
    pub(crate) fn open(&mut self) -> (u32, Time, Option<Time>) {
        let session = self.network.open_session(NodeId(self.session.sender));
        let start = self.draw(self.table.start, "sender");
        (session, start, self.table.stop.map(Seconds::time))
    }

    /// Adds all receivers of a multicast session, with an endpoint for each membership interval.
    pub(crate) fn add_memberships(
        &mut self,
        session: u32,
        groups: u8,
        mut add: impl FnMut(&mut Self, &Membership) -> Result<(), Fault>,
    ) -> Result<Vec<Member>, Fault> {
        let mut members = Vec::with_capacity(self.session.receivers.len());
        for receiver in &self.session.receivers {
            members.push(self.member(receiver, false));
            for (index, interval) in receiver.intervals.iter().enumerate() {
                let name = self.interval_name(receiver, index);
                let membership = Membership {
                    node: NodeId(receiver.node),
                    start: self.draw(interval.start, &name),
                    stop: interval.stop.map(Seconds::time),
                    lie: self.entry(receiver).lie,
                    name,
                };
                if self.entry(receiver).whole_session {
                    let listener = Listener::new(session, groups.into(), membership.start);
                    self.add_endpoint(membership.node, listener);
                } else {
                    add(self, &membership)?;
                }
            }
        }
        Ok(members)
    }

    /// Adds all receivers of a unicast session, with a pair of endpoints for each membership
    /// interval.
    pub(crate) fn add_pairs(
        &mut self,
        mut add: impl FnMut(&mut Self, &Pair) -> Result<(), Fault>,
    ) -> Result<Vec<Member>, Fault> {
        let mut members = Vec::with_capacity(self.session.receivers.len());
        for receiver in &self.session.receivers {
            members.push(self.member(receiver, true));
            for (index, interval) in receiver.intervals.iter().enumerate() {
                let name = self.interval_name(receiver, index);
                let sending = self.network.next_endpoint();
                let pair = Pair {
                    sending,
                    receiving: EndpointId(sending.0 + 1),
                    node: NodeId(receiver.node),
                    start: self
                        .draw(interval.start, &name)
                        .max(self.draw(self.table.start, "sender")),
                    seed: self.seed(&format!("flow of {name}")),
                    stop: [self.table.stop, interval.stop]
                        .into_iter()
                        .flatten()
                        .map(|stop| stop.time())
                        .min(),
                };
                add(self, &pair)?;
            }
        }
        Ok(members)
    }
}

/// A membership interval of a receiver, with its node and name.
pub(crate) struct Membership {
    pub(crate) node: NodeId,
    pub(crate) name: String,
    pub(crate) start: Time,
    pub(crate) stop: Option<Time>,
    pub(crate) lie: Option<Lie>,
}

/// The two ends of a unicast flow.
pub(crate) struct Pair {
    pub(crate) sending: EndpointId,
    pub(crate) receiving: EndpointId,
    pub(crate) node: NodeId,
    pub(crate) start: Time,
    pub(crate) stop: Option<Time>,
    pub(crate) seed: u64,
}
