//! The ways that a session's datagrams can take: IP multicast, or an AMT tunnel where there is no
//! multicast.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use manyflow_amt::Flow;

use crate::filecast::sdp::SessionDescription;
use crate::net::amt::{RelaySender, RelayServer, RelayStats};
use crate::net::inlet::{self as net, Route, TransportError};
use crate::net::multicast::MulticastSender;
use crate::net::train::{Train, Unsent};

/// The outlets of a sender: multicast groups, the gateways of a relay, or both.
pub struct Outlets {
    channels: Vec<Outlet>,
    /// The channels whose trains have datagrams.
    waiting: Vec<u16>,
    multicast: Option<MulticastSender>,
    relay: Option<(RelayServer, RelaySender)>,
    /// Datagrams that the multicast socket dropped.
    unsent: Unsent,
}

/// A channel with the datagrams that wait to be sent on it.
struct Outlet {
    group: IpAddr,
    train: Train,
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
        let channels = flows(description).into_iter().map(|flow| Outlet {
            group: flow.group.ip(),
            train: Train::default(),
        });
        Outlets {
            channels: channels.collect(),
            waiting: Vec::new(),
            multicast,
            relay,
            unsent: Unsent::default(),
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

    /// Adds a datagram to those that [`flush`](Self::flush) sends.
    pub(super) fn push(&mut self, channel: u16, datagram: &[u8]) {
        let place = usize::from(channel);
        if self.channels[place].train.is_empty() {
            self.waiting.push(channel);
        }
        if !self.channels[place].train.push(datagram) {
            self.send(channel);
            self.channels[place].train.push(datagram);
        }
    }

    /// Sends the datagrams that wait, channel by channel, to all outlets. An outlet without room
    /// drops and counts them, as any full queue does.
    pub(super) fn flush(&mut self) {
        for place in 0..self.waiting.len() {
            self.send(self.waiting[place]);
        }
        self.waiting.clear();
    }

    fn send(&mut self, channel: u16) {
        let Outlet { group, train } = &mut self.channels[usize::from(channel)];
        if let Some(socket) = &self.multicast {
            let unsent = socket.send(*group, train);
            if unsent.too_long > 0 && self.unsent.too_long == 0 {
                tracing::warn!(
                    "packets are longer than the interface's MTU: reduce --packet (logged once; more are counted)"
                );
            }
            self.unsent.too_long += unsent.too_long;
            self.unsent.refused += unsent.refused;
        }
        if let Some((_, relay)) = &self.relay
            && relay.send(channel.into(), train).is_err()
        {
            self.unsent.too_long += train.datagrams().count() as u64;
        }
        train.clear();
    }

    /// Returns the number of datagrams that an outlet dropped, for lack of room, because of
    /// their length, or because of a maximum rate.
    pub(super) fn unsent(&self) -> u64 {
        let relay = self.relay_stats();
        let refused = relay.counters.over_rate + relay.counters.over_relay_rate;
        let socket = self.unsent.refused + self.unsent.too_long;
        socket + relay.unsent + relay.too_long + refused
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

/// A datagram of the session.
pub(super) struct Delivery<'a> {
    pub(super) payload: &'a [u8],
    /// The channel of the group to which the datagram was sent; `None` if the session has no such
    /// group.
    pub(super) channel: Option<u16>,
    /// Time at which the datagram was taken from the kernel.
    pub(super) received_at: Instant,
    /// Time at which the kernel got the datagram; with a tunnel, `received_at`.
    pub(super) arrived_at: Instant,
}

/// The receiving end of a transport.
pub(super) struct Inlet {
    groups: Groups,
    flows: net::Inlet,
}

impl Inlet {
    /// Opens the way of the session's packets. If that is a tunnel, waits for a relay's answer:
    /// otherwise a join would wait, too, and the measured round-trip time would be too long.
    pub(super) async fn open(
        description: &SessionDescription,
        route: &Route,
        patience: Duration,
    ) -> Result<Inlet, TransportError> {
        let mut inlet = net::Inlet::open(description.source, description.port, route).await?;
        inlet.wait_until_ready(patience).await?;
        Ok(Inlet {
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
            received_at: packet.received_at,
            arrived_at: packet.arrived_at,
        })
    }

    /// Looks whether the way of packets still exists, since none come.
    pub(super) fn check_way(&mut self) {
        self.flows.check_way();
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

impl fmt::Display for Inlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.flows.fmt(f)
    }
}
