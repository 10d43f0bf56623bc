//! The fields of the overlay's frames.

use manyflow_messages::{Hello, Resume};
use manyflow_overlay::{
    Body, ClientFrame, Control, CopyFlags, Data, Delay, Feedback, Frame, Item, Message,
};

use crate::wireshark::expected::Fields;

/// A frame in a datagram.
pub(crate) fn datagram(bytes: &[u8]) -> Option<Fields> {
    let mut fields = Fields::default();
    put_decoded(&mut fields, bytes)?;
    Some(fields)
}

fn put_decoded(fields: &mut Fields, bytes: &[u8]) -> Option<Frame> {
    let (frame, header) = Frame::decode(bytes).ok()?;
    put_frame(fields, &frame, &bytes[header..]);
    Some(frame)
}

fn put_frame(fields: &mut Fields, frame: &Frame, payload: &[u8]) {
    match frame {
        Frame::Datagram { number, message } => {
            fields.put("manyflow_overlay.kind", 8);
            fields.put("manyflow_overlay.number", number.0);
            put_message(fields, message, payload);
        }
        Frame::Feedback(feedback) => put_feedback(fields, feedback),
        Frame::Delay(delay) => put_delay(fields, delay),
        Frame::Direct(message) | Frame::Stream(message) => put_message(fields, message, payload),
        Frame::Client(client) => put_client(fields, client, payload),
        Frame::Segment { .. } | Frame::Ack(_) => unreachable!("these are in TCP"),
    }
}

fn put_feedback(fields: &mut Fields, feedback: &Feedback) {
    fields.put("manyflow_overlay.kind", 9);
    fields.put("manyflow_overlay.count", feedback.ranges().count());
    fields.put("manyflow_overlay.expected", feedback.expected.0);
    for (begin, end) in feedback.ranges() {
        fields.put("manyflow_overlay.missing.begin", begin.0);
        fields.put("manyflow_overlay.missing.end", end.0);
    }
}

fn put_delay(fields: &mut Fields, delay: &Delay) {
    let (kind, name, time_us) = match *delay {
        Delay::Asked { sent_us } => (26, "manyflow_overlay.asked_us", sent_us),
        Delay::Answered { waited_us } => (27, "manyflow_overlay.waited_us", waited_us),
    };
    fields.put("manyflow_overlay.kind", kind);
    fields.put(name, time_us);
}

fn put_client(fields: &mut Fields, frame: &ClientFrame, payload: &[u8]) {
    let kind = match *frame {
        ClientFrame::Connect { .. } => 16,
        ClientFrame::Join(_) => 17,
        ClientFrame::Leave(_) => 18,
        ClientFrame::Send { .. } => 19,
        ClientFrame::Took { .. } => 20,
        ClientFrame::Disconnect => 21,
        ClientFrame::Ready => 22,
        ClientFrame::Deliver { .. } => 23,
        ClientFrame::View { .. } => 24,
        ClientFrame::Evicted(_) => 25,
    };
    fields.put("manyflow_overlay.kind", kind);
    match frame {
        ClientFrame::Connect { priority } => fields.put("manyflow_overlay.priority", priority),
        ClientFrame::Join(group) | ClientFrame::Leave(group) | ClientFrame::Evicted(group) => {
            fields.put("manyflow_overlay.group", group.0);
            fields.put_text("manyflow_overlay.name", payload);
        }
        ClientFrame::Send {
            groups, sent_us, ..
        } => {
            let further = groups.as_slice().len() as u32 - 1;
            fields.put("manyflow_overlay.count", further);
            for group in groups.as_slice() {
                fields.put("manyflow_overlay.group", group.0);
            }
            fields.put("manyflow_overlay.sent_us", sent_us);
            fields.put_bytes("manyflow_overlay.payload", payload);
        }
        ClientFrame::Took { messages } => fields.put("manyflow_overlay.messages", messages),
        ClientFrame::Deliver { origin, data, .. } => {
            fields.put("manyflow_overlay.origin", origin.0);
            put_data(fields, data, payload);
        }
        ClientFrame::View { group, members } => {
            fields.put("manyflow_overlay.group", group.0);
            fields.put("manyflow_overlay.members", members);
        }
        ClientFrame::Disconnect | ClientFrame::Ready => {}
    }
}

fn put_data(fields: &mut Fields, data: &Data, payload: &[u8]) {
    put_header(fields, data);
    fields.put_bytes("manyflow_overlay.payload", payload);
}

fn put_header(fields: &mut Fields, data: &Data) {
    fields.put_all([
        ("manyflow_overlay.group", data.group.0.into()),
        ("manyflow_overlay.tree", data.version.into()),
        ("manyflow_overlay.sequence", data.sequence.number()),
        ("manyflow_overlay.sender", data.sender.0.into()),
        ("manyflow_overlay.sent_us", data.sent_us.into()),
    ]);
}

