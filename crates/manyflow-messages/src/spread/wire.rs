//! The bytes of Spread's client protocol. See the [module](super) for the format.

use core::fmt;

use bytes::{Buf, Bytes, BytesMut};
use manyflow_order::{GroupViewId, Service};
use sha2::{Digest, Sha256};

/// Bytes of a name in a message, padded with zeros. The last is always zero.
pub const NAME_BYTES: usize = 32;
/// Bytes of the longest name that a client chooses for itself.
pub const PRIVATE_NAME_BYTES_MAX: usize = 10;
/// Bytes of the longest name of a daemon that has such clients.
pub const DAEMON_NAME_BYTES_MAX: usize = 19;
/// Bytes of a message before the names of its groups.
pub const HEADER_BYTES: usize = 48;
/// The number of groups that a message can be for.
pub const GROUPS_MAX: usize = 100;
/// Bytes of the longest message: payload and names of groups.
pub const MESSAGE_BYTES_MAX: usize = 144_000;
/// Bytes of the names of authentication methods that a client sends: three of 30 bytes.
pub const METHODS_BYTES: usize = 90;
/// Bytes of the longest greeting.
pub const GREETING_BYTES_MAX: usize = 5 + PRIVATE_NAME_BYTES_MAX;

/// The authentication methods of this daemon, each followed by a space. Neither has an exchange of
/// its own.
const METHODS: &[u8] = b"NULL IP ";
/// Bytes of the name of one method.
const METHOD_BYTES: usize = 30;
/// The version that this daemon announces: the first with the format of views here.
const VERSION: [u8; 3] = [4, 0, 0];
/// The code of an accepted connection.
const ACCEPTED: u8 = 1;

/// The bits that are set in the first and last byte of a number if its bytes are in little-endian
/// order.
const ORDER_BITS: u32 = 0x8000_0080;
const REGULAR_BITS: u32 = 0x0000_003f;
const SELF_DISCARD: u32 = 0x0000_0040;
const JOIN: u32 = 0x0001_0000;
const LEAVE: u32 = 0x0002_0000;
const KILL: u32 = 0x0004_0000;
const GROUPS: u32 = 0x0008_0000;
const REQUEST_BITS: u32 = JOIN | LEAVE | KILL | GROUPS;
const KIND_BITS: u32 = 0x00ff_ff00;

/// Types of messages to clients.
pub(super) const REGULAR_VIEW: u32 = 0x0000_1000;
pub(super) const TRANSITIONAL: u32 = 0x0000_2000;
pub(super) const CAUSED_BY_JOIN: u32 = 0x0000_0100;
pub(super) const CAUSED_BY_LEAVE: u32 = 0x0000_0200;
pub(super) const CAUSED_BY_DISCONNECT: u32 = 0x0000_0400;
pub(super) const CAUSED_BY_NETWORK: u32 = 0x0000_0800;
pub(super) const REJECTED: u32 = 0x0040_0000;

/// The reason why a connection is refused, as the client learns it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The daemon has too many connections.
    #[error("the daemon has too many connections: raise connections-max, or connect elsewhere")]
    Quota,
    /// The name is too long, or has other characters than those that are allowed.
    #[error(
        "a private name has at most {PRIVATE_NAME_BYTES_MAX} of the characters $ to ~, and is not \
         nats-N: choose another one"
    )]
    IllegalName,
    /// Another client of this daemon has the name.
    #[error("another client of this daemon has the private name: choose another one")]
    NotUnique,
    /// The client's library is older than version 3.1.
    #[error("a library of Spread before version 3.1 is not supported: use a later one")]
    Version,
    /// The client wants an authentication method that the daemon lacks.
    #[error("the client wants an authentication method other than NULL and IP")]
    Authentication,
}

impl Refusal {
    /// Returns the code that libraries know.
    pub fn code(self) -> i8 {
        match self {
            Refusal::Quota => -3,
            Refusal::IllegalName => -5,
            Refusal::NotUnique => -6,
            Refusal::Version => -7,
            Refusal::Authentication => -9,
        }
    }

    /// Returns the byte that the client gets before the daemon closes the connection.
    pub fn byte(self) -> u8 {
        self.code() as u8
    }
}

/// The first bytes of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The version of the library: major, minor, patch.
    pub version: [u8; 3],
    /// Whether the client wants messages about members.
    pub wants_views: bool,
    /// The name that the client chose; empty if the daemon is to choose one.
    pub name: String,
}

