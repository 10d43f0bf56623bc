//! The messages between a parent and its children, as UDP datagrams. They share addresses and ports
//! with AMT (RFC 7450), whose first byte has the version 0 in its high half; here it is 4. Integers
//! are in network order.
//!
//! ```text
//!              0     1      2        4        12       16
//!   sounding   0x41 | flags | 0     | nonce  | number | packets (8) | bytes (8)
//!   echo       0x42 | flags | 0     | nonce  | number | child (4) | packets (8) | bytes (8)
//!   report     0x43 | flags | count | nonce  | number | counter (4) | count * feedback (40)
//!   experiment 0x44 | flags | 0     | nonce  | number | counter (4) | experiment (8)
//!   repair     0x45 | flags | count | nonce  | number | counter (4) | wait (4)    | count * gaps (28)
//!   gaps       session (4) | rank | 0 (3) | next (4) | missing (16)
//! ```
//!
//! A MAC of 16 bytes follows if bit 0 of the flags is set; it covers the direction and all bytes
//! before it. Feedback and experiments are encoded as in `wire.rs` of this crate. `wait` is in
//! milliseconds.

use core::time::Duration;

use super::seal::{Direction, HopKey, MAC_BYTES};
use crate::repair::{GAP_GROUPS_MAX, GroupGaps};
use crate::{Experiment, Feedback, GROUPS_MAX, Message};

const SOUNDING: u8 = 0x41;
const ECHO: u8 = 0x42;
const REPORT: u8 = 0x43;
const EXPERIMENT: u8 = 0x44;
const REPAIR: u8 = 0x45;
/// The flag of a message that ends with a MAC.
const SEALED: u8 = 1;
/// The bytes of kind, flags and count.
const PREFIX_BYTES: usize = 4;
const FEEDBACK_BYTES: usize = 40;
const GAPS_BYTES: usize = 28;
const STAMP_BYTES: usize = 16;

/// The maximum number of feedbacks in one report.
pub const FEEDBACKS_MAX: usize = 32;

/// The length of a sounding on a link in bytes, with a MAC and the headers of IPv4 and UDP.
pub(super) const SOUNDING_WIRE_BYTES: u32 = 28 + 32 + MAC_BYTES as u32;

/// Returns whether a datagram is a message of a hop, by its first byte. Otherwise it may be AMT's.
pub fn is_hop_message(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| first >> 4 == 4)
}

/// The counts of a parent at one point of the flow to a child. It is sent in order with the data
/// that it counts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Sounding {
    /// The random number of this hop since the parent started it.
    pub nonce: u64,
    /// The number of the sounding, from 1.
    pub number: u32,
    /// The data packets sent before it.
    pub packets: u64,
    /// The bytes of these packets, with the headers of IP and UDP.
    pub bytes: u64,
}

/// A child's answer to a sounding.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Echo {
    /// The nonce of the sounding.
    pub nonce: u64,
    /// The number of the sounding.
    pub number: u32,
    /// The random number of the child's counts, which begin at 0 when the child starts.
    pub child: u32,
    /// The data packets that arrived before the sounding.
    pub packets: u64,
    /// The bytes of these packets, with the headers of IP and UDP.
    pub bytes: u64,
}

/// Shows that a message is new: of each hop, number and counter rise together, in lexicographic
/// order.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The nonce of the hop; 0 from a receiver that has heard no sounding.
    pub nonce: u64,
    /// The number of the last sounding that was sent or heard.
    pub number: u32,
    /// The number of messages with a stamp that this end has sent before.
    pub counter: u32,
}

impl Stamp {
    /// Returns whether this stamp follows `last` of the same hop.
    pub fn follows(&self, last: &Stamp) -> bool {
        (self.number, self.counter) > (last.number, last.counter)
    }
}

