//! The endpoints through which IP packets enter and leave the network.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};

use manyflow_core::{Action, Destination, Endpoint, Packet, Time};
use manyflow_netsim::NodeId;
use manyflow_scenario::protocols::{HostEvent, IpArrived, IpPacket};

use super::addresses::NodeAddresses;
use super::icmp;

/// The programs of a host, which are outside the network: their packets and joins come through a
/// channel, and packets for them leave as events.
pub struct HostPort {
    node: NodeId,
    inlet: Receiver<Action<IpPacket>>,
    arrived: VecDeque<IpArrived>,
}

impl HostPort {
    pub(super) fn new(node: NodeId, inlet: Receiver<Action<IpPacket>>) -> HostPort {
        HostPort {
            node,
            inlet,
            arrived: VecDeque::new(),
        }
    }
}

/// Returns an endpoint for one end of a kernel's connection, to which a
/// [claim](super::Fabric::claim) hands its packets. It sends nothing: all packets of a host enter
/// through the host's own endpoint.
pub fn kernel_end(node: NodeId) -> HostPort {
    let (_, nothing) = channel();
    HostPort::new(node, nothing)
}

/// Returns an endpoint for a program that joins channels, and the way into it: a
/// [joiner](super::Fabric::add_joiner) sends its joins and leaves there.
pub fn program_end(node: NodeId) -> (HostPort, Sender<Action<IpPacket>>) {
    let (inlet, outside) = channel();
    (HostPort::new(node, outside), inlet)
}

impl Endpoint for HostPort {
    type Rx = IpPacket;
    type Tx = IpPacket;
    type Event = HostEvent;

    fn handle_packet(&mut self, _now: Time, packet: &Packet<IpPacket>) {
        self.arrived.push_back(IpArrived::new(self.node, packet));
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_action(&mut self, _now: Time) -> Option<Action<IpPacket>> {
        self.inlet.try_recv().ok()
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn poll_event(&mut self) -> Option<HostEvent> {
        self.arrived.pop_front().map(HostEvent::Arrived)
    }
}

/// A router as the destination of packets: it answers pings, and packets whose TTL or hop limit has
/// expired.
pub(super) struct RouterPort {
    addresses: NodeAddresses,
    answers: VecDeque<Packet<IpPacket>>,
}

impl RouterPort {
    pub(super) fn new(addresses: NodeAddresses) -> RouterPort {
        RouterPort {
            addresses,
            answers: VecDeque::new(),
        }
    }
}

impl Endpoint for RouterPort {
    type Rx = IpPacket;
    type Tx = IpPacket;
    type Event = HostEvent;

    fn handle_packet(&mut self, _now: Time, packet: &Packet<IpPacket>) {
        let bytes = packet.contents().unwrap_or_default();
        let answer = match packet.header.is_expired {
            true => icmp::time_exceeded(self.addresses, bytes),
            false => icmp::answer(self.addresses, bytes),
        };
        let header = IpPacket::DATA;
        let to = Destination::Endpoint(packet.source);
        let answer = answer.map(|bytes| Packet::new(to, header, &*bytes));
        self.answers.extend(answer);
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_action(&mut self, _now: Time) -> Option<Action<IpPacket>> {
        self.answers.pop_front().map(Action::Send)
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn poll_event(&mut self) -> Option<HostEvent> {
        None
    }
}