impl Greeting {
    /// Takes a greeting from the front of `bytes`. Returns `None` if some of it is missing.
    ///
    /// # Errors
    /// Returns an error if the version or the name is refused.
    pub fn take(bytes: &mut BytesMut) -> Result<Option<Greeting>, Refusal> {
        let [major, minor, ref rest @ ..] = bytes[..] else {
            return Ok(None);
        };
        if (major, minor) < (3, 1) {
            return Err(Refusal::Version);
        }
        let (patch, rest) = match (has_patch(major, minor), rest) {
            (true, [patch, rest @ ..]) => (*patch, rest),
            (true, []) => return Ok(None),
            (false, rest) => (0, rest),
        };
        let [flags, length, rest @ ..] = rest else {
            return Ok(None);
        };
        let length = usize::from(*length);
        if length > PRIVATE_NAME_BYTES_MAX {
            return Err(Refusal::IllegalName);
        }
        let Some(name) = rest.get(..length) else {
            return Ok(None);
        };
        // The daemon has such names for NATS clients.
        let number = name.strip_prefix(b"nats-").unwrap_or(b"-");
        if !name.iter().copied().all(is_graphic) || number.iter().all(u8::is_ascii_digit) {
            return Err(Refusal::IllegalName);
        }
        let greeting = Greeting {
            version: [major, minor, patch],
            wants_views: flags & 1 == 1,
            name: name.iter().copied().map(char::from).collect(),
        };
        let read = bytes.len() - rest.len() + length;
        bytes.advance(read);
        Ok(Some(greeting))
    }

    /// Returns the bytes of the greeting.
    pub fn encode(&self) -> Vec<u8> {
        let [major, minor, patch] = self.version;
        let mut bytes = vec![major, minor];
        bytes.extend(has_patch(major, minor).then_some(patch));
        bytes.extend([u8::from(self.wants_views), self.name.len() as u8]);
        bytes.extend(self.name.bytes());
        bytes
    }

    /// Returns whether the library authenticates itself: since 3.16.
    pub fn authenticates(&self) -> bool {
        (self.version[0], self.version[1]) >= (3, 16)
    }
}

/// Returns whether libraries of a version say their patch version: since 3.15.
fn has_patch(major: u8, minor: u8) -> bool {
    (major, minor) >= (3, 15)
}

/// Returns whether a name of a client or a daemon can have this byte.
fn is_graphic(byte: u8) -> bool {
    (b'$'..=b'~').contains(&byte)
}

/// Returns the list of the daemon's authentication methods, behind its length.
pub(super) fn methods() -> Vec<u8> {
    [&[METHODS.len() as u8], METHODS].concat()
}

/// Takes the methods that a client wants from the front of `bytes`. Returns `None` if some are
/// missing.
///
/// # Errors
/// Returns an error if the client names no method, or one that the daemon does not offer.
pub fn take_methods(bytes: &mut BytesMut) -> Result<Option<()>, Refusal> {
    if bytes.len() < METHODS_BYTES {
        return Ok(None);
    }
    let methods = bytes.split_to(METHODS_BYTES);
    let wanted = methods.chunks(METHOD_BYTES).map(until_zero);
    let mut wanted = wanted.take_while(|name| !name.is_empty()).peekable();
    let is_known = |name: &[u8]| METHODS.split(|byte| *byte == b' ').any(|own| own == name);
    match wanted.peek().is_some() && wanted.all(is_known) {
        true => Ok(Some(())),
        false => Err(Refusal::Authentication),
    }
}

/// Returns the bytes by which the daemon accepts a client of this name.
pub(super) fn acceptance(greeting: &Greeting, name: &str) -> Vec<u8> {
    debug_assert!(name.len() < NAME_BYTES, "checked with its parts");
    let [major, minor, patch] = VERSION;
    let mut bytes = vec![ACCEPTED, major, minor];
    bytes.extend(has_patch(greeting.version[0], greeting.version[1]).then_some(patch));
    bytes.push(name.len() as u8);
    bytes.extend(name.bytes());
    bytes
}