/// A message between a parent and a child.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum HopMessage<'a> {
    /// The counts of a parent.
    Sounding(Sounding),
    /// A child's answer to a sounding.
    Echo(Echo),
    /// Feedback of a child.
    Report(Stamp, Feedbacks<'a>),
    /// An experiment of RLM, from a child or from the parent.
    Experiment(Stamp, Experiment),
    /// A child's request for repairs.
    Repair {
        /// The last sounding that the child has heard, and the counter of its messages.
        stamp: Stamp,
        /// The age up to which the child can use a packet, in whole milliseconds.
        wait: Duration,
        /// The groups that the child receives, with the packets that it misses.
        gaps: RepairGaps<'a>,
    },
}

/// The groups of a request for repairs, checked and not yet decoded.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RepairGaps<'a>(&'a [u8]);

impl RepairGaps<'_> {
    /// Iterates over the groups, in the order of the message.
    pub fn iter(&self) -> impl Iterator<Item = GroupGaps> {
        self.0
            .chunks_exact(GAPS_BYTES)
            .filter_map(|bytes| group_gaps(&mut Reader(bytes)))
    }
}

/// The feedbacks of a report, checked and not yet decoded.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Feedbacks<'a>(&'a [u8]);

impl Feedbacks<'_> {
    /// Iterates over the feedbacks, in the order of the message.
    pub fn iter(&self) -> impl Iterator<Item = Feedback> {
        self.0
            .chunks_exact(FEEDBACK_BYTES)
            .filter_map(|bytes| match Message::decode(bytes) {
                Ok(Message::Feedback(feedback)) => Some(feedback),
                _ => None,
            })
    }
}

/// The reason why bytes are not a message between a parent and a child.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HopWireError {
    /// The length is not that of the kind.
    #[error("{0} bytes are not the length of this kind of message")]
    Length(usize),
    /// The first byte is not a known kind.
    #[error(
        "kind {0:#04x} is not known: 0x41 is a sounding, 0x42 an echo, 0x43 a report, 0x44 an experiment, 0x45 a request for repairs"
    )]
    Kind(u8),
    /// A flag other than that of a MAC is set.
    #[error("the flags {0:#04x} are not known")]
    Flags(u8),
    /// The message is not sealed, and this end has a key.
    #[error("the message is not sealed; give its sender the key of this end")]
    Unsealed,
    /// The message is sealed, and this end has no key.
    #[error("the message is sealed; give this end the key of its sender")]
    NoKey,
    /// The MAC is not that of the message.
    #[error("the MAC is wrong: its sender has another key, or the message was changed")]
    Mac,
    /// The body of a report or of an experiment is refused.
    #[error("the body is refused: {0}")]
    Body(#[from] crate::WireError),
    /// The body is a message of another kind.
    #[error("the body is of another kind")]
    Other,
}

impl Sounding {
    /// Appends the encoded message to `out`.
    pub fn encode(&self, key: Option<&HopKey>, out: &mut Vec<u8>) {
        seal(out, Direction::Down, key, |out| {
            prefix(out, SOUNDING, 0, self.nonce, self.number);
            out.extend(self.packets.to_be_bytes());
            out.extend(self.bytes.to_be_bytes());
        });
    }
}

impl Echo {
    /// Appends the encoded message to `out`.
    pub fn encode(&self, key: Option<&HopKey>, out: &mut Vec<u8>) {
        seal(out, Direction::Up, key, |out| {
            prefix(out, ECHO, 0, self.nonce, self.number);
            out.extend(self.child.to_be_bytes());
            out.extend(self.packets.to_be_bytes());
            out.extend(self.bytes.to_be_bytes());
        });
    }
}

impl Stamp {
    /// Appends an encoded report to `out`, with the first [`FEEDBACKS_MAX`] feedbacks.
    pub fn encode_report(&self, feedbacks: &[Feedback], key: Option<&HopKey>, out: &mut Vec<u8>) {
        debug_assert!(feedbacks.len() <= FEEDBACKS_MAX, "split long reports");
        let feedbacks = &feedbacks[..feedbacks.len().min(FEEDBACKS_MAX)];
        seal(out, Direction::Up, key, |out| {
            self.put(out, REPORT, feedbacks.len() as u16);
            for feedback in feedbacks {
                out.extend(Message::Feedback(*feedback).encode().as_bytes());
            }
        });
    }

