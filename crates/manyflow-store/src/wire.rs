//! The encoding of requests and answers. Each is one frame. Integers are in network order.
//!
//! ```text
//!   byte 0      1      2        3      4             12
//!   request | 1 | type | kind   | 0  | request id  | hash, 32 bytes | version u64 of a PutIf | bytes of a Put, PutIf or PutNames ...
//!   query   | 1 | type | 0      | 0  | request id  | body of the query, see `query.rs`
//!   answer  | 1 | type | length | 0  | request id  | member's name, `length` bytes | bytes, reason, version or reply ...
//!
//!   type    | 1 Put, 2 Get, 3 Stored, 4 Chunk, 5 Missing, 6 Failed, 7 PutIf, 8 PutNames, 9 Conflict |
//!           | 16 Holds, 17 Names, 18 Versions, 19 Chunks, 20 Remove, 21 Usage |
//!           | 32 Held, 33 Summaries, 34 Manifests, 35 Versions, 36 Chunks, 37 Removed, 38 Usage |
//!   kind    | 1 chunk (also of PutNames: the hash is that of the bytes), 2 name |
//! ```
//!
//! Decoding is strict: a request or an answer has exactly one encoding.

use bytes::{Buf as _, BufMut, Bytes, BytesMut};

use manyflow_anypoint::switch::Prefix;

use crate::query::{Query, Reply};
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
const PUT_IF: u8 = 7;
const PUT_NAMES: u8 = 8;
const CONFLICT: u8 = 9;
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
    /// Asks a member to store a manifest if the newest one that it has of the name has the version
    /// `expected`.
    PutIf {
        /// Chosen by the client; the answer has the same number.
        id: u64,
        /// The digest of the name.
        name: Hash,
        /// The version; 0 for a name that the member does not have, or that was removed.
        expected: u64,
        /// An encoded manifest.
        bytes: Bytes,
    },
    /// Asks a member to store several manifests at once.
    PutNames {
        /// Chosen by the client; the answer has the same number.
        id: u64,
        /// The digest of `bytes`.
        hash: Hash,
        /// The encoded [`Batch`](crate::Batch).
        bytes: Bytes,
    },
    /// Asks a member a question of maintenance.
    Query {
        /// Chosen by the client; the answer has the same number.
        id: u64,
        /// The question.
        query: Query,
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
    /// The member has another version than a PutIf expects, and has changed nothing.
    Conflict(u64),
    /// The answer to a query.
    Reply(Reply),
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
    /// The body of a query or a reply is invalid.
    #[error("the body of a frame of type {0} is invalid")]
    Query(u8),
}

impl Request {
    /// Returns the number of the request.
    pub fn id(&self) -> u64 {
        match *self {
            Request::Put { id, .. }
            | Request::Get { id, .. }
            | Request::PutIf { id, .. }
            | Request::PutNames { id, .. }
            | Request::Query { id, .. } => id,
        }
    }

    /// Replaces the number of the request.
    pub fn set_id(&mut self, number: u64) {
        match self {
            Request::Put { id, .. }
            | Request::Get { id, .. }
            | Request::PutIf { id, .. }
            | Request::PutNames { id, .. }
            | Request::Query { id, .. } => *id = number,
        }
    }

    /// Returns the key of the frame with the answer. It names the initiator that has sent the
    /// request, if initiators share the connection.
    pub fn answer_key(&self) -> u32 {
        Prefix::of_id(self.id()).key(self.id() as u32)
    }

    /// Encodes the request as a frame.
    pub fn encode(&self) -> Bytes {
        let (kind, address, bytes) = match self {
            Request::Put { address, bytes, .. } => (PUT, *address, &bytes[..]),
            Request::Get { address, .. } => (GET, *address, &[][..]),
            Request::PutIf { name, bytes, .. } => (PUT_IF, Address::Name(*name), &bytes[..]),
            Request::PutNames { hash, bytes, .. } => (PUT_NAMES, Address::Chunk(*hash), &bytes[..]),
            Request::Query { id, query } => return encode_query(*id, query),
        };
        let mut frame = BytesMut::with_capacity(REQUEST_BYTES + 8 + bytes.len());
        frame.put_slice(&[VERSION, kind, address.kind(), 0]);
        frame.put_u64(self.id());
        frame.put_slice(&address.hash().0);
        if let Request::PutIf { expected, .. } = self {
            frame.put_u64(*expected);
        }
        frame.put_slice(bytes);
        frame.freeze()
    }

