//! Scenarios in real time: the [`World`] whose TCP is the kernel's.
//!
//! TCP sessions are sockets in the namespaces of their nodes. All other protocols run in this
//! process, as in the simulator, with their packets on the same links.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use manyflow_core::link::{Counters, LinkConfig};
use manyflow_core::{EndpointId, Rate, Time};
use manyflow_netsim::{BoxedEndpoint, Change, Halt, LinkId, NodeId, Observer, Received};
use manyflow_scenario::protocols::TcpVariant;
use manyflow_scenario::{AnyEvent, AnyHeader, Connection, Limits, Network, World};

use crate::bell::Bell;
use crate::drive::{Ended, Lateness};
use crate::error::EmulateError;
use crate::fabric::{Addresses, kernel_end};
use crate::kernel::tcp::{Bulk, CongestionControl, Running};
use crate::stage::Stage;

/// The limits of emulated scenarios. The table of hops takes a byte for each pair of nodes, and one
/// thread moves all packets.
pub const LIMITS: Limits = Limits {
    nodes: 1024,
    endpoints: 4096,
    rate: Rate::from_bits_per_s(1_000_000_000),
};

/// The port of endpoint 0 at any node. The other endpoints follow.
const FIRST_PORT: u16 = 20_000;

/// The report of a world that has ended.
#[derive(Clone, Debug, Default)]
pub struct Report(Arc<Mutex<Lateness>>);

