//! Sessions of SIM, RLM, RLC and FLID-DL: groups and, for SIM, the tree in which feedback is
//! aggregated.

use std::collections::BTreeMap;

use manyflow_core::EndpointId;
use manyflow_layered::{Membership, flid, rlc, rlm, sim};

use manyflow_netsim::NodeId;
use manyflow_netsim::models::{self, LayeredLiar, Outage};

use crate::builder::{self, Builder};
use crate::protocols::session::{COUNTED, MEMBERSHIP, Reporter, SessionProtocol, TOGETHER};
use crate::schema::Lie;
use crate::schema::protocols::required;
use manyflow_model::error::Fault;
use manyflow_model::observables::Observable;

/// Layered multicast with marks, feedback and a menu.
pub(crate) struct Sim;

/// Receiver-driven layered multicast.
pub(crate) struct Rlm;

/// Layered multicast with synchronisation points.
pub(crate) struct Rlc;

/// Layered multicast over channels that lose rate by themselves.
pub(crate) struct Flid;

impl SessionProtocol for Sim {
    fn receiver(&self) -> Reporter {
        let lost = &[Observable::Loss];
        Reporter::new("SIM", &[COUNTED, MEMBERSHIP, lost, TOGETHER])
    }

    fn sender(&self) -> Reporter {
        Reporter::new("SIM's sender", &[&[Observable::GroupRate]])
    }

    fn add(&self, builder: &mut Builder) -> Result<(), Fault> {
        builder.add_sim()
    }
}

impl SessionProtocol for Rlm {
    fn receiver(&self) -> Reporter {
        let losses = &[Observable::LossEvents, Observable::Loss];
        Reporter::new("RLM", &[COUNTED, MEMBERSHIP, losses, TOGETHER])
    }

    fn sender(&self) -> Reporter {
        Reporter::new("RLM's sender", &[])
    }

    fn add(&self, builder: &mut Builder) -> Result<(), Fault> {
        builder.add_rlm()
    }
}

impl SessionProtocol for Rlc {
    fn receivers_send(&self) -> bool {
        false
    }

    fn receiver(&self) -> Reporter {
        let losses = &[Observable::LossEvents, Observable::Loss];
        Reporter::new("RLC", &[COUNTED, MEMBERSHIP, losses, TOGETHER])
    }

    fn sender(&self) -> Reporter {
        Reporter::new("RLC's sender", &[])
    }

    fn add(&self, builder: &mut Builder) -> Result<(), Fault> {
        builder.add_rlc()
    }
}

impl SessionProtocol for Flid {
    fn receivers_send(&self) -> bool {
        false
    }

    fn receiver(&self) -> Reporter {
        let losses = &[Observable::LossEvents, Observable::Loss];
        Reporter::new("FLID-DL", &[COUNTED, MEMBERSHIP, losses, TOGETHER])
    }

    fn sender(&self) -> Reporter {
        Reporter::new("FLID-DL's sender", &[])
    }

    fn add(&self, builder: &mut Builder) -> Result<(), Fault> {
        builder.add_flid()
    }
}

impl Builder<'_> {
    fn add_sim(&mut self) -> Result<(), Fault> {
        let config = self.table.sim.sender()?;
        let groups = config.groups;
        let (session, start, stop) = self.open();
        let sender = sim::Sender::new(config, session, start, stop).map_err(Fault::value)?;
        let sender = self.add_sender(sender);
        let aggregators = self.add_aggregators(session, sender);
        self.add_memberships(session, groups.into(), |builder, membership| {
            let id = membership.id.0;
            let own = builder.path_to_sender(membership.node).into_iter();
            let parent = nearest(own, &aggregators).unwrap_or(sender);
            let mut config = builder.table.sim.receiver();
            if membership.lie == Some(Lie::NeverCongested) {
                // A receiver that ignores congestion ignores its losses, too, and what its path
                // carries.
                (config.edition, config.loss_max) = (sim::Edition::Paper, 1.0);
            }
            let of = layered_membership(session, groups, membership);
            let receiver = sim::Receiver::new(config, of, id, parent);
            let receiver = receiver.map_err(Fault::value)?;
            match membership.lie.and_then(lie) {
                Some(lie) => builder.add_member(membership, LayeredLiar::new(receiver, lie)),
                None => builder.add_member(membership, receiver),
            }
            Ok(())
        })
    }

    fn add_rlm(&mut self) -> Result<(), Fault> {
        let table = required(self.table.rlm.as_ref(), "rlm")?;
        let groups = table.groups()?;
        let (session, start, stop) = self.open();
        let sender = rlm::Sender::new(table.sender(), session, start, stop);
        let sender = self.add_sender(sender.map_err(Fault::value)?);
        self.add_memberships(session, groups.into(), |builder, membership| {
            let seed = builder.seed(&format!("joins of {}", membership.name));
            let of = layered_membership(session, groups, membership);
            let receiver = rlm::Receiver::new(table.receiver(), of, sender, seed);
            builder.add_member(membership, receiver.map_err(Fault::value)?);
            Ok(())
        })
    }

    fn add_rlc(&mut self) -> Result<(), Fault> {
        let config = self.table.rlc.sender()?;
        let groups = config.groups;
        let (session, start, stop) = self.open();
        let sender = rlc::Sender::new(config, session, start, stop).map_err(Fault::value)?;
        self.add_sender(sender);
        self.add_memberships(session, groups.into(), |builder, membership| {
            let config = builder.table.rlc.receiver();
            let of = layered_membership(session, groups, membership);
            let receiver = rlc::Receiver::new(config, of);
            builder.add_member(membership, receiver.map_err(Fault::value)?);
            Ok(())
        })
    }

    fn add_flid(&mut self) -> Result<(), Fault> {
        let config = self.table.flid.sender()?;
        let (layers, channels) = (config.layers, config.channels());
        let (session, start, stop) = self.open();
        let sender = flid::Sender::new(config, session, start, stop).map_err(Fault::value)?;
        self.add_sender(sender);
        self.add_memberships(session, channels.into(), |builder, membership| {
            let of = layered_membership(session, channels, membership);
            let receiver = flid::Receiver::new(flid::ReceiverConfig { layers }, of);
            builder.add_member(membership, receiver.map_err(Fault::value)?);
            Ok(())
        })
    }

    /// Adds the aggregators. Each parent precedes its children.
    fn add_aggregators(
        &mut self,
        session: u32,
        sender: EndpointId,
    ) -> BTreeMap<NodeId, EndpointId> {
        let mut aggregators = BTreeMap::new();
        for (place, &node) in self.session.aggregators.iter().enumerate() {
            let node = NodeId(node);
            let path = self.path_to_sender(node).into_iter();
            let parent = nearest(path.skip(1), &aggregators).unwrap_or(sender);
            // The sender precedes the aggregators.
            let place = place + 1;
            let (id, _) = self.session.staff[place];
            let aggregator = || sim::Aggregator::new(session, id.0, parent);
            match self.session.outage {
                Some((failing, from, until)) if NodeId(failing) == node => {
                    let outage = Outage::new(aggregator(), aggregator(), from, until);
                    self.add_staff(place, outage);
                }
                _ => self.add_staff(place, aggregator()),
            }
            aggregators.insert(node, id);
        }
        aggregators
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

/// Returns the membership of a receiver in a layered session.
fn layered_membership(session: u32, groups: u8, of: &builder::Membership) -> Membership {
    Membership {
        session,
        groups,
        start: of.start,
        stop: of.stop,
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
