//! Frames on a stream: a length precedes each frame.
//!
//! The reader of a stream keeps its bytes, so that payloads need not be copied from another buffer.
//! It decodes the frame at the beginning of the bytes, and drops the bytes up to the frame's end.

use core::ops::Range;

use super::frame::{delay, feedback};
use super::{ANSWERED, ASKED, Encoded, FEEDBACK, First, WireError, check_payload};
use crate::message::{ClientFrame, Frame, LENGTH_BYTES, Message};

/// [`LENGTH_BYTES`] as a length of slices.
const LENGTH: usize = LENGTH_BYTES as usize;

/// A decoder of a whole frame. It returns the header and the header's length.
type Decode<H> = fn(&[u8]) -> Result<(H, usize), WireError>;

impl Message {
    /// Encodes the length and the header of a message on a stream. `payload_bytes` bytes follow.
    ///
    /// # Errors
    /// Returns an error if the payload is too long.
    pub fn encode_framed(&self, payload_bytes: u32) -> Result<Encoded, WireError> {
        framed(&self.encode(), payload_bytes)
    }

    /// Decodes the message at the beginning of a stream's bytes. Returns its header and the range
    /// of its payload; the next message begins at the end of that range. Returns `None` if more
    /// bytes are needed.
    ///
    /// # Errors
    /// Returns an error if no message begins here, as soon as the header shows this. The reader
    /// then closes the stream.
    pub fn decode_framed(bytes: &[u8]) -> Result<Option<(Message, Range<usize>)>, WireError> {
        unframed(bytes, Message::decode)
    }
}

impl Frame {
    /// Encodes a [`Frame::Stream`], [`Frame::Feedback`] or [`Frame::Delay`] on a stream, as
    /// [`Message::encode_framed`] does for messages.
    ///
    /// # Errors
    /// Returns an error if the payload is too long.
    pub fn encode_framed(&self, payload_bytes: u32) -> Result<Encoded, WireError> {
        let encoded = self.encode(payload_bytes)?;
        match self {
            Frame::Segment { .. } | Frame::Stream(_) => Ok(encoded),
            _ => framed(&encoded, payload_bytes),
        }
    }

    /// Decodes a [`Frame::Stream`], [`Frame::Feedback`] or [`Frame::Delay`] on a stream, as
    /// [`Message::decode_framed`] does for messages.
    ///
    /// # Errors
    /// Returns an error if no such frame begins here, as soon as the header shows this. The reader
    /// then closes the stream.
    pub fn decode_framed(bytes: &[u8]) -> Result<Option<(Frame, Range<usize>)>, WireError> {
        unframed(bytes, |frame| {
            let first = First::decode(frame)?;
            match first.kind {
                FEEDBACK => feedback(first, frame),
                ASKED | ANSWERED => delay(first, frame),
                _ => {
                    let (message, header) = Message::decode(frame)?;
                    Ok((Frame::Stream(message), header))
                }
            }
        })
    }
}

impl ClientFrame {
    /// Encodes a client frame on a stream, as [`Message::encode_framed`] does for messages.
    ///
    /// # Errors
    /// Returns an error if the payload is too long.
    pub fn encode_framed(&self, payload_bytes: u32) -> Result<Encoded, WireError> {
        framed(&self.encode(), payload_bytes)
    }

    /// Decodes a client frame on a stream, as [`Message::decode_framed`] does for messages.
    ///
    /// # Errors
    /// Returns an error if no frame begins here, as soon as the header shows this. The reader then
    /// closes the stream.
    pub fn decode_framed(bytes: &[u8]) -> Result<Option<(ClientFrame, Range<usize>)>, WireError> {
        unframed(bytes, ClientFrame::decode)
    }
}

fn framed(header: &Encoded, payload_bytes: u32) -> Result<Encoded, WireError> {
    check_payload(payload_bytes as usize)?;
    let length = header.length as u32 + payload_bytes;
    let length = u16::try_from(length).expect("the longest payload leaves room for all headers");
    let mut framed = Encoded::EMPTY;
    framed.put(&length.to_be_bytes());
    framed.put(header.as_bytes());
    Ok(framed)
}

fn unframed<H>(bytes: &[u8], decode: Decode<H>) -> Result<Option<(H, Range<usize>)>, WireError> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH>() else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes(*length));
    let Some(frame) = rest.get(..length) else {
        // Bytes that cannot become a frame are refused at once, without waiting for the rest.
        return match decode(rest) {
            Ok(_) | Err(WireError::Short { .. }) => Ok(None),
            Err(error) => Err(error),
        };
    };
    let (header, header_bytes) = decode(frame)?;
    Ok(Some((header, LENGTH + header_bytes..LENGTH + length)))
}
