//! The interface between a scenario and the world that runs it.

use core::time::Duration;
use std::sync::Arc;

use manyflow_core::link::{Counters, LinkConfig};
use manyflow_core::{EndpointId, Time};
use manyflow_netsim::{
    BoxedEndpoint, Change, Halt, LinkId, NodeId, Observer, Received, Stop, Windows,
};
use manyflow_tcp::TcpConfig;
use manyflow_webrc::{ReceiverConfig, SessionConfig};

use crate::protocols::{AnyEvent, AnyHeader, Network, TcpVariant};
use crate::schema::Observable;

/// A world that runs scenarios: nodes, links and endpoints that exchange packets as time passes.
///
/// Nodes, links, endpoints and multicast sessions are numbered in the order in which they are
/// added. The simulator's [`Network`] is one such world.
pub trait World {
    /// Announces the numbers of nodes, links and endpoints that are going to be added.
    fn reserve(&mut self, nodes: usize, links: usize, endpoints: usize);

    /// Sets the time for which a router still forwards a channel to a host that has left it.
    fn set_leave_latency(&mut self, latency: Duration);

    /// Sets the maximum number of packets that all links together may carry. A run that exceeds it
    /// ends with [`Halt::TooManyCarried`].
    fn set_carried_max(&mut self, packets: u64);

    /// Lets another thread end the run, with [`Halt::Stopped`]. A world that cannot do this ignores
    /// the request.
    fn set_stop(&mut self, _stop: Stop) {}

    /// Lets up to this many threads run the world, with the same results as one. A world that
    /// cannot do this ignores the number.
    fn set_threads(&mut self, _threads: usize) {}

    /// Announces that a link is going to change.
    fn keep_whole(&mut self, _link: LinkId) {}

    /// Reports no events of this endpoint to the observer, which would ignore them. A world may
    /// report them nevertheless.
    fn mute(&mut self, _endpoint: EndpointId) {}

    /// Returns the work of several threads so far; `None` if one thread runs the world.
    fn windows(&self) -> Option<Windows> {
        None
    }

    /// Adds a node.
    fn add_node(&mut self, name: &str) -> NodeId;

    /// Adds one direction of a link.
    fn add_link(&mut self, from: NodeId, to: NodeId, config: Arc<LinkConfig>) -> LinkId;

    /// Adds an endpoint at a node.
    fn add_endpoint(
        &mut self,
        node: NodeId,
        endpoint: BoxedEndpoint<AnyHeader, AnyEvent>,
    ) -> EndpointId;

    /// Adds both ends of a TCP connection, the sending one first, if the world has a TCP of its
    /// own. Returns false if it has none, and adds nothing: the caller adds endpoints of
    /// `manyflow-tcp`.
    fn add_connection(&mut self, _connection: &Connection) -> bool {
        false
    }

    /// Adds the endpoint that stands for a command, if programs run in this world. Returns false if
    /// they do not, and adds nothing.
    fn add_command(&mut self, _command: &Command) -> bool {
        false
    }

    /// Returns whether the ends of WEBRC sessions are programs in this world, which
    /// [`add_webrc`](World::add_webrc) adds.
    fn runs_webrc(&self) -> bool {
        false
    }

    /// Adds the endpoints that stand for the programs of a WEBRC session: the sender's, and those
    /// of its receivers.
    ///
    /// # Panics
    /// Panics if this world [does not run](World::runs_webrc) such programs.
    fn add_webrc(&mut self, _session: &WebrcSession) {
        unreachable!("this world runs no programs");
    }

    /// Returns whether an endpoint of this world reports an observable that its protocol reports.
    /// If it does not, measures have no value instead of 0.
    fn reports(&self, _endpoint: EndpointId, _what: Observable) -> bool {
        true
    }

    /// Opens a multicast session with its source at a node. Returns the session's number.
    fn open_session(&mut self, source: NodeId) -> u32;

    /// Schedules a change at a time.
    fn at(&mut self, time: Time, change: Change);

    /// Reports the packets that this link delivers to the observer.
    fn tap(&mut self, link: LinkId);

    /// Reports incidents to the observer.
    fn trace(&mut self);

    /// Returns a seed for a random stream, which depends on the run's seed and this name only.
    fn stream(&self, name: &str) -> u64;

    /// Returns the links over which a source's multicast packets reach a node, the last link first;
    /// empty if no path leads there.
    fn branch(&mut self, source: NodeId, node: NodeId) -> Vec<LinkId>;

    /// Returns the current time.
    fn now(&self) -> Time;

    /// Runs until `end`, which becomes the current time.
    ///
    /// # Errors
    /// Returns the reason if the run has to halt before `end`.
    fn run_until(
        &mut self,
        end: Time,
        observer: &mut dyn Observer<AnyHeader, AnyEvent>,
    ) -> Result<(), Halt>;

    /// Returns the packets and bytes that an endpoint has received so far.
    fn received(&self, endpoint: EndpointId) -> Received;

    /// Returns the counters of a link's packets.
    fn link_counters(&self, link: LinkId) -> Counters;

    /// Returns the current configuration of a link.
    fn link_config(&self, link: LinkId) -> &LinkConfig;

    /// Returns the number of packets that wait in a link's queue.
    fn queue_packets(&mut self, link: LinkId) -> usize;

    /// Returns the integral over time of the number of packets that wait in a link's queue.
    fn queue_time(&mut self, link: LinkId) -> Duration;

    /// Returns the bytes that full packets could have taken so far of the opportunities of a link
    /// whose rate varies; `None` if the link has none.
    fn offered_bytes(&mut self, link: LinkId) -> Option<u64>;

