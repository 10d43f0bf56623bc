//! Frames as the network below carries them: in datagrams of UDP, and for captures in segments of
//! the simulator's TCP.

use super::{
    COUNT, DATAGRAM, Encoded, FEEDBACK, First, WireError, check_payload, check_rest, count_flags,
    some_words, words, zero,
};
use crate::message::{Ack, ClientFrame, Feedback, Frame, Message};
use crate::sequence::LinkSeq;
use manyflow_tcp::{self as tcp, EncodedHeader};

/// TCP counts bytes. The simulator's streams count segments, which have all lengths: each is taken
/// as one byte.
const SEGMENT_BYTES: u32 = 1;
/// Where TCP has its checksum (RFC 9293 section 3.1).
const CHECKSUM: usize = 16;
/// Clients' kinds are from here on.
const CLIENTS: u8 = super::CONNECT;

impl Frame {
    /// Encodes what follows the header of UDP, or of TCP (see [`encode_tcp`](Frame::encode_tcp)),
    /// up to the payload.
    ///
    /// # Errors
    /// Where the payload is too long.
    pub fn encode(&self, payload_bytes: u32) -> Result<Encoded, WireError> {
        check_payload(payload_bytes as usize)?;
        match self {
            Frame::Segment { message, .. } => message.encode_framed(payload_bytes),
            Frame::Ack(_) => Ok(Encoded::EMPTY),
            Frame::Datagram { number, message } => {
                let mut encoded = Encoded::of(DATAGRAM, 0, 0, [number.0]);
                encoded.put(message.encode().as_bytes());
                Ok(encoded)
            }
            Frame::Feedback(feedback) => Ok(feedback.encode()),
            Frame::Direct(message) => Ok(message.encode()),
            Frame::Client(frame) => Ok(frame.encode()),
        }
    }

    /// Decodes what a datagram of UDP holds: the frame, and the length of its header. The rest is
    /// the payload.
    ///
    /// # Errors
    /// Where the bytes are not those that [`encode`](Frame::encode) makes of a frame in order that
    /// goes in datagrams, and after it at most a payload.
    pub fn decode(bytes: &[u8]) -> Result<(Frame, usize), WireError> {
        let first = First::decode(bytes)?;
        match first.kind {
            DATAGRAM => datagram(first, bytes),
            FEEDBACK => feedback(first, bytes),
            CLIENTS.. => {
                ClientFrame::decode(bytes).map(|(frame, header)| (Frame::Client(frame), header))
            }
            _ => Message::decode(bytes).map(|(message, header)| (Frame::Direct(message), header)),
        }
    }

    /// The TCP header before what [`encode`](Frame::encode) gives; `None` for frames that go in
    /// datagrams. Its numbers count segments, as the simulator's do, and its checksum is left zero.
    pub fn encode_tcp(&self, source: u16, destination: u16) -> Option<EncodedHeader> {
        let segment = match *self {
            Frame::Segment { sequence, .. } => tcp::Segment {
                sequence: sequence.0,
                ..tcp::Segment::default()
            },
            Frame::Ack(ack) => ack.segment(),
            _ => return None,
        };
        Some(segment.encode(source, destination, SEGMENT_BYTES))
    }

    /// Decodes a segment of the simulator's TCP, from its TCP header on: the frame, and where its
    /// payload begins. The checksum is not looked at.
    ///
    /// # Errors
    /// Where the bytes are not those that [`encode_tcp`](Frame::encode_tcp) and
    /// [`encode`](Frame::encode) make of a frame in order.
    pub fn decode_tcp(bytes: &[u8]) -> Result<(Frame, usize), WireError> {
        let unknown = WireError::Tcp("this TCP header is none of the simulator's");
        let words = bytes.get(12).ok_or(super::short(bytes, 20))? >> 4;
        let length = 4 * usize::from(words);
        let (header, body) = bytes.split_at_checked(length).ok_or(unknown)?;
        let (source, destination, segment) =
            tcp::Segment::decode(header, SEGMENT_BYTES).ok_or(unknown)?;
        let (frame, header_bytes) = match body {
            [] => (Frame::Ack(ack(&segment)?), 0),
            body => in_segment(LinkSeq(segment.sequence), body)?,
        };
        // Whatever else a TCP header may say, these never do.
        let encoded = frame.encode_tcp(source, destination).ok_or(unknown)?;
        let (other, expected) = (except_checksum(header), encoded.as_bytes());
        if other != except_checksum(expected) {
            return Err(unknown);
        }
        Ok((frame, length + header_bytes))
    }
}

