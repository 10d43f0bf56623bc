//! Frames on a stream: each follows its length.
//!
//! Whoever reads the stream keeps its bytes, so that a payload need not be copied from a buffer of
//! ours: it asks for the frame at their beginning, and drops them up to its end.

use core::ops::Range;

use super::{Encoded, WireError, check_payload};
use crate::message::{ClientFrame, LENGTH_BYTES, Message};

/// The bytes of a length.
const LENGTH: usize = LENGTH_BYTES as usize;

/// What reads a whole frame: its header and the header's length.
type Decode<H> = fn(&[u8]) -> Result<(H, usize), WireError>;

impl Message {
    /// Encodes the length and the header of a message on a stream; `payload_bytes` follow.
    ///
    /// # Errors
    /// Where the payload is too long.
    pub fn encode_framed(&self, payload_bytes: u32) -> Result<Encoded, WireError> {
        framed(&self.encode(), payload_bytes)
    }

    /// Decodes the message at the beginning of a stream's bytes: its header, and where its payload
    /// stands. The next message begins at the payload's end. `None` where more bytes are needed.
    ///
    /// # Errors
    /// Where no message begins here, as soon as its header shows it. The stream is to be closed.
    pub fn decode_framed(bytes: &[u8]) -> Result<Option<(Message, Range<usize>)>, WireError> {
        unframed(bytes, Message::decode)
    }
}

impl ClientFrame {
    /// As [`Message::encode_framed`].
    ///
    /// # Errors
    /// Where the payload is too long.
    pub fn encode_framed(&self, payload_bytes: u32) -> Result<Encoded, WireError> {
        framed(&self.encode(), payload_bytes)
    }

    /// As [`Message::decode_framed`].
    ///
    /// # Errors
    /// Where no frame begins here, as soon as its header shows it. The stream is to be closed.
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
        // What cannot become a frame is refused at its header, not waited for.
        return match decode(rest) {
            Ok(_) | Err(WireError::Short { .. }) => Ok(None),
            Err(error) => Err(error),
        };
    };
    let (header, header_bytes) = decode(frame)?;
    Ok(Some((header, LENGTH + header_bytes..LENGTH + length)))
}
