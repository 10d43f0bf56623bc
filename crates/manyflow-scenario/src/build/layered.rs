//! Sessions of SIM and RLM: groups, and for SIM the tree in which feedback is aggregated.

use std::collections::{BTreeMap, BTreeSet};

use manyflow_core::{EndpointId, Time};
use manyflow_layered::sim::Conduct;
use manyflow_layered::{rlm, sim};

use super::{Builder, Member};
use crate::error::Fault;
use crate::quantity::Seconds;
use crate::schema::Lie;
use manyflow_netsim::NodeId;
use manyflow_netsim::models::Listener;

/// A stay of a receiver: its node, its name, and from when to when.
pub(super) struct Guest {
    pub(super) node: NodeId,
    pub(super) name: String,
    pub(super) start: Time,
    pub(super) stop: Option<Time>,
    lie: Option<Lie>,
}

impl Builder<'_> {
    pub(super) fn add_sim(&mut self) -> Result<Vec<Member>, Fault> {
        let config = self.table.sim.sender()?;
        let groups = config.groups;
        let (session, start, stop) = self.open();
        let sender = sim::Sender::new(config, session, start, stop).map_err(Fault::value)?;
        let sender = self.add_sender(sender);
        let aggregators = self.add_aggregators(session, sender);
        self.add_guests(session, groups, |builder, guest| {
            let id = builder.network.next_endpoint().0;
            let own = builder.way_up(guest.node).into_iter();
            let parent = nearest(own, &aggregators).unwrap_or(sender);
            let config = sim::ReceiverConfig {
                conduct: guest.lie.map_or(Conduct::Honest, conduct),
                ..builder.table.sim.receiver()
            };
            let (start, stop) = (guest.start, guest.stop);
            let receiver = sim::Receiver::new(config, groups, session, id, parent, start, stop);
            builder.add_endpoint(guest.node, receiver.map_err(Fault::value)?);
            Ok(())
        })
    }

    pub(super) fn add_rlm(&mut self) -> Result<Vec<Member>, Fault> {
        let table = self.table.rlm.as_ref();
        let table = table.ok_or_else(|| Fault::value("the table `rlm` is missing"))?;
        let groups = table.groups()?;
        let (session, start, stop) = self.open();
        let sender = rlm::Sender::new(table.sender(), session, start, stop);
        let sender = self.add_sender(sender.map_err(Fault::value)?);
        self.add_guests(session, groups, |builder, guest| {
            let seed = builder.seed(&format!("joins of {}", guest.name));
            let (config, start, stop) = (table.receiver(), guest.start, guest.stop);
            let receiver = rlm::Receiver::new(config, groups, session, sender, seed, start, stop);
            builder.add_endpoint(guest.node, receiver.map_err(Fault::value)?);
            Ok(())
        })
    }

    /// The session's number, and when its sender starts and stops.
    pub(super) fn open(&mut self) -> (u32, Time, Option<Time>) {
        let session = self.network.open_session(NodeId(self.session.sender));
        let start = self.draw(self.table.start, "sender");
        (session, start, self.table.stop.map(Seconds::time))
    }

    /// Adds all receivers, an endpoint for each of their stays.
    pub(super) fn add_guests(
        &mut self,
        session: u32,
        groups: u8,
        mut add: impl FnMut(&mut Self, &Guest) -> Result<(), Fault>,
    ) -> Result<Vec<Member>, Fault> {
        let mut members = Vec::with_capacity(self.session.receivers.len());
        for receiver in &self.session.receivers {
            members.push(self.member(receiver, false));
            for (index, stay) in receiver.stays.iter().enumerate() {
                let name = self.stay(receiver, index);
                let guest = Guest {
                    node: NodeId(receiver.node),
                    start: self.draw(stay.start, &name),
                    stop: stay.stop.map(Seconds::time),
                    lie: self.entry(receiver).lie,
                    name,
                };
                if self.entry(receiver).whole_session {
                    let listener = Listener::new(session, groups.into(), guest.start);
                    self.add_endpoint(guest.node, listener);
                } else {
                    add(self, &guest)?;
                }
            }
        }
        Ok(members)
    }

    /// Adds an aggregator at each node that is to have one, from the sender down, so that its
    /// parent is there before it.
    fn add_aggregators(
        &mut self,
        session: u32,
        sender: EndpointId,
    ) -> BTreeMap<NodeId, EndpointId> {
        let nodes = match &self.session.aggregators {
            Some(nodes) => nodes.iter().copied().map(NodeId).collect(),
            None => self.inner_nodes(),
        };
        let mut ways: Vec<Vec<NodeId>> = nodes.into_iter().map(|node| self.way_up(node)).collect();
        ways.sort_by_key(|way| (way.len(), way[0]));
        let mut aggregators = BTreeMap::new();
        for way in ways {
            let parent = nearest(way[1..].iter().copied(), &aggregators).unwrap_or(sender);
            let id = self.network.next_endpoint();
            let aggregator = sim::Aggregator::new(session, id.0, parent);
            let aggregator = match self.session.outage {
                Some((node, from, until)) if NodeId(node) == way[0] => {
                    aggregator.with_outage(from, until)
                }
                _ => aggregator,
            };
            self.add_staff(way[0], aggregator);
            aggregators.insert(way[0], id);
        }
        aggregators
    }

    /// The sender's node, and those between it and the receivers.
    fn inner_nodes(&mut self) -> BTreeSet<NodeId> {
        let mut inner = BTreeSet::new();
        for receiver in &self.session.receivers {
            let way = self.way_up(NodeId(receiver.node));
            inner.extend(way.into_iter().skip(1));
        }
        inner
    }

    /// A node, and those over which multicast packets come to it, up to the sender's.
    fn way_up(&mut self, node: NodeId) -> Vec<NodeId> {
        let branch = self.network.branch(NodeId(self.session.sender), node);
        let from =
            |link: manyflow_netsim::LinkId| NodeId(self.topology.links[link.0 as usize].from);
        std::iter::once(node)
            .chain(branch.into_iter().map(from))
            .collect()
    }
}

fn conduct(lie: Lie) -> Conduct {
    match lie {
        Lie::Honest => Conduct::Honest,
        Lie::AlwaysCongested => Conduct::AlwaysCongested,
        Lie::NeverCongested => Conduct::NeverCongested,
        Lie::TenfoldRate => Conduct::RateTimes(10.0),
        Lie::TenthOfRate => Conduct::RateTimes(0.1),
    }
}

/// The aggregator at the first of these nodes that has one.
fn nearest(
    mut nodes: impl Iterator<Item = NodeId>,
    aggregators: &BTreeMap<NodeId, EndpointId>,
) -> Option<EndpointId> {
    nodes.find_map(|node| aggregators.get(&node).copied())
}
