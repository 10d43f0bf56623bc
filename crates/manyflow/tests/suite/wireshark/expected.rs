//! The fields that a dissector has to show, from the structures that our decoders return.

use std::collections::{BTreeMap, BTreeSet};

use manyflow_anypoint::{Ack, Body, Data, Segment};
use manyflow_ensembles::anypoint::envelope::{self, Datagram};
use manyflow_ensembles::anypoint::fragment;
use manyflow_layered::Message as Layered;
use manyflow_layered::hop::{Direction, HopMessage, Stamp};
use manyflow_layered::unit::Piece;
use manyflow_object::alc;
use manyflow_tfmcc::Message as Tfmcc;
use manyflow_webrc::Cci;

/// All compared fields. Not compared are reserved bytes, which decoders do not return, and flags
/// as a whole, which have a field each.
#[rustfmt::skip]
pub(crate) const COLUMNS: [&str; 145] = [
    "manyflow_webrc.ctsi", "manyflow_webrc.channel", "manyflow_webrc.psn",
    "manyflow_tfmcc.kind", "manyflow_tfmcc.round", "manyflow_tfmcc.has_echo", "manyflow_tfmcc.is_clr",
    "manyflow_tfmcc.have_rtt", "manyflow_tfmcc.have_loss", "manyflow_tfmcc.leaving",
    "manyflow_tfmcc.suppression", "manyflow_tfmcc.rate", "manyflow_tfmcc.bits_per_s",
    "manyflow_tfmcc.sequence", "manyflow_tfmcc.sent", "manyflow_tfmcc.rtt_max", "manyflow_tfmcc.rtt_max_ms",
    "manyflow_tfmcc.receiver", "manyflow_tfmcc.echo", "manyflow_tfmcc.report_sent",
    "manyflow_tfmcc.report_echo", "manyflow_tfmcc.payload",
    "manyflow_layered.kind", "manyflow_layered.more", "manyflow_layered.group", "manyflow_layered.request",
    "manyflow_layered.pair", "manyflow_layered.next_rate",
    "manyflow_layered.sequence", "manyflow_layered.rate", "manyflow_layered.rtt_us", "manyflow_layered.source",
    "manyflow_layered.session", "manyflow_layered.reports", "manyflow_layered.congested",
    "manyflow_layered.minimum", "manyflow_layered.maximum", "manyflow_layered.population",
    "manyflow_layered.hold_us", "manyflow_layered.payload",
    "manyflow_piece.unit", "manyflow_piece.time_us", "manyflow_piece.offset", "manyflow_piece.length",
    "manyflow_piece.bytes",
    "manyflow_hop.kind", "manyflow_hop.sealed", "manyflow_hop.count", "manyflow_hop.nonce",
    "manyflow_hop.number", "manyflow_hop.counter", "manyflow_hop.child", "manyflow_hop.packets",
    "manyflow_hop.bytes", "manyflow_hop.mac",
    "manyflow_acp.challenge", "manyflow_acp.version", "manyflow_acp.type", "manyflow_acp.reason",
    "manyflow_acp.answered", "manyflow_acp.averaged", "manyflow_acp.connection", "manyflow_acp.credit",
    "manyflow_acp.sequence", "manyflow_acp.of", "manyflow_acp.cumulative", "manyflow_acp.feedback",
    "manyflow_acp.feedback_bytes", "manyflow_acp.cwnd", "manyflow_acp.rtt_us", "manyflow_acp.key",
    "manyflow_acp.gap.offset", "manyflow_acp.gap.frames", "manyflow_acp.cookie", "manyflow_acp.frame",
    "manyflow_acp.fragment.last", "manyflow_acp.fragment.sealed", "manyflow_acp.fragment.index",
    "manyflow_acp.fragment.message", "manyflow_acp.path.id", "manyflow_acp.path.bytes",
    "manyflow_acp.part.index", "manyflow_acp.part.count", "manyflow_acp.part.datagram",
    "manyflow_acp.part.total", "manyflow_acp.prefix",
    "manyflow_overlay.length", "manyflow_overlay.kind", "manyflow_overlay.repaired", "manyflow_overlay.marked",
    "manyflow_overlay.count",
    "manyflow_overlay.origin", "manyflow_overlay.priority", "manyflow_overlay.group", "manyflow_overlay.tree",
    "manyflow_overlay.sequence", "manyflow_overlay.sender", "manyflow_overlay.sent_us", "manyflow_overlay.to",
    "manyflow_overlay.start", "manyflow_overlay.expected_message", "manyflow_overlay.next",
    "manyflow_overlay.change", "manyflow_overlay.incarnation", "manyflow_overlay.index",
    "manyflow_overlay.acknowledged_group", "manyflow_overlay.flow_expected", "manyflow_overlay.queue",
    "manyflow_overlay.rate", "manyflow_overlay.repaired_share",
    "manyflow_overlay.held_us", "manyflow_overlay.acknowledged", "manyflow_overlay.received_bytes",
    "manyflow_overlay.rtt_us",
    "manyflow_overlay.item", "manyflow_overlay.members", "manyflow_overlay.since", "manyflow_overlay.paused",
    "manyflow_overlay.weight", "manyflow_overlay.parts", "manyflow_overlay.number", "manyflow_overlay.expected",
    "manyflow_overlay.asked_us", "manyflow_overlay.waited_us",
    "manyflow_overlay.missing.begin", "manyflow_overlay.missing.end", "manyflow_overlay.messages",
    "manyflow_overlay.payload",
    "manyflow_overlay_packet.link", "manyflow_overlay_packet.number", "manyflow_overlay_packet.kind",
    "manyflow_overlay_packet.from", "manyflow_overlay_packet.to", "manyflow_overlay_packet.hops",
    "manyflow_overlay.name", "manyflow_overlay.hello.id", "manyflow_overlay.hello.incarnation",
    "manyflow_overlay.hello.dials", "manyflow_overlay.hello.datagrams", "manyflow_overlay.hello.overlay",
    "manyflow_overlay.hello.name", "manyflow_overlay.resume.incarnation", "manyflow_overlay.resume.received",
    "manyflow_overlay.endpoint.port", "manyflow_overlay.endpoint.number",
];

