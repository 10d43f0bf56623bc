//! The encoding of the overlay's frames. Integers are in network byte order; each column below is a
//! word of 32 bits.
//!
//! ```text
//!   byte  0       4              8               12             16             20             24
//!   Data        | first | group        | version, sequence: 16, 48 bits | sender     | sent_us      | the payload ...
//!   Shared      | first | as in Data, to sent_us      | the payload ...
//!   Again       | first | as in Data, to sent_us      |
//!   Resent      | first | group        | version, sequence: 16, 48 bits | sender     | sent_us      | to, 0: 16, 16 bits | the payload ...
//!   Welcome     | first | group        | version, start: 16, 48 bits    | to, next: 16, 48 bits     | change |
//!   Answer      | first | group        | version, expected: 16, 48 bits | to, next: 16, 48 bits     | change |
//!   Acknowledge | first | to, version: 16, 16 bits | group, expected modulo 2^32 of each ...
//!   Change      | first | incarnation  | change        | item: 4 words               | the name of a group ...
//!   Part        | first | change       | index         | item: 4 words               | the name of a group ...
//!   Summary     | first | incarnation  | change        |
//!   Seal        | first | incarnation  | change        | what the origin signed, and its signature ...
//!   Request     | first |
//!   Cost        | first | version, 0: 16, 16 bits  | link, queue of each: 16, 16 bits ...
//!   Report      | first | group        | rate          | repaired, acknowledged: 16, 48 bits | held_us | received_bytes |
//!   RoundTrip   | first | rtt_us       |
//!
//!   an item of
//!     Members   | 1, 0: 16, 16 bits      | group  | members | since |
//!     Paused    | 2, paused: 16, 16 bits | group  | 0       | 0     |
//!     Link      | 3, to: 16, 16 bits     | weight | since   | 0     |
//!     Alive     | 4, 0: 16, 16 bits      | 0      | 0       | 0     |
//!     Count     | 5, 0: 16, 16 bits      | count  | incarnation | 0 |
//!     Proof     | 6, 0: 16, 16 bits      | 0      | 0       | 0     | followed by a piece of the proof
//!
//!   Datagram   | first | number     | a message, from Data to RoundTrip ...
//!   Feedback   | first | expected   | begin, end of each missing range ...
//!   Asked      | first | sent_us    |
//!   Answered   | first | waited_us  |
//!
//!   Connect, Disconnect, Ready      | first |
//!   Join                            | first | group      | the group's name ...
//!   Leave, Evicted                  | first | group      |
//!   Send       | first | group      | sent_us    | further groups ... | the payload ...
//!   Took       | first | messages   |
//!   Deliver    | first | group      | version, sequence: 16, 48 bits | sender     | sent_us      | the payload ...
//!   View       | first | group      | members    |
//!
//!   first      | version: 3 bits, kind: 5 bits | flags | origin, in Connect the priority, or 0: 16 bits |
//!   flags      | repaired | marked | links, groups, further groups or ranges: 2 bits | the payload is in layers | 3 bits to come |
//! ```
//!
//! A payload in layers begins with a [table](super::Layers).
//!
//! A [direct](Frame::Direct) message has no header of its own, because its kind differs from the
//! kinds of all other frames. On a stream, a length of two bytes precedes each frame; it does not
//! count itself.
//!
//! Decoding is strict: each frame has exactly one encoding, and all other bytes are refused. After
//! an error, the reader of a stream closes it, because nothing marks the start of the next frame.
//!
//! | file | what it holds |
//! |---|---|
//! | `message.rs` | messages between daemons |
//! | `client.rs` | frames between clients and daemons |
//! | `stream.rs` | messages and client frames on a stream |
//! | `frame.rs` | datagrams, and the simulator's TCP |

mod client;
mod frame;
mod message;
mod stream;
#[cfg(test)]
mod tests;

use super::layers::{Layers, LayersError};
#[cfg(doc)]
use super::message::Frame;
use super::message::{CopyFlags, PAYLOAD_BYTES_MAX};

