//! Overlays whose messages have an order: the protocol of `manyflow daemon`, and two to compare
//! with.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use manyflow_core::EndpointId;
use manyflow_netsim::NodeId;
use manyflow_netsim::models::overlay::{Ring, RingConfig, Sequencer, SequencerConfig};
use manyflow_order::{OrderConfig, OrderedClients, Service};
use manyflow_overlay::{Addresses, DaemonEndpoint, DaemonId, GroupId, Topology};

use crate::builder::add_endpoint;
use crate::schema::protocols::OrderName;
use crate::world::World;
use manyflow_model::error::Fault;

/// The time between two records of a sequencer or of those who acknowledge to it, at least. It
/// adds little to a latency of milliseconds, and one record is enough for many messages.
const PACE: Duration = Duration::from_micros(200);

/// A daemon whose place in the network is known.
pub(super) struct Place {
    pub(super) id: EndpointId,
    pub(super) node: NodeId,
    pub(super) here: DaemonId,
}

/// Adds a daemon whose clients' messages have an order.
pub(super) fn add_ordered(
    network: &mut dyn World,
    place: &Place,
    daemon: DaemonEndpoint,
    order: OrderName,
    services: &BTreeMap<GroupId, Service>,
) -> Result<(), Fault> {
    let (id, node, here) = (place.id, place.node, place.here);
    let moves = order == OrderName::MovingSequencer;
    if order == OrderName::Marks {
        let agent = OrderedClients::new(OrderConfig::default(), here, services.clone());
        let daemon = daemon.with_agent(agent.map_err(Fault::value)?);
        add_endpoint(network, id, node, daemon);
        return Ok(());
    }
    let (group, is_safe) = only_group(services);
    let config = SequencerConfig {
        moves,
        is_safe,
        pace: PACE,
    };
    let daemons = daemon.daemon().topology().len();
    let agent = Sequencer::new(config, here, daemons, group);
    add_endpoint(network, id, node, daemon.with_agent(agent));
    Ok(())
}

/// Adds a daemon of a ring.
pub(super) fn add_to_ring(
    network: &mut dyn World,
    place: &Place,
    topology: Arc<Topology>,
    addresses: Arc<Addresses>,
    services: &BTreeMap<GroupId, Service>,
) {
    let (_, is_safe) = only_group(services);
    let config = RingConfig {
        is_safe,
        ..RingConfig::default()
    };
    let daemon = Ring::new(config, place.here, topology, addresses);
    add_endpoint(network, place.id, place.node, daemon);
}

/// Returns the only group of an overlay, and whether its messages are safe.
fn only_group(services: &BTreeMap<GroupId, Service>) -> (GroupId, bool) {
    let only = services.first_key_value();
    let (group, service) = only.expect("the plan has checked that there is one group");
    (*group, *service == Service::Safe)
}