/// Fields that are computed, of which tshark prints some digits.
const COMPUTED: [&str; 3] = [
    "manyflow_tfmcc.bits_per_s",
    "manyflow_tfmcc.rtt_max_ms",
    "manyflow_acp.feedback_bytes",
];

/// Fields and their values, several of one field separated by commas.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Fields {
    values: BTreeMap<&'static str, String>,
    /// The fields with text that tshark may print in another form.
    odd: BTreeSet<&'static str>,
}

impl Fields {
    /// Adds a value of a field.
    pub(crate) fn put(&mut self, name: &'static str, value: impl ToString) {
        assert!(COLUMNS.contains(&name), "{name} is not compared");
        let values = self.values.entry(name).or_default();
        if !values.is_empty() {
            values.push(',');
        }
        values.push_str(&value.to_string());
    }

    /// Adds the numbers of fields with a common prefix, whose names are in [`COLUMNS`].
    pub(crate) fn put_all<const N: usize>(&mut self, fields: [(&'static str, u64); N]) {
        for (name, value) in fields {
            self.put(name, value);
        }
    }

    /// Adds bytes, unless there are none.
    pub(crate) fn put_bytes(&mut self, name: &'static str, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.put(name, hex(bytes));
        }
    }

    /// Adds a text, unless it is empty. Only plain texts are compared.
    pub(crate) fn put_text(&mut self, name: &'static str, bytes: &[u8]) {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'.';
        if !bytes.iter().all(is_plain) {
            self.odd.insert(name);
        } else if !bytes.is_empty() {
            self.put(name, String::from_utf8_lossy(bytes));
        }
    }

    /// Adds the columns of a further row.
    pub(crate) fn extend(&mut self, columns: &BTreeMap<&'static str, String>) {
        for (name, value) in columns {
            self.put(name, value);
        }
    }

    /// Returns all fields.
    pub(crate) fn values(&self) -> &BTreeMap<&'static str, String> {
        &self.values
    }

