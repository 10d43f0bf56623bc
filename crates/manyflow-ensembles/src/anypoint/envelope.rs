//! Datagrams of live ACP: ACP's segments, and the cookie with which an end proves its address.
//!
//! ```text
//!   Open       an Open of ACP, then a cookie of 16 bytes: zeros at first
//!   Challenge  a Probe of ACP with the highest bit of its first byte set, then a cookie
//!   others     as ACP encodes them; the frame follows Data
//!
//!     byte 0     1    2        3       4            8            10      12
//!   PathProbe  | 81 | 9    | 0     | connection | id                  | zeros up to the size probed |
//!   PathAnswer | 81 | 10   | bytes         | connection | id                  |
//!   Part       | 81 | 11   | index | count | connection | datagram   | total | a part of a datagram ... |
//!   Admission  | 81 | 12   | prefix        | connection | credit              |
//! ```
//!
//! A PathProbe asks whether the path carries its size
//! ([`PathMtu`](manyflow_anypoint::PathMtu)), and a PathAnswer says how many bytes have arrived. A
//! datagram of `total` bytes that is too long for its path is sent as `count` Parts of `total /
//! count` bytes, rounded up. The last Part has the rest. The next host joins the Parts.
//!
//! A switch whose initiators share a connection sends an Admission in place of an Accept. It states
//! the initiator's [`Prefix`], 1 to 1023, which all keys of answers to it have.
//!
//! A Challenge answers an Open whose cookie is not valid. It is shorter than an Open, so a forged
//! source address gains an attacker nothing. Decoding is strict, as in
//! [`Segment::decode`](manyflow_anypoint::Segment::decode).

use std::ops::Range;

use manyflow_anypoint::switch::Prefix;
use manyflow_anypoint::{Body, Encoded, Segment, WireError};
use manyflow_core::wire::TooShort;

use super::Number;

/// The length of a cookie in bytes.
pub const COOKIE_BYTES: usize = 16;
/// The cookie of an Open before the first Challenge.
pub const NO_COOKIE: Cookie = [0; COOKIE_BYTES];
/// The type of an Open, in the second byte of a segment.
const OPEN: u8 = 1;
/// The bit of the first byte that makes a Probe a Challenge, and that the next four types have.
const CHALLENGE: u8 = 0x80;
/// The first byte of the next four types: version 1.
const VERSION_1: u8 = CHALLENGE | 1;
const PATH_PROBE: u8 = 9;
const PATH_ANSWER: u8 = 10;
const PART: u8 = 11;
const ADMISSION: u8 = 12;
/// The length of a PathProbe without its padding, of a PathAnswer, of an Admission, and of the
/// header of a Part.
pub const PATH_HEADER_BYTES: usize = 12;
/// Maximum number of parts of a datagram: the longest one on the smallest path.
pub const PARTS_MAX: u8 = 17;

/// Proves that the sender of an Open receives at its address.
pub type Cookie = [u8; COOKIE_BYTES];

/// A datagram.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Datagram {
    /// An Open and its cookie.
    Open(Segment, Cookie),
    /// Any other segment, and the length of its header; the rest is the frame.
    Segment(Segment, usize),
    /// Asks the sender of an Open to repeat it with this cookie.
    Challenge(Number, Cookie),
    /// Asks whether its size, the last value, passes; the other values are the connection and what
    /// the answer repeats.
    PathProbe(Number, u32, u16),
    /// Answers a PathProbe with this number, of which this many bytes have arrived.
    PathAnswer(Number, u32, u16),
    /// A part of a datagram; its bytes follow the header of [`PATH_HEADER_BYTES`].
    Part(Part),
    /// Accepts the connection of an initiator that shares it with others; the values are the
    /// initiator's prefix, which is not [`Prefix::NONE`], and the credit in bytes.
    Admission(Number, Prefix, u32),
}

/// The header of a part of a datagram.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The connection of the datagram.
    pub connection: Number,
    /// The position among the parts, below `count`.
    pub index: u8,
    /// The number of parts, 2 to [`PARTS_MAX`].
    pub count: u8,
    /// The number of the datagram on its path. Numbers are used again after 65,536 datagrams.
    pub datagram: u16,
    /// The length of the whole datagram in bytes.
    pub total: u16,
}