fn put_message(fields: &mut Fields, message: &Message, payload: &[u8]) {
    let body = message.body;
    let kind = match body {
        Body::Data(_) => 1,
        Body::Change(_) => 2,
        Body::Welcome(_) => 3,
        Body::Part(_) => 4,
        Body::Control(Control::Cost(_)) => 5,
        Body::Control(Control::Report(_)) => 6,
        Body::Control(Control::RoundTrip(_)) => 7,
        Body::Summary(_) => 10,
        Body::Request => 11,
        Body::Resent(_) => 12,
        Body::Answer(_) => 13,
        Body::Acknowledge(_) => 14,
        Body::Seal(_) => 15,
        Body::Shared(_) => 28,
        Body::Again(_) => 29,
    };
    fields.put("manyflow_overlay.kind", kind);
    let has = |flag| u8::from({ message.copy }.has(flag));
    fields.put("manyflow_overlay.repaired", has(CopyFlags::REPAIRED));
    fields.put("manyflow_overlay.marked", has(CopyFlags::MARKED));
    let origin = message.origin;
    fields.put("manyflow_overlay.origin", origin.0);
    match body {
        Body::Data(data) | Body::Shared(data) => put_data(fields, &data, payload),
        Body::Again(data) => put_header(fields, &data),
        Body::Resent(resent) => {
            put_data(fields, &resent.data, payload);
            fields.put("manyflow_overlay.to", resent.to.0);
        }
        Body::Change(change) => {
            fields.put("manyflow_overlay.incarnation", change.incarnation);
            fields.put("manyflow_overlay.change", change.change.0);
            put_item(fields, &change.item, payload);
        }
        Body::Part(part) => {
            fields.put("manyflow_overlay.change", part.change.0);
            fields.put("manyflow_overlay.index", part.index);
            put_item(fields, &part.item, payload);
        }
        Body::Seal(summary) => {
            put_state(fields, &Body::Summary(summary));
            fields.put_bytes("manyflow_overlay.payload", payload);
        }
        other => put_state(fields, &other),
    }
}

/// The messages without a payload.
fn put_state(fields: &mut Fields, body: &Body) {
    match body {
        Body::Welcome(welcome) => fields.put_all([
            ("manyflow_overlay.group", welcome.group.0.into()),
            ("manyflow_overlay.tree", welcome.version.into()),
            ("manyflow_overlay.start", welcome.start.number()),
            ("manyflow_overlay.to", welcome.to.0.into()),
            ("manyflow_overlay.next", welcome.next.number()),
            ("manyflow_overlay.change", welcome.change.0.into()),
        ]),
        Body::Answer(answer) => fields.put_all([
            ("manyflow_overlay.group", answer.group.0.into()),
            ("manyflow_overlay.tree", answer.version.into()),
            (
                "manyflow_overlay.expected_message",
                answer.expected.number(),
            ),
            ("manyflow_overlay.to", answer.to.0.into()),
            ("manyflow_overlay.next", answer.next.number()),
            ("manyflow_overlay.change", answer.change.0.into()),
        ]),
        Body::Acknowledge(acknowledge) => {
            let count = acknowledge.flows().count();
            fields.put("manyflow_overlay.count", count);
            fields.put("manyflow_overlay.to", acknowledge.to.0);
            fields.put("manyflow_overlay.tree", acknowledge.version);
            for (group, expected) in acknowledge.flows() {
                fields.put("manyflow_overlay.acknowledged_group", group.0);
                fields.put("manyflow_overlay.flow_expected", expected);
            }
        }
        Body::Summary(summary) => {
            fields.put("manyflow_overlay.incarnation", summary.incarnation);
            fields.put("manyflow_overlay.change", summary.change.0);
        }
        Body::Control(control) => put_control(fields, control),
        _ => {}
    }
}

fn put_control(fields: &mut Fields, control: &Control) {
    match control {
        Control::Cost(update) => {
            let links = || update.links.iter().flatten();
            fields.put("manyflow_overlay.count", links().count());
            fields.put("manyflow_overlay.tree", update.version);
            for link in links() {
                fields.put("manyflow_overlay.to", link.to.0);
                fields.put("manyflow_overlay.queue", link.queue);
            }
        }
        Control::Report(report) => fields.put_all([
            ("manyflow_overlay.group", report.group.0.into()),
            ("manyflow_overlay.rate", report.rate_bytes_per_s.into()),
            ("manyflow_overlay.repaired_share", report.repaired.into()),
            ("manyflow_overlay.held_us", report.held_us.into()),
            (
                "manyflow_overlay.acknowledged",
                report.acknowledged.number(),
            ),
            (
                "manyflow_overlay.received_bytes",
                report.received_bytes.into(),
            ),
        ]),
        Control::RoundTrip(round_trip) => {
            fields.put("manyflow_overlay.rtt_us", round_trip.rtt_us);
        }
    }
}

