//! Datagrams of live ACP: ACP's segments, and the cookie with which an end proves its address.
//!
//! ```text
//!   Open       an Open of ACP, then a cookie of 16 bytes: zeros at first
//!   Challenge  a Probe of ACP with the highest bit of its first byte set, then a cookie
//!   others     as ACP encodes them; the frame follows Data
//! ```
//!
//! A Challenge answers an Open whose cookie is not valid. It is shorter than an Open, so a forged
//! source address gains an attacker nothing. Decoding is strict, as in
//! [`Segment::decode`](manyflow_anypoint::Segment::decode).

use manyflow_anypoint::{Body, Encoded, Segment, WireError};

use super::Number;

/// The length of a cookie in bytes.
pub const COOKIE_BYTES: usize = 16;
/// The cookie of an Open before the first Challenge.
pub const NO_COOKIE: Cookie = [0; COOKIE_BYTES];
/// The type of an Open, in the second byte of a segment.
const OPEN: u8 = 1;
/// The bit of the first byte that makes a Probe a Challenge.
const CHALLENGE: u8 = 0x80;

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
}

/// Decodes a datagram.
///
/// # Errors
/// If the bytes are not the encoded form of a datagram.
pub fn decode(bytes: &[u8]) -> Result<Datagram, WireError> {
    match bytes {
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

fn decode_challenge(bytes: &[u8]) -> Result<Datagram, WireError> {
    let (probe, cookie) = split_cookie(bytes)?;
    let mut copy = challenge_header(0);
    if probe.len() != copy.as_bytes().len() {
        let (have, want) = (bytes.len(), copy.as_bytes().len() + COOKIE_BYTES);
        return Err(WireError::Short { have, want });
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
    let short = WireError::Short {
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

    fn append(&mut self, part: &[u8]) {
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
    use super::*;
    use manyflow_anypoint::Reason;
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

    proptest! {
        #[test]
        fn a_datagram_has_one_encoding(
            kind in 0_u8..10, first in prop_oneof![Just(1_u8), Just(0x81), any::<u8>()],
            rest in prop::collection::vec(prop_oneof![Just(0_u8), any::<u8>()], 0..64),
        ) {
            let bytes = [&[first, kind][..], &rest].concat();
            let again = match decode(&bytes) {
                Err(_) => return Ok(()),
                Ok(Datagram::Challenge(number, cookie)) => encode_challenge(number, cookie),
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
