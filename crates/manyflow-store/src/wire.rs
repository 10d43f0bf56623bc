//! The encoding of requests and answers. Each is one frame. Integers are in network order.
//!
//! ```text
//!   byte 0      1      2        3      4             12
//!   request | 1 | type | kind   | 0  | request id  | hash, 32 bytes | bytes of a Put ...
//!   answer  | 1 | type | length | 0  | request id  | member's name, `length` bytes | bytes or reason ...
//!
//!   type    | 1 Put, 2 Get, 3 Stored, 4 Chunk, 5 Missing, 6 Failed |
//!   kind    | 1 chunk, 2 name |
//! ```
//!
//! Decoding is strict: a request or an answer has exactly one encoding.

use bytes::{BufMut, Bytes, BytesMut};

use crate::{Address, Hash, MemberName};

/// The length of the longest frame in bytes.
pub const FRAME_BYTES_MAX: usize = 1 << 20;
/// The most bytes that can be stored under one address: the longest frame less 128 bytes for the
/// headers of requests and answers.
pub const STORED_BYTES_MAX: usize = FRAME_BYTES_MAX - 128;
/// The length of the longest reason of a failure in bytes. A longer one is cut.
pub const REASON_BYTES_MAX: usize = 300;

const VERSION: u8 = 1;
const PUT: u8 = 1;
const GET: u8 = 2;
const STORED: u8 = 3;
const CHUNK: u8 = 4;
const MISSING: u8 = 5;
const FAILED: u8 = 6;
const FIXED_BYTES: usize = 12;
const REQUEST_BYTES: usize = FIXED_BYTES + 32;

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Asks a member to store bytes.
    Put {
        /// Chosen by the client; the answer has the same number.
        id: u64,
        /// The address of the bytes.
        address: Address,
        /// A chunk, or an encoded manifest: 1 to [`STORED_BYTES_MAX`] bytes.
        bytes: Bytes,
    },
    /// Asks a member for stored bytes.
    Get {
        /// Chosen by the client; the answer has the same number.
        id: u64,
        /// The address of the bytes.
        address: Address,
    },
}

/// An answer of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The number of the request.
    pub id: u64,
    /// The member that answers.
    pub member: MemberName,
    /// The outcome of the request.
    pub outcome: Outcome,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The bytes of a Put are on the member's disk, or a newer manifest is.
    Stored,
    /// The bytes that a Get asked for.
    Chunk(Bytes),
    /// The member does not have the bytes that a Get asked for.
    Missing,
    /// The member could not do what the request asked for, and has changed nothing. The reason has
    /// at most [`REASON_BYTES_MAX`] bytes.
    Failed(String),
}

/// The reason why a frame is not a request or an answer of the store.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The frame ends before its header does.
    #[error("{0} bytes are too few for the header of a frame of the store")]
    Short(usize),
    /// The frame is longer than any that the store sends.
    #[error("{0} bytes are too many: frames of the store have at most {FRAME_BYTES_MAX}")]
    Long(usize),
    /// The first byte is not the version of this crate.
    #[error("version {0} of the store is not known: this is version {VERSION}")]
    Version(u8),
    /// The type is not one of those that this end accepts.
    #[error("type {0} is not one that this end of the store accepts")]
    Type(u8),
    /// The kind of an address is not known.
    #[error("kind {0} of an address is not known: kinds are 1 and 2")]
    Kind(u8),
    /// A byte without meaning is not zero.
    #[error("the reserved byte is not zero")]
    Reserved,
    /// The name of the member is not one.
    #[error("the answer's member has no valid name")]
    Member,
    /// The reason of a failure is empty, too long, or not UTF-8.
    #[error("the reason of a failure is not 1 to {REASON_BYTES_MAX} bytes of UTF-8")]
    Reason,
    /// Bytes are missing where a type needs them, or present where it has none.
    #[error("a frame of type {0} cannot have {1} bytes behind its header")]
    Body(u8, usize),
}

impl Request {
    /// Returns the number of the request.
    pub fn id(&self) -> u64 {
        match *self {
            Request::Put { id, .. } | Request::Get { id, .. } => id,
        }
    }

    /// Returns the address that the request is about.
    pub fn address(&self) -> Address {
        match *self {
            Request::Put { address, .. } | Request::Get { address, .. } => address,
        }
    }

    /// Encodes the request as a frame.
    pub fn encode(&self) -> Bytes {
        let (kind, bytes) = match self {
            Request::Put { bytes, .. } => (PUT, &bytes[..]),
            Request::Get { .. } => (GET, &[][..]),
        };
        let (space, hash) = match self.address() {
            Address::Chunk(hash) => (1, hash),
            Address::Name(hash) => (2, hash),
        };
        let mut frame = BytesMut::with_capacity(REQUEST_BYTES + bytes.len());
        frame.put_slice(&[VERSION, kind, space, 0]);
        frame.put_u64(self.id());
        frame.put_slice(&hash.0);
        frame.put_slice(bytes);
        frame.freeze()
    }

