//! The encoding of frames for lower layers: as UDP datagrams, and for captures as segments of the
//! simulator's TCP.

use super::{
    ANSWERED, ASKED, CONNECT, COUNT, DATAGRAM, EVICTED, Encoded, FEEDBACK, First, WireError,
    check_payload, check_rest, count_flags, some_words, words, zero,
};
use crate::message::{Ack, ClientFrame, Delay, Feedback, Frame, Message};
use crate::sequence::LinkSeq;
use manyflow_tcp::{self as tcp, EncodedHeader};

/// TCP's sequence numbers count bytes, but the simulator's streams count segments of any length.
/// The encoding therefore counts each segment as one byte.
const SEGMENT_BYTES: u32 = 1;
/// The offset of the checksum in a TCP header (RFC 9293 section 3.1).
const CHECKSUM: usize = 16;

impl Frame {
    /// Encodes the bytes between the header of UDP or TCP (see [`encode_tcp`](Frame::encode_tcp))
    /// and the payload.
    ///
    /// # Errors
    /// Returns an error if the payload is too long.
    pub fn encode(&self, payload_bytes: u32) -> Result<Encoded, WireError> {
        check_payload(payload_bytes as usize)?;
        match self {
            Frame::Segment { message, .. } | Frame::Stream(message) => {
                message.encode_framed(payload_bytes)
            }
            Frame::Ack(_) => Ok(Encoded::EMPTY),
            Frame::Datagram { number, message } => {
                let mut encoded = Encoded::of(DATAGRAM, 0, 0, [number.0]);
                encoded.put(message.encode().as_bytes());
                Ok(encoded)
            }
            Frame::Feedback(feedback) => Ok(feedback.encode()),
            Frame::Delay(delay) => Ok(delay.encode()),
            Frame::Direct(message) => Ok(message.encode()),
            Frame::Client(frame) => Ok(frame.encode()),
        }
    }

    /// Decodes the payload of a UDP datagram. Returns the frame and the length of its header. The
    /// rest of the bytes is the frame's payload.
    ///
    /// # Errors
    /// Returns an error unless the bytes are the [encoding](Frame::encode) of a valid frame that is
    /// sent in datagrams, followed only by a payload, if it may have one.
    pub fn decode(bytes: &[u8]) -> Result<(Frame, usize), WireError> {
        let first = First::decode(bytes)?;
        match first.kind {
            DATAGRAM => datagram(first, bytes),
            FEEDBACK => feedback(first, bytes),
            CONNECT..=EVICTED => {
                ClientFrame::decode(bytes).map(|(frame, header)| (Frame::Client(frame), header))
            }
            _ => Message::decode(bytes).map(|(message, header)| (Frame::Direct(message), header)),
        }
    }

    /// Encodes the TCP header that precedes the bytes of [`encode`](Frame::encode). Returns `None`
    /// for frames that are sent in datagrams. The sequence numbers count segments, as in the
    /// simulator, and the checksum is zero.
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

    /// Decodes a segment of the simulator's TCP, beginning with its TCP header. Returns the frame
    /// and the offset of its payload. Does not verify the checksum.
    ///
    /// # Errors
    /// Returns an error unless the bytes are the encodings of [`encode_tcp`](Frame::encode_tcp) and
    /// [`encode`](Frame::encode) of a valid frame.
    pub fn decode_tcp(bytes: &[u8]) -> Result<(Frame, usize), WireError> {
        let unknown = WireError::Tcp("this TCP header is not one of the simulator's");
        let words = bytes.get(12).ok_or(super::short(bytes, 20))? >> 4;
        let length = 4 * usize::from(words);
        let (header, body) = bytes.split_at_checked(length).ok_or(unknown)?;
        let (source, destination, segment) =
            tcp::Segment::decode(header, SEGMENT_BYTES).ok_or(unknown)?;
        let (frame, header_bytes) = match body {
            [] => (Frame::Ack(ack(&segment)?), 0),
            body => in_segment(LinkSeq(segment.sequence), body)?,
        };
        // All other fields must be those of the simulator, except the checksum.
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

pub(super) fn feedback(first: First, bytes: &[u8]) -> Result<(Frame, usize), WireError> {
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

pub(super) fn delay(first: First, bytes: &[u8]) -> Result<(Frame, usize), WireError> {
    first.flags_among(0)?;
    zero(first.half.into())?;
    let [time_us] = words(bytes)?;
    let delay = match first.kind {
        ASKED => Delay::Asked { sent_us: time_us },
        _ => Delay::Answered { waited_us: time_us },
    };
    let header = check_rest(bytes, 8, false)?;
    Ok((Frame::Delay(delay), header))
}

impl Delay {
    fn encode(self) -> Encoded {
        let (kind, time_us) = match self {
            Delay::Asked { sent_us } => (ASKED, sent_us),
            Delay::Answered { waited_us } => (ANSWERED, waited_us),
        };
        Encoded::of(kind, 0, 0, [time_us])
    }
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

    /// Checks that the ranges are not empty, are in order and do not overlap, and begin at or above
    /// the expected number. Numbers wrap, so they are compared by their distance from the expected
    /// number.
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

/// Decodes a pure acknowledgement.
fn ack(segment: &tcp::Segment) -> Result<Ack, WireError> {
    let mut blocks = segment.sack.iter().filter(|block| block.0 < block.1);
    match blocks.all(|block| block.0 > segment.acknowledgement) {
        true => Ok(Ack::from(*segment)),
        false => Err(WireError::Tcp(
            "a SACK block begins at the acknowledged number or below it",
        )),
    }
}

/// Decodes a segment that carries one message.
fn in_segment(sequence: LinkSeq, body: &[u8]) -> Result<(Frame, usize), WireError> {
    match Message::decode_framed(body)? {
        Some((message, payload)) if payload.end == body.len() => {
            Ok((Frame::Segment { sequence, message }, payload.start))
        }
        _ => Err(WireError::Tcp(
            "a segment does not carry exactly one message",
        )),
    }
}

/// Returns the parts of a TCP header before and after its checksum.
fn except_checksum(header: &[u8]) -> (&[u8], &[u8]) {
    let (before, checksum) = header.split_at(CHECKSUM);
    (before, &checksum[2..])
}