fn datagram(first: First, bytes: &[u8]) -> Result<(Frame, usize), WireError> {
    first.flags_among(0)?;
    zero(first.half.into())?;
    let [number] = words(bytes)?;
    let number = LinkSeq(number);
    let (message, header) = Message::decode(&bytes[8..])?;
    Ok((Frame::Datagram { number, message }, 8 + header))
}

fn feedback(first: First, bytes: &[u8]) -> Result<(Frame, usize), WireError> {
    first.flags_among(COUNT)?;
    zero(first.half.into())?;
    let count = first.count();
    let mut words = [0; 7];
    some_words(bytes, &mut words[..1 + 2 * count])?;
    let [expected, a, b, c, d, e, f] = words.map(LinkSeq);
    let feedback = Feedback {
        expected,
        missing: [(a, b), (c, d), (e, f)],
    };
    feedback.check(count)?;
    let frame = Frame::Feedback(feedback);
    let header = check_rest(bytes, 8 + 8 * count as u32, false)?;
    Ok((frame, header))
}

impl Feedback {
    fn encode(&self) -> Encoded {
        let count = self.ranges().count();
        let mut encoded = Encoded::of(FEEDBACK, count_flags(count), 0, [self.expected.0]);
        for (begin, end) in self.ranges() {
            encoded.put(&begin.0.to_be_bytes());
            encoded.put(&end.0.to_be_bytes());
        }
        encoded
    }

    /// Ranges begin at the expected number or above it, none is empty, and none begins before the
    /// end of the one before it. Numbers wrap, so they are compared by their distance from the
    /// expected one.
    fn check(&self, count: usize) -> Result<(), WireError> {
        let mut free = 0;
        for (begin, end) in &self.missing[..count] {
            let [begin, end] = [begin, end].map(|number| number.distance_from(self.expected));
            if begin < free {
                return Err(WireError::Missing(
                    "a missing range begins before the expected number or the end of the one before it",
                ));
            }
            if end <= begin || end > i32::MAX as u32 {
                return Err(WireError::Missing(
                    "a missing range is empty, or ends 2^31 or more above the expected number",
                ));
            }
            free = end;
        }
        Ok(())
    }
}

/// A pure acknowledgement.
fn ack(segment: &tcp::Segment) -> Result<Ack, WireError> {
    let mut blocks = segment.sack.iter().filter(|block| block.0 < block.1);
    match blocks.all(|block| block.0 > segment.acknowledgement) {
        true => Ok(Ack::from(*segment)),
        false => Err(WireError::Tcp(
            "a SACK block begins at the acknowledged number or below it",
        )),
    }
}

/// A segment that carries one message.
fn in_segment(sequence: LinkSeq, body: &[u8]) -> Result<(Frame, usize), WireError> {
    match Message::decode_framed(body)? {
        Some((message, payload)) if payload.end == body.len() => {
            Ok((Frame::Segment { sequence, message }, payload.start))
        }
        _ => Err(WireError::Tcp("a segment carries one whole message")),
    }
}

/// The parts of a TCP header around its checksum.
fn except_checksum(header: &[u8]) -> (&[u8], &[u8]) {
    let (before, checksum) = header.split_at(CHECKSUM);
    (before, &checksum[2..])
}
