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

    fn daemon_at(&self, address: EndpointId) -> Option<DaemonId> {
        let found = self
            .by_address
            .binary_search_by_key(&address, |known| known.0);
        found.ok().map(|place| self.by_address[place].1)
    }
}

/// A daemon of a simulated overlay, with the endpoints of its clients.
#[derive(Debug)]
pub struct DaemonEndpoint {
    daemon: Daemon<Contents>,
    addresses: Arc<Addresses>,
    clients: BTreeMap<EndpointId, ClientId>,
    client_addresses: BTreeMap<ClientId, EndpointId>,
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
            clients: BTreeMap::new(),
            client_addresses: BTreeMap::new(),
        }
    }

    /// Returns the daemon.
    pub fn daemon(&self) -> &Daemon<Contents> {
        &self.daemon
    }

    fn handle_client(
        &mut self,
        now: Time,
        from: EndpointId,
        frame: &ClientFrame,
        payload: Contents,
    ) {
        let known = self.clients.get(&from).copied();
        match (*frame, known) {
            (ClientFrame::Connect { priority }, None) => {
                let client = self.daemon.connect(now, priority);
                self.clients.insert(from, client);
                self.client_addresses.insert(client, from);
            }
            (_, Some(client)) => {
                self.daemon.handle_client(now, client, frame, payload);
                if *frame == ClientFrame::Disconnect {
                    self.clients.remove(&from);
                    self.client_addresses.remove(&client);
                }
            }
            _ => {}
        }
    }

    /// Returns the frame as a packet; `None` if its destination is a client that has disconnected.
    fn packet(&self, transmit: Transmit<Contents>) -> Option<Packet<Frame>> {
        let (to, frame, payload) = match transmit {
            Transmit::Daemon(daemon, frame, payload) => (
                self.addresses.by_daemon[usize::from(daemon.0)],
                frame,
                payload,
            ),
            Transmit::Client(client, frame, payload) => (
                *self.client_addresses.get(&client)?,
                Frame::Client(frame),
                payload,
            ),
        };
        Some(Packet::new(Destination::Endpoint(to), frame, payload))
    }
}

impl Endpoint for DaemonEndpoint {
    type Rx = Frame;
    type Tx = Frame;
    type Event = Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Frame>) {
        let (frame, payload) = (&packet.header, packet.payload());
        if let Frame::Client(frame) = frame {
            self.handle_client(now, packet.source, frame, payload);
        } else if let Some(daemon) = self.addresses.daemon_at(packet.source) {
            self.daemon
                .handle_frame(now, daemon, frame, packet.ecn, payload);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.daemon.handle_timeout(now);
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action<Frame>> {
        loop {
            let transmit = self.daemon.poll_transmit()?;
            if let Some(packet) = self.packet(transmit) {
                return Some(Action::Send(packet));
            }
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.daemon.poll_timeout()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.daemon.poll_event()
    }
}
