//! IP packets of programs outside the process, which the emulator carries beside the packets of the
//! protocols in this list. No session of a scenario uses them directly.

use manyflow_core::{Contents, Ecn, EndpointId, Header, Packet};
use serde::ser::SerializeMap;

use manyflow_netsim::NodeId;
use manyflow_netsim::capture::Flow;
use manyflow_netsim::trace::Line;

use super::report::{Observed, Reported, Wire};
use crate::schema::observables::Observable;

/// The header of a packet whose payload is a complete IP packet, with an IP header of its own.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct IpPacket {
    /// Whether the TTL expires at the packet's destination, which is a router on its way.
    pub is_expired: bool,
}

impl Header for IpPacket {
    fn wire_bytes(&self) -> u32 {
        0
    }
}

/// An event of an endpoint that stands for a host's programs.
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
    /// Returns the event of a packet that arrives at a node.
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

impl Reported for IpArrived {
    fn name(&self) -> &'static str {
        "arrived"
    }

    fn trace(&self, line: &mut Line) -> serde_json::Result<()> {
        line.serialize_entry("bytes", &self.contents.length())
    }

    fn observe(&self, _what: Observable) -> Option<Observed> {
        None
    }
}
