//! The ways that a session's datagrams can take: IP multicast, or an AMT tunnel where there is no
//! multicast.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;
use manyflow_amt::wire::AMT_PORT;
use manyflow_amt::{
    Family, Flow, GatewayConfig, GatewayEvent, JoinError, LossReason, RelayAddress, Subscription,
};
use tokio::net::lookup_host;
use tokio::time::timeout;

use crate::filecast::sdp::SessionDescription;
use crate::net::amt::{GatewayClient, Incoming, RelaySender, RelayServer, RelayStats};
use crate::net::multicast::{
    Interface, MulticastError, MulticastReceiver, MulticastSender, ReceiverConfig,
    is_source_specific,
};

/// The reason why a transport does not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// A multicast socket failed.
    #[error(transparent)]
    Multicast(#[from] MulticastError),
    /// The gateway refuses a group.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The gateway's socket failed.
    #[error("cannot reach the relay {relay}: {cause}")]
    Relay {
        /// The relay's address, as the user gave it.
        relay: String,
        /// The system's reason.
        cause: io::Error,
    },
    /// The relay did not answer in time.
    #[error(
        "the relay {0} does not answer: is the sender running with --listen, and does no firewall block UDP?"
    )]
    Silent(String),
    /// The relay refused the gateway.
    #[error("the relay {0} accepts no more receivers: try again later")]
    Full(String),
    /// A socket failed while receiving.
    #[error("receiving failed: {0}")]
    Receive(#[from] io::Error),
}

/// The outlets of a sender: multicast groups, the gateways of a relay, or both.
pub struct Outlets {
    /// Returns the flow of each channel, by its number.
    groups: Vec<Flow>,
    multicast: Option<MulticastSender>,
    relay: Option<(RelayServer, RelaySender)>,
    unsent: u64,
}

impl Outlets {
    /// Makes the outlets of the session in `description`.
    pub fn new(
        description: &SessionDescription,
        multicast: Option<MulticastSender>,
        relay: Option<RelayServer>,
    ) -> Outlets {
        let relay = relay.map(|server| {
            let sender = server.sender();
            (server, sender)
        });
        Outlets {
            groups: flows(description),
            multicast,
            relay,
            unsent: 0,
        }
    }

    /// Whether this channel can have receivers now.
    pub(super) fn wants(&self, channel: u16) -> bool {
        self.multicast.is_some()
            || self
                .relay
                .as_ref()
                .is_some_and(|(_, relay)| relay.is_joined(channel.into()))
    }

    /// Sends a datagram to all outlets. An outlet without room drops and counts it, as any full
    /// queue does.
    pub(super) fn send(&mut self, channel: u16, datagram: &[u8]) {
        let flow = self.groups[usize::from(channel)];
        if let Some(socket) = &self.multicast
            && socket.try_send(flow.group.ip(), datagram).is_err()
        {
            self.unsent += 1;
        }
        if let Some((_, relay)) = &self.relay
            && relay.send(channel.into(), datagram).is_err()
        {
            self.unsent += 1;
        }
    }

    /// Returns the number of datagrams that an outlet dropped, for lack of room or because of a
    /// gateway's maximum rate.
    pub(super) fn unsent(&self) -> u64 {
        let relay = self.relay_stats();
        self.unsent + relay.unsent + relay.counters.over_rate
    }

    /// Returns the load and counts of the AMT relay; all 0 without a relay.
    pub(super) fn relay_stats(&self) -> RelayStats {
        self.relay
            .as_ref()
            .map_or_else(RelayStats::default, |(server, _)| server.stats())
    }
}

/// Returns the flow of each channel, by its number.
pub fn flows(description: &SessionDescription) -> Vec<Flow> {
    let source = SocketAddr::new(description.source, description.port);
    let groups = (0..description.channels()).map_while(|channel| description.group(channel));
    groups
        .map(|group| Flow {
            source,
            group: SocketAddr::new(group, description.port),
        })
        .collect()
}

/// The way of packets to a receiver.
#[derive(Clone, Debug)]
pub enum Route {
    /// IP multicast, on this interface or that of the route.
    Multicast(Option<Interface>),
    /// An AMT relay, as `host:port`, or `host` if it has AMT's own port.
    Relay(String),
}

/// The receiving end of a transport.
pub(super) struct Inlet {
    groups: Vec<Flow>,
    kind: Kind,
}

enum Kind {
    Multicast(MulticastReceiver),
    Tunnel(Box<GatewayClient>, String),
}

impl Inlet {
    pub(super) async fn open(
        description: &SessionDescription,
        route: &Route,
        patience: Duration,
    ) -> Result<Inlet, TransportError> {
        let kind = match route {
            Route::Multicast(interface) => {
                Kind::Multicast(MulticastReceiver::open(ReceiverConfig {
                    source: description.source,
                    port: description.port,
                    interface: interface.clone(),
                })?)
            }
            Route::Relay(relay) => Kind::Tunnel(
                Box::new(connect(relay, description, patience).await?),
                relay.clone(),
            ),
        };
        Ok(Inlet {
            groups: flows(description),
            kind,
        })
    }

