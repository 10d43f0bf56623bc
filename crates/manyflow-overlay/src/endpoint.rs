//! A daemon in a simulated network: each frame is a packet, and each neighbour and client is an
//! endpoint.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::config::OverlayConfig;
use super::controller::Controller;
use super::daemon::{Daemon, Transmit};
use super::hop::{DatagramHop, Hop, StreamHop};
use super::message::{ClientFrame, ClientId, DaemonId, Frame};
use super::topology::Topology;
use crate::Event;
use manyflow_core::ConfigError;
use manyflow_core::Contents;
use manyflow_core::time::Time;
use manyflow_core::{Action, Endpoint};
use manyflow_core::{Destination, EndpointId, Packet};
use manyflow_tcp::TcpConfig;

/// The kind of all links of a simulated overlay.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkKind {
    /// Streams of the simulated TCP.
    Streams(TcpConfig),
    /// Datagrams. The daemons at the two ends of a link repair losses.
    Datagrams,
}

impl LinkKind {
    /// Returns one end of a link of this kind. Its random choices come from `seed`.
    fn hop(&self, seed: u64) -> Result<Box<dyn Hop<Contents>>, ConfigError> {
        Ok(match self {
            LinkKind::Streams(tcp) => Box::new(StreamHop::new(tcp.clone(), seed)?),
            LinkKind::Datagrams => Box::new(DatagramHop::new()),
        })
    }
}

/// The endpoints that stand for an overlay's daemons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    by_daemon: Vec<EndpointId>,
    /// Sorted by endpoint number.
    by_address: Vec<(EndpointId, DaemonId)>,
}

impl Addresses {
    /// Returns the addresses of daemons 0, 1 and so on.
    pub fn new(by_daemon: Vec<EndpointId>) -> Addresses {
        let numbered = by_daemon.iter().enumerate();
        let mut by_address: Vec<_> = numbered
            .map(|(number, at)| (*at, DaemonId(number as u16)))
            .collect();
        by_address.sort_unstable();
        Addresses {
            by_daemon,
            by_address,
        }
    }

    /// Returns the endpoint of a daemon.
    ///
    /// # Panics
    /// Panics if there is no such daemon.
    pub fn of(&self, daemon: DaemonId) -> EndpointId {
        self.by_daemon[usize::from(daemon.0)]
    }

    /// Returns the daemon at an endpoint, if there is one.
    pub fn daemon_at(&self, address: EndpointId) -> Option<DaemonId> {
        let found = self
            .by_address
            .binary_search_by_key(&address, |known| known.0);
        found.ok().map(|place| self.by_address[place].1)
    }
}

/// Stands between a simulated daemon and the endpoints of its clients. [`Direct`] hands frames from
/// one to the other. Other agents deliver messages in an order of their own.
///
/// The daemon's endpoint calls [`serve`](Agent::serve) after every other method, until there is
/// nothing left to do.
pub trait Agent: core::fmt::Debug + Send {
    /// Handles a frame from the endpoint of a client.
    fn handle_client(
        &mut self,
        now: Time,
        daemon: &mut Daemon<Contents>,
        from: EndpointId,
        frame: &ClientFrame,
        payload: Contents,
    );

    /// Handles a frame that the daemon sends to one of its clients.
    fn handle_frame(
        &mut self,
        now: Time,
        daemon: &mut Daemon<Contents>,
        to: ClientId,
        frame: ClientFrame,
        payload: Contents,
    );

    /// Returns the next frame for the endpoint of a client.
    fn poll_client(&mut self) -> Option<(EndpointId, ClientFrame, Contents)>;

    /// Does what follows from the last call. Returns whether there was anything to do.
    fn serve(&mut self, _now: Time, _daemon: &mut Daemon<Contents>) -> bool {
        false
    }

    /// Handles all timers that are due at `now`. Spurious calls do nothing.
    fn handle_timeout(&mut self, _now: Time, _daemon: &mut Daemon<Contents>) {}

    /// Returns when [`handle_timeout`](Agent::handle_timeout) is wanted next, if at all.
    fn poll_timeout(&self) -> Option<Time> {
        None
    }
}

/// Hands the frames of clients to their daemon, and the daemon's frames to its clients.
#[derive(Debug, Default)]
pub struct Direct {
    clients: BTreeMap<EndpointId, ClientId>,
    addresses: BTreeMap<ClientId, EndpointId>,
    /// The frame that was handled last.
    frame: Option<(EndpointId, ClientFrame, Contents)>,
}

impl Agent for Direct {
    fn handle_client(
        &mut self,
        now: Time,
        daemon: &mut Daemon<Contents>,
        from: EndpointId,
        frame: &ClientFrame,
        payload: Contents,
    ) {
        let known = self.clients.get(&from).copied();
        match (*frame, known) {
            (ClientFrame::Connect { priority }, None) => {
                let client = daemon.connect(now, priority);
                self.clients.insert(from, client);
                self.addresses.insert(client, from);
            }
            (_, Some(client)) => {
                daemon.handle_client(now, client, frame, payload);
                if *frame == ClientFrame::Disconnect {
                    self.clients.remove(&from);
                    self.addresses.remove(&client);
                }
            }
            _ => {}
        }
    }

