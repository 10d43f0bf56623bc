//! Overlays: a daemon at each of their nodes, and clients at the daemons.

use std::collections::BTreeMap;
use std::sync::Arc;

use manyflow_core::{EndpointId, Time};
use manyflow_netsim::models::overlay::{Application, ClientEndpoint, Source};
use manyflow_order::Service;
use manyflow_overlay::cost_benefit::Benefit;
use manyflow_overlay::{Addresses, DaemonEndpoint, DaemonId, GroupId, OverlayConfig, SlowPolicy};

use manyflow_netsim::NodeId;

use super::order::{Place, add_ordered, add_to_ring};
use crate::builder::{Builder, add_endpoint};
use crate::plan::overlays::{Affiliation, Overlay};
use crate::plan::sessions::{Receiver, Sessions};
use crate::plan::topology::Topology;
use crate::protocols::session::{COUNTED, Reporter, SessionProtocol, TOGETHER};
use crate::schema::Schema;
use crate::schema::protocols::{OrderName, OverlayTable};
use crate::world::World;
use manyflow_model::error::Fault;
use manyflow_model::observables::Observable;
use manyflow_model::quantity::{BitsPerSecond, Count, Seconds};

/// Sessions that send messages to a group of an overlay.
pub(crate) struct Overlays;

/// The observables of members.
const MEMBER: &[Observable] = &[
    Observable::Goodput,
    Observable::DeliveredFrames,
    Observable::Latency,
];

impl SessionProtocol for Overlays {
    fn receiver(&self) -> Reporter {
        let name = "a member of an overlay's group";
        Reporter::new(name, &[COUNTED, MEMBER, TOGETHER])
    }

    fn sender(&self) -> Reporter {
        Reporter::new("a session of an overlay", &[])
    }

    fn staff(&self, _is_end: bool) -> Option<Reporter> {
        Some(Reporter::new("a sending client of an overlay", &[COUNTED]))
    }

    fn add(&self, builder: &mut Builder) -> Result<(), Fault> {
        builder.add_overlay()
    }
}

/// The properties of an overlay's groups that sessions give.
pub(crate) struct GroupOptions {
    slow: BTreeMap<GroupId, SlowPolicy>,
    benefits: BTreeMap<GroupId, Benefit>,
    services: BTreeMap<GroupId, Service>,
}

impl GroupOptions {
    /// Returns the properties of the groups of the overlay with this index.
    pub(crate) fn new(overlay: usize, sessions: &Sessions, schema: &Schema) -> GroupOptions {
        let mut options = GroupOptions {
            slow: BTreeMap::new(),
            benefits: BTreeMap::new(),
            services: BTreeMap::new(),
        };
        for session in &sessions.0 {
            let Some(own) = session.affiliation.filter(|own| own.overlay == overlay) else {
                continue;
            };
            let table = &schema.sessions[session.table].overlay;
            let slow = table.slow_policy().map(|policy| (own.group, policy));
            options.slow.extend(slow);
            let benefit = table.benefit.clone();
            let benefit = benefit.map(|benefit| (own.group, benefit.0));
            options.benefits.extend(benefit);
            let service = table.service.unwrap_or_default().service();
            options.services.insert(own.group, service);
        }
        options
    }
}

