//! A relay and a gateway with a lossy pipe between them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use manyflow_core::time::Time;

use super::super::*;
use crate::{Relay, RelayConfig};

pub(super) const DELAY: Duration = Duration::from_millis(10);
pub(super) const DATA_INTERVAL: Duration = Duration::from_millis(100);

pub(super) fn relay_address() -> SocketAddr {
    "192.0.2.1:2268".parse().unwrap()
}

pub(super) fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

/// Three flows of one source, to three groups.
pub(super) fn flows(family: Family) -> Vec<Flow> {
    let (source, groups) = match family {
        Family::V4 => (
            "192.0.2.1:40000",
            ["232.1.1.1:5000", "232.1.1.2:5000", "232.1.1.3:5000"],
        ),
        Family::V6 => (
            "[2001:db8::1]:40000",
            ["[ff3e::1]:5000", "[ff3e::2]:5000", "[ff3e::3]:5000"],
        ),
    };
    let source = source.parse().unwrap();
    groups
        .iter()
        .map(|group| Flow {
            source,
            group: group.parse().unwrap(),
        })
        .collect()
}

/// Decides which messages are lost.
pub(super) type Loss = Box<dyn FnMut(Time, &Message) -> bool>;

/// Relay and gateway, 10 ms apart, with a source that sends a packet of each flow every 100 ms.
pub(super) struct World {
    pub(super) now: Time,
    pub(super) next_data: Time,
    pub(super) flows: Vec<Flow>,
    pub(super) relay: Relay,
    pub(super) gateway: Gateway,
    /// The gateway's address as the relay sees it.
    pub(super) gateway_address: SocketAddr,
    /// Messages on their way: the time of arrival, whether they go to the relay, and the contents.
    pub(super) in_flight: VecDeque<(Time, bool, Vec<u8>)>,
    pub(super) lose: Loss,
    pub(super) received: Vec<(Time, Flow)>,
    pub(super) events: Vec<(Time, GatewayEvent)>,
}

impl World {
    pub(super) fn with(relay: RelayConfig, gateway: GatewayConfig, seed: u8) -> Self {
        let flows = flows(gateway.family);
        let mut world = Self {
            now: Time::ZERO,
            next_data: Time::ZERO,
            relay: Relay::new(Time::ZERO, relay, flows.clone(), [seed; 32]),
            gateway: Gateway::new(Time::ZERO, gateway, [seed ^ 0xff; 32]),
            flows,
            gateway_address: "198.51.100.7:4001".parse().unwrap(),
            in_flight: VecDeque::new(),
            lose: Box::new(|_, _| false),
            received: Vec::new(),
            events: Vec::new(),
        };
        world.collect();
        world
    }

    pub(super) fn new(seed: u8) -> Self {
        Self::with(
            RelayConfig::default(),
            GatewayConfig::new(RelayAddress::Unicast(relay_address()), Family::V4),
            seed,
        )
    }

    pub(super) fn losing(mut self, lose: impl FnMut(Time, &Message) -> bool + 'static) -> Self {
        self.lose = Box::new(lose);
        // The first messages are already on their way: let them be lost, too.
        for (_, to_relay, bytes) in std::mem::take(&mut self.in_flight) {
            self.send(to_relay, bytes);
        }
        self
    }

    pub(super) fn send(&mut self, to_relay: bool, bytes: Vec<u8>) {
        if !(self.lose)(self.now, &Message::decode(&bytes).unwrap()) {
            self.in_flight
                .push_back((self.now + DELAY, to_relay, bytes));
        }
    }

    pub(super) fn collect(&mut self) {
        while let Some(Transmit {
            destination,
            contents,
        }) = self.gateway.poll_transmit()
        {
            assert_eq!(destination, relay_address());
            self.send(true, contents);
        }
        while let Some(Transmit {
            destination,
            contents,
        }) = self.relay.poll_transmit()
        {
            assert_eq!(destination, self.gateway_address);
            self.send(false, contents);
        }
        while let Some(event) = self.gateway.poll_event() {
            self.events.push((self.now, event));
        }
    }

    pub(super) fn join(&mut self, flow: usize) {
        self.gateway
            .join(self.now, self.flows[flow].into())
            .unwrap();
        self.collect();
    }

    pub(super) fn leave(&mut self, flow: usize) {
        self.gateway.leave(self.now, self.flows[flow].into());
        self.collect();
    }

    pub(super) fn run_until(&mut self, end: Time) {
        while self.now < end {
            let arrival = self.in_flight.front().map(|(at, ..)| *at);
            let due = [
                arrival,
                self.gateway.poll_timeout(),
                Some(self.relay.poll_timeout()),
                Some(self.next_data),
                Some(end),
            ];
            self.now = due.into_iter().flatten().min().unwrap().max(self.now);
            while self
                .in_flight
                .front()
                .is_some_and(|(at, ..)| *at <= self.now)
            {
                let (_, to_relay, bytes) = self.in_flight.pop_front().unwrap();
                self.arrive(to_relay, &bytes);
                self.collect();
            }
            self.gateway.handle_timeout(self.now);
            self.relay.handle_timeout(self.now);
            if self.now >= self.next_data {
                self.send_data();
            }
            self.collect();
        }
    }

    pub(super) fn arrive(&mut self, to_relay: bool, bytes: &[u8]) {
        if to_relay {
            self.relay
                .handle_datagram(self.now, self.gateway_address, relay_address().ip(), bytes);
        } else if let Some((flow, payload)) =
            self.gateway
                .handle_datagram(self.now, relay_address(), bytes)
        {
            assert_eq!(payload, b"data");
            self.received.push((self.now, flow));
        }
    }

    pub(super) fn send_data(&mut self) {
        self.next_data += DATA_INTERVAL;
        let mut sent = Vec::new();
        for flow in 0..self.flows.len() {
            self.relay
                .forward(self.now, flow, [&b"data"[..]], |to, _, message, _| {
                    sent.push((to, message.to_vec()))
                })
                .unwrap();
        }
        for (to, message) in sent {
            // A NAT that has changed its mapping drops messages to the old address.
            if to == self.gateway_address {
                self.send(false, message);
            }
        }
    }

    /// Returns the flows received between two times.
    pub(super) fn received(&self, from: Time, to: Time) -> Vec<Flow> {
        let mut flows: Vec<_> = self
            .received
            .iter()
            .filter(|(at, _)| (from..to).contains(at))
            .map(|(_, flow)| *flow)
            .collect();
        flows.sort();
        flows.dedup();
        flows
    }

    pub(super) fn events(&self) -> Vec<GatewayEvent> {
        self.events.iter().map(|(_, event)| *event).collect()
    }
}

/// Loses the first `count` messages of a kind.
pub(super) fn first(
    count: usize,
    kind: fn(&Message) -> bool,
) -> impl FnMut(Time, &Message) -> bool {
    let mut lost = 0;
    move |_, message| {
        let lose = kind(message) && lost < count;
        lost += usize::from(lose);
        lose
    }
}
