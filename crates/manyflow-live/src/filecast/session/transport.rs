//! The ways that a session's datagrams can take: IP multicast, or an AMT tunnel where there is no multicast.

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
use crate::net::amt::{GatewayClient, Incoming, RelaySender, RelayServer};
use crate::net::multicast::{
    Interface, MulticastError, MulticastReceiver, MulticastSender, ReceiverConfig,
    is_source_specific,
};

/// Why a transport does not work.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// A multicast socket.
    #[error(transparent)]
    Multicast(#[from] MulticastError),
    /// A group that the gateway refuses.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The gateway's socket.
    #[error("cannot reach the relay {relay}: {cause}")]
    Relay {
        /// Its address, as it was given.
        relay: String,
        /// The system's reason.
        cause: io::Error,
    },
    /// No answer for as long as patience lasts.
    #[error(
        "the relay {0} does not answer: is the sender running with --listen, and does no firewall block UDP?"
    )]
    Silent(String),
    /// A refusal.
    #[error("the relay {0} accepts no more receivers: try again later")]
    Full(String),
    /// A socket that failed while receiving.
    #[error("receiving failed: {0}")]
    Receive(#[from] io::Error),
}

/// Where a sender's datagrams go: to multicast groups, to the gateways of a relay, or to both.
pub struct Outlets {
    /// The groups, by channel number.
    groups: Vec<Flow>,
    multicast: Option<MulticastSender>,
    relay: Option<(RelayServer, RelaySender)>,
    unsent: u64,
}

impl Outlets {
    /// The outlets of the session that `description` tells of.
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

    /// Whether anyone could receive this channel now.
    pub(super) fn wants(&self, channel: u16) -> bool {
        self.multicast.is_some()
            || self
                .relay
                .as_ref()
                .is_some_and(|(_, relay)| relay.is_joined(channel.into()))
    }

    /// Hands a datagram over. An outlet that has no room for it drops it, like any full queue, and counts it.
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

    /// Datagrams that an outlet dropped, for want of room or to hold a gateway's bound.
    pub(super) fn unsent(&self) -> u64 {
        let relay = self.relay.as_ref().map_or(0, |(server, _)| {
            let stats = server.stats();
            stats.unsent + stats.counters.over_rate
        });
        self.unsent + relay
    }

    pub(super) fn gateways(&self) -> usize {
        self.relay
            .as_ref()
            .map_or(0, |(server, _)| server.stats().gateways)
    }
}

/// The flow of each channel, by its number.
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

/// How packets get to a receiver.
#[derive(Clone, Debug)]
pub enum Route {
    /// IP multicast, by this interface or the one that the routes say.
    Multicast(Option<Interface>),
    /// An AMT relay, as `host:port`, or `host` alone where it has AMT's own port.
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

    /// The next datagram, and when it arrived. Cancel safe.
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

    /// Says goodbye to the relay.
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

/// Source-specific where the group's range says so, as on a multicast socket.
fn subscription(flow: Flow) -> Subscription {
    let source = is_source_specific(flow.group.ip()).then_some(flow.source.ip());
    Subscription {
        group: flow.group.ip(),
        source,
    }
}

/// Opens a tunnel and waits until it stands: a join must then travel at once, or the round-trip time is measured wrong.
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

/// Waits for the relay's answer; a gateway that got none asks again by itself.
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

/// AMT's own port (RFC 7450 section 7.2) goes where none is given.
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