/// Adds the daemons of an overlay.
pub(crate) fn add_daemons(
    network: &mut dyn World,
    topology: &Topology,
    overlay: &Overlay,
    table: &OverlayTable,
    groups: GroupOptions,
) -> Result<(), Fault> {
    let config = OverlayConfig {
        slow_groups: groups.slow,
        ..table.config()
    };
    let links = table.link_kind();
    let benefits = table.benefits(groups.benefits);
    let addresses = Arc::new(Addresses::new(overlay.endpoints.iter().collect()));
    for (&node, number) in overlay.nodes.iter().zip(0u16..) {
        let here = DaemonId(number);
        let place = Place {
            id: overlay.endpoint(here),
            node: NodeId(node),
            here,
        };
        let own = Arc::clone(&overlay.topology);
        let addresses = Arc::clone(&addresses);
        if table.order == Some(OrderName::Ring) {
            add_to_ring(network, &place, own, addresses, &groups.services);
            continue;
        }
        let name = topology.nodes.get(node);
        let seed = network.stream(&format!("{}: daemon at {name}", overlay.name));
        let controller = table
            .controller(here, seed, benefits.clone())
            .map_err(Fault::value)?;
        let config = config.clone();
        let daemon = DaemonEndpoint::new(config, &links, controller, here, own, addresses, seed);
        let daemon = daemon.map_err(Fault::value)?;
        match table.order {
            Some(order) => add_ordered(network, &place, daemon, order, &groups.services)?,
            None => add_endpoint(network, place.id, place.node, daemon),
        }
    }
    Ok(())
}

impl Builder<'_> {
    /// Adds the receivers' clients, and then the sending clients.
    fn add_overlay(&mut self) -> Result<(), Fault> {
        let affiliation = self.session.affiliation;
        let own =
            affiliation.ok_or_else(|| Fault::value("the session does not run over an overlay"))?;
        for receiver in &self.session.receivers {
            self.add_receiving_clients(&own, receiver)?;
        }
        for client in 0..own.clients {
            self.add_sending_client(&own, client)?;
        }
        Ok(())
    }

    /// Adds a client for each membership interval of a receiver.
    fn add_receiving_clients(
        &mut self,
        own: &Affiliation,
        receiver: &Receiver,
    ) -> Result<(), Fault> {
        let node = NodeId(receiver.node);
        let daemon = self.daemon_at(own, receiver.node);
        let entry = self.entry(receiver);
        let crash = entry.crash.map(Seconds::time);
        let service = entry.service.unwrap_or_default().duration();
        for (index, interval) in receiver.intervals.iter().enumerate() {
            let name = self.interval_name(receiver, index);
            let start = self.draw(interval.start, &name);
            let stop = interval.stop.map(Seconds::time);
            // The client crashes in the interval that contains the time. It may join again later.
            let dies = |crash: &Time| *crash > start && stop.is_none_or(|stop| *crash < stop);
            let crash = crash.filter(dies);
            let application = Application {
                start,
                stop: crash.or(stop),
                crash: crash.is_some(),
                joins: Some(own.group),
                service,
                ..Application::default()
            };
            let client = ClientEndpoint::new(application, daemon, self.seed(&name));
            let id = receiver.ends.receiving_in(index);
            self.add_endpoint(id, node, client.map_err(Fault::value)?);
        }
        Ok(())
    }

    /// Adds a sending client.
    fn add_sending_client(&mut self, own: &Affiliation, number: u32) -> Result<(), Fault> {
        let name = format!("client {number}");
        let application = Application {
            start: self.draw(self.table.start, &name),
            stop: self.table.stop.map(Seconds::time),
            sends: Some(self.source(own.group)),
            priority: self.table.overlay.priority_percent() as u16,
            ..Application::default()
        };
        let daemon = self.daemon_at(own, self.session.sender);
        let client = ClientEndpoint::new(application, daemon, self.seed(&name));
        self.add_staff(number as usize, client.map_err(Fault::value)?);
        Ok(())
    }

    fn source(&self, group: GroupId) -> Source {
        let table = &self.table.overlay;
        Source {
            group,
            message_bytes: table.message_bytes() as u32,
            rate: table.rate.map(BitsPerSecond::rate),
            messages: table.messages.map(Count::get),
            layers: table.layers().unwrap_or_default(),
        }
    }

    /// Returns the endpoint of the daemon at a node. The checks have made sure that there is one.
    fn daemon_at(&self, own: &Affiliation, node: u32) -> EndpointId {
        let overlay = &self.plan.overlays.0[own.overlay];
        let daemon = overlay.daemon_at(node);
        let daemon = daemon.expect("the checks have found a daemon at each client's node");
        overlay.endpoint(daemon)
    }
}