    /// Returns the values of a field.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    #[track_caller]
    pub(crate) fn check(&self, shown: &BTreeMap<&'static str, String>) {
        for name in COLUMNS.into_iter().filter(|name| !self.odd.contains(name)) {
            let [shown, expected] = [shown, &self.values].map(|fields| fields.get(name));
            let is_same = match (shown, expected) {
                (Some(shown), Some(expected)) if COMPUTED.contains(&name) => close(shown, expected),
                _ => shown == expected,
            };
            assert!(
                is_same,
                "{name}: tshark shows {shown:?}, we decode {expected:?}; {self:?}"
            );
        }
    }
}

fn close(shown: &str, expected: &str) -> bool {
    let [shown, expected] = [shown, expected].map(|text| text.parse::<f64>().unwrap());
    (shown - expected).abs() <= 1e-5 * expected.abs()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns whether a payload is a simulator's: zeros, as far as the header of a piece would go.
fn is_filler(payload: &[u8], bytes: usize) -> bool {
    payload.iter().take(bytes).all(|byte| *byte == 0)
}

pub(crate) fn webrc(bytes: &[u8]) -> Option<Fields> {
    let packet = alc::Packet::decode(bytes).ok()?;
    let cci = Cci::decode(packet.cci())?;
    let mut fields = Fields::default();
    fields.put_all([
        ("manyflow_webrc.ctsi", cci.ctsi.into()),
        ("manyflow_webrc.channel", cci.channel.into()),
        ("manyflow_webrc.psn", cci.psn.into()),
    ]);
    Some(fields)
}

pub(crate) fn tfmcc(bytes: &[u8]) -> Option<Fields> {
    let message = Tfmcc::decode(bytes).ok()?;
    let mut fields = Fields::default();
    fields.put_all([
        ("manyflow_tfmcc.kind", bytes[0].into()),
        ("manyflow_tfmcc.round", bytes[1].into()),
    ]);
    let header = match message {
        Tfmcc::Data(data) => {
            tfmcc_data(&mut fields, &data);
            manyflow_tfmcc::DATA_BYTES
        }
        Tfmcc::Feedback(feedback) => {
            fields.put_all([
                ("manyflow_tfmcc.have_rtt", feedback.have_rtt.into()),
                ("manyflow_tfmcc.have_loss", feedback.have_loss.into()),
                ("manyflow_tfmcc.leaving", feedback.leaving.into()),
                ("manyflow_tfmcc.rate", feedback.rate.bits().into()),
                ("manyflow_tfmcc.receiver", feedback.receiver.0.into()),
                ("manyflow_tfmcc.report_sent", feedback.sent.bits().into()),
                ("manyflow_tfmcc.report_echo", feedback.echo.bits().into()),
            ]);
            fields.put("manyflow_tfmcc.bits_per_s", feedback.rate.bits_per_s());
            manyflow_tfmcc::FEEDBACK_BYTES
        }
    };
    fields.put_bytes("manyflow_tfmcc.payload", &bytes[header..]);
    Some(fields)
}

fn tfmcc_data(fields: &mut Fields, data: &manyflow_tfmcc::Data) {
    fields.put_all([
        ("manyflow_tfmcc.has_echo", data.echo.is_some().into()),
        ("manyflow_tfmcc.suppression", data.suppression.bits().into()),
        ("manyflow_tfmcc.sequence", data.sequence.into()),
        ("manyflow_tfmcc.sent", data.sent.bits().into()),
        ("manyflow_tfmcc.rtt_max", data.rtt_max.bits().into()),
    ]);
    fields.put("manyflow_tfmcc.bits_per_s", data.suppression.bits_per_s());
    let rtt_max = data.rtt_max.duration().as_secs_f64();
    fields.put("manyflow_tfmcc.rtt_max_ms", 1000.0 * rtt_max);
    if let Some(echo) = data.echo {
        fields.put_all([
            ("manyflow_tfmcc.is_clr", echo.is_clr.into()),
            ("manyflow_tfmcc.receiver", echo.receiver.0.into()),
            ("manyflow_tfmcc.echo", echo.sent.bits().into()),
        ]);
    }
}

pub(crate) fn layered(bytes: &[u8]) -> Option<Fields> {
    let mut fields = Fields::default();
    let message = Layered::decode(bytes).ok()?;
    let payload = &bytes[message.encode().as_bytes().len()..];
    layered_header(&mut fields, &message);
    let is_data = matches!(message, Layered::Data(_));
    if !is_data || is_filler(payload, manyflow_layered::unit::PIECE_BYTES) {
        fields.put_bytes("manyflow_layered.payload", payload);
        return Some(fields);
    }
    for decoded in Piece::decode_all(payload) {
        let (piece, bytes) = decoded.ok()?;
        fields.put_all([
            ("manyflow_piece.unit", piece.unit.into()),
            ("manyflow_piece.time_us", piece.time_us.into()),
            ("manyflow_piece.offset", piece.offset.into()),
            ("manyflow_piece.length", piece.length.into()),
        ]);
        fields.put_bytes("manyflow_piece.bytes", bytes);
    }
    Some(fields)
}

fn layered_header(fields: &mut Fields, message: &Layered) {
    match message {
        Layered::Data(data) => {
            if data.is_pair {
                fields.put("manyflow_layered.pair", 1);
            }
            fields.put_all([
                ("manyflow_layered.kind", 1),
                ("manyflow_layered.group", data.group.into()),
                ("manyflow_layered.request", data.request.into()),
                ("manyflow_layered.sequence", data.sequence.into()),
                ("manyflow_layered.rate", data.rate.into()),
                ("manyflow_layered.rtt_us", data.rtt_us.into()),
                ("manyflow_layered.next_rate", data.next_rate.into()),
            ]);
        }
        Layered::Feedback(feedback) => {
            if feedback.more {
                fields.put("manyflow_layered.more", 1);
            }
            fields.put_all([
                ("manyflow_layered.kind", 2),
                ("manyflow_layered.group", feedback.group.into()),
                ("manyflow_layered.request", feedback.request.into()),
                ("manyflow_layered.source", feedback.source.into()),
                ("manyflow_layered.session", feedback.session.into()),
                ("manyflow_layered.reports", feedback.reports.into()),
                ("manyflow_layered.congested", feedback.congested.into()),
                ("manyflow_layered.minimum", feedback.minimum.into()),
                ("manyflow_layered.maximum", feedback.maximum.into()),
                ("manyflow_layered.population", feedback.population.into()),
                ("manyflow_layered.hold_us", feedback.hold_us.into()),
                ("manyflow_layered.rtt_us", feedback.rtt_us.into()),
            ]);
        }
        Layered::Experiment(experiment) => fields.put_all([
            ("manyflow_layered.kind", 3),
            ("manyflow_layered.group", experiment.group.into()),
            ("manyflow_layered.session", experiment.session.into()),
        ]),
    }
}

/// The bytes of the MAC of a sealed message between hops.
const MAC_BYTES: usize = 16;

/// A message between hops. Dissectors have no keys, so the MAC of a sealed one is cut off.
pub(crate) fn hop(bytes: &[u8]) -> Option<Fields> {
    let mut message = bytes.to_vec();
    let is_sealed = bytes.get(1) == Some(&1);
    let mac = match is_sealed {
        true => message.split_off(bytes.len().checked_sub(MAC_BYTES)?),
        false => Vec::new(),
    };
    if is_sealed {
        *message.get_mut(1)? = 0;
    }
    let mut fields = Fields::default();
    fields.put_all([
        ("manyflow_hop.kind", bytes.first().copied()?.into()),
        ("manyflow_hop.sealed", is_sealed.into()),
    ]);
    fields.put_bytes("manyflow_hop.mac", &mac);
    let mut count = 0;
    match HopMessage::decode(&message, Direction::Up, None).ok()? {
        HopMessage::Sounding(sounding) => fields.put_all([
            ("manyflow_hop.nonce", sounding.nonce),
            ("manyflow_hop.number", sounding.number.into()),
            ("manyflow_hop.packets", sounding.packets),
            ("manyflow_hop.bytes", sounding.bytes),
        ]),
        HopMessage::Echo(echo) => fields.put_all([
            ("manyflow_hop.nonce", echo.nonce),
            ("manyflow_hop.number", echo.number.into()),
            ("manyflow_hop.child", echo.child.into()),
            ("manyflow_hop.packets", echo.packets),
            ("manyflow_hop.bytes", echo.bytes),
        ]),
        HopMessage::Report(stamp, feedbacks) => {
            put_stamp(&mut fields, &stamp);
            for feedback in feedbacks.iter() {
                layered_header(&mut fields, &Layered::Feedback(feedback));
                count += 1;
            }
        }
        HopMessage::Experiment(stamp, experiment) => {
            put_stamp(&mut fields, &stamp);
            layered_header(&mut fields, &Layered::Experiment(experiment));
        }
        HopMessage::Repair { stamp, wait, gaps } => {
            put_stamp(&mut fields, &stamp);
            fields.put("manyflow_hop.wait", wait.as_millis() as u64);
            for group in gaps.iter() {
                fields.put_all([
                    ("manyflow_hop.session", group.session.into()),
                    ("manyflow_hop.group", group.rank.into()),
                    ("manyflow_hop.next", group.next.into()),
                ]);
                fields.put_bytes("manyflow_hop.missing", &group.missing.to_be_bytes());
                count += 1;
            }
        }
    }
    fields.put("manyflow_hop.count", count);
    Some(fields)
}

fn put_stamp(fields: &mut Fields, stamp: &Stamp) {
    fields.put_all([
        ("manyflow_hop.nonce", stamp.nonce),
        ("manyflow_hop.number", stamp.number.into()),
        ("manyflow_hop.counter", stamp.counter.into()),
    ]);
}

/// A datagram of live ACP, or a segment of simulated ACP.
pub(crate) fn acp(bytes: &[u8]) -> Option<Fields> {
    let mut fields = Fields::default();
    let is_challenge = bytes.first()? & 0x80 != 0;
    fields.put("manyflow_acp.challenge", u8::from(is_challenge));
    match (envelope::decode(bytes), Segment::decode(bytes)) {
        (Ok(Datagram::Challenge(connection, cookie)), _) => {
            let body = Body::Probe;
            put_segment(&mut fields, &Segment { connection, body }, &[]);
            fields.put_bytes("manyflow_acp.cookie", &cookie);
        }
        (Ok(Datagram::Open(segment, cookie)), _) => {
            put_segment(&mut fields, &segment, &[]);
            fields.put_bytes("manyflow_acp.cookie", &cookie);
        }
        (Ok(Datagram::PathProbe(connection, id, _)), _) => {
            put_path(&mut fields, 9, connection);
            fields.put("manyflow_acp.path.id", id);
        }
        (Ok(Datagram::PathAnswer(connection, id, size)), _) => {
            put_path(&mut fields, 10, connection);
            fields.put("manyflow_acp.path.id", id);
            fields.put("manyflow_acp.path.bytes", size);
        }
        (Ok(Datagram::Part(part)), _) => {
            put_path(&mut fields, 11, part.connection);
            fields.put_all([
                ("manyflow_acp.part.index", part.index.into()),
                ("manyflow_acp.part.count", part.count.into()),
                ("manyflow_acp.part.datagram", part.datagram.into()),
                ("manyflow_acp.part.total", u64::from(part.total)),
            ]);
        }
        (Ok(Datagram::Admission(connection, prefix, credit)), _) => {
            put_path(&mut fields, 12, connection);
            fields.put("manyflow_acp.prefix", prefix.number());
            fields.put("manyflow_acp.credit", credit);
        }
        (Ok(Datagram::Segment(segment, header)), _) | (Err(_), Ok((segment, header))) => {
            put_segment(&mut fields, &segment, &bytes[header..]);
        }
        (Err(_), Err(_)) => return None,
    }
    Some(fields)
}

fn put_path(fields: &mut Fields, kind: u8, connection: u32) {
    fields.put("manyflow_acp.version", 1);
    fields.put("manyflow_acp.connection", connection);
    fields.put("manyflow_acp.type", kind);
}

fn put_segment(fields: &mut Fields, segment: &Segment, frame: &[u8]) {
    fields.put_all([
        ("manyflow_acp.version", 1),
        ("manyflow_acp.connection", segment.connection.into()),
    ]);
    let kind = match segment.body {
        Body::Open { .. } => 1,
        Body::Accept { .. } => 2,
        Body::Data(_) => 3,
        Body::Ack(_) => 4,
        Body::Close { .. } => 5,
        Body::Probe => 6,
        Body::Alive => 7,
        Body::Reset(_) => 8,
    };
    fields.put("manyflow_acp.type", kind);
    match segment.body {
        Body::Open { credit } | Body::Accept { credit } => {
            fields.put("manyflow_acp.credit", credit);
        }
        Body::Data(data) => put_data(fields, &data, frame),
        Body::Ack(ack) => put_ack(fields, &ack),
        Body::Close { sequence } => fields.put("manyflow_acp.sequence", sequence),
        Body::Reset(reason) => fields.put("manyflow_acp.reason", reason as u8 + 1),
        Body::Probe | Body::Alive => {}
    }
}

fn put_data(fields: &mut Fields, data: &Data, frame: &[u8]) {
    let congestion = data.congestion;
    fields.put_all([
        ("manyflow_acp.answered", congestion.answered.into()),
        ("manyflow_acp.sequence", data.sequence.into()),
        ("manyflow_acp.cwnd", congestion.cwnd.into()),
        ("manyflow_acp.rtt_us", congestion.rtt_us.into()),
        ("manyflow_acp.key", data.key.into()),
    ]);
    fields.put("manyflow_acp.feedback", congestion.feedback.0);
    fields.put("manyflow_acp.feedback_bytes", congestion.feedback.bytes());
    let header = fragment::Header::decode(frame);
    if let Some(header) = header.filter(|_| !is_filler(frame, fragment::HEADER_BYTES)) {
        fields.put_all([
            ("manyflow_acp.fragment.last", header.is_last.into()),
            ("manyflow_acp.fragment.sealed", header.is_sealed.into()),
            ("manyflow_acp.fragment.index", header.index.into()),
            ("manyflow_acp.fragment.message", header.message),
        ]);
    }
    fields.put_bytes("manyflow_acp.frame", frame);
}

fn put_ack(fields: &mut Fields, ack: &Ack) {
    let feedback = ack.feedback;
    fields.put_all([
        ("manyflow_acp.answered", feedback.answered.into()),
        ("manyflow_acp.averaged", feedback.averaged.into()),
        ("manyflow_acp.of", ack.of.into()),
        ("manyflow_acp.cumulative", ack.cumulative.into()),
        ("manyflow_acp.credit", ack.credit.into()),
    ]);
    fields.put("manyflow_acp.feedback", feedback.change.0);
    fields.put("manyflow_acp.feedback_bytes", feedback.change.bytes());
    for gap in ack.missing {
        fields.put_all([
            ("manyflow_acp.gap.offset", gap.offset.into()),
            ("manyflow_acp.gap.frames", gap.frames.into()),
        ]);
    }
}
