//! The way of flows to this host: IP multicast, or a tunnel to the first of several AMT relays.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use manyflow_amt::ip::data_ecn;
use manyflow_amt::{Family, Flow, JoinError, Subscription};
use manyflow_core::Ecn;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::amt::{FromRelay, Tunnel, TunnelDatagram};
use super::interfaces::is_directly_connected;
use super::multicast::{
    Datagram, Interface, MulticastError, MulticastReceiver, REJOIN_PAUSE, ReceiverConfig,
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
        "the relay {0} does not answer: is a sender or relay running there with --listen, and does no firewall block UDP?"
    )]
    Silent(String),
    /// The relay refused the gateway.
    #[error(
        "the relay {0} accepts no more receivers, or none of this address: try again later, or name another with --relay"
    )]
    Full(String),
    /// A socket failed while receiving.
    #[error("receiving failed: {0}")]
    Receive(#[from] io::Error),
}

/// The way of packets to a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// IP multicast, on this interface or that of the route.
    Multicast(Option<Interface>),
    /// AMT relays, each as `host:port`, or `host` if it has AMT's own port. They are tried in
    /// order, with all addresses of each.
    Relays(Vec<String>),
}

/// Returns the times at which to look whether the host's network has changed. They leave two
/// seconds of the three in which a receiver finds its way again.
fn network_check() -> Interval {
    let mut times = interval(Duration::from_secs(1));
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    times
}

/// A packet of a flow.
pub struct Packet<'a> {
    /// The address and port of the packet's sender.
    pub source: SocketAddr,
    /// The group and port of the flow.
    pub group: SocketAddr,
    /// The UDP payload.
    pub payload: &'a [u8],
    /// The Multicast Data message with the packet; `None` if it came by IP multicast.
    pub message: Option<&'a [u8]>,
    /// The packet's ECN field; that of the inner datagram in a tunnel.
    pub ecn: Ecn,
    /// Time at which the packet was taken from the kernel.
    pub received_at: Instant,
    /// Time at which the kernel got the packet; `received_at` if the kernel does not say.
    pub arrived_at: Instant,
}

/// A datagram from upstream.
pub enum Incoming<'a> {
    /// A packet of a flow.
    Packet(Packet<'a>),
    /// A message of the parent's hop. Only tunnels have hops.
    Hop(&'a [u8]),
}

/// Receives flows of one source and port.
pub struct Inlet {
    port: u16,
    kind: Kind,
    /// Times at which to look whether the host's network has changed.
    network_check: Interval,
}

enum Kind {
    Multicast(Box<MulticastReceiver>),
    Tunnel(Box<Tunnel>),
}

impl Inlet {
    /// Opens sockets without waiting for a relay. A tunnel carries flows of any source that has the
    /// IP version of `source`, to any port.
    pub async fn open(source: IpAddr, port: u16, route: &Route) -> Result<Inlet, TransportError> {
        let kind = match route {
            Route::Multicast(interface) => {
                Kind::Multicast(Box::new(MulticastReceiver::open(ReceiverConfig {
                    source,
                    port,
                    interface: interface.clone(),
                })?))
            }
            Route::Relays(relays) => {
                Kind::Tunnel(Box::new(Tunnel::open(relays, Family::of(source)).await?))
            }
        };
        Ok(Inlet {
            port,
            kind,
            network_check: network_check(),
        })
    }

    /// Waits until a relay has answered, for at most `patience`; not at all with IP multicast.
    pub async fn wait_until_ready(&mut self, patience: Duration) -> Result<(), TransportError> {
        match &mut self.kind {
            Kind::Multicast(_) => Ok(()),
            Kind::Tunnel(tunnel) => tunnel.wait_until_ready(patience).await,
        }
    }

    /// Joins a flow from the source of [`open`](Self::open).
    ///
    /// # Errors
    /// If the system or the tunnel takes no further flow.
    pub fn join(&mut self, flow: Flow) -> Result<(), TransportError> {
        match &mut self.kind {
            Kind::Multicast(socket) => Ok(socket.join(flow.group.ip())?),
            Kind::Tunnel(tunnel) => Ok(tunnel.join(subscription(flow))?),
        }
    }

    /// Leaves a flow that was joined.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn leave(&mut self, flow: Flow) -> Result<(), TransportError> {
        match &mut self.kind {
            Kind::Multicast(socket) => socket.leave(flow.group.ip())?,
            Kind::Tunnel(tunnel) => tunnel.leave(subscription(flow)),
        }
        Ok(())
    }

    /// Waits for packets, which [`next_packet`](Self::next_packet) returns. Cancel safe.
    pub async fn wait(&mut self) -> Result<(), TransportError> {
        loop {
            match &mut self.kind {
                Kind::Multicast(socket) => tokio::select! {
                    biased;
                    waited = socket.wait() => return Ok(waited?),
                    _ = self.network_check.tick() => {
                        socket.follow_interface();
                        socket.follow_rejoin();
                    }
                },
                Kind::Tunnel(tunnel) => tokio::select! {
                    biased;
                    waited = tunnel.wait() => return waited,
                    _ = self.network_check.tick() => tunnel.follow_network(),
                },
            }
        }
    }

    /// Returns the next of the packets that were received together. Drops hop messages.
    pub fn next_packet(&mut self) -> Option<Packet<'_>> {
        match &mut self.kind {
            Kind::Multicast(socket) => socket.next_datagram().map(|it| of_group(it, self.port)),
            Kind::Tunnel(tunnel) => tunnel.next_datagram().map(of_tunnel),
        }
    }

    /// Returns the next of the packets and hop messages that were received together.
    pub fn next_incoming(&mut self) -> Option<Incoming<'_>> {
        match &mut self.kind {
            Kind::Multicast(socket) => {
                let datagram = socket.next_datagram()?;
                Some(Incoming::Packet(of_group(datagram, self.port)))
            }
            Kind::Tunnel(tunnel) => Some(match tunnel.next_received()? {
                FromRelay::Packet(datagram) => Incoming::Packet(of_tunnel(datagram)),
                FromRelay::Hop(message) => Incoming::Hop(message),
            }),
        }
    }

    /// Sends a hop message to the relay of a tunnel. Does nothing with IP multicast.
    pub fn send_hop_message(&self, message: &[u8]) {
        if let Kind::Tunnel(tunnel) = &self.kind {
            tunnel.send_hop_message(message);
        }
    }

    /// Looks whether the way of packets still exists, since none come: asks the relay, or leaves
    /// the groups of IP multicast after some silence to join them again. The caller calls this once
    /// a second or so.
    pub fn check_way(&mut self) {
        match &mut self.kind {
            Kind::Tunnel(tunnel) => tunnel.check_relay(),
            Kind::Multicast(socket) => socket.check_silence(),
        }
    }

    /// Returns the time for which a silent session stays left before it is joined again, so that
    /// routers take the join for a change: none in a tunnel.
    pub fn rejoin_pause(&self) -> Duration {
        match &self.kind {
            Kind::Multicast(_) => REJOIN_PAUSE,
            Kind::Tunnel(_) => Duration::ZERO,
        }
    }

    /// Returns the end of a message about a silent session: a reason that its description shows, if
    /// none of its `packets` have come. `ttl` is that of the description, which those of IPv6 do
    /// not have.
    pub fn silence_hint(&self, packets: u64, ttl: Option<u8>) -> String {
        if packets > 0 {
            return String::new();
        }
        match &self.kind {
            Kind::Multicast(socket) => {
                let source = socket.source();
                hint_of_ttl(ttl, source, is_directly_connected(source))
            }
            // A relay elsewhere takes packets as long as they come.
            Kind::Tunnel(tunnel) if tunnel.is_ready() => {
                "; the relay answers, so packets may be too long for the path: send with --packet 1200"
                    .to_owned()
            }
            Kind::Tunnel(_) => {
                "; the relay does not answer: does it run, and does no firewall block UDP?".to_owned()
            }
        }
    }

    /// Ends the tunnel to the relay.
    pub async fn close(self) {
        if let Kind::Tunnel(tunnel) = self.kind {
            tunnel.close().await;
        }
    }
}