    /// Decodes a frame. The bytes of a Put share the frame's memory.
    ///
    /// # Errors
    /// If the frame is not the encoding of a request.
    pub fn decode(frame: &Bytes) -> Result<Request, WireError> {
        let (kind, space, id) = decode_fixed(frame)?;
        let hash = frame.get(FIXED_BYTES..REQUEST_BYTES);
        let hash = hash.and_then(|hash| hash.try_into().ok());
        let hash = Hash(hash.ok_or(WireError::Short(frame.len()))?);
        let address = match space {
            1 => Address::Chunk(hash),
            2 => Address::Name(hash),
            other => return Err(WireError::Kind(other)),
        };
        let bytes = frame.slice(REQUEST_BYTES..);
        match (kind, bytes.len()) {
            (PUT, 1..=STORED_BYTES_MAX) => Ok(Request::Put { id, address, bytes }),
            (GET, 0) => Ok(Request::Get { id, address }),
            (PUT | GET, length) => Err(WireError::Body(kind, length)),
            _ => Err(WireError::Type(kind)),
        }
    }
}

impl Answer {
    /// Encodes the answer as a frame.
    pub fn encode(&self) -> Bytes {
        let (kind, bytes) = match &self.outcome {
            Outcome::Stored => (STORED, &[][..]),
            Outcome::Chunk(bytes) => (CHUNK, &bytes[..]),
            Outcome::Missing => (MISSING, &[][..]),
            Outcome::Failed(reason) => (FAILED, reason.as_bytes()),
        };
        let name = self.member.as_str().as_bytes();
        let mut frame = BytesMut::with_capacity(FIXED_BYTES + name.len() + bytes.len());
        frame.put_slice(&[VERSION, kind, name.len() as u8, 0]);
        frame.put_u64(self.id);
        frame.put_slice(name);
        frame.put_slice(bytes);
        frame.freeze()
    }

    /// Decodes a frame. The bytes of a chunk share the frame's memory.
    ///
    /// # Errors
    /// If the frame is not the encoding of an answer.
    pub fn decode(frame: &Bytes) -> Result<Answer, WireError> {
        let (kind, length, id) = decode_fixed(frame)?;
        if !(STORED..=FAILED).contains(&kind) {
            return Err(WireError::Type(kind));
        }
        let end = FIXED_BYTES + usize::from(length);
        let name = frame.get(FIXED_BYTES..end);
        let name = core::str::from_utf8(name.ok_or(WireError::Short(frame.len()))?);
        let member = name.ok().and_then(|name| MemberName::new(name).ok());
        let outcome = decode_outcome(kind, frame.slice(end..))?;
        Ok(Answer {
            id,
            member: member.ok_or(WireError::Member)?,
            outcome,
        })
    }
}

/// Decodes the part that requests and answers share: type, third byte and number.
fn decode_fixed(frame: &[u8]) -> Result<(u8, u8, u64), WireError> {
    let short = WireError::Short(frame.len());
    let fixed = frame.first_chunk::<FIXED_BYTES>().ok_or(short)?;
    let [version, kind, third, reserved, id @ ..] = *fixed;
    if frame.len() > FRAME_BYTES_MAX {
        return Err(WireError::Long(frame.len()));
    }
    if version != VERSION {
        return Err(WireError::Version(version));
    }
    if reserved != 0 {
        return Err(WireError::Reserved);
    }
    Ok((kind, third, u64::from_be_bytes(id)))
}

fn decode_outcome(kind: u8, bytes: Bytes) -> Result<Outcome, WireError> {
    match (kind, bytes.len()) {
        (STORED, 0) => Ok(Outcome::Stored),
        (MISSING, 0) => Ok(Outcome::Missing),
        (CHUNK, 1..=STORED_BYTES_MAX) => Ok(Outcome::Chunk(bytes)),
        (FAILED, 1..=REASON_BYTES_MAX) => {
            let reason = core::str::from_utf8(&bytes).map_err(|_| WireError::Reason)?;
            Ok(Outcome::Failed(reason.to_owned()))
        }
        (FAILED, _) => Err(WireError::Reason),
        (_, length) => Err(WireError::Body(kind, length)),
    }
}

impl Outcome {
    /// Returns a failure with this reason, cut to [`REASON_BYTES_MAX`] bytes.
    pub fn failed(reason: &str) -> Outcome {
        let reason = if reason.is_empty() { "unknown" } else { reason };
        let most = REASON_BYTES_MAX.min(reason.len());
        let cut = (0..=most).rev().find(|end| reason.is_char_boundary(*end));
        Outcome::Failed(reason[..cut.unwrap_or(0)].to_owned())
    }
}

#[cfg(test)]
mod tests;