    /// Decodes a frame. The bytes of a Put share the frame's memory.
    ///
    /// # Errors
    /// If the frame is not the encoding of a request.
    pub fn decode(frame: &Bytes) -> Result<Request, WireError> {
        let (kind, space, id) = decode_fixed(frame)?;
        if Query::is_kind(kind) {
            let query = Query::decode(kind, &frame[FIXED_BYTES..]);
            let query = query.filter(|_| space == 0);
            return query
                .map(|query| Request::Query { id, query })
                .ok_or(WireError::Query(kind));
        }
        let hash = frame.get(FIXED_BYTES..REQUEST_BYTES);
        let hash = hash.and_then(|hash| hash.try_into().ok());
        let hash = Hash(hash.ok_or(WireError::Short(frame.len()))?);
        let address = decode_address(space, hash)?;
        let bytes = frame.slice(REQUEST_BYTES..);
        match (kind, address, bytes.len()) {
            (PUT, _, 1..=STORED_BYTES_MAX) => Ok(Request::Put { id, address, bytes }),
            (GET, _, 0) => Ok(Request::Get { id, address }),
            (PUT_NAMES, Address::Chunk(hash), 1..=STORED_BYTES_MAX) => {
                Ok(Request::PutNames { id, hash, bytes })
            }
            (PUT_IF, Address::Name(name), _) => decode_put_if(id, name, bytes),
            (PUT_IF | PUT_NAMES, ..) => Err(WireError::Kind(space)),
            (PUT | GET, _, length) => Err(WireError::Body(kind, length)),
            _ => Err(WireError::Type(kind)),
        }
    }
}

fn encode_query(id: u64, query: &Query) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_slice(&[VERSION, query.kind(), 0, 0]);
    frame.put_u64(id);
    query.encode(&mut frame);
    frame.freeze()
}

fn decode_put_if(id: u64, name: Hash, mut bytes: Bytes) -> Result<Request, WireError> {
    let length = bytes.len();
    let wrong = WireError::Body(PUT_IF, length);
    let expected = bytes.try_get_u64().map_err(|_| wrong)?;
    match bytes.len() {
        1..=STORED_BYTES_MAX => Ok(Request::PutIf {
            id,
            name,
            expected,
            bytes,
        }),
        _ => Err(wrong),
    }
}

/// Returns the address of this kind.
pub(crate) fn decode_address(kind: u8, hash: Hash) -> Result<Address, WireError> {
    match kind {
        1 => Ok(Address::Chunk(hash)),
        2 => Ok(Address::Name(hash)),
        other => Err(WireError::Kind(other)),
    }
}

impl Address {
    /// Returns the number of its kind.
    fn kind(&self) -> u8 {
        match self {
            Address::Chunk(_) => 1,
            Address::Name(_) => 2,
        }
    }

    /// Appends its kind and its digest.
    pub(crate) fn encode(&self, frame: &mut BytesMut) {
        frame.put_u8(self.kind());
        frame.put_slice(&self.hash().0);
    }
}

impl Answer {
    /// Encodes the answer as a frame.
    pub fn encode(&self) -> Bytes {
        let version;
        let (kind, bytes) = match &self.outcome {
            Outcome::Stored => (STORED, &[][..]),
            Outcome::Chunk(bytes) => (CHUNK, &bytes[..]),
            Outcome::Missing => (MISSING, &[][..]),
            Outcome::Failed(reason) => (FAILED, reason.as_bytes()),
            Outcome::Conflict(held) => {
                version = held.to_be_bytes();
                (CONFLICT, &version[..])
            }
            Outcome::Reply(reply) => (reply.kind(), &[][..]),
        };
        let name = self.member.as_str().as_bytes();
        let mut frame = BytesMut::with_capacity(FIXED_BYTES + name.len() + bytes.len());
        frame.put_slice(&[VERSION, kind, name.len() as u8, 0]);
        frame.put_u64(self.id);
        frame.put_slice(name);
        frame.put_slice(bytes);
        if let Outcome::Reply(reply) = &self.outcome {
            reply.encode(&mut frame);
        }
        frame.freeze()
    }

    /// Decodes a frame. The bytes of a chunk share the frame's memory.
    ///
    /// # Errors
    /// If the frame is not the encoding of an answer.
    pub fn decode(frame: &Bytes) -> Result<Answer, WireError> {
        let (kind, length, id) = decode_fixed(frame)?;
        let is_answer = (STORED..=FAILED).contains(&kind) || kind == CONFLICT;
        if !is_answer && !Reply::is_kind(kind) {
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
        (CONFLICT, 8) => Ok(Outcome::Conflict((&bytes[..]).get_u64())),
        (kind, _) if Reply::is_kind(kind) => Reply::decode(kind, &bytes)
            .map(Outcome::Reply)
            .ok_or(WireError::Query(kind)),
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