impl Part {
    /// Returns the place of this part in its datagram.
    pub fn range(&self) -> Range<usize> {
        let total = usize::from(self.total);
        let each = total.div_ceil(usize::from(self.count));
        let at = |index| (each * usize::from(index)).min(total);
        at(self.index)..at(self.index + 1)
    }
}

/// Decodes a datagram.
///
/// # Errors
/// If the bytes are not the encoded form of a datagram.
pub fn decode(bytes: &[u8]) -> Result<Datagram, WireError> {
    match bytes {
        [VERSION_1, PATH_PROBE..=ADMISSION, ..] => decode_path(bytes),
        [first, ..] if first & CHALLENGE != 0 => decode_challenge(bytes),
        [_, OPEN, ..] => {
            let (segment, cookie) = split_cookie(bytes)?;
            let (segment, _) = Segment::decode(segment)?;
            Ok(Datagram::Open(segment, cookie))
        }
        _ => {
            let (segment, length) = Segment::decode(bytes)?;
            Ok(Datagram::Segment(segment, length))
        }
    }
}

/// Decodes a datagram with one of the last four types.
fn decode_path(bytes: &[u8]) -> Result<Datagram, WireError> {
    let short = TooShort {
        have: bytes.len(),
        want: PATH_HEADER_BYTES,
    };
    let (header, rest) = bytes
        .split_first_chunk::<PATH_HEADER_BYTES>()
        .ok_or(short)?;
    let [_, kind, index, count, c0, c1, c2, c3, i0, i1, i2, i3] = *header;
    let connection = Number::from_be_bytes([c0, c1, c2, c3]);
    let id = u32::from_be_bytes([i0, i1, i2, i3]);
    let part = Part {
        connection,
        index,
        count,
        datagram: u16::from_be_bytes([i0, i1]),
        total: u16::from_be_bytes([i2, i3]),
    };
    match (kind, u16::try_from(bytes.len())) {
        (PATH_PROBE, Ok(size)) if index == 0 && count == 0 && rest.iter().all(|b| *b == 0) => {
            Ok(Datagram::PathProbe(connection, id, size))
        }
        (PATH_ANSWER, _) if rest.is_empty() => {
            let size = u16::from_be_bytes([index, count]);
            Ok(Datagram::PathAnswer(connection, id, size))
        }
        (ADMISSION, _) if rest.is_empty() => {
            let prefix = Prefix::new(u16::from_be_bytes([index, count]));
            match prefix.filter(|prefix| *prefix != Prefix::NONE) {
                Some(prefix) => Ok(Datagram::Admission(connection, prefix, id)),
                None => Err(WireError::Type(kind)),
            }
        }
        (PART, _)
            if (2..=PARTS_MAX).contains(&count)
                && index < count
                && !rest.is_empty()
                && rest.len() == part.range().len() =>
        {
            Ok(Datagram::Part(part))
        }
        _ => Err(WireError::Type(kind)),
    }
}

fn path_header(kind: u8, middle: [u8; 2], connection: Number, last: [u8; 4]) -> Short {
    let mut short = Short {
        bytes: [0; SHORT_BYTES_MAX],
        length: 0,
    };
    short.append(&[VERSION_1, kind]);
    short.append(&middle);
    short.append(&connection.to_be_bytes());
    short.append(&last);
    debug_assert_eq!(short.length, PATH_HEADER_BYTES);
    short
}

/// Encodes a PathProbe, without the zeros that follow.
pub fn encode_path_probe(connection: Number, id: u32) -> Short {
    path_header(PATH_PROBE, [0; 2], connection, id.to_be_bytes())
}

/// Encodes the answer to a PathProbe of this many bytes.
pub fn encode_path_answer(connection: Number, id: u32, bytes: u16) -> Short {
    path_header(
        PATH_ANSWER,
        bytes.to_be_bytes(),
        connection,
        id.to_be_bytes(),
    )
}

/// Encodes the Accept of an initiator with this prefix, which is not [`Prefix::NONE`], and with a
/// credit in bytes.
pub fn encode_admission(connection: Number, prefix: Prefix, credit: u32) -> Short {
    debug_assert_ne!(prefix, Prefix::NONE);
    path_header(
        ADMISSION,
        prefix.number().to_be_bytes(),
        connection,
        credit.to_be_bytes(),
    )
}

