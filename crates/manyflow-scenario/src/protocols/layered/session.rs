//! Sessions of SIM and RLM: groups and, for SIM, the tree in which feedback is aggregated.

use std::collections::{BTreeMap, BTreeSet};

use manyflow_core::EndpointId;
use manyflow_layered::{rlm, sim};

use manyflow_netsim::NodeId;
use manyflow_netsim::models::{self, LayeredLiar, Outage};

use crate::error::Fault;
use crate::plan::sessions::Session;
use crate::protocols::session::{
    COUNTED, MEMBERSHIP, Reporter, SessionProtocol, TOGETHER, required,
};
use crate::scene::{Builder, Member};
use crate::schema::observables::Observable;
use crate::schema::{Lie, SessionTable};

/// Layered multicast with marks, feedback and a menu.
pub(crate) struct Sim;

/// Receiver-driven layered multicast.
pub(crate) struct Rlm;

impl SessionProtocol for Sim {
    fn check(&self, table: &SessionTable) -> Result<(), Fault> {
        table.sim.check().map_err(|fault| fault.within("sim"))
    }

    fn endpoints(&self, _session: &Session, intervals: usize) -> usize {
        1 + intervals
    }

    fn is_multicast(&self) -> bool {
        true
    }

    fn receiver(&self) -> Reporter {
        Reporter::new("SIM", &[COUNTED, MEMBERSHIP, TOGETHER])
    }

    fn sender(&self) -> Reporter {
        Reporter::new("SIM's sender", &[&[Observable::GroupRate]])
    }

    fn add(&self, builder: &mut Builder) -> Result<Vec<Member>, Fault> {
        builder.add_sim()
    }
}

impl SessionProtocol for Rlm {
    fn check(&self, table: &SessionTable) -> Result<(), Fault> {
        let rlm = required(table.rlm.as_ref(), "rlm")?;
        rlm.check().map_err(|fault| fault.within("rlm"))
    }

    fn endpoints(&self, _session: &Session, intervals: usize) -> usize {
        1 + intervals
    }

    fn is_multicast(&self) -> bool {
        true
    }

    fn receiver(&self) -> Reporter {
        let losses = &[Observable::LossEvents];
        Reporter::new("RLM", &[COUNTED, MEMBERSHIP, losses, TOGETHER])
    }

    fn sender(&self) -> Reporter {
        Reporter::new("RLM's sender", &[])
    }

    fn add(&self, builder: &mut Builder) -> Result<Vec<Member>, Fault> {
        builder.add_rlm()
    }
}

impl Builder<'_> {
    fn add_sim(&mut self) -> Result<Vec<Member>, Fault> {
        let config = self.table.sim.sender()?;
        let groups = config.groups;
        let (session, start, stop) = self.open();
        let sender = sim::Sender::new(config, session, start, stop).map_err(Fault::value)?;
        let sender = self.add_sender(sender);
        let aggregators = self.add_aggregators(session, sender);
        self.add_memberships(session, groups, |builder, membership| {
            let id = builder.network.next_endpoint().0;
            let own = builder.path_to_sender(membership.node).into_iter();
            let parent = nearest(own, &aggregators).unwrap_or(sender);
            let config = builder.table.sim.receiver();
            let (start, stop) = (membership.start, membership.stop);
            let receiver = sim::Receiver::new(config, groups, session, id, parent, start, stop);
            let receiver = receiver.map_err(Fault::value)?;
            match membership.lie.and_then(lie) {
                Some(lie) => builder.add_endpoint(membership.node, LayeredLiar::new(receiver, lie)),
                None => builder.add_endpoint(membership.node, receiver),
            };
            Ok(())
        })
    }

    fn add_rlm(&mut self) -> Result<Vec<Member>, Fault> {
        let table = required(self.table.rlm.as_ref(), "rlm")?;
        let groups = table.groups()?;
        let (session, start, stop) = self.open();
        let sender = rlm::Sender::new(table.sender(), session, start, stop);
        let sender = self.add_sender(sender.map_err(Fault::value)?);
        self.add_memberships(session, groups, |builder, membership| {
            let seed = builder.seed(&format!("joins of {}", membership.name));
            let (config, start, stop) = (table.receiver(), membership.start, membership.stop);
            let receiver = rlm::Receiver::new(config, groups, session, sender, seed, start, stop);
            builder.add_endpoint(membership.node, receiver.map_err(Fault::value)?);
            Ok(())
        })
    }

    /// Adds an aggregator at each node that needs one, from the sender downwards, so that each
    /// parent exists before its children.
    fn add_aggregators(
        &mut self,
        session: u32,
        sender: EndpointId,
    ) -> BTreeMap<NodeId, EndpointId> {
        let nodes = match &self.session.aggregators {
            Some(nodes) => nodes.iter().copied().map(NodeId).collect(),
            None => self.inner_nodes(),
        };
        let mut paths: Vec<Vec<NodeId>> = nodes
            .into_iter()
            .map(|node| self.path_to_sender(node))
            .collect();
        paths.sort_by_key(|path| (path.len(), path[0]));
        let mut aggregators = BTreeMap::new();
        for path in paths {
            let parent = nearest(path[1..].iter().copied(), &aggregators).unwrap_or(sender);
            let id = self.network.next_endpoint();
            let aggregator = || sim::Aggregator::new(session, id.0, parent);
            match self.session.outage {
                Some((node, from, until)) if NodeId(node) == path[0] => {
                    let outage = Outage::new(aggregator(), aggregator(), from, until);
                    self.add_staff(path[0], outage)
                }
                _ => self.add_staff(path[0], aggregator()),
            };
            aggregators.insert(path[0], id);
        }
        aggregators
    }

    /// Returns the sender's node and all nodes between it and the receivers.
    fn inner_nodes(&mut self) -> BTreeSet<NodeId> {
        let mut inner = BTreeSet::new();
        for receiver in &self.session.receivers {
            let path = self.path_to_sender(NodeId(receiver.node));
            inner.extend(path.into_iter().skip(1));
        }
        inner
    }

    /// Returns a node and the nodes over which multicast packets reach it, in reverse order up to
    /// the sender's.
    fn path_to_sender(&mut self, node: NodeId) -> Vec<NodeId> {
        let branch = self.network.branch(NodeId(self.session.sender), node);
        let from =
            |link: manyflow_netsim::LinkId| NodeId(self.plan.topology.links[link.0 as usize].from);
        std::iter::once(node)
            .chain(branch.into_iter().map(from))
            .collect()
    }
}

fn lie(lie: Lie) -> Option<models::Lie> {
    match lie {
        Lie::Honest => None,
        Lie::AlwaysCongested => Some(models::Lie::AlwaysCongested),
        Lie::NeverCongested => Some(models::Lie::NeverCongested),
        Lie::TenfoldRate => Some(models::Lie::RateTimes(10.0)),
        Lie::TenthOfRate => Some(models::Lie::RateTimes(0.1)),
    }
}

/// Returns the aggregator at the first of these nodes that has one.
fn nearest(
    mut nodes: impl Iterator<Item = NodeId>,
    aggregators: &BTreeMap<NodeId, EndpointId>,
) -> Option<EndpointId> {
    nodes.find_map(|node| aggregators.get(&node).copied())
}