fn put_item(fields: &mut Fields, item: &Item, name: &[u8]) {
    match *item {
        Item::Members {
            group,
            members,
            since,
        } => fields.put_all([
            ("manyflow_overlay.item", 1),
            ("manyflow_overlay.group", group.0.into()),
            ("manyflow_overlay.members", members.into()),
            ("manyflow_overlay.since", since.0.into()),
        ]),
        Item::Paused { group, paused } => fields.put_all([
            ("manyflow_overlay.item", 2),
            ("manyflow_overlay.paused", paused.into()),
            ("manyflow_overlay.group", group.0.into()),
        ]),
        Item::Link { to, weight, since } => fields.put_all([
            ("manyflow_overlay.item", 3),
            ("manyflow_overlay.to", to.0.into()),
            ("manyflow_overlay.weight", weight.into()),
            ("manyflow_overlay.since", since.0.into()),
        ]),
        Item::Alive => fields.put("manyflow_overlay.item", 4),
        Item::Count { count, incarnation } => fields.put_all([
            ("manyflow_overlay.item", 5),
            ("manyflow_overlay.parts", count.into()),
            ("manyflow_overlay.incarnation", incarnation.into()),
        ]),
        Item::Proof => {
            fields.put("manyflow_overlay.item", 6);
            fields.put_bytes("manyflow_overlay.payload", name);
            return;
        }
    }
    fields.put_text("manyflow_overlay.name", name);
}

/// Adds the whole frames of a stream. Returns whether the bytes are the beginning of a stream.
fn put_stream(fields: &mut Fields, mut bytes: &[u8]) -> Option<()> {
    while let Some((frame, payload)) = Frame::decode_framed(bytes).ok()? {
        fields.put("manyflow_overlay.length", payload.end - 2);
        put_frame(fields, &frame, &bytes[payload.clone()]);
        bytes = &bytes[payload.end..];
    }
    Some(())
}

/// The whole frames of a stream without a handshake.
pub(crate) fn stream(bytes: &[u8]) -> Option<Fields> {
    let mut fields = Fields::default();
    put_stream(&mut fields, bytes)?;
    Some(fields)
}

/// One direction of a connection between daemons of links of streams: handshake and frames.
pub(crate) async fn connection(bytes: &[u8]) -> Option<Fields> {
    let mut fields = Fields::default();
    let mut reader = bytes;
    let hello = match Hello::read(&mut reader).await {
        Ok(hello) => hello,
        // A part of a hello is not yet shown.
        Err(manyflow_messages::HelloError::Io(_)) => return Some(fields),
        Err(_) => return None,
    };
    fields.put_all([
        ("manyflow_overlay.hello.id", hello.id.0.into()),
        (
            "manyflow_overlay.hello.incarnation",
            hello.incarnation.into(),
        ),
        ("manyflow_overlay.hello.dials", hello.dials.into()),
        ("manyflow_overlay.hello.datagrams", hello.datagrams.into()),
    ]);
    fields.put_text("manyflow_overlay.hello.overlay", hello.overlay.as_bytes());
    fields.put_text("manyflow_overlay.hello.name", hello.name.as_bytes());
    let rest = &bytes[hello.encode().len()..];
    let Some((resume, mut rest)) = rest.split_first_chunk::<8>() else {
        return Some(fields);
    };
    let resume = Resume::decode(*resume);
    fields.put("manyflow_overlay.resume.incarnation", resume.incarnation);
    fields.put("manyflow_overlay.resume.received", resume.received.0);
    if hello.datagrams {
        let Some(([p0, p1, number @ ..], frames)) = rest.split_first_chunk::<10>() else {
            return Some(fields);
        };
        let port = u16::from_be_bytes([*p0, *p1]);
        fields.put("manyflow_overlay.endpoint.port", port);
        let number = u64::from_be_bytes(*number);
        fields.put("manyflow_overlay.endpoint.number", number);
        rest = frames;
    }
    put_stream(&mut fields, rest)?;
    Some(fields)
}

/// A packet of a live link of datagrams that are not sealed.
pub(crate) fn packet(bytes: &[u8]) -> Option<Fields> {
    let mut fields = Fields::default();
    let (link, rest) = bytes.split_first_chunk()?;
    let (number, body) = rest.split_first_chunk()?;
    let (kind, frame) = body.split_first()?;
    fields.put_all([
        ("manyflow_overlay_packet.link", u64::from_be_bytes(*link)),
        (
            "manyflow_overlay_packet.number",
            u64::from_be_bytes(*number),
        ),
        ("manyflow_overlay_packet.kind", (*kind).into()),
    ]);
    match kind {
        0 if frame.is_empty() => {}
        1 => match put_decoded(&mut fields, frame)? {
            Frame::Datagram { .. } | Frame::Feedback(_) => {}
            _ => return None,
        },
        2 => {
            let ([f0, f1, t0, t1, hops], frame) = frame.split_first_chunk::<5>()?;
            fields.put_all([
                (
                    "manyflow_overlay_packet.from",
                    u16::from_be_bytes([*f0, *f1]).into(),
                ),
                (
                    "manyflow_overlay_packet.to",
                    u16::from_be_bytes([*t0, *t1]).into(),
                ),
                ("manyflow_overlay_packet.hops", (*hops).into()),
            ]);
            match Frame::decode(frame).ok()? {
                (Frame::Direct(_), header) if header == frame.len() => {
                    put_decoded(&mut fields, frame)?;
                }
                _ => return None,
            }
        }
        _ => return None,
    }
    Some(fields)
}