/// Encodes the header of a part.
pub fn encode_part(part: &Part) -> Short {
    let [d0, d1] = part.datagram.to_be_bytes();
    let [t0, t1] = part.total.to_be_bytes();
    let middle = [part.index, part.count];
    path_header(PART, middle, part.connection, [d0, d1, t0, t1])
}

fn decode_challenge(bytes: &[u8]) -> Result<Datagram, WireError> {
    let (probe, cookie) = split_cookie(bytes)?;
    let mut copy = challenge_header(0);
    if probe.len() != copy.as_bytes().len() {
        let (have, want) = (bytes.len(), copy.as_bytes().len() + COOKIE_BYTES);
        return Err(TooShort { have, want }.into());
    }
    copy.bytes[..probe.len()].copy_from_slice(probe);
    copy.bytes[0] &= !CHALLENGE;
    match Segment::decode(copy.as_bytes())? {
        (segment, _) if segment.body == Body::Probe => {
            Ok(Datagram::Challenge(segment.connection, cookie))
        }
        _ => Err(WireError::Type(probe[1])),
    }
}

/// Splits the cookie off the end.
fn split_cookie(bytes: &[u8]) -> Result<(&[u8], Cookie), WireError> {
    let short = TooShort {
        have: bytes.len(),
        want: COOKIE_BYTES + 8,
    };
    let (segment, cookie) = bytes.split_last_chunk().ok_or(short)?;
    Ok((segment, *cookie))
}

/// A short datagram without a frame, encoded.
#[derive(Copy, Clone, Debug)]
pub struct Short {
    bytes: [u8; SHORT_BYTES_MAX],
    length: usize,
}

const SHORT_BYTES_MAX: usize = manyflow_anypoint::HEADER_BYTES_MAX + COOKIE_BYTES;

impl Short {
    fn of(segment: &Encoded, cookie: Option<Cookie>) -> Short {
        let mut short = Short {
            bytes: [0; SHORT_BYTES_MAX],
            length: 0,
        };
        short.append(segment.as_bytes());
        if let Some(cookie) = cookie {
            short.append(&cookie);
        }
        short
    }

    /// Appends bytes, of at most the space of a cookie after a segment.
    pub(super) fn append(&mut self, part: &[u8]) {
        self.bytes[self.length..][..part.len()].copy_from_slice(part);
        self.length += part.len();
    }

    /// Returns the bytes of the datagram.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

fn challenge_header(connection: Number) -> Short {
    let body = Body::Probe;
    let mut short = Short::of(&Segment { connection, body }.encode(), None);
    short.bytes[0] |= CHALLENGE;
    short
}

/// Encodes a Challenge.
pub fn encode_challenge(connection: Number, cookie: Cookie) -> Short {
    let mut short = challenge_header(connection);
    short.append(&cookie);
    short
}

/// Encodes a segment, without its frame. An Open gets the cookie.
pub fn encode(segment: &Segment, cookie: &Cookie) -> Short {
    let is_open = matches!(segment.body, Body::Open { .. });
    Short::of(&segment.encode(), is_open.then_some(*cookie))
}

#[cfg(test)]
mod tests {
    use manyflow_anypoint::Reason;

    use super::*;
    use proptest::prelude::*;

    fn segment(body: Body) -> Segment {
        let connection = 0x0102_0304;
        Segment { connection, body }
    }

    #[test]
    fn a_challenge_is_shorter_than_the_open_that_it_answers() {
        let open = encode(&segment(Body::Open { credit: 7 }), &NO_COOKIE);
        let challenge = encode_challenge(0x0102_0304, [9; 16]);
        assert!(challenge.as_bytes().len() < open.as_bytes().len());
    }

    #[test]
    fn datagrams_survive_their_encoding() {
        let open = segment(Body::Open { credit: 7 });
        let decoded = decode(encode(&open, &[5; 16]).as_bytes());
        assert_eq!(decoded, Ok(Datagram::Open(open, [5; 16])));
        let decoded = decode(encode_challenge(3, [9; 16]).as_bytes());
        assert_eq!(decoded, Ok(Datagram::Challenge(3, [9; 16])));
        let reset = segment(Body::Reset(Reason::Refused));
        let bytes = encode(&reset, &[5; 16]);
        let length = bytes.as_bytes().len();
        assert_eq!(
            decode(bytes.as_bytes()),
            Ok(Datagram::Segment(reset, length))
        );
    }

