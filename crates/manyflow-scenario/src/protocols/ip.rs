//! IP packets of programs outside the process, which the emulator carries beside the packets of the
//! protocols in this list. No session of a scenario uses them directly.

use manyflow_core::{Channel, Contents, Ecn, EndpointId, Header, Packet};
use serde::ser::SerializeMap;

use manyflow_netsim::NodeId;
use manyflow_netsim::capture::Flow;
use manyflow_netsim::trace::Line;

use super::report::{Observed, Reported, Wire};
use manyflow_model::observables::Observable;

/// The header of a packet whose payload is a complete IP packet, with an IP header of its own.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct IpPacket {
    /// Whether the TTL expires at the packet's destination, which is a router on its way.
    pub is_expired: bool,
    /// The rank of the packet's multicast group among those of its source, for routers that mark
    /// by groups; `None` if it has none.
    pub rank: Option<u8>,
    /// The packet's ports and protocol, mixed, by which queues tell flows apart.
    pub flow: u32,
}

impl IpPacket {
    /// The header of data that is no multicast.
    pub const DATA: IpPacket = IpPacket {
        is_expired: false,
        rank: None,
        flow: 0,
    };
}

impl Header for IpPacket {
    fn wire_bytes(&self) -> u32 {
        0
    }

    fn layer(&self) -> Option<u8> {
        self.rank
    }

    fn flow(&self) -> u32 {
        self.flow
    }
}

/// An event of an endpoint that stands for programs of a host.
#[derive(Clone, Debug, PartialEq)]
pub enum HostEvent {
    /// A packet has arrived for the programs.
    Arrived(IpArrived),
    /// The observable has this value from now on, as the program or its kernel reports it.
    Measured(Observable, f64),
    /// The observable's count has grown by this number, as the program or its kernel reports it.
    Counted(Observable, f64),
    /// The program has joined a channel.
    Joined(Channel),
    /// The program has left a channel.
    Left(Channel),
    /// The program has ended, or its connection has: levels no longer hold.
    Ended,
}

/// A packet that has arrived at a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpArrived {
    /// The node at which the packet arrived.
    pub node: NodeId,
    /// The endpoint that sent the packet.
    pub source: EndpointId,
    /// The packet's ECN field, which replaces the one in the bytes.
    pub ecn: Ecn,
    /// The IP packet, with the TTL that it had at its source.
    pub contents: Contents,
}

impl IpArrived {
    /// Returns a packet's arrival at a node.
    pub fn new(node: NodeId, packet: &Packet<IpPacket>) -> IpArrived {
        IpArrived {
            node,
            source: packet.source,
            ecn: packet.ecn,
            contents: packet.payload(),
        }
    }
}

impl Wire for IpPacket {
    fn is_whole(&self) -> bool {
        true
    }

    fn encode(&self, _flow: &Flow, _payload_bytes: u32, _frame: &mut Vec<u8>) {}

    fn trace(&self, _payload_bytes: u32, _line: &mut Line) -> serde_json::Result<()> {
        Ok(())
    }
}

impl Reported for HostEvent {
    fn name(&self) -> &'static str {
        match self {
            HostEvent::Arrived(_) => "arrived",
            HostEvent::Measured(..) => "measured",
            HostEvent::Counted(..) => "counted",
            HostEvent::Joined(_) => "join",
            HostEvent::Left(_) => "leave",
            HostEvent::Ended => "end",
        }
    }

    fn trace(&self, line: &mut Line) -> serde_json::Result<()> {
        match self {
            HostEvent::Arrived(arrived) => {
                line.serialize_entry("bytes", &arrived.contents.length())
            }
            HostEvent::Measured(what, value) | HostEvent::Counted(what, value) => {
                line.serialize_entry("what", &what.name())?;
                line.serialize_entry("value", value)
            }
            HostEvent::Joined(channel) | HostEvent::Left(channel) => {
                line.serialize_entry("channel", &channel.number)
            }
            HostEvent::Ended => Ok(()),
        }
    }

    fn is_end(&self) -> bool {
        *self == HostEvent::Ended
    }

    fn observe(&self, what: Observable) -> Option<Observed> {
        match *self {
            HostEvent::Joined(_) if what == Observable::Joins => Some(Observed::Count(1.0)),
            HostEvent::Joined(_) if what == Observable::Channels => Some(Observed::Step(1.0)),
            HostEvent::Left(_) if what == Observable::Channels => Some(Observed::Step(-1.0)),
            HostEvent::Measured(measured, value) if measured == what => {
                Some(Observed::Value(value))
            }
            HostEvent::Counted(counted, by) if counted == what => Some(Observed::Count(by)),
            _ => None,
        }
    }
}