impl Report {
    /// Returns the lateness of the packets that hosts received.
    pub fn lateness(&self) -> Lateness {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A world that runs a scenario in real time.
pub struct EmulatedWorld {
    state: State,
    nodes: u32,
    connections: Vec<Connection>,
    bell: Bell,
    report: Report,
}

/// The network, before and after the clock has started.
enum State {
    Building(Box<Network>),
    Running {
        /// Dropped first: connections end before their namespaces.
        _connections: Vec<Running>,
        stage: Box<Stage>,
    },
    Failed,
}

impl EmulatedWorld {
    /// Returns a world without nodes, whose random choices depend on `seed`. It makes namespaces
    /// when it first runs, and removes them on drop. A ring of `bell` ends the run.
    pub fn new(seed: u64, bell: Bell, report: Report) -> EmulatedWorld {
        EmulatedWorld {
            state: State::Building(Box::new(Network::new(seed))),
            nodes: 0,
            connections: Vec::new(),
            bell,
            report,
        }
    }

    fn network(&self) -> &Network {
        match &self.state {
            State::Building(network) => network,
            State::Running { stage, .. } => stage.drive.fabric().network(),
            State::Failed => unreachable!("a failed world is not used"),
        }
    }

    fn network_mut(&mut self) -> &mut Network {
        match &mut self.state {
            State::Building(network) => network,
            State::Running { stage, .. } => stage.drive.fabric_mut().network_mut(),
            State::Failed => unreachable!("a failed world is not used"),
        }
    }

    /// Makes the namespaces, and begins the connections.
    fn start(&mut self) -> Result<(), EmulateError> {
        let State::Building(network) = std::mem::replace(&mut self.state, State::Failed) else {
            unreachable!("a world starts once");
        };
        let ends = self.connections.iter();
        let ends = ends.flat_map(|connection| [connection.sending, connection.receiving]);
        let by_node: BTreeMap<NodeId, ()> = ends.map(|(_, node)| (node, ())).collect();
        let hosts: Vec<NodeId> = by_node.into_keys().collect();
        let mut stage = Stage::new(*network, self.nodes, &hosts)?;
        for connection in &self.connections {
            for (endpoint, node) in [connection.sending, connection.receiving] {
                let fabric = stage.drive.fabric_mut();
                fabric.claim(node, port(endpoint), endpoint);
                let ecn = connection.config.ecn;
                let host = stage.namespace(node);
                host.set("net/ipv4/tcp_ecn", if ecn { "1" } else { "2" })?;
            }
        }
        let connections = self.connections.iter().map(|connection| {
            let start = stage.drive.start();
            let [from, to] = [connection.sending, connection.receiving];
            let [sender, receiver] = [from, to].map(|(_, node)| stage.namespace(node));
            bulk(connection, start).begin(sender, receiver)
        });
        let connections = connections.collect::<Result<_, _>>()?;
        self.state = State::Running {
            _connections: connections,
            stage: Box::new(stage),
        };
        Ok(())
    }
}

/// Returns the port of an endpoint.
fn port(endpoint: EndpointId) -> u16 {
    FIRST_PORT + endpoint.0 as u16
}

/// Returns the kernel's connection for one of a scenario.
fn bulk(connection: &Connection, start: Instant) -> Bulk {
    let addresses = Addresses::of_scenario();
    let socket = |(endpoint, node)| SocketAddrV4::new(addresses.of(node), port(endpoint));
    let config = &connection.config;
    let at = |time: Time| start + (time - Time::ZERO);
    let segment_bytes = u64::from(config.segment_bytes);
    Bulk {
        from: socket(connection.sending),
        to: socket(connection.receiving),
        congestion_control: match connection.variant {
            TcpVariant::NewReno | TcpVariant::Sack => CongestionControl::Reno,
            TcpVariant::Cubic => CongestionControl::Cubic,
            TcpVariant::Bbr => CongestionControl::Bbr,
        },
        segment_bytes: Some(config.segment_bytes),
        start: at(config.start),
        stop: config.stop.map(at),
        transfer: config
            .transfer
            .map(|segments| u64::from(segments) * segment_bytes),
    }
}

impl Drop for EmulatedWorld {
    fn drop(&mut self) {
        if let State::Running { stage, .. } = &self.state {
            let mut report = self.report.0.lock().unwrap_or_else(PoisonError::into_inner);
            *report = stage.drive.lateness();
        }
    }
}

impl World for EmulatedWorld {
    fn reserve(&mut self, nodes: usize, links: usize, endpoints: usize) {
        self.network_mut().reserve(nodes, links, endpoints);
    }

    fn set_leave_latency(&mut self, latency: Duration) {
        self.network_mut().set_leave_latency(latency);
    }

    fn set_carried_max(&mut self, packets: u64) {
        self.network_mut().set_carried_max(packets);
    }

    fn add_node(&mut self, name: &str) -> NodeId {
        self.nodes += 1;
        self.network_mut().add_node(name)
    }

    fn add_link(&mut self, from: NodeId, to: NodeId, config: Arc<LinkConfig>) -> LinkId {
        self.network_mut().add_link(from, to, config)
    }

    fn add_endpoint(
        &mut self,
        node: NodeId,
        endpoint: BoxedEndpoint<AnyHeader, AnyEvent>,
    ) -> EndpointId {
        self.network_mut().add_endpoint(node, endpoint)
    }

    fn add_connection(&mut self, connection: &Connection) -> bool {
        for (endpoint, node) in [connection.sending, connection.receiving] {
            let added = self.network_mut().add(node, kernel_end(node));
            assert_eq!(added, endpoint, "the plan numbers endpoints in this order");
        }
        self.connections.push(connection.clone());
        true
    }

    fn open_session(&mut self, source: NodeId) -> u32 {
        self.network_mut().open_session(source)
    }

    fn at(&mut self, time: Time, change: Change) {
        self.network_mut().at(time, change);
    }

    fn tap(&mut self, link: LinkId) {
        self.network_mut().tap(link);
    }

    fn trace(&mut self) {
        self.network_mut().trace();
    }

    fn stream(&self, name: &str) -> u64 {
        self.network().stream(name)
    }

    fn branch(&mut self, source: NodeId, node: NodeId) -> Vec<LinkId> {
        self.network_mut().branch(source, node)
    }

    fn now(&self) -> Time {
        self.network().now()
    }

    fn run_until(
        &mut self,
        end: Time,
        observer: &mut dyn Observer<AnyHeader, AnyEvent>,
    ) -> Result<(), Halt> {
        let outside = |error: EmulateError| match error {
            EmulateError::Halt(halt) => halt,
            other => Halt::Outside(other.to_string()),
        };
        if matches!(self.state, State::Building(_)) {
            self.start().map_err(outside)?;
        }
        let State::Running { stage, .. } = &mut self.state else {
            return Err(Halt::Outside("the emulation has not begun".to_owned()));
        };
        let ended = stage.drive.run_until(end, &mut self.bell, observer);
        match ended.map_err(outside)? {
            Ended::Time => Ok(()),
            Ended::Rung => Err(Halt::Outside("interrupted".to_owned())),
        }
    }

    fn received(&self, endpoint: EndpointId) -> Received {
        self.network().received(endpoint)
    }

    fn link_counters(&self, link: LinkId) -> Counters {
        self.network().link_counters(link)
    }

    fn link_config(&self, link: LinkId) -> &LinkConfig {
        self.network().link_config(link)
    }

    fn queue_packets(&mut self, link: LinkId) -> usize {
        self.network_mut().queue_packets(link)
    }

    fn queue_time(&mut self, link: LinkId) -> Duration {
        self.network_mut().queue_time(link)
    }

    fn transmissions(&self) -> u64 {
        self.network().transmissions()
    }

    fn check_accounting(&self) -> Result<(), String> {
        let accounted = self.network().check_accounting();
        accounted.map_err(|error| error.to_string())?;
        match &self.state {
            State::Running { stage, .. } => stage.drive.lateness().check(),
            _ => Ok(()),
        }
    }
}