    /// Returns the number of packets that all links have delivered so far.
    fn transmissions(&self) -> u64;

    /// Checks that no packet disappeared without being counted.
    ///
    /// # Errors
    /// Returns an error that names a link whose counters do not add up.
    fn check_accounting(&self) -> Result<(), String>;
}

/// A TCP connection of a scenario, for worlds that have a TCP of their own.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The sending endpoint and its node.
    pub sending: (EndpointId, NodeId),
    /// The receiving endpoint and its node.
    pub receiving: (EndpointId, NodeId),
    /// The congestion control of the sender.
    pub variant: TcpVariant,
    /// The other parameters: start, stop, segment, ECN and the amount of data.
    pub config: TcpConfig,
}

/// A command of a scenario, for worlds in which programs run.
#[derive(Clone, Debug)]
pub struct Command {
    /// The name of the session.
    pub session: String,
    /// The endpoint that stands for the command, and its node.
    pub at: (EndpointId, NodeId),
    /// The text for `sh -c`.
    pub run: String,
    /// The time at which the command starts.
    pub start: Time,
    /// The time at which the command is ended. By default it may run until the end of the run.
    pub stop: Option<Time>,
}

/// A WEBRC session of a scenario, for worlds in which its ends are programs.
#[derive(Clone, Debug)]
pub struct WebrcSession {
    /// The name of the session.
    pub name: String,
    /// The number of the multicast session.
    pub number: u32,
    /// The number of channels.
    pub channels: u16,
    /// The parameters of the session. Rates and lengths include IP and UDP headers.
    pub config: SessionConfig,
    /// The parameters of receivers.
    pub receiver: ReceiverConfig,
    /// The endpoint that stands for the sender, and its node.
    pub sender: (EndpointId, NodeId),
    /// The time at which the sender starts.
    pub start: Time,
    /// The time at which the sender stops. By default it does not stop.
    pub stop: Option<Time>,
    /// The receivers, with an entry for each membership interval.
    pub receivers: Vec<WebrcReceiver>,
    /// The end of the run.
    pub end: Time,
    /// Whether links change during the run.
    pub has_changes: bool,
}

/// A membership interval of a receiver of a [`WebrcSession`].
#[derive(Clone, Debug)]
pub struct WebrcReceiver {
    /// The endpoint that stands for the receiver, and its node.
    pub at: (EndpointId, NodeId),
    /// The time at which the receiver starts.
    pub start: Time,
    /// The time at which it leaves. By default it does not leave.
    pub stop: Option<Time>,
}

impl World for Network {
    fn reserve(&mut self, nodes: usize, links: usize, endpoints: usize) {
        self.reserve(nodes, links, endpoints);
    }

    fn set_leave_latency(&mut self, latency: Duration) {
        self.set_leave_latency(latency);
    }

    fn set_carried_max(&mut self, packets: u64) {
        self.set_carried_max(packets);
    }

    fn set_stop(&mut self, stop: Stop) {
        self.set_stop(stop);
    }

    fn set_threads(&mut self, threads: usize) {
        self.set_threads(threads);
    }

    fn keep_whole(&mut self, link: LinkId) {
        self.keep_whole(link);
    }

    fn mute(&mut self, endpoint: EndpointId) {
        self.mute(endpoint);
    }

    fn windows(&self) -> Option<Windows> {
        self.windows()
    }

    fn add_node(&mut self, name: &str) -> NodeId {
        self.add_node(name)
    }

    fn add_link(&mut self, from: NodeId, to: NodeId, config: Arc<LinkConfig>) -> LinkId {
        self.add_link(from, to, config)
    }

    fn add_endpoint(
        &mut self,
        node: NodeId,
        endpoint: BoxedEndpoint<AnyHeader, AnyEvent>,
    ) -> EndpointId {
        self.add_endpoint(node, endpoint)
    }

    fn open_session(&mut self, source: NodeId) -> u32 {
        self.open_session(source)
    }

    fn at(&mut self, time: Time, change: Change) {
        self.at(time, change);
    }

    fn tap(&mut self, link: LinkId) {
        self.tap(link);
    }

    fn trace(&mut self) {
        self.trace();
    }

    fn stream(&self, name: &str) -> u64 {
        self.stream(name)
    }

    fn branch(&mut self, source: NodeId, node: NodeId) -> Vec<LinkId> {
        self.branch(source, node)
    }

    fn now(&self) -> Time {
        self.now()
    }

    fn run_until(
        &mut self,
        end: Time,
        observer: &mut dyn Observer<AnyHeader, AnyEvent>,
    ) -> Result<(), Halt> {
        self.run_until(end, observer)
    }

    fn received(&self, endpoint: EndpointId) -> Received {
        self.received(endpoint)
    }

    fn link_counters(&self, link: LinkId) -> Counters {
        self.link_counters(link)
    }

    fn link_config(&self, link: LinkId) -> &LinkConfig {
        self.link_config(link)
    }

    fn queue_packets(&mut self, link: LinkId) -> usize {
        self.queue_packets(link)
    }

    fn queue_time(&mut self, link: LinkId) -> Duration {
        self.queue_time(link)
    }

    fn offered_bytes(&mut self, link: LinkId) -> Option<u64> {
        self.offered_bytes(link)
    }

    fn transmissions(&self) -> u64 {
        self.transmissions()
    }

    fn check_accounting(&self) -> Result<(), String> {
        self.check_accounting().map_err(|error| error.to_string())
    }
}