/// An error after which the daemon closes a client's connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The type is not that of one message or request.
    #[error("the type {0:#010x} is not that of one message or request")]
    Type(u32),
    /// The sender is not the client.
    #[error("the sender of a message is not the private group of its connection")]
    Sender,
    /// The number of groups is out of range.
    #[error("a message is for 0 to {GROUPS_MAX} groups, not {0}")]
    Groups(i32),
    /// The hint has bits besides those of the message's kind.
    #[error("the hint {0:#010x} has bits besides those of the message's kind")]
    Hint(u32),
    /// The message is too long.
    #[error("a message has 0 to {MESSAGE_BYTES_MAX} bytes with its groups, not {0}")]
    Length(i64),
}

/// The purpose of a message from a client.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To send it.
    Send {
        /// The service.
        service: Service,
        /// Whether the client does not want it itself.
        self_discard: bool,
    },
    /// To join its group.
    Join,
    /// To leave its group.
    Leave,
    /// To disconnect.
    Kill,
}

/// The header of a message from a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The purpose.
    pub purpose: Purpose,
    /// The type as the client sent it, without the bits for the order of bytes.
    pub raw_type: u32,
    /// The private group of the client, padded.
    pub sender: [u8; NAME_BYTES],
    /// The number of groups.
    pub groups: usize,
    /// A number of the application's.
    pub kind: i16,
    /// Bytes of the payload.
    pub payload_bytes: usize,
}

impl Header {
    /// Decodes a header. Its numbers are in the order of bytes that its type shows; the hint has an
    /// order of its own.
    ///
    /// # Errors
    /// Returns an error if a field is out of its range.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, WireError> {
        let word = |at: usize| -> [u8; 4] { core::array::from_fn(|byte| bytes[at + byte]) };
        let (raw_type, is_little) = ordered(word(0));
        let purpose = purpose_of(raw_type).ok_or(WireError::Type(raw_type))?;
        let number = |at: usize| match is_little {
            true => i32::from_le_bytes(word(at)),
            false => i32::from_be_bytes(word(at)),
        };
        let (groups, payload_bytes) = (number(36), number(44));
        let (hint, _) = ordered(word(40));
        if hint & !KIND_BITS != 0 {
            return Err(WireError::Hint(hint));
        }
        let in_range = usize::try_from(groups).ok().filter(|n| *n <= GROUPS_MAX);
        let groups = in_range.ok_or(WireError::Groups(groups))?;
        let total = i64::from(payload_bytes) + (groups * NAME_BYTES) as i64;
        if payload_bytes < 0 || total > MESSAGE_BYTES_MAX as i64 {
            return Err(WireError::Length(total));
        }
        Ok(Header {
            purpose,
            raw_type,
            sender: core::array::from_fn(|byte| bytes[4 + byte]),
            groups,
            kind: (hint >> 8) as u16 as i16,
            payload_bytes: payload_bytes as usize,
        })
    }
}

/// Returns a number without the bits for the order of its bytes, and whether that is
/// little-endian.
fn ordered(bytes: [u8; 4]) -> (u32, bool) {
    let little = u32::from_le_bytes(bytes);
    match little & ORDER_BITS == ORDER_BITS {
        true => (little & !ORDER_BITS, true),
        false => (u32::from_be_bytes(bytes), false),
    }
}

fn purpose_of(raw_type: u32) -> Option<Purpose> {
    let (regular, request) = (raw_type & REGULAR_BITS, raw_type & REQUEST_BITS);
    match (regular.count_ones(), request) {
        (1, 0) => Some(Purpose::Send {
            service: Service::ALL[regular.trailing_zeros() as usize],
            self_discard: raw_type & SELF_DISCARD != 0,
        }),
        (0, JOIN) => Some(Purpose::Join),
        (0, LEAVE) => Some(Purpose::Leave),
        (0, KILL) => Some(Purpose::Kill),
        _ => None,
    }
}

/// A message from a client.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// The header.
    pub header: Header,
    /// The names of the groups, and the payload.
    body: Bytes,
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {} bytes", self.header.purpose, self.body.len())
    }
}

impl Message {
    /// Takes a message from the front of `bytes`. Returns `None` if some of it is missing.
    ///
    /// # Errors
    /// Returns an error if a field of its header is out of its range.
    pub fn take(bytes: &mut BytesMut) -> Result<Option<Message>, WireError> {
        let Some(header) = bytes.first_chunk() else {
            return Ok(None);
        };
        let header = Header::decode(header)?;
        let body_bytes = header.groups * NAME_BYTES + header.payload_bytes;
        if bytes.len() < HEADER_BYTES + body_bytes {
            return Ok(None);
        }
        bytes.advance(HEADER_BYTES);
        let body = bytes.split_to(body_bytes).freeze();
        Ok(Some(Message { header, body }))
    }

