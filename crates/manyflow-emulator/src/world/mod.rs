//! Scenarios in real time: the [`World`] whose TCP is the kernel's.
//!
//! TCP sessions are sockets in the namespaces of their nodes; commands and the ends of WEBRC
//! sessions are programs there. All other protocols run in this process, as in the simulator, with
//! their packets on the same links.

mod command;
mod tcp;
mod webrc;

use core::time::Duration;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use manyflow_core::link::{Counters, LinkConfig};
use manyflow_core::{Action, EndpointId, Rate, Time};
use manyflow_netsim::{BoxedEndpoint, Change, Halt, LinkId, NodeId, Observer, Received};
use manyflow_scenario::protocols::{HostEvent, IpPacket};
use manyflow_scenario::{
    AnyEvent, AnyHeader, Command, Connection, Limits, Network, Observable, WebrcSession, World,
};

use crate::bell::Bell;
use crate::drive::{Ended, Lateness};
use crate::error::EmulateError;
use crate::fabric::{kernel_end, program_end};
use crate::stage::Stage;
use command::CommandSession;
pub use command::{NODE, NODE_V6};
use tcp::TcpSession;
use webrc::{Beginning, WebrcProgram};

/// The limits of emulated scenarios. The table of hops takes a byte for each pair of nodes, and one
/// thread moves all packets.
pub const LIMITS: Limits = Limits {
    nodes: 1024,
    endpoints: 4096,
    rate: Rate::from_bits_per_s(1_000_000_000),
};

/// The time between two observations of connections and programs.
const SAMPLE: Duration = Duration::from_millis(100);

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
    /// The names of all nodes.
    nodes: Vec<String>,
    sessions: Sessions,
    options: Options,
    bell: Bell,
    report: Report,
}

/// The files of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder for the output of programs, which is made if there are any.
    pub outputs: PathBuf,
    /// The path of the program `manyflow`, whose `send` and `recv` are the ends of WEBRC sessions.
    /// Without it, WEBRC runs in this process.
    pub manyflow: Option<PathBuf>,
}

/// The sessions that are not endpoints of this process.
#[derive(Default)]
struct Sessions {
    connections: Vec<Connection>,
    commands: Vec<Command>,
    /// WEBRC sessions, with the ways into the endpoints of their receivers.
    webrc: Vec<(WebrcSession, Vec<Sender<Action<IpPacket>>>)>,
}

/// The network, before and after the clock has started.
enum State {
    Building(Box<Network>),
    Running {
        /// Dropped first: programs and connections end before their namespaces.
        cast: Cast,
        stage: Box<Stage>,
    },
    Failed,
}

/// The sessions in namespaces.
struct Cast {
    connections: Vec<TcpSession>,
    commands: Vec<CommandSession>,
    webrc: Vec<WebrcProgram>,
}

impl Cast {
    /// Reports the present state of connections and the news of programs.
    fn observe(
        &mut self,
        report: &mut dyn FnMut(EndpointId, HostEvent),
    ) -> Result<(), EmulateError> {
        let mut connections = self.connections.iter_mut();
        connections.try_for_each(|session| session.observe(report))?;
        let mut commands = self.commands.iter_mut();
        commands.try_for_each(|session| session.observe(report))?;
        let mut programs = self.webrc.iter_mut();
        programs.try_for_each(|program| program.observe(report))
    }
}

impl Drop for Cast {
    fn drop(&mut self) {
        self.commands.iter().for_each(CommandSession::end);
        self.webrc.iter().for_each(WebrcProgram::end);
    }
}

