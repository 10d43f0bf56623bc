//! Adds the endpoints of a session to a world, with the numbers that the plan has allotted.

use std::fmt::Debug;

use manyflow_core::{EndpointId, Time};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::plan::Plan;
use crate::plan::sessions::{PlannedSession, Receiver};
use crate::protocols::IntoBoxed;
use crate::schema::{Lie, ReceiverTable, SessionTable, Start};
use crate::world::World;
use manyflow_model::error::Fault;
use manyflow_model::quantity::Seconds;
use manyflow_netsim::models::Listener;
use manyflow_netsim::{Names, NodeId};

/// Adds an endpoint with the number that the plan has allotted.
pub(crate) fn add_endpoint(
    network: &mut dyn World,
    id: EndpointId,
    node: NodeId,
    endpoint: impl IntoBoxed,
) {
    agree(network.add_endpoint(node, endpoint.into_boxed()), id);
}

/// Asserts that the world gives the number that the plan has allotted.
pub(crate) fn agree<Id: PartialEq + Debug>(given: Id, allotted: Id) {
    assert_eq!(given, allotted, "a world numbers in the order of additions");
}

/// Returns a seed for a part of a session. It does not depend on the rest of the scenario.
fn seed(network: &dyn World, session: &PlannedSession, of: &str) -> u64 {
    network.stream(&format!("{}: {of}", session.name))
}

/// Draws a time from a range, with a random stream of its own.
pub(crate) fn draw(network: &dyn World, session: &PlannedSession, start: Start, of: &str) -> Time {
    let mut random = Pcg64Mcg::seed_from_u64(seed(network, session, of));
    let share: f64 = random.random();
    Time::from_secs_f64(start.from.0 + (start.to.0 - start.from.0) * share)
}

/// Returns the name of a membership interval. It selects random streams: a different name would
/// change every result.
pub(crate) fn interval_name(nodes: &Names, receiver: &Receiver, index: usize) -> String {
    let node = nodes.get(receiver.node);
    format!("stay {index} at {node}")
}

/// Adds the endpoints of one session to a world.
pub(crate) struct Builder<'a> {
    pub(crate) network: &'a mut dyn World,
    pub(crate) session: &'a PlannedSession,
    pub(crate) table: &'a SessionTable,
    pub(crate) plan: &'a Plan,
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
        &self.table.receivers()[receiver.entry as usize].0
    }

    /// Returns the name of a receiver's membership interval, which selects its random streams.
    pub(crate) fn interval_name(&self, receiver: &Receiver, index: usize) -> String {
        interval_name(&self.plan.topology.nodes, receiver, index)
    }

    /// Adds the sender of a multicast session.
    pub(crate) fn add_sender(&mut self, sender: impl IntoBoxed) -> EndpointId {
        self.add_staff(0, sender);
        self.session.staff[0].0
    }

    /// Adds an endpoint that does not belong to a receiver, at its place among the session's staff.
    pub(crate) fn add_staff(&mut self, place: usize, endpoint: impl IntoBoxed) {
        let (id, node) = self.session.staff[place];
        self.add_endpoint(id, node, endpoint);
    }

    /// Adds the endpoint of a membership interval.
    pub(crate) fn add_member(&mut self, membership: &Membership, endpoint: impl IntoBoxed) {
        self.add_endpoint(membership.id, membership.node, endpoint);
    }

    /// Adds an endpoint with the number that the plan has allotted.
    pub(crate) fn add_endpoint(&mut self, id: EndpointId, node: NodeId, endpoint: impl IntoBoxed) {
        add_endpoint(self.network, id, node, endpoint);
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
        channels: u32,
        mut add: impl FnMut(&mut Self, &Membership) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        for receiver in &self.session.receivers {
            for (index, interval) in receiver.intervals.iter().enumerate() {
                let name = self.interval_name(receiver, index);
                let membership = Membership {
                    id: receiver.ends.receiving_in(index),
                    node: NodeId(receiver.node),
                    start: self.draw(interval.start, &name),
                    stop: interval.stop.map(Seconds::time),
                    lie: self.entry(receiver).lie,
                    name,
                };
                if self.entry(receiver).whole_session {
                    let listener = Listener::new(session, channels, membership.start);
                    self.add_member(&membership, listener);
                } else {
                    add(self, &membership)?;
                }
            }
        }
        Ok(())
    }

    /// Adds all receivers of a unicast session, with a pair of endpoints for each membership
    /// interval.
    pub(crate) fn add_pairs(
        &mut self,
        mut add: impl FnMut(&mut Self, &Pair) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        for receiver in &self.session.receivers {
            for (index, interval) in receiver.intervals.iter().enumerate() {
                let name = self.interval_name(receiver, index);
                let (sending, receiving) = receiver.ends.pair_in(index);
                let pair = Pair {
                    sending,
                    receiving,
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
        Ok(())
    }
}

/// A membership interval of a receiver, with its node and name.
pub(crate) struct Membership {
    pub(crate) id: EndpointId,
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