    /// Appends an encoded experiment to `out`.
    pub fn encode_experiment(
        &self,
        experiment: Experiment,
        direction: Direction,
        key: Option<&HopKey>,
        out: &mut Vec<u8>,
    ) {
        seal(out, direction, key, |out| {
            self.put(out, EXPERIMENT, 0);
            out.extend(Message::Experiment(experiment).encode().as_bytes());
        });
    }

    /// Appends an encoded request for repairs to `out`, with the first [`GAP_GROUPS_MAX`] groups.
    /// `wait` is the age up to which the child can use a packet, at most 49 days.
    pub fn encode_repair(
        &self,
        wait: Duration,
        gaps: &[GroupGaps],
        key: Option<&HopKey>,
        out: &mut Vec<u8>,
    ) {
        let gaps = &gaps[..gaps.len().min(GAP_GROUPS_MAX)];
        seal(out, Direction::Up, key, |out| {
            self.put(out, REPAIR, gaps.len() as u16);
            let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
            out.extend(wait_ms.to_be_bytes());
            for group in gaps {
                out.extend(group.session.to_be_bytes());
                out.extend([group.rank, 0, 0, 0]);
                out.extend(group.next.to_be_bytes());
                out.extend(group.missing.to_be_bytes());
            }
        });
    }

    fn put(&self, out: &mut Vec<u8>, kind: u8, count: u16) {
        prefix(out, kind, count, self.nonce, self.number);
        out.extend(self.counter.to_be_bytes());
    }
}

fn prefix(out: &mut Vec<u8>, kind: u8, count: u16, nonce: u64, number: u32) {
    out.extend([kind, 0]);
    out.extend(count.to_be_bytes());
    out.extend(nonce.to_be_bytes());
    out.extend(number.to_be_bytes());
}

/// Appends what `write` writes, and its MAC if there is a key.
fn seal(
    out: &mut Vec<u8>,
    direction: Direction,
    key: Option<&HopKey>,
    write: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    write(out);
    if let Some(key) = key {
        out[start + 1] = SEALED;
        let mac = key.mac(direction, &out[start..]);
        out.extend(mac);
    }
}

/// Returns the message without its MAC, which must be right.
fn unseal<'a>(
    bytes: &'a [u8],
    direction: Direction,
    key: Option<&HopKey>,
) -> Result<&'a [u8], HopWireError> {
    let &[_, flags, ..] = bytes else {
        return Err(HopWireError::Length(bytes.len()));
    };
    match (flags, key) {
        (0, None) => Ok(bytes),
        (0, Some(_)) => Err(HopWireError::Unsealed),
        (SEALED, None) => Err(HopWireError::NoKey),
        (SEALED, Some(key)) => {
            let (message, mac) = bytes
                .split_last_chunk::<MAC_BYTES>()
                .ok_or(HopWireError::Length(bytes.len()))?;
            let is_right = key.verifies(direction, message, mac);
            is_right.then_some(message).ok_or(HopWireError::Mac)
        }
        (other, _) => Err(HopWireError::Flags(other)),
    }
}

impl HopMessage<'_> {
    /// Decodes a datagram that came in `direction`. With a key, only sealed messages are accepted;
    /// without one, only unsealed messages.
    ///
    /// # Errors
    /// If the datagram is not exactly one message, its MAC is wrong, or its body is refused.
    pub fn decode<'a>(
        bytes: &'a [u8],
        direction: Direction,
        key: Option<&HopKey>,
    ) -> Result<HopMessage<'a>, HopWireError> {
        let kind = *bytes.first().ok_or(HopWireError::Length(0))?;
        if !matches!(kind, SOUNDING..=REPAIR) {
            return Err(HopWireError::Kind(kind));
        }
        let mut reader = Reader(unseal(bytes, direction, key)?.get(2..).unwrap_or_default());
        let decoded = match kind {
            SOUNDING => sounding(&mut reader).map(HopMessage::Sounding),
            ECHO => echo(&mut reader).map(HopMessage::Echo),
            REPORT => report(&mut reader)?,
            REPAIR => repair(&mut reader),
            _ => experiment(&mut reader)?,
        };
        decoded
            .filter(|_| reader.0.is_empty())
            .ok_or(HopWireError::Length(bytes.len()))
    }
}

