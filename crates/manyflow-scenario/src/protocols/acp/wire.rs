//! ACP's segments in captures and traces.

use manyflow_anypoint::{Body, Segment};
use serde::ser::SerializeMap;

use manyflow_netsim::capture::Flow;
use manyflow_netsim::trace::Line;

use crate::protocols::Wire;

impl Wire for Segment {
    fn encode(&self, _flow: &Flow, _payload_bytes: u32, frame: &mut Vec<u8>) {
        frame.extend_from_slice(Segment::encode(self).as_bytes());
    }

    fn trace(&self, _payload_bytes: u32, line: &mut Line) -> serde_json::Result<()> {
        let kind = match &self.body {
            Body::Data(data) => return line.serialize_entry("sequence", &data.sequence),
            Body::Close { sequence } => return line.serialize_entry("close", sequence),
            Body::Ack(ack) => {
                line.serialize_entry("acknowledgement", &ack.cumulative)?;
                return line.serialize_entry("answers", &ack.of);
            }
            Body::Open { .. } => "open",
            Body::Accept { .. } => "accept",
            Body::Probe => "probe",
            Body::Alive => "alive",
            Body::Reset(_) => "reset",
        };
        line.serialize_entry("kind", kind)
    }
}
