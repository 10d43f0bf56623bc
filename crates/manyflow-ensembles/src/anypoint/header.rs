//! The header of a fragment, whose place [`fragment`](super::fragment) shows.

/// The length of a fragment's header in bytes, without the salt.
pub const HEADER_BYTES: usize = 12;

const LAST: u8 = 1;
const SEALED: u8 = 2;

/// The header of a fragment.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whether no fragment of the message follows.
    pub is_last: bool,
    /// Whether the fragment is encrypted.
    pub is_sealed: bool,
    /// The position in the message, from 0.
    pub index: u16,
    /// The message's number.
    pub message: u64,
}

impl Header {
    /// Returns the header of a frame; `None` if the frame has no valid one.
    pub fn decode(frame: &[u8]) -> Option<Header> {
        let (header, _) = frame.split_first_chunk::<HEADER_BYTES>()?;
        let (flags, index) = (header[0], [header[2], header[3]]);
        let is_valid = flags & !(LAST | SEALED) == 0 && header[1] == 0;
        let message = *header.last_chunk().expect("the header is longer");
        is_valid.then_some(Header {
            is_last: flags & LAST != 0,
            is_sealed: flags & SEALED != 0,
            index: u16::from_be_bytes(index),
            message: u64::from_be_bytes(message),
        })
    }

    /// Returns the bytes of the header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = u8::from(self.is_last) * LAST + u8::from(self.is_sealed) * SEALED;
        bytes[2..4].copy_from_slice(&self.index.to_be_bytes());
        bytes[4..].copy_from_slice(&self.message.to_be_bytes());
        bytes
    }
}