    pub(super) fn join(&mut self, channel: u16) -> Result<(), TransportError> {
        let flow = self.groups[usize::from(channel)];
        match &mut self.kind {
            Kind::Multicast(socket) => Ok(socket.join(flow.group.ip())?),
            Kind::Tunnel(gateway, _) => Ok(gateway.join(subscription(flow))?),
        }
    }

    pub(super) fn leave(&mut self, channel: u16) -> Result<(), TransportError> {
        let flow = self.groups[usize::from(channel)];
        match &mut self.kind {
            Kind::Multicast(socket) => socket.leave(flow.group.ip())?,
            Kind::Tunnel(gateway, _) => gateway.leave(subscription(flow)),
        }
        Ok(())
    }

    /// Returns the next datagram and its time of arrival. Cancel safe.
    pub(super) async fn recv(&mut self) -> Result<(Bytes, Instant), TransportError> {
        match &mut self.kind {
            Kind::Multicast(socket) => {
                let datagram = socket.recv().await?;
                Ok((datagram.payload, datagram.received_at))
            }
            Kind::Tunnel(gateway, relay) => loop {
                match gateway.recv().await? {
                    Incoming::Datagram(datagram) => {
                        return Ok((datagram.payload, datagram.received_at));
                    }
                    Incoming::Event(GatewayEvent::Ready) => {}
                    Incoming::Event(GatewayEvent::RelayLost(LossReason::Silent)) => {
                        tracing::warn!("the relay {relay} does not answer; still trying");
                    }
                    Incoming::Event(GatewayEvent::RelayLost(LossReason::Full)) => {
                        tracing::warn!("the relay {relay} accepts no more receivers; still trying");
                    }
                }
            },
        }
    }

    /// Ends the tunnel to the relay.
    pub(super) async fn close(self) {
        if let Kind::Tunnel(gateway, _) = self.kind {
            gateway.close().await;
        }
    }
}

impl fmt::Display for Inlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Multicast(_) => write!(f, "multicast"),
            Kind::Tunnel(_, relay) => write!(f, "the relay {relay}"),
        }
    }
}

/// Returns the subscription to a flow: with its source if the group's range is source-specific, as
/// on a multicast socket.
fn subscription(flow: Flow) -> Subscription {
    let source = is_source_specific(flow.group.ip()).then_some(flow.source.ip());
    Subscription {
        group: flow.group.ip(),
        source,
    }
}

/// Opens a tunnel and waits for the relay's answer. Otherwise a join would wait, too, and the
/// measured round-trip time would be too long.
async fn connect(
    relay: &str,
    description: &SessionDescription,
    patience: Duration,
) -> Result<GatewayClient, TransportError> {
    let failed = |cause| TransportError::Relay {
        relay: relay.to_owned(),
        cause,
    };
    let mut addresses = lookup_host(with_port(relay)).await.map_err(failed)?;
    let unknown = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let address = addresses.next().ok_or_else(unknown).map_err(failed)?;
    let config = GatewayConfig::new(
        RelayAddress::Unicast(address),
        Family::of(description.source),
    );
    let mut gateway = GatewayClient::connect(config).map_err(failed)?;
    match timeout(patience, tunnel(&mut gateway, relay)).await {
        Ok(stands) => stands.map(|()| gateway),
        Err(_) => Err(TransportError::Silent(relay.to_owned())),
    }
}

/// Waits for the relay's answer. The gateway itself repeats its request.
async fn tunnel(gateway: &mut GatewayClient, relay: &str) -> Result<(), TransportError> {
    loop {
        match gateway.recv().await? {
            Incoming::Event(GatewayEvent::Ready) => return Ok(()),
            Incoming::Event(GatewayEvent::RelayLost(LossReason::Full)) => {
                return Err(TransportError::Full(relay.to_owned()));
            }
            Incoming::Event(GatewayEvent::RelayLost(LossReason::Silent)) => {
                tracing::warn!("the relay {relay} does not answer; still trying");
            }
            Incoming::Datagram(_) => {}
        }
    }
}

/// Returns the relay's address, with AMT's own port (RFC 7450 section 7.2) if it has none.
fn with_port(relay: &str) -> String {
    match relay.parse::<IpAddr>() {
        Ok(address) => SocketAddr::new(address, AMT_PORT).to_string(),
        Err(_) if relay.contains(':') => relay.to_owned(),
        Err(_) => format!("{relay}:{AMT_PORT}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_without_a_port_has_that_of_amt() {
        for (relay, full) in [
            ("192.0.2.1", "192.0.2.1:2268"),
            ("2001:db8::1", "[2001:db8::1]:2268"),
            ("relay.example.net", "relay.example.net:2268"),
            ("relay.example.net:1", "relay.example.net:1"),
            ("[2001:db8::1]:1", "[2001:db8::1]:1"),
        ] {
            assert_eq!(with_port(relay), full);
        }
    }
}