    #[test]
    fn an_open_without_a_cookie_and_a_cut_challenge_are_refused() {
        let open = segment(Body::Open { credit: 7 }).encode();
        assert!(decode(open.as_bytes()).is_err());
        let challenge = encode_challenge(3, [9; 16]);
        let bytes = challenge.as_bytes();
        (0..bytes.len()).for_each(|end| assert!(decode(&bytes[..end]).is_err(), "{end}"));
        assert!(decode(&[bytes, &[0]].concat()).is_err());
    }

    #[test]
    fn a_part_states_its_place_and_others_are_refused() {
        let part = |index, count, total| Part {
            connection: 5,
            index,
            count,
            datagram: 9,
            total,
        };
        let bytes = |part: &Part, length| [encode_part(part).as_bytes(), &vec![7; length]].concat();
        let last = part(1, 2, 1441);
        assert_eq!(
            (part(0, 2, 1441).range(), last.range()),
            (0..721, 721..1441)
        );
        assert_eq!(decode(&bytes(&last, 720)), Ok(Datagram::Part(last)));
        let refused = [
            (last, 721),
            (part(2, 2, 10), 5),
            (part(0, 1, 10), 10),
            (part(0, PARTS_MAX + 1, 180), 10),
            (part(3, 4, 3), 0),
            (part(0, 2, 0), 0),
        ];
        for (part, length) in refused {
            assert!(decode(&bytes(&part, length)).is_err(), "{part:?} {length}");
        }
    }

    #[test]
    fn a_path_probe_is_answered_with_its_size() {
        let mut probe = encode_path_probe(5, 6).as_bytes().to_vec();
        probe.resize(1440, 0);
        assert_eq!(decode(&probe), Ok(Datagram::PathProbe(5, 6, 1440)));
        let answer = encode_path_answer(5, 6, 1440);
        assert_eq!(
            decode(answer.as_bytes()),
            Ok(Datagram::PathAnswer(5, 6, 1440))
        );
        *probe.last_mut().unwrap() = 1;
        assert!(decode(&probe).is_err());
    }

    #[test]
    fn an_admission_has_a_prefix() {
        let admission = |number: u16| {
            let mut bytes = encode_path_answer(5, 9, number).as_bytes().to_vec();
            bytes[1] = ADMISSION;
            bytes
        };
        let prefix = Prefix::new(1023).unwrap();
        assert_eq!(admission(1023), encode_admission(5, prefix, 9).as_bytes());
        assert_eq!(
            decode(&admission(1023)),
            Ok(Datagram::Admission(5, prefix, 9))
        );
        assert!(decode(&admission(0)).is_err(), "nobody's prefix");
        assert!(decode(&admission(1024)).is_err(), "eleven bits");
        assert!(decode(&[&admission(1)[..], &[0]].concat()).is_err());
    }

    proptest! {
        #[test]
        fn a_datagram_has_one_encoding(
            kind in 0_u8..13, first in prop_oneof![Just(1_u8), Just(0x81), any::<u8>()],
            rest in prop::collection::vec(prop_oneof![Just(0_u8), any::<u8>()], 0..64),
        ) {
            let bytes = [&[first, kind][..], &rest].concat();
            let again = match decode(&bytes) {
                Err(_) => return Ok(()),
                Ok(Datagram::Challenge(number, cookie)) => encode_challenge(number, cookie),
                Ok(Datagram::PathProbe(number, id, _)) => encode_path_probe(number, id),
                Ok(Datagram::PathAnswer(number, id, size)) => encode_path_answer(number, id, size),
                Ok(Datagram::Part(part)) => encode_part(&part),
                Ok(Datagram::Admission(number, prefix, credit)) => {
                    encode_admission(number, prefix, credit)
                }
                Ok(Datagram::Open(segment, cookie)) => encode(&segment, &cookie),
                Ok(Datagram::Segment(segment, length)) => {
                    prop_assert!(length <= bytes.len());
                    encode(&segment, &NO_COOKIE)
                }
            };
            prop_assert_eq!(again.as_bytes(), &bytes[..again.as_bytes().len()]);
        }
    }
}