/// The version of this wire format.
const VERSION: u8 = 1;
/// The number of bits of the kind in the first byte. The version is in the bits above.
const KIND_BITS: u32 = 5;

const DATA: u8 = 1;
const CHANGE: u8 = 2;
const WELCOME: u8 = 3;
const PART: u8 = 4;
const COST: u8 = 5;
const REPORT: u8 = 6;
const ROUND_TRIP: u8 = 7;
const DATAGRAM: u8 = 8;
const FEEDBACK: u8 = 9;
const SUMMARY: u8 = 10;
const REQUEST: u8 = 11;
const RESENT: u8 = 12;
const ANSWER: u8 = 13;
const ACKNOWLEDGE: u8 = 14;
const SEAL: u8 = 15;
const CONNECT: u8 = 16;
const JOIN: u8 = 17;
const LEAVE: u8 = 18;
const SEND: u8 = 19;
const TOOK: u8 = 20;
const DISCONNECT: u8 = 21;
const READY: u8 = 22;
const DELIVER: u8 = 23;
const VIEW: u8 = 24;
const EVICTED: u8 = 25;
const ASKED: u8 = 26;
const ANSWERED: u8 = 27;
const SHARED: u8 = 28;
const AGAIN: u8 = 29;

/// The bits that hold the number of links in a cost update, of groups in an acknowledgement, of
/// further groups of a client's message, or of ranges in feedback.
const COUNT: u8 = 0x30;
const COUNT_SHIFT: u32 = 4;
const COUNT_MAX: usize = 3;

/// Bytes of the longest encoded header: a datagram with a message to one daemon.
const HEADER_BYTES_MAX: usize = 36;