/// The bytes that are not yet decoded.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.0)
    }

    fn stamp(&mut self) -> Option<Stamp> {
        Some(Stamp {
            nonce: self.u64()?,
            number: self.u32()?,
            counter: self.u32()?,
        })
    }
}

fn sounding(reader: &mut Reader<'_>) -> Option<Sounding> {
    reader.u16().filter(|count| *count == 0)?;
    Some(Sounding {
        nonce: reader.u64()?,
        number: reader.u32()?,
        packets: reader.u64()?,
        bytes: reader.u64()?,
    })
}

fn echo(reader: &mut Reader<'_>) -> Option<Echo> {
    reader.u16().filter(|count| *count == 0)?;
    Some(Echo {
        nonce: reader.u64()?,
        number: reader.u32()?,
        child: reader.u32()?,
        packets: reader.u64()?,
        bytes: reader.u64()?,
    })
}

fn report<'a>(reader: &mut Reader<'a>) -> Result<Option<HopMessage<'a>>, HopWireError> {
    let (Some(count), Some(stamp)) = (reader.u16(), reader.stamp()) else {
        return Ok(None);
    };
    let count = usize::from(count);
    let bytes = reader.rest();
    if count > FEEDBACKS_MAX || bytes.len() != count * FEEDBACK_BYTES {
        return Ok(None);
    }
    for feedback in bytes.chunks_exact(FEEDBACK_BYTES) {
        if !matches!(Message::decode(feedback)?, Message::Feedback(_)) {
            return Err(HopWireError::Other);
        }
    }
    Ok(Some(HopMessage::Report(stamp, Feedbacks(bytes))))
}

fn repair<'a>(reader: &mut Reader<'a>) -> Option<HopMessage<'a>> {
    let count = usize::from(reader.u16()?);
    let stamp = reader.stamp()?;
    let wait = Duration::from_millis(reader.u32()?.into());
    let bytes = reader.rest();
    let gaps = RepairGaps(bytes);
    let is_right = count <= GAP_GROUPS_MAX
        && bytes.len() == count * GAPS_BYTES
        && gaps.iter().count() == count;
    is_right.then_some(HopMessage::Repair { stamp, wait, gaps })
}

/// Decodes the gaps of one group; `None` if the rank is too high or a reserved byte is not 0.
fn group_gaps(reader: &mut Reader<'_>) -> Option<GroupGaps> {
    let session = reader.u32()?;
    let [rank, 0, 0, 0] = reader.take()? else {
        return None;
    };
    Some(GroupGaps {
        session,
        rank: Some(rank).filter(|rank| *rank < GROUPS_MAX)?,
        next: reader.u32()?,
        missing: u128::from_be_bytes(reader.take()?),
    })
}

fn experiment<'a>(reader: &mut Reader<'a>) -> Result<Option<HopMessage<'a>>, HopWireError> {
    let (Some(0), Some(stamp)) = (reader.u16(), reader.stamp()) else {
        return Ok(None);
    };
    let body = reader.rest();
    if body.len() != 8 {
        return Ok(None);
    }
    match Message::decode(body)? {
        Message::Experiment(experiment) => Ok(Some(HopMessage::Experiment(stamp, experiment))),
        _ => Err(HopWireError::Other),
    }
}

const _: () = assert!(
    PREFIX_BYTES + STAMP_BYTES + FEEDBACKS_MAX * FEEDBACK_BYTES + MAC_BYTES <= 1400,
    "a report fits into one datagram"
);
const _: () = assert!(
    PREFIX_BYTES + STAMP_BYTES + 4 + GAP_GROUPS_MAX * GAPS_BYTES + MAC_BYTES <= 1400,
    "a request for repairs fits into one datagram"
);
