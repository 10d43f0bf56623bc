//! Overlays: a daemon at each of their nodes, and clients at the daemons.

use std::collections::BTreeMap;
use std::sync::Arc;

use manyflow_core::{EndpointId, Time};
use manyflow_netsim::models::overlay::{Application, ClientEndpoint, Source};
use manyflow_overlay::cost_benefit::Benefit;
use manyflow_overlay::{Addresses, DaemonEndpoint, DaemonId, GroupId, OverlayConfig, SlowPolicy};

use manyflow_netsim::NodeId;

use crate::builder::{Builder, add_endpoint};
use crate::plan::overlays::{Affiliation, Overlay};
use crate::plan::sessions::{PlannedSession, Receiver, Sessions};
use crate::plan::topology::Topology;
use crate::protocols::session::{COUNTED, Reporter, SessionProtocol, TOGETHER};
use crate::schema::Schema;
use crate::schema::protocols::OverlayTable;
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

    fn staff(&self, _is_sender: bool) -> Option<Reporter> {
        Some(Reporter::new("a sending client of an overlay", &[COUNTED]))
    }

    fn add(&self, builder: &mut Builder) -> Result<(), Fault> {
        builder.add_overlay()
    }
}

/// Returns the groups whose sessions have their own treatment of slow members.
pub(crate) fn slow_groups(
    overlay: usize,
    sessions: &Sessions,
    schema: &Schema,
) -> BTreeMap<GroupId, SlowPolicy> {
    let policy = |session: &PlannedSession| {
        let own = session.affiliation.filter(|own| own.overlay == overlay)?;
        let policy = schema.sessions[session.table].overlay.slow_policy()?;
        Some((own.group, policy))
    };
    sessions.0.iter().filter_map(policy).collect()
}

/// Returns the groups whose messages have a benefit of their own.
pub(crate) fn group_benefits(
    overlay: usize,
    sessions: &Sessions,
    schema: &Schema,
) -> BTreeMap<GroupId, Benefit> {
    let benefit = |session: &PlannedSession| {
        let own = session.affiliation.filter(|own| own.overlay == overlay)?;
        let benefit = schema.sessions[session.table].overlay.benefit.clone()?;
        Some((own.group, benefit.0))
    };
    sessions.0.iter().filter_map(benefit).collect()
}

/// Adds the daemons of an overlay.
pub(crate) fn add_daemons(
    network: &mut dyn World,
    topology: &Topology,
    overlay: &Overlay,
    table: &OverlayTable,
    slow_groups: BTreeMap<GroupId, SlowPolicy>,
    benefits: BTreeMap<GroupId, Benefit>,
) -> Result<(), Fault> {
    let config = OverlayConfig {
        slow_groups,
        ..table.config()
    };
    let links = table.link_kind();
    let benefits = table.benefits(benefits);
    let addresses = Arc::new(Addresses::new(overlay.endpoints.iter().collect()));
    for (&node, number) in overlay.nodes.iter().zip(0u16..) {
        let here = DaemonId(number);
        let node = NodeId(node);
        let seed = network.stream(&format!(
            "{}: daemon at {}",
            overlay.name,
            topology.nodes.get(node.0)
        ));
        let controller = table
            .controller(here, seed, benefits.clone())
            .map_err(Fault::value)?;
        let topology = Arc::clone(&overlay.topology);
        let addresses = Arc::clone(&addresses);
        let daemon = DaemonEndpoint::new(
            config.clone(),
            &links,
            controller,
            here,
            topology,
            addresses,
            seed,
        );
        let daemon = daemon.map_err(Fault::value)?;
        add_endpoint(network, overlay.endpoint(here), node, daemon);
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
