//! CBR datagrams in captures and traces.

use manyflow_tcp::cbr::Datagram;
use serde::ser::SerializeMap;

use manyflow_netsim::capture::Flow;
use manyflow_netsim::trace::Line;

use crate::protocols::Wire;

impl Wire for Datagram {
    fn encode(&self, _flow: &Flow, payload_bytes: u32, frame: &mut Vec<u8>) {
        // A payload below 4 bytes has no room for the sequence number.
        if payload_bytes >= 4 {
            frame.extend_from_slice(&self.sequence.to_be_bytes());
        }
    }

    fn trace(&self, _payload_bytes: u32, line: &mut Line) -> serde_json::Result<()> {
        line.serialize_entry("sequence", &self.sequence)
    }
}
