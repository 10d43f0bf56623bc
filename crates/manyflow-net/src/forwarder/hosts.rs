//! Hosts on a local network, to which flows are sent by IP multicast.

use std::io;
use std::time::Duration;

use manyflow_amt::ip::{data_ecn, decode_udp};
use manyflow_amt::wire::Message;
use manyflow_amt::{Flow, Hosts, RelayEvent};
use manyflow_core::Ecn;
use tokio::time::sleep;

use crate::clock::Clock;
use crate::multicast::{Interface, MulticastError, MulticastRouter};
use crate::train::{Train, Unsent};

/// Pause after an error of the socket, so that a lasting failure does not keep a core busy.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// The parameters of multicast to a local network.
#[derive(Clone, Debug)]
pub struct HostsConfig {
    /// The interface to the network. Flows must not come from the same interface.
    pub interface: Interface,
    /// Maximum number of hops (IPv4's TTL). Packets with 1 do not leave the network.
    pub hop_limit: u8,
}

/// The hosts of one network, with the sockets to them.
pub(super) struct LocalHosts {
    clock: Clock,
    hosts: Hosts,
    router: MulticastRouter,
    payloads: Train,
    /// The ECN field of the packets in `payloads`.
    ecn: Ecn,
    /// Packets that the kernel did not take.
    unsent: Unsent,
    /// Packets sent.
    sent: u64,
}

/// The present load of multicast to a local network, and the counts of its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostsStats {
    /// Number of hosts that have joined a flow.
    pub hosts: usize,
    /// Number of joins of all hosts.
    pub joins: usize,
    /// Packets sent to the network.
    pub packets: u64,
    /// Packets that the kernel refused: its queue was full, or they were longer than the MTU.
    pub unsent: u64,
}

impl LocalHosts {
    pub(super) fn open(config: &HostsConfig, flows: &[Flow]) -> Result<LocalHosts, MulticastError> {
        let clock = Clock::start();
        let router = MulticastRouter::open(&config.interface, config.hop_limit, flows)?;
        Ok(LocalHosts {
            hosts: Hosts::new(clock.now(), router.address(), flows.to_vec()),
            clock,
            router,
            payloads: Train::default(),
            ecn: Ecn::NotCapable,
            unsent: Unsent::default(),
            sent: 0,
        })
    }

    /// Waits for the next flow that gets its first host or loses its last one. Cancel safe.
    pub(super) async fn next_event(&mut self) -> RelayEvent {
        loop {
            while let Some(query) = self.hosts.poll_transmit() {
                self.router.send_igmp(&query);
            }
            if let Some(event) = self.hosts.poll_event() {
                return event;
            }
            if let Err(error) = self.turn().await {
                tracing::warn!("the socket for IGMP failed, and is tried again: {error}");
                sleep(ERROR_PAUSE).await;
            }
        }
    }

    /// Handles an IGMP message or a timer, whichever comes first.
    async fn turn(&mut self) -> io::Result<()> {
        tokio::select! {
            received = self.router.recv() => self.hosts.handle_igmp(self.clock.now(), received?),
            () = self.clock.sleep_until(Some(self.hosts.poll_timeout())) => {}
        }
        self.hosts.handle_timeout(self.clock.now());
        Ok(())
    }

    /// Sends the packets in a train of Multicast Data messages, if any host has joined their flow.
    pub(super) fn send(&mut self, number: usize, flow: Flow, messages: &Train) {
        if !self.hosts.is_joined(number) {
            return;
        }
        for message in messages.datagrams() {
            let Some(payload) = payload(message) else {
                self.unsent.refused += 1;
                continue;
            };
            let ecn = data_ecn(message);
            if ecn != self.ecn || !self.payloads.push(payload) {
                self.flush(flow);
                self.payloads.push(payload);
                self.ecn = ecn;
            }
        }
        self.flush(flow);
    }

    fn flush(&mut self, flow: Flow) {
        let unsent = self.router.send(flow, self.ecn, &self.payloads);
        if unsent.too_long > 0 && self.unsent.too_long == 0 {
            tracing::warn!(
                "packets are longer than the MTU of the interface to the hosts: reduce --packet of the sender (logged once; more are counted)"
            );
        }
        self.sent += self.payloads.datagrams().count() as u64 - unsent.too_long - unsent.refused;
        self.unsent.too_long += unsent.too_long;
        self.unsent.refused += unsent.refused;
        self.payloads.clear();
    }

    pub(super) fn stats(&self) -> HostsStats {
        HostsStats {
            hosts: self.hosts.hosts(),
            joins: self.hosts.joins(),
            packets: self.sent,
            unsent: self.unsent.too_long + self.unsent.refused,
        }
    }
}

/// Returns the UDP payload in a Multicast Data message.
fn payload(message: &[u8]) -> Option<&[u8]> {
    match Message::decode(message) {
        Ok(Message::MulticastData { datagram }) => Some(decode_udp(datagram).ok()?.1),
        _ => None,
    }
}
