//! Packets of SIM, RLM, RLC and FLID-DL in captures and traces.

use manyflow_layered::Message;
use serde::ser::SerializeMap;

use manyflow_netsim::capture::Flow;
use manyflow_netsim::trace::Line;

use crate::protocols::Wire;

/// The offset of the ports of layered sessions. It keeps protocol analysers from taking the packets
/// for ALC, which has the ports without it.
const LAYERED_PORTS: u16 = 43_000;

impl Wire for Message {
    fn adjust_ports(&self, flow: &mut Flow) {
        if flow.destination.ip().is_multicast() {
            for socket in [&mut flow.source, &mut flow.destination] {
                socket.set_port(socket.port().wrapping_add(LAYERED_PORTS));
            }
        }
    }

    fn encode(&self, _flow: &Flow, _payload_bytes: u32, frame: &mut Vec<u8>) {
        frame.extend_from_slice(Message::encode(self).as_bytes());
    }

    fn trace(&self, _payload_bytes: u32, line: &mut Line) -> serde_json::Result<()> {
        match self {
            Message::Data(data) => {
                line.serialize_entry("group", &data.group)?;
                line.serialize_entry("sequence", &data.sequence)
            }
            Message::Feedback(feedback) => {
                line.serialize_entry("group", &feedback.group)?;
                line.serialize_entry("request", &feedback.request)
            }
            Message::Experiment(experiment) => line.serialize_entry("group", &experiment.group),
        }
    }
}
