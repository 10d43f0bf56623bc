//! A receiver's way to its parent: the relay of its tunnel, or the sender if packets come by IP
//! multicast.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use manyflow_layered::hop::HopKey;
use manyflow_layered::relay::ReportingEnd;
use manyflow_layered::repair::Arrival;
use manyflow_layered::unit::Latency;
use manyflow_layered::{Experiment, Message};
use manyflow_net::address::lookup;
use manyflow_net::forwarder::report_socket;
use manyflow_net::group_key::GroupKey;
use manyflow_net::inlet::{Inlet, Route, TransportError};
use ring::hmac;

use super::description::StreamDescription;

/// Returns the key of reports that a shared key gives: a part of the HMAC-SHA-256 of a text, so
/// that no other use of the shared key has the same key.
pub fn report_key(key: &GroupKey) -> HopKey {
    const USE: &[u8] = b"manyflow stream, between parent and child, siphash-2-4-128";
    let tag = hmac::sign(&key.hmac_key(), USE);
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&tag.as_ref()[..16]);
    HopKey::new(bytes)
}

/// A receiver's way to its parent.
pub(super) struct Parent {
    session: u32,
    end: ReportingEnd,
    /// The socket for reports to the sender; `None` if they go through the tunnel.
    socket: Option<UdpSocket>,
    datagram: Vec<u8>,
}

impl Parent {
    /// Opens the way for reports. A packet that is older than the maximum latency is not asked for.
    ///
    /// # Errors
    /// If the sender's address for reports does not exist.
    pub(super) async fn open(
        description: &StreamDescription,
        route: &Route,
        key: Option<HopKey>,
        latency: Latency,
    ) -> Result<Parent, TransportError> {
        let socket = match route {
            Route::Relays(_) => None,
            Route::Multicast(_) => Some(open_socket(description).await?),
        };
        let mut end = ReportingEnd::new(key, rand::random());
        end.set_wait(match latency {
            Latency::Fixed(latency) | Latency::Adaptive { max: latency, .. } => latency,
        });
        Ok(Parent {
            session: description.session,
            end,
            socket,
            datagram: Vec::new(),
        })
    }

    /// Handles a message of data that came through the tunnel, and asks for packets that are
    /// missing.
    pub(super) fn handle_message(&mut self, message: &[u8]) -> Arrival {
        self.end.handle_data(self.session, message)
    }

    /// Handles a hop message of the relay. The answer waits for [`flush`](Self::flush).
    pub(super) fn handle_hop_message(&mut self, message: &[u8]) {
        if let Err(error) = self.end.handle_datagram(message) {
            tracing::debug!(%error, "a hop message was refused");
        }
    }

    /// Returns the next experiment of another receiver of RLM.
    pub(super) fn poll_experiment(&mut self) -> Option<Experiment> {
        self.end.poll_experiment()
    }

    /// Queues a report or an announcement.
    pub(super) fn report(&mut self, message: &Message) {
        match message {
            Message::Feedback(feedback) => self.end.report(&[*feedback]),
            Message::Experiment(experiment) => self.end.announce(*experiment),
            Message::Data(_) => {}
        }
    }

    /// Sends what waits. Messages that the kernel does not take are lost, as on any path.
    pub(super) fn flush(&mut self, inlet: &Inlet) {
        while self.end.poll_transmit(&mut self.datagram) {
            match &self.socket {
                None => inlet.send_hop_message(&self.datagram),
                Some(socket) => {
                    if let Err(error) = socket.send(&self.datagram) {
                        tracing::debug!(%error, "a report was not sent");
                    }
                }
            }
        }
    }
}

/// Returns the address to which receivers of IP multicast report.
///
/// # Errors
/// If the name in the description has no address.
pub async fn report_address(description: &StreamDescription) -> Result<SocketAddr, TransportError> {
    let mut host = description.reports.clone();
    let listens_on_all = |ip: IpAddr| ip.is_unspecified();
    if host.host.parse().is_ok_and(listens_on_all) {
        host.host = description.source.to_string();
    }
    let relay = host.authority();
    let found = lookup(&relay, None).await;
    found
        .map(|addresses| addresses[0])
        .map_err(|cause| TransportError::Relay { relay, cause })
}

async fn open_socket(description: &StreamDescription) -> Result<UdpSocket, TransportError> {
    let address = report_address(description).await?;
    report_socket(address).map_err(|cause| TransportError::Relay {
        relay: address.to_string(),
        cause,
    })
}
