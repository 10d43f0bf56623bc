//! The way of a session's datagrams to its receivers: IP multicast, or an AMT tunnel where there is
//! no multicast.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use manyflow_amt::Flow;
use manyflow_core::Ecn;
use manyflow_net::inlet::{self as net, Route, TransportError};

use crate::sdp::SessionDescription;

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

/// A datagram of the session.
pub(super) struct Delivery<'a> {
    pub(super) payload: &'a [u8],
    /// The channel of the group to which the datagram was sent; `None` if the session has no such
    /// group.
    pub(super) channel: Option<u16>,
    /// The datagram's ECN field; that of the inner datagram in a tunnel.
    pub(super) ecn: Ecn,
    /// Time at which the datagram was taken from the kernel.
    pub(super) received_at: Instant,
    /// Time at which the kernel got the datagram; with a tunnel, `received_at`.
    pub(super) arrived_at: Instant,
}

/// The receiving end of a transport.
pub(super) struct SessionInlet {
    groups: Groups,
    flows: net::Inlet,
}

impl SessionInlet {
    /// Opens the way of the session's packets. If that is a tunnel, waits for a relay's answer:
    /// otherwise a join would wait, too, and the measured round-trip time would be too long.
    pub(super) async fn open(
        description: &SessionDescription,
        route: &Route,
        patience: Duration,
    ) -> Result<SessionInlet, TransportError> {
        let mut inlet = net::Inlet::open(description.source, description.port, route).await?;
        inlet.wait_until_ready(patience).await?;
        Ok(SessionInlet {
            groups: Groups(flows(description)),
            flows: inlet,
        })
    }

    pub(super) fn join(&mut self, channel: u16) -> Result<(), TransportError> {
        self.flows.join(self.groups.0[usize::from(channel)])
    }

    pub(super) fn leave(&mut self, channel: u16) -> Result<(), TransportError> {
        self.flows.leave(self.groups.0[usize::from(channel)])
    }

    /// Waits for datagrams, which [`next_delivery`](Self::next_delivery) returns. Cancel safe.
    pub(super) async fn wait(&mut self) -> Result<(), TransportError> {
        self.flows.wait().await
    }

    /// Returns the next of the datagrams that were received together.
    pub(super) fn next_delivery(&mut self) -> Option<Delivery<'_>> {
        let packet = self.flows.next_packet()?;
        Some(Delivery {
            payload: packet.payload,
            channel: self.groups.channel(packet.group.ip()),
            ecn: packet.ecn,
            received_at: packet.received_at,
            arrived_at: packet.arrived_at,
        })
    }

    /// Looks whether the way of packets still exists, since none come.
    pub(super) fn check_way(&mut self) {
        self.flows.check_way();
    }

    /// Returns the time for which a silent session stays left before it is joined again.
    pub(super) fn rejoin_pause(&self) -> Duration {
        self.flows.rejoin_pause()
    }

    /// Returns a reason that the description shows for its silence, if no packets have come.
    pub(super) fn silence_hint(&self, packets: u64, ttl: Option<u8>) -> String {
        self.flows.silence_hint(packets, ttl)
    }

    /// Ends the tunnel to the relay.
    pub(super) async fn close(self) {
        self.flows.close().await;
    }
}

/// The flows of the channels, by the channels' numbers. Their groups are consecutive addresses.
struct Groups(Vec<Flow>);

impl Groups {
    /// Returns the channel of a group.
    fn channel(&self, group: IpAddr) -> Option<u16> {
        let first = self.0.first()?.group.ip();
        let number = match (first, group) {
            (IpAddr::V4(first), IpAddr::V4(group)) => {
                u128::from(group.to_bits().checked_sub(first.to_bits())?)
            }
            (IpAddr::V6(first), IpAddr::V6(group)) => {
                group.to_bits().checked_sub(first.to_bits())?
            }
            _ => return None,
        };
        u16::try_from(number)
            .ok()
            .filter(|number| usize::from(*number) < self.0.len())
    }
}

impl fmt::Display for SessionInlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.flows.fmt(f)
    }
}
