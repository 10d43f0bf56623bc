//! TCP segments in captures and traces.

use manyflow_tcp::Segment;
use serde::ser::SerializeMap;

use manyflow_netsim::capture::Flow;
use manyflow_netsim::trace::Line;

use crate::protocols::Wire;

impl Wire for Segment {
    fn is_tcp(&self) -> bool {
        true
    }

    fn encode(&self, flow: &Flow, _payload_bytes: u32, frame: &mut Vec<u8>) {
        let [source, destination] = [flow.source, flow.destination].map(|end| end.port());
        let header = Segment::encode(self, source, destination, flow.segment_bytes);
        frame.extend_from_slice(header.as_bytes());
    }

    fn trace(&self, payload_bytes: u32, line: &mut Line) -> serde_json::Result<()> {
        match payload_bytes {
            0 => line.serialize_entry("acknowledgement", &self.acknowledgement),
            _ => line.serialize_entry("sequence", &self.sequence),
        }
    }
}