impl fmt::Display for Inlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Multicast(_) => write!(f, "multicast"),
            Kind::Tunnel(tunnel) => write!(f, "the relay {tunnel}"),
        }
    }
}

/// Returns the part of a message that says that a session does not pass routers; empty if it does.
fn hint_of_ttl(ttl: Option<u8>, source: IpAddr, is_directly_connected: bool) -> String {
    match ttl {
        _ if is_directly_connected => String::new(),
        Some(0 | 1) => format!(
            "; the description states a TTL of 1, which no router forwards, and the source {source} is not on a network of this machine: send with --ttl"
        ),
        None => format!(
            "; the source {source} is not on a network of this machine: routers forward the session only if it is sent with --ttl above 1"
        ),
        Some(_) => String::new(),
    }
}

fn of_group(datagram: Datagram<'_>, port: u16) -> Packet<'_> {
    Packet {
        source: datagram.source,
        group: SocketAddr::new(datagram.group, port),
        payload: datagram.payload,
        message: None,
        ecn: datagram.ecn,
        received_at: datagram.received_at,
        arrived_at: datagram.arrived_at,
    }
}

fn of_tunnel(datagram: TunnelDatagram<'_>) -> Packet<'_> {
    Packet {
        source: datagram.flow.source,
        group: datagram.flow.group,
        payload: datagram.payload,
        message: Some(datagram.message),
        ecn: data_ecn(datagram.message),
        received_at: datagram.received_at,
        arrived_at: datagram.arrived_at,
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

#[cfg(test)]
mod tests {
    use tokio::net::UdpSocket;

    use super::*;

    #[tokio::test]
    async fn only_a_relay_that_has_answered_makes_long_packets_the_reason_for_silence() {
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let route = Route::Relays(vec![silent.local_addr().unwrap().to_string()]);
        let source = "127.0.0.1".parse().unwrap();
        let mut inlet = Inlet::open(source, 5446, &route).await.unwrap();
        let hint = inlet.silence_hint(0, None);
        assert!(hint.contains("does not answer"), "{hint}");
        assert_eq!(inlet.silence_hint(1, None), "");
        let Kind::Tunnel(tunnel) = &mut inlet.kind else {
            panic!("a route over relays is a tunnel");
        };
        tunnel.note_ready();
        let hint = inlet.silence_hint(0, None);
        assert!(hint.contains("--packet 1200"), "{hint}");
    }

    #[test]
    fn only_a_source_behind_a_router_makes_the_ttl_worth_a_word() {
        let source = "10.77.0.2".parse().unwrap();
        let hint = hint_of_ttl(Some(1), source, false);
        for part in ["TTL of 1", "10.77.0.2", "--ttl"] {
            assert!(hint.contains(part), "{hint}");
        }
        assert_eq!(hint_of_ttl(Some(1), source, true), "");
        assert_eq!(hint_of_ttl(Some(3), source, false), "");
        let ipv6 = hint_of_ttl(None, "2001:db8::1".parse().unwrap(), false);
        assert!(ipv6.contains("--ttl above 1"), "{ipv6}");
    }
}