    /// Returns the names of the groups; `None` for one that is not a name.
    pub fn groups(&self) -> impl Iterator<Item = Option<&str>> {
        let names = self.body[..self.header.groups * NAME_BYTES].chunks(NAME_BYTES);
        names.map(group_name)
    }

    /// Returns the contents.
    pub fn payload(&self) -> &[u8] {
        &self.body[self.header.groups * NAME_BYTES..]
    }

    /// Returns the parts of the message that tells the client that this one was rejected. `cause`
    /// is the type that stands for a request.
    pub(super) fn rejection(&self, sender: &str) -> (Vec<u8>, Bytes) {
        let Header {
            raw_type,
            groups,
            kind,
            payload_bytes,
            ..
        } = self.header;
        let rejected = match raw_type & REQUEST_BITS {
            JOIN => raw_type & !JOIN | CAUSED_BY_JOIN,
            LEAVE => raw_type & !LEAVE | CAUSED_BY_LEAVE,
            _ => raw_type,
        };
        let head = header(
            REJECTED | raw_type & SELF_DISCARD,
            sender,
            groups,
            kind,
            payload_bytes,
        );
        let old_type = (rejected | ORDER_BITS).to_le_bytes();
        ([&head[..], &old_type].concat(), self.body.clone())
    }
}

/// Returns the name in a padded field, if it is a name of a group or of a client.
fn group_name(field: &[u8]) -> Option<&str> {
    let name = until_zero(field);
    let is_name = match name {
        [b'#', rest @ ..] => rest.iter().all(|byte| is_graphic(*byte) || *byte == b'#'),
        name => !name.is_empty() && name.iter().copied().all(is_graphic),
    };
    let fits = name.len() < NAME_BYTES;
    core::str::from_utf8(name).ok().filter(|_| is_name && fits)
}

fn until_zero(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|byte| *byte == 0);
    &field[..end.unwrap_or(field.len())]
}

/// Returns a name as a padded field. A name that is longer than those of Spread ends with a hash,
/// so that it is the same at all daemons, and no other name's.
pub fn padded(name: &str) -> [u8; NAME_BYTES] {
    const KEPT_BYTES: usize = 22;
    let mut field = [0; NAME_BYTES];
    if name.len() < NAME_BYTES {
        field[..name.len()].copy_from_slice(name.as_bytes());
        return field;
    }
    let hash = Sha256::digest(name);
    let digits = hash.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let digits = digits.map(|digit| b"0123456789abcdef"[usize::from(digit)]);
    let kept = name.bytes().take(KEPT_BYTES).chain([b'~']);
    let all = kept.chain(digits).take(NAME_BYTES - 1);
    field.iter_mut().zip(all).for_each(|(to, byte)| *to = byte);
    field
}

/// Returns the type of a message of this service.
pub(super) fn type_of(service: Service) -> u32 {
    1 << service as u32
}

/// Returns the header of a message to a client, in little-endian order.
pub(super) fn header(
    kind_of_message: u32,
    sender: &str,
    groups: usize,
    kind: i16,
    payload_bytes: usize,
) -> [u8; HEADER_BYTES] {
    let hint = u32::from(kind as u16) << 8 | ORDER_BITS;
    let mut bytes = [0; HEADER_BYTES];
    bytes[..4].copy_from_slice(&(kind_of_message | ORDER_BITS).to_le_bytes());
    bytes[4..36].copy_from_slice(&padded(sender));
    bytes[36..40].copy_from_slice(&(groups as u32).to_le_bytes());
    bytes[40..44].copy_from_slice(&hint.to_le_bytes());
    bytes[44..].copy_from_slice(&(payload_bytes as u32).to_le_bytes());
    bytes
}

/// Bytes of the number of a view.
pub(super) const VIEW_ID_BYTES: usize = 12;

/// Returns the number of a group's view as three numbers: two for the view of the daemons, and the
/// changes in it.
pub(super) fn view_id(id: GroupViewId) -> [u8; VIEW_ID_BYTES] {
    // The stage of a view that has begun folds to zero.
    let hash = id.view.hash ^ id.stage;
    let numbers = [(hash ^ hash >> 32) as u32, id.view.counter, id.change];
    let mut bytes = [0; VIEW_ID_BYTES];
    for (field, number) in bytes.chunks_mut(4).zip(numbers) {
        field.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests;
