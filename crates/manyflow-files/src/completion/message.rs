//! The format of the messages.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! |      'm'      |      'f'      |      'c'      |     kind      |
//! |                       TSI, 2 words                            |
//! |           number of the receiver, 2 words                     |
//! |       cookie, 2 words: 0 if the receiver has none yet         |
//! |       MAC, 4 words: HMAC-SHA-256, its first 128 bits
//! ```
//!
//! No packet of a session starts with these letters, because an LCT header starts with its version,
//! 1 (RFC 5651 section 5.1). So the MAC of one cannot be used for the other.

use ring::hmac;
use subtle::ConstantTimeEq as _;

use super::CompletionKey;

/// Length of a message in bytes.
pub(super) const MESSAGE_BYTES: usize = MAC_START + 16;

const MAGIC: [u8; 3] = *b"mfc";
const MAC_START: usize = 28;

/// The kind of a message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The receiver has all files.
    Report = 1,
    /// The receiver shall report again, with this cookie.
    Challenge = 2,
    /// The sender has counted the receiver.
    Counted = 3,
}

/// A message of either side.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: Kind,
    /// A random number, which identifies the receiver in this session.
    pub(super) receiver: u64,
    /// The proof of the receiver's address; 0 for none.
    pub(super) cookie: u64,
}

impl Message {
    pub(super) fn encode(&self, key: &CompletionKey) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[..3].copy_from_slice(&MAGIC);
        bytes[3] = self.kind as u8;
        bytes[4..12].copy_from_slice(&key.tsi.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.receiver.to_be_bytes());
        bytes[20..MAC_START].copy_from_slice(&self.cookie.to_be_bytes());
        let mac = hmac::sign(&key.key, &bytes[..MAC_START]);
        bytes[MAC_START..].copy_from_slice(&mac.as_ref()[..MESSAGE_BYTES - MAC_START]);
        bytes
    }

    /// Returns the message in a datagram. Returns `None` for datagrams of other protocols or
    /// sessions, and for messages with a wrong MAC.
    pub(super) fn decode(bytes: &[u8], key: &CompletionKey) -> Option<Message> {
        let bytes: &[u8; MESSAGE_BYTES] = bytes.try_into().ok()?;
        let kind = match bytes[3] {
            1 => Kind::Report,
            2 => Kind::Challenge,
            3 => Kind::Counted,
            _ => return None,
        };
        let word = |at: usize| {
            bytes[at..]
                .first_chunk()
                .map(|word| u64::from_be_bytes(*word))
        };
        let message = Message {
            kind,
            receiver: word(12)?,
            cookie: word(20)?,
        };
        // The MAC covers the magic number and the TSI, too.
        let is_genuine: bool = message.encode(key)[..].ct_eq(&bytes[..]).into();
        is_genuine.then_some(message)
    }
}