impl EmulatedWorld {
    /// Returns a world without nodes, whose random choices depend on `seed`. It makes namespaces
    /// when it first runs, and removes them on drop. A ring of `bell` ends the run.
    pub fn new(seed: u64, options: Options, bell: Bell, report: Report) -> EmulatedWorld {
        EmulatedWorld {
            state: State::Building(Box::new(Network::new(seed))),
            nodes: Vec::new(),
            sessions: Sessions::default(),
            options,
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

    /// Makes the namespaces, and begins the sessions in them.
    fn start(&mut self) -> Result<(), EmulateError> {
        let State::Building(network) = std::mem::replace(&mut self.state, State::Failed) else {
            unreachable!("a world starts once");
        };
        let hosts: Vec<NodeId> = self.sessions.hosts().into_iter().collect();
        let mut network = *network;
        let rates: Vec<_> = self.sessions.rates(&mut network).collect();
        let mut stage = Stage::new(network, self.nodes.len() as u32, &hosts)?;
        let (outputs, manyflow) = (&self.options.outputs, self.options.manyflow.as_deref());
        let Sessions {
            connections,
            commands,
            webrc,
            ..
        } = &self.sessions;
        if !(commands.is_empty() && webrc.is_empty()) {
            let made = std::fs::create_dir_all(outputs);
            made.map_err(|error| EmulateError::Folder(outputs.clone(), error))?;
        }
        let connections = connections.iter();
        let connections = connections.map(|known| TcpSession::begin(known, &mut stage));
        let connections = connections.collect::<Result<_, _>>()?;
        let begin = |known| CommandSession::begin(known, &stage, &self.nodes, outputs);
        let commands = commands.iter().map(begin).collect::<Result<_, _>>()?;
        let mut programs = Vec::new();
        for (place, ((session, inlets), rate_max)) in webrc.iter().zip(rates).enumerate() {
            let beginning = Beginning {
                session,
                place: place as u8,
                manyflow: manyflow.expect("only a world with this path takes WEBRC sessions"),
                folder: outputs,
                rate_max,
                inlets: inlets.clone(),
            };
            programs.extend(beginning.begin(&mut stage)?);
        }
        self.state = State::Running {
            cast: Cast {
                connections,
                commands,
                webrc: programs,
            },
            stage: Box::new(stage),
        };
        Ok(())
    }

    /// Adds an endpoint for a session in a namespace.
    fn add_outside(&mut self, (endpoint, node): (EndpointId, NodeId)) {
        let added = self.network_mut().add(node, kernel_end(node));
        assert_eq!(added, endpoint, "the plan numbers endpoints in this order");
    }

    /// Runs the network until `end`, and observes sessions in namespaces every [`SAMPLE`].
    fn run(
        &mut self,
        end: Time,
        observer: &mut dyn Observer<AnyHeader, AnyEvent>,
    ) -> Result<(), EmulateError> {
        if matches!(self.state, State::Building(_)) {
            self.start()?;
        }
        let State::Running { stage, cast } = &mut self.state else {
            return Err(Halt::Outside("the emulation has not begun".to_owned()).into());
        };
        loop {
            let next = next_sample(stage.drive.fabric().network().now()).min(end);
            if stage.drive.run_until(next, &mut self.bell, observer)? == Ended::Rung {
                return Err(Halt::Outside("interrupted".to_owned()).into());
            }
            cast.observe(&mut |endpoint, event| {
                observer.on_event(next, endpoint, &AnyEvent::Ip(event));
            })?;
            if next == end {
                return Ok(());
            }
        }
    }
}

impl Sessions {
    /// Returns the nodes that need a namespace.
    fn hosts(&self) -> BTreeSet<NodeId> {
        let connections = self.connections.iter();
        let ends = connections.flat_map(|known| [known.sending, known.receiving]);
        let commands = self.commands.iter().map(|known| known.at);
        let webrc = self.webrc.iter().flat_map(|(session, _)| {
            let receivers = session.receivers.iter().map(|receiver| receiver.at);
            receivers.chain([session.sender])
        });
        let all = ends.chain(commands).chain(webrc);
        all.map(|(_, node)| node).collect()
    }

    /// Returns for each WEBRC session the rate of the fastest path to its receivers; `None` if
    /// links do not limit it during the whole run.
    fn rates(&self, network: &mut Network) -> impl Iterator<Item = Option<Rate>> {
        let mut path_rate = |from: NodeId, to: NodeId| {
            let links = network.branch(from, to).into_iter();
            links
                .filter_map(|link| network.link_config(link).rate)
                .min()
        };
        self.webrc.iter().map(move |(session, _)| {
            let source = session.sender.1;
            let receivers = session.receivers.iter();
            let rates = receivers.map(|receiver| path_rate(source, receiver.at.1));
            let fastest = rates.collect::<Option<Vec<_>>>()?.into_iter().max();
            fastest.filter(|_| !session.has_changes)
        })
    }
}

/// Returns the next time at which sessions in namespaces are observed.
fn next_sample(now: Time) -> Time {
    let sample = SAMPLE.as_nanos() as u64;
    Time::from_nanos((now.as_nanos() / sample + 1) * sample)
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
        self.nodes.push(name.to_owned());
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
        if !connection.variant.is_of_kernel() {
            return false;
        }
        for at in [connection.sending, connection.receiving] {
            self.add_outside(at);
        }
        self.sessions.connections.push(connection.clone());
        true
    }

    fn add_command(&mut self, command: &Command) -> bool {
        self.add_outside(command.at);
        self.sessions.commands.push(command.clone());
        true
    }

    fn runs_webrc(&self) -> bool {
        self.options.manyflow.is_some()
    }

    fn add_webrc(&mut self, session: &WebrcSession) {
        self.add_outside(session.sender);
        let receivers = session.receivers.iter();
        let inlets = receivers.map(|receiver| {
            let (endpoint, node) = receiver.at;
            let (end, inlet) = program_end(node);
            let added = self.network_mut().add(node, end);
            assert_eq!(added, endpoint, "the plan numbers endpoints in this order");
            inlet
        });
        let inlets = inlets.collect();
        self.sessions.webrc.push((session.clone(), inlets));
    }

    fn reports(&self, endpoint: EndpointId, what: Observable) -> bool {
        let connections = &self.sessions.connections;
        let ends = connections
            .iter()
            .flat_map(|known| [known.sending, known.receiving]);
        let is_kernels = ends.into_iter().any(|(end, _)| end == endpoint);
        if is_kernels {
            return tcp::REPORTED.contains(&what);
        }
        let mut webrc = self.sessions.webrc.iter();
        let is_programs = webrc.any(|(session, _)| {
            let mut receivers = session.receivers.iter();
            receivers.any(|receiver| receiver.at.0 == endpoint)
        });
        !is_programs || webrc::REPORTED.contains(&what)
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
        self.run(end, observer).map_err(outside)
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

    fn offered_bytes(&mut self, link: LinkId) -> Option<u64> {
        self.network_mut().offered_bytes(link)
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
