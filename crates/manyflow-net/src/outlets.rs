//! The ways that a sender's datagrams can take: IP multicast, or AMT tunnels where there is no
//! multicast.

use std::net::IpAddr;

use manyflow_amt::Flow;

use super::amt::{RelaySender, RelayServer, RelayStats};
use super::multicast::MulticastSender;
use super::train::{Train, Unsent};

/// The outlets of a sender: multicast groups, the gateways of a relay, or both.
pub struct Outlets {
    channels: Vec<Outlet>,
    /// The channels whose trains have datagrams.
    waiting: Vec<u16>,
    multicast: Option<MulticastSender>,
    relay: Option<(RelayServer, RelaySender)>,
    /// Whether a gateway had joined each channel when the last datagrams were sent.
    joined: Vec<bool>,
    /// Datagrams that the multicast socket dropped.
    unsent: Unsent,
}

/// A channel with the datagrams that wait to be sent on it.
struct Outlet {
    group: IpAddr,
    train: Train,
}

impl Outlets {
    /// Makes the outlets of a session whose channels are `flows`.
    pub fn new(
        flows: &[Flow],
        multicast: Option<MulticastSender>,
        relay: Option<RelayServer>,
    ) -> Outlets {
        let relay = relay.map(|server| {
            let sender = server.sender();
            (server, sender)
        });
        let channels = flows.iter().map(|flow| Outlet {
            group: flow.group.ip(),
            train: Train::default(),
        });
        Outlets {
            channels: channels.collect(),
            waiting: Vec::new(),
            joined: vec![false; flows.len()],
            multicast,
            relay,
            unsent: Unsent::default(),
        }
    }

    /// Returns the relay, if there is one.
    pub fn server(&self) -> Option<&RelayServer> {
        self.relay.as_ref().map(|(server, _)| server)
    }

    /// Whether this channel had receivers when [`flush`](Self::flush) was called last, or may have
    /// some that are not known.
    pub fn wants(&self, channel: u16) -> bool {
        self.multicast.is_some() || self.joined[usize::from(channel)]
    }

    /// Adds a datagram to those that [`flush`](Self::flush) sends.
    pub fn push(&mut self, channel: u16, datagram: &[u8]) {
        let place = usize::from(channel);
        if self.channels[place].train.is_empty() {
            self.waiting.push(channel);
        }
        if !self.channels[place].train.push(datagram) {
            self.send();
            self.waiting.push(channel);
            self.channels[place].train.push(datagram);
        }
    }

    /// Sends the datagrams that wait to all outlets: to groups channel by channel, and to each
    /// gateway together. An outlet without room drops and counts them, as any full queue does.
    pub fn flush(&mut self) {
        self.send();
        if let Some((_, relay)) = &self.relay {
            relay.note_joined(&mut self.joined);
        }
    }

    fn send(&mut self) {
        let Outlets {
            channels, waiting, ..
        } = self;
        let trains = waiting.iter().map(|channel| {
            let Outlet { group, train } = &channels[usize::from(*channel)];
            (usize::from(*channel), *group, train)
        });
        if let Some(socket) = &self.multicast {
            for (_, group, train) in trains.clone() {
                let unsent = socket.send(group, train);
                if unsent.too_long > 0 && self.unsent.too_long == 0 {
                    tracing::warn!(
                        "packets are longer than the interface's MTU: reduce --packet (logged once; more are counted)"
                    );
                }
                self.unsent.too_long += unsent.too_long;
                self.unsent.refused += unsent.refused;
            }
        }
        if let Some((_, relay)) = &self.relay
            && relay
                .send_all(trains.clone().map(|(flow, _, train)| (flow, train)))
                .is_err()
        {
            let datagrams = trains.map(|(_, _, train)| train.datagrams().count());
            self.unsent.too_long += datagrams.sum::<usize>() as u64;
        }
        for channel in waiting.drain(..) {
            channels[usize::from(channel)].train.clear();
        }
    }

    /// Returns the number of datagrams that an outlet dropped, for lack of room, because of
    /// their length, or because of a maximum rate.
    pub fn unsent(&self) -> u64 {
        let relay = self.relay_stats();
        let refused = relay.counters.over_rate + relay.counters.over_relay_rate;
        let socket = self.unsent.refused + self.unsent.too_long;
        socket + relay.unsent + relay.too_long + refused
    }

    /// Returns the load and counts of the AMT relay; all 0 without a relay.
    pub fn relay_stats(&self) -> RelayStats {
        self.relay
            .as_ref()
            .map_or_else(RelayStats::default, |(server, _)| server.stats())
    }
}