/// The reason why bytes are not a frame of the overlay, or a frame cannot be encoded.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The bytes end before the header does.
    #[error("{have} bytes are too few: the header takes {want}")]
    Short {
        /// The number of bytes that are present.
        have: usize,
        /// The number of bytes that the header takes, as far as the present bytes show.
        want: usize,
    },
    /// The first byte has an unknown version.
    #[error("version {0} is not known: this is version {VERSION}")]
    Version(u8),
    /// The kind in the first byte is unknown, or is not allowed here.
    #[error(
        "kind {0} is not known here: 1 to 7, 10 to 15, 28 and 29 are messages, 8 and 9 belong to links of datagrams, 16 to 25 to clients, 26 and 27 to streams between daemons"
    )]
    Kind(u8),
    /// Bits that have no meaning in this kind of frame are not zero.
    #[error("reserved bits are not zero")]
    Reserved,
    /// A number in the header is outside its range.
    #[error("{name} is {number}: it must be {range}")]
    Range {
        /// The name of the number.
        name: &'static str,
        /// The value of the number.
        number: u64,
        /// The range of the number, in words.
        range: &'static str,
    },
    /// The missing ranges of feedback are out of order or empty.
    #[error("{0}")]
    Missing(&'static str),
    /// Bytes follow a header that has no payload.
    #[error("{0} bytes follow a header that has no payload")]
    Trailing(usize),
    /// A payload is longer than [`PAYLOAD_BYTES_MAX`].
    #[error("a payload of {0} bytes is too long: send at most {PAYLOAD_BYTES_MAX}")]
    Payload(usize),
    /// A payload is not in the layers that its header claims.
    #[error(transparent)]
    Layers(LayersError),
    /// A TCP segment is not one that the simulator's streams send.
    #[error("{0}")]
    Tcp(&'static str),
}

/// An encoded header.
#[derive(Copy, Clone, Debug)]
pub struct Encoded {
    bytes: [u8; HEADER_BYTES_MAX],
    length: usize,
}

impl Encoded {
    const EMPTY: Encoded = Encoded {
        bytes: [0; HEADER_BYTES_MAX],
        length: 0,
    };

    fn first(kind: u8, flags: u8, half: u16) -> Encoded {
        let mut encoded = Encoded::EMPTY;
        encoded.put(&[VERSION << KIND_BITS | kind, flags]);
        encoded.put(&half.to_be_bytes());
        encoded
    }

    fn of<const WORDS: usize>(kind: u8, flags: u8, half: u16, words: [u32; WORDS]) -> Encoded {
        let mut encoded = Encoded::first(kind, flags, half);
        for word in words {
            encoded.put(&word.to_be_bytes());
        }
        encoded
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    /// Returns the encoded header.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The first word of a header.
#[derive(Copy, Clone)]
struct First {
    kind: u8,
    flags: u8,
    half: u16,
}

impl First {
    fn decode(bytes: &[u8]) -> Result<First, WireError> {
        let Some(&[version_and_kind, flags, high, low]) = bytes.first_chunk() else {
            return Err(short(bytes, 4));
        };
        let version = version_and_kind >> KIND_BITS;
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        Ok(First {
            kind: version_and_kind & ((1 << KIND_BITS) - 1),
            flags,
            half: u16::from_be_bytes([high, low]),
        })
    }

    /// Returns an error if flags other than `known` are set.
    fn flags_among(self, known: u8) -> Result<(), WireError> {
        zero(u32::from(self.flags & !known))
    }

    /// Returns whether the payload is in layers.
    fn is_layered(self) -> bool {
        CopyFlags::from_bits(self.flags).has(CopyFlags::LAYERED)
    }

    /// Returns the number of links or ranges that follow.
    fn count(self) -> usize {
        usize::from((self.flags & COUNT) >> COUNT_SHIFT)
    }
}

fn count_flags(count: usize) -> u8 {
    (count as u8) << COUNT_SHIFT & COUNT
}

/// Returns the words of a header after its first word.
fn words<const WORDS: usize>(bytes: &[u8]) -> Result<[u32; WORDS], WireError> {
    let mut words = [0; WORDS];
    some_words(bytes, &mut words)?;
    Ok(words)
}

/// Decodes the words of a header after its first word, if their number is known only at run time.
fn some_words(bytes: &[u8], words: &mut [u32]) -> Result<(), WireError> {
    let want = 4 + 4 * words.len();
    let header = bytes.get(4..want).ok_or(short(bytes, want))?;
    let (quads, _) = header.as_chunks::<4>();
    for (word, quad) in words.iter_mut().zip(quads) {
        *word = u32::from_be_bytes(*quad);
    }
    Ok(())
}

fn short(bytes: &[u8], want: usize) -> WireError {
    let have = bytes.len();
    WireError::Short { have, want }
}

fn zero(reserved: u32) -> Result<(), WireError> {
    match reserved {
        0 => Ok(()),
        _ => Err(WireError::Reserved),
    }
}

/// Returns an error for 0: these numbers are counted from 1.
fn at_least_one(name: &'static str, number: u32) -> Result<u32, WireError> {
    match number {
        0 => Err(range(name, 0, "at least 1")),
        _ => Ok(number),
    }
}

fn range(name: &'static str, number: u64, range: &'static str) -> WireError {
    WireError::Range {
        name,
        number,
        range,
    }
}

fn check_payload(bytes: usize) -> Result<(), WireError> {
    if bytes > PAYLOAD_BYTES_MAX as usize {
        return Err(WireError::Payload(bytes));
    }
    Ok(())
}

/// Checks the table of layers at the beginning of a payload, which follows `header` bytes.
fn check_layers(bytes: &[u8], header: usize) -> Result<(), WireError> {
    match Layers::read(&bytes[header..]) {
        Ok(_) => Ok(()),
        // A stream's reader may not have all bytes yet.
        Err(LayersError::Short { want, .. }) => Err(short(bytes, header + want)),
        Err(error) => Err(WireError::Layers(error)),
    }
}

/// Checks that nothing follows a header except a payload, if it may have one. Returns the header's
/// length.
fn check_rest(bytes: &[u8], header_bytes: u32, has_payload: bool) -> Result<usize, WireError> {
    let header = header_bytes as usize;
    let rest = bytes.len().checked_sub(header);
    match rest.ok_or(short(bytes, header))? {
        0 => Ok(header),
        rest if has_payload => check_payload(rest).map(|()| header),
        rest => Err(WireError::Trailing(rest)),
    }
}
