//! Overlay frames in captures and traces. Streams appear as TCP, everything else as UDP.

use manyflow_overlay::{Body, Control, Frame, Item, Message};
use serde::ser::SerializeMap;

use manyflow_netsim::capture::Flow;
use manyflow_netsim::trace::Line;

use crate::protocols::Wire;

/// The bit to flip in the port of a stream's receiving end. It distinguishes the two streams
/// between two daemons. The port remains a dynamic one.
const STREAM_PORTS: u16 = 0x2000;

impl Wire for Frame {
    fn is_tcp(&self) -> bool {
        matches!(self, Frame::Segment { .. } | Frame::Ack(_))
    }

    fn adjust_ports(&self, flow: &mut Flow) {
        let receiving = match self {
            Frame::Segment { .. } => &mut flow.destination,
            Frame::Ack(_) => &mut flow.source,
            _ => return,
        };
        receiving.set_port(receiving.port() ^ STREAM_PORTS);
    }

    fn encode(&self, flow: &Flow, payload_bytes: u32, frame: &mut Vec<u8>) {
        let [source, destination] = [flow.source, flow.destination].map(|end| end.port());
        if let Some(header) = self.encode_tcp(source, destination) {
            frame.extend_from_slice(header.as_bytes());
        }
        let encoded = Frame::encode(self, payload_bytes);
        let encoded = encoded.expect("the session's check limits the size of messages");
        frame.extend_from_slice(encoded.as_bytes());
    }

    fn trace(&self, _payload_bytes: u32, line: &mut Line) -> serde_json::Result<()> {
        match self {
            Frame::Segment { sequence, message } => {
                line.serialize_entry("sequence", &sequence.0)?;
                trace_message(message, line)
            }
            Frame::Datagram { number, message } => {
                line.serialize_entry("sequence", &number.0)?;
                trace_message(message, line)
            }
            Frame::Direct(message) | Frame::Stream(message) => trace_message(message, line),
            Frame::Ack(ack) => line.serialize_entry("acknowledgement", &ack.acknowledgement.0),
            Frame::Feedback(feedback) => {
                line.serialize_entry("acknowledgement", &feedback.expected.0)
            }
            Frame::Delay(_) => line.serialize_entry("kind", "delay"),
            Frame::Client(_) => line.serialize_entry("kind", "client"),
        }
    }
}

/// Writes a message between daemons. A client's message is identified by its group and its number
/// there.
fn trace_message(message: &Message, line: &mut Line) -> serde_json::Result<()> {
    let kind = match message.body {
        Body::Data(data) | Body::Shared(data) | Body::Again(data) => {
            line.serialize_entry("group", &data.group.0)?;
            return line.serialize_entry("message", &data.sequence.number());
        }
        Body::Resent(_) => "resent",
        Body::Welcome(_) => "welcome",
        Body::Answer(_) => "answer",
        Body::Acknowledge(_) => "acknowledge",
        Body::Change(change) => match change.item {
            Item::Members { .. } => "membership",
            Item::Paused { .. } => "pause",
            Item::Link { .. } => "link",
            Item::Alive | Item::Count { .. } | Item::Proof => "alive",
        },
        Body::Part(_) => "part",
        Body::Summary(_) => "summary",
        Body::Seal(_) => "seal",
        Body::Request => "request",
        Body::Control(Control::Cost(_)) => "cost",
        Body::Control(Control::Report(_)) => "report",
        Body::Control(Control::RoundTrip(_)) => "round-trip",
    };
    line.serialize_entry("kind", kind)
}
