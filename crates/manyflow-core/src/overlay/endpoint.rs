//! A daemon in a simulated network: each frame is a packet, and each neighbour and client an endpoint.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::config::{LinkKind, OverlayConfig};
use super::controller::Controller;
use super::daemon::{Daemon, Transmit};
use super::hop::{DatagramHop, Hop, StreamHop};
use super::message::{ClientFrame, ClientId, DaemonId, Frame};
use super::topology::Topology;
use crate::config_error::ConfigError;
use crate::endpoint::{Action, Endpoint, Event};
use crate::packet::{Destination, Ecn, EndpointId, Header, Packet};
use crate::payload::Length;
use crate::time::Time;

/// Where an overlay's daemons are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    by_daemon: Vec<EndpointId>,
    /// In the order of the addresses.
    by_address: Vec<(EndpointId, DaemonId)>,
}

impl Addresses {
    /// The daemons' addresses, in the order of the daemons' numbers.
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

/// A daemon, and who its clients are.
#[derive(Debug)]
pub struct DaemonEndpoint {
    daemon: Daemon<Length>,
    addresses: Arc<Addresses>,
    clients: BTreeMap<EndpointId, ClientId>,
    /// Where each client is.
    homes: BTreeMap<ClientId, EndpointId>,
}

impl DaemonEndpoint {
    /// Daemon number `here` of a topology whose daemons are at these addresses. Its links' random choices come from `seed`.
    ///
    /// # Errors
    /// Where a parameter is outside its range, or there are not as many addresses as daemons.
    pub fn new(
        config: &OverlayConfig,
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
        let mut ends = topology.neighbours(here).to_vec();
        ends.sort_unstable();
        let hops = ends
            .iter()
            .map(|(end, _)| hop(config, seed ^ u64::from(end.0) << 32));
        let hops = hops.collect::<Result<_, _>>()?;
        Ok(DaemonEndpoint {
            daemon: Daemon::new(config.clone(), controller, here, topology, hops)?,
            addresses,
            clients: BTreeMap::new(),
            homes: BTreeMap::new(),
        })
    }

    fn on_client(&mut self, now: Time, from: EndpointId, frame: &ClientFrame, payload: Length) {
        let known = self.clients.get(&from).copied();
        match (*frame, known) {
            (ClientFrame::Connect { priority }, None) => {
                let client = self.daemon.connect(now, priority);
                self.clients.insert(from, client);
                self.homes.insert(client, from);
            }
            (_, Some(client)) => {
                self.daemon.handle_client(now, client, frame, payload);
                if *frame == ClientFrame::Disconnect {
                    self.clients.remove(&from);
                    self.homes.remove(&client);
                }
            }
            _ => {}
        }
    }

    /// The frame as a packet; `None` where it is for a client that is gone.
    fn packet(&self, transmit: Transmit<Length>) -> Option<Packet> {
        let (to, frame, Length(payload_bytes)) = match transmit {
            Transmit::Daemon(daemon, frame, payload) => (
                self.addresses.by_daemon[usize::from(daemon.0)],
                frame,
                payload,
            ),
            Transmit::Client(client, frame, payload) => {
                (*self.homes.get(&client)?, Frame::Client(frame), payload)
            }
        };
        Some(Packet {
            source: EndpointId::UNSET,
            destination: Destination::Endpoint(to),
            ecn: Ecn::NotCapable,
            header: Header::Overlay(frame),
            payload_bytes,
        })
    }
}

fn hop(config: &OverlayConfig, seed: u64) -> Result<Box<dyn Hop<Length>>, ConfigError> {
    Ok(match &config.links {
        LinkKind::Streams(tcp) => Box::new(StreamHop::new(tcp.clone(), seed)?),
        LinkKind::Datagrams => Box::new(DatagramHop::new()),
    })
}

impl Endpoint for DaemonEndpoint {
    fn handle_packet(&mut self, now: Time, packet: &Packet) {
        let Header::Overlay(frame) = &packet.header else {
            return;
        };
        let payload = Length(packet.payload_bytes);
        if let Frame::Client(frame) = frame {
            self.on_client(now, packet.source, frame, payload);
        } else if let Some(daemon) = self.addresses.daemon_at(packet.source) {
            self.daemon
                .handle_frame(now, daemon, frame, packet.ecn, payload);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.daemon.handle_timeout(now);
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action> {
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