    /// Drops frames to clients that have disconnected.
    fn handle_frame(
        &mut self,
        _now: Time,
        _daemon: &mut Daemon<Contents>,
        to: ClientId,
        frame: ClientFrame,
        payload: Contents,
    ) {
        debug_assert!(self.frame.is_none(), "a frame that nobody took");
        let to = self.addresses.get(&to);
        self.frame = to.map(|to| (*to, frame, payload));
    }

    fn poll_client(&mut self) -> Option<(EndpointId, ClientFrame, Contents)> {
        self.frame.take()
    }
}

/// A daemon of a simulated overlay, with an agent for the endpoints of its clients.
#[derive(Debug)]
pub struct DaemonEndpoint<A = Direct> {
    daemon: Daemon<Contents>,
    addresses: Arc<Addresses>,
    agent: A,
}

impl DaemonEndpoint {
    /// Returns daemon number `here` of a fixed overlay whose daemons are at `addresses`. The random
    /// choices of its links come from `seed`.
    ///
    /// # Errors
    /// Returns an error if a parameter is outside its range, or if there are more or fewer
    /// addresses than daemons.
    pub fn new(
        config: OverlayConfig,
        links: &LinkKind,
        controller: Box<dyn Controller>,
        here: DaemonId,
        topology: Arc<Topology>,
        addresses: Arc<Addresses>,
        seed: u64,
    ) -> Result<DaemonEndpoint, ConfigError> {
        ConfigError::first_of([(
            "an overlay's addresses",
            "as many as its daemons",
            addresses.by_daemon.len() == topology.len(),
        )])?;
        let ends = topology.neighbours(here).iter();
        let hops = ends.map(|end| links.hop(seed ^ u64::from(end.0) << 32));
        let hops = hops.collect::<Result<_, _>>()?;
        let daemon = Daemon::fixed(config, controller, here, topology, hops)?;
        Ok(DaemonEndpoint::of_daemon(daemon, addresses))
    }

    /// Returns an endpoint for a daemon, which may have any kind of hops. `addresses` must hold an
    /// address for each daemon of the overlay.
    pub fn of_daemon(daemon: Daemon<Contents>, addresses: Arc<Addresses>) -> DaemonEndpoint {
        DaemonEndpoint {
            daemon,
            addresses,
            agent: Direct::default(),
        }
    }
}

impl<A> DaemonEndpoint<A> {
    /// Puts another agent between the daemon and its clients, which have not connected yet.
    #[must_use]
    pub fn with_agent<B: Agent>(self, agent: B) -> DaemonEndpoint<B> {
        DaemonEndpoint {
            daemon: self.daemon,
            addresses: self.addresses,
            agent,
        }
    }

    /// Returns the daemon.
    pub fn daemon(&self) -> &Daemon<Contents> {
        &self.daemon
    }
}

impl<A: Agent> Endpoint for DaemonEndpoint<A> {
    type Rx = Frame;
    type Tx = Frame;
    type Event = Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Frame>) {
        let (frame, payload) = (&packet.header, packet.payload());
        if let Frame::Client(frame) = frame {
            self.agent
                .handle_client(now, &mut self.daemon, packet.source, frame, payload);
        } else if let Some(daemon) = self.addresses.daemon_at(packet.source) {
            self.daemon
                .handle_frame(now, daemon, frame, packet.ecn, payload);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.daemon.handle_timeout(now);
        self.agent.handle_timeout(now, &mut self.daemon);
    }

    fn poll_action(&mut self, now: Time) -> Option<Action<Frame>> {
        loop {
            if let Some((to, frame, payload)) = self.agent.poll_client() {
                let to = Destination::Endpoint(to);
                return Some(Action::Send(Packet::new(to, Frame::Client(frame), payload)));
            }
            match self.daemon.poll_transmit() {
                Some(Transmit::Daemon(to, frame, payload)) => {
                    let to = Destination::Endpoint(self.addresses.of(to));
                    let ecn = self.daemon.ecn(&frame);
                    let packet = Packet::new(to, frame, payload).with_ecn(ecn);
                    return Some(Action::Send(packet));
                }
                Some(Transmit::Client(to, frame, payload)) => {
                    self.agent
                        .handle_frame(now, &mut self.daemon, to, frame, payload);
                }
                None if self.agent.serve(now, &mut self.daemon) => {}
                None => return None,
            }
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        let times = [self.daemon.poll_timeout(), self.agent.poll_timeout()];
        times.into_iter().flatten().min()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.daemon.poll_event()
    }
}
