//! The encoding of ACP's segments over UDP. Integers are in network order; each column below is a
//! word of 32 bits.
//!
//! ```text
//!     byte 0         4            8          12         16           20       24     28     32
//!   Open   | first | connection | credit   |
//!   Accept | first | connection | credit   |
//!   Data   | first | connection | sequence | feedback | cwnd       | rtt_us | key  | the frame ...
//!   Ack    | first | connection | of       | feedback | cumulative | credit | gap  | gap  | gap  |
//!   Close  | first | connection | sequence |
//!   Probe  | first | connection |
//!   Alive  | first | connection |
//!   Reset  | first | connection |
//!
//!   first  | version: 1 | type: 1 to 8 in the order above | reason: 1 to 4 in a Reset, else 0 | flags |
//!   flags  | 1: an XCP router has handled the frame (in Data and Ack)
//!          | 2: a switch has averaged the feedback (in Ack)
//!   gap    | offset         | frames          |
//! ```
//!
//! All fields that a switch rewrites are at fixed offsets, the same in a frame and in its
//! acknowledgement if both have the field. So a switch can rewrite a packet in place. For the same
//! reason an Ack always has three gaps; unused gaps are zero.
//!
//! Decoding is strict: a segment has exactly one encoding, and all other bytes are refused.

use manyflow_core::wire::{TooShort, words};
use manyflow_core::xcp::{Congestion, Feedback, WindowChange};

use super::segment::{Ack, Body, Data, Gap, Reason, Segment};

/// The version of ACP that this crate speaks.
const VERSION: u8 = 1;

const OPEN: u8 = 1;
const ACCEPT: u8 = 2;
const DATA: u8 = 3;
const ACK: u8 = 4;
const CLOSE: u8 = 5;
const PROBE: u8 = 6;
const ALIVE: u8 = 7;
const RESET: u8 = 8;

/// The flag of Data and Ack: an XCP router on the path has handled the frame.
const ANSWERED: u8 = 1;
/// The flag of Ack: a switch has averaged the feedback.
const AVERAGED: u8 = 2;

/// The length in bytes of the longest encoded header, that of an acknowledgement.
pub const HEADER_BYTES_MAX: usize = 36;

/// The reason why bytes are not a segment of ACP.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// There are fewer bytes than the header takes.
    #[error(transparent)]
    Short(#[from] TooShort),
    /// The first byte is not the version of this crate.
    #[error("version {0} is not known: this is version {VERSION}")]
    Version(u8),
    /// The second byte is not a known type.
    #[error("type {0} is not known: types are 1 to {RESET}")]
    Type(u8),
    /// A Reset has an unknown reason.
    #[error("reason {0} for a reset is not known: reasons are 1 to 4")]
    Reason(u8),
    /// Bits of the first word that have no meaning in this type are not zero.
    #[error("reserved bits are not zero")]
    Reserved,
    /// The gaps of an acknowledgement are not in their only valid form.
    #[error("{0}")]
    Gaps(&'static str),
    /// Bytes follow a segment that carries no frame.
    #[error("{0} bytes follow a segment that carries no frame")]
    Trailing(usize),
}

/// The length of the header of Data in bytes.
pub const DATA_HEADER_BYTES: u16 = 28;

/// An encoded header.
pub type Encoded = manyflow_core::wire::Encoded<HEADER_BYTES_MAX>;

impl Segment {
    /// Returns the length of the ACP header alone, in bytes.
    pub(super) fn header_bytes(&self) -> u32 {
        match self.body {
            Body::Data(_) => DATA_HEADER_BYTES.into(),
            Body::Ack(_) => 36,
            Body::Open { .. } | Body::Accept { .. } | Body::Close { .. } => 12,
            Body::Probe | Body::Alive | Body::Reset(_) => 8,
        }
    }

    /// Encodes the header. Invalid gaps of an [`Ack`] are encoded unchanged;
    /// [`decode`](Segment::decode) refuses them.
    pub fn encode(&self) -> Encoded {
        let connection = self.connection;
        match self.body {
            Body::Open { credit } => Encoded::new([VERSION, OPEN, 0, 0], [connection, credit]),
            Body::Accept { credit } => Encoded::new([VERSION, ACCEPT, 0, 0], [connection, credit]),
            Body::Data(data) => {
                let Congestion {
                    cwnd,
                    rtt_us,
                    feedback,
                    answered,
                } = data.congestion;
                let words = [
                    connection,
                    data.sequence,
                    feedback.0 as u32,
                    cwnd,
                    rtt_us,
                    data.key,
                ];
                Encoded::new([VERSION, DATA, 0, flag(ANSWERED, answered)], words)
            }
            Body::Ack(ack) => {
                let [first, second, third] = ack
                    .missing
                    .map(|gap| u32::from(gap.offset) << 16 | u32::from(gap.frames));
                let words = [
                    connection,
                    ack.of,
                    ack.feedback.change.0 as u32,
                    ack.cumulative,
                    ack.credit,
                    first,
                    second,
                    third,
                ];
                let Feedback {
                    answered, averaged, ..
                } = ack.feedback;
                let flags = flag(ANSWERED, answered) | flag(AVERAGED, averaged);
                Encoded::new([VERSION, ACK, 0, flags], words)
            }
            Body::Close { sequence } => {
                Encoded::new([VERSION, CLOSE, 0, 0], [connection, sequence])
            }
            Body::Probe => Encoded::new([VERSION, PROBE, 0, 0], [connection]),
            Body::Alive => Encoded::new([VERSION, ALIVE, 0, 0], [connection]),
            Body::Reset(reason) => {
                Encoded::new([VERSION, RESET, reason_code(reason), 0], [connection])
            }
        }
    }

    /// Decodes a datagram. Returns the segment and the length of its header. A [`Body::Data`] is
    /// followed by the frame; nothing may follow any other segment.
    ///
    /// # Errors
    /// If the bytes are not the [`encode`](Segment::encode)d form of a valid segment, followed by a
    /// frame if the segment is [`Body::Data`].
    pub fn decode(bytes: &[u8]) -> Result<(Segment, usize), WireError> {
        let ([version, kind, reason, flags], [connection]) = words(bytes)?;
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        let known_flags = match kind {
            DATA => ANSWERED,
            ACK => ANSWERED | AVERAGED,
            _ => 0,
        };
        if flags & !known_flags != 0 || (reason != 0 && kind != RESET) {
            return Err(WireError::Reserved);
        }
        let body = match kind {
            OPEN => words(bytes).map(|(_, [_, credit])| Body::Open { credit })?,
            ACCEPT => words(bytes).map(|(_, [_, credit])| Body::Accept { credit })?,
            DATA => Body::Data(data(bytes)?),
            ACK => Body::Ack(ack(bytes)?),
            CLOSE => words(bytes).map(|(_, [_, sequence])| Body::Close { sequence })?,
            PROBE => Body::Probe,
            ALIVE => Body::Alive,
            RESET => Body::Reset(reason_of(reason)?),
            other => return Err(WireError::Type(other)),
        };
        let segment = Segment { connection, body };
        let length = segment.header_bytes() as usize;
        match body {
            Body::Data(_) => Ok((segment, length)),
            _ if bytes.len() == length => Ok((segment, length)),
            _ => Err(WireError::Trailing(bytes.len() - length)),
        }
    }
}

fn data(bytes: &[u8]) -> Result<Data, WireError> {
    let ([.., flags], [_, sequence, feedback, cwnd, rtt_us, key]) = words(bytes)?;
    Ok(Data {
        sequence,
        key,
        congestion: Congestion {
            cwnd,
            rtt_us,
            feedback: WindowChange(feedback as i32),
            answered: flags & ANSWERED != 0,
        },
    })
}

fn ack(bytes: &[u8]) -> Result<Ack, WireError> {
    let ([.., flags], [_, of, feedback, cumulative, credit, first, second, third]) = words(bytes)?;
    let missing = [first, second, third].map(|word| Gap {
        offset: (word >> 16) as u16,
        frames: word as u16,
    });
    check_gaps(&missing)?;
    Ok(Ack {
        cumulative,
        of,
        credit,
        feedback: Feedback {
            change: WindowChange(feedback as i32),
            answered: flags & ANSWERED != 0,
            averaged: flags & AVERAGED != 0,
        },
        missing,
    })
}

/// Checks that used gaps come first, in ascending order, and are not adjacent: adjacent gaps would
/// be one.
fn check_gaps(missing: &[Gap; 3]) -> Result<(), WireError> {
    // The lowest offset of the next gap; `None` after an unused gap.
    let mut free = Some(0);
    for gap in missing {
        let (offset, frames) = (u32::from(gap.offset), u32::from(gap.frames));
        free = match free {
            _ if frames == 0 && offset != 0 => {
                return Err(WireError::Gaps(
                    "a gap without frames has an offset that is not zero",
                ));
            }
            _ if frames == 0 => None,
            None => return Err(WireError::Gaps("a gap follows one that is not in use")),
            Some(free) if offset < free => {
                return Err(WireError::Gaps(
                    "a gap begins before or right behind the end of the one before it",
                ));
            }
            _ if offset + frames > 1 << 16 => {
                return Err(WireError::Gaps(
                    "a gap ends beyond 65,536 frames after the cumulative number",
                ));
            }
            Some(_) => Some(offset + frames + 1),
        };
    }
    Ok(())
}

/// Returns `flag` if it `is_set`, else no flag.
fn flag(flag: u8, is_set: bool) -> u8 {
    if is_set { flag } else { 0 }
}

fn reason_code(reason: Reason) -> u8 {
    match reason {
        Reason::Unknown => 1,
        Reason::Refused => 2,
        Reason::TimedOut => 3,
        Reason::Aborted => 4,
    }
}

fn reason_of(code: u8) -> Result<Reason, WireError> {
    match code {
        1 => Ok(Reason::Unknown),
        2 => Ok(Reason::Refused),
        3 => Ok(Reason::TimedOut),
        4 => Ok(Reason::Aborted),
        other => Err(WireError::Reason(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LOWER_BYTES, NO_GAPS, UNLIMITED};
    use proptest::prelude::*;

    const CONNECTION: u32 = 0x0102_0304;

    const fn gap(offset: u16, frames: u16) -> Gap {
        Gap { offset, frames }
    }

    fn segment(body: Body) -> Segment {
        let connection = CONNECTION;
        Segment { connection, body }
    }

    const DATA_HEADER: Data = Data {
        sequence: 0x1112_1314,
        key: 0x2122_2324,
        congestion: Congestion {
            cwnd: 0x3132_3334,
            rtt_us: 0x4142_4344,
            feedback: WindowChange(-2),
            answered: true,
        },
    };

    #[rustfmt::skip]
    const DATA_BYTES: [u8; 28] = [
        1, 3, 0, 1,
        0x01, 0x02, 0x03, 0x04,
        0x11, 0x12, 0x13, 0x14,
        0xff, 0xff, 0xff, 0xfe,
        0x31, 0x32, 0x33, 0x34,
        0x41, 0x42, 0x43, 0x44,
        0x21, 0x22, 0x23, 0x24,
    ];

    const ACK_HEADER: Ack = Ack {
        cumulative: 0x1112_1314,
        of: 0x1112_1319,
        credit: 0x2122_2324,
        feedback: Feedback {
            change: WindowChange(0x3132_3334),
            answered: true,
            averaged: true,
        },
        missing: [gap(0, 1), gap(0x0203, 0x0405), gap(0, 0)],
    };

    #[rustfmt::skip]
    const ACK_BYTES: [u8; 36] = [
        1, 4, 0, 3,
        0x01, 0x02, 0x03, 0x04,
        0x11, 0x12, 0x13, 0x19,
        0x31, 0x32, 0x33, 0x34,
        0x11, 0x12, 0x13, 0x14,
        0x21, 0x22, 0x23, 0x24,
        0, 0, 0, 1,
        0x02, 0x03, 0x04, 0x05,
        0, 0, 0, 0,
    ];

    #[test]
    fn the_bytes_of_each_type_are_those_of_the_table() {
        let sequence = 0x1112_1314;
        let cases: [(Body, &[u8]); 9] = [
            (
                Body::Open {
                    credit: 0x0001_e848,
                },
                &[1, 1, 0, 0, 1, 2, 3, 4, 0, 1, 0xe8, 0x48],
            ),
            (
                Body::Accept { credit: UNLIMITED },
                &[1, 2, 0, 0, 1, 2, 3, 4, 255, 255, 255, 255],
            ),
            (Body::Data(DATA_HEADER), &DATA_BYTES),
            (Body::Ack(ACK_HEADER), &ACK_BYTES),
            (
                Body::Close { sequence },
                &[1, 5, 0, 0, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14],
            ),
            (Body::Probe, &[1, 6, 0, 0, 1, 2, 3, 4]),
            (Body::Alive, &[1, 7, 0, 0, 1, 2, 3, 4]),
            (Body::Reset(Reason::Unknown), &[1, 8, 1, 0, 1, 2, 3, 4]),
            (Body::Reset(Reason::Aborted), &[1, 8, 4, 0, 1, 2, 3, 4]),
        ];
        for (body, bytes) in cases {
            assert_eq!(segment(body).encode().as_bytes(), bytes);
            assert_eq!(Segment::decode(bytes), Ok((segment(body), bytes.len())));
        }
    }

    #[test]
    fn fewer_bytes_than_a_header_are_refused() {
        let lengths = [12, 12, 28, 36, 12, 8, 8, 8];
        for (kind, whole) in (1..).zip(lengths) {
            let mut bytes = [0; HEADER_BYTES_MAX];
            (bytes[0], bytes[1], bytes[2]) = (VERSION, kind, u8::from(kind == RESET));
            for have in 0..whole {
                let want = if have < 8 { 8 } else { whole };
                let short = WireError::Short(TooShort { have, want });
                assert_eq!(Segment::decode(&bytes[..have]), Err(short));
            }
            assert_eq!(Segment::decode(&bytes[..whole]).unwrap().1, whole);
        }
    }

    #[test]
    fn unknown_values_and_reserved_bits_are_refused() {
        let with = |place: usize, byte| {
            let mut bytes = DATA_BYTES;
            bytes[place] = byte;
            Segment::decode(&bytes).unwrap_err()
        };
        assert_eq!(with(0, 2), WireError::Version(2));
        for kind in [0, 9] {
            let unknown = [1, kind, 0, 0, 1, 2, 3, 4];
            assert_eq!(Segment::decode(&unknown), Err(WireError::Type(kind)));
        }
        assert_eq!(with(2, 1), WireError::Reserved);
        assert_eq!(with(3, 3), WireError::Reserved);
        for reason in [0, 5] {
            let reset = [1, RESET, reason, 0, 1, 2, 3, 4];
            assert_eq!(Segment::decode(&reset), Err(WireError::Reason(reason)));
        }
        let message = WireError::Version(2).to_string();
        assert_eq!(message, "version 2 is not known: this is version 1");
    }

    #[test]
    fn a_frame_follows_data_and_nothing_else() {
        let frame = [&DATA_BYTES[..], b"frame"].concat();
        assert_eq!(Segment::decode(&frame).unwrap().1, DATA_BYTES.len());
        let ack = [&ACK_BYTES[..], b"frame"].concat();
        assert_eq!(Segment::decode(&ack), Err(WireError::Trailing(5)));
    }

    #[test]
    fn gaps_in_another_than_the_canonical_form_are_refused() {
        let decoded = |missing| {
            let ack = Ack {
                missing,
                ..ACK_HEADER
            };
            Segment::decode(segment(Body::Ack(ack)).encode().as_bytes())
        };
        let none = Gap::default();
        let sound = [
            NO_GAPS,
            [gap(0, 1), gap(2, 1), gap(4, 1)],
            [gap(0, u16::MAX), none, none],
            [gap(1, u16::MAX), none, none],
            [gap(0, 1), gap(u16::MAX, 1), none],
        ];
        for missing in sound {
            assert!(decoded(missing).is_ok(), "{missing:?}");
        }
        let refused = [
            ([gap(1, 0), none, none], "without frames"),
            ([none, gap(1, 1), none], "not in use"),
            ([gap(0, 1), none, gap(2, 1)], "not in use"),
            ([gap(5, 1), gap(0, 1), none], "before"),
            ([gap(0, 5), gap(4, 1), none], "before"),
            ([gap(0, 5), gap(5, 1), none], "right behind"),
            ([gap(2, u16::MAX), none, none], "beyond"),
            ([gap(0, 1), gap(u16::MAX, 2), none], "beyond"),
        ];
        for (missing, why) in refused {
            let error = decoded(missing).unwrap_err().to_string();
            assert!(error.contains(why), "{missing:?}: {error}");
        }
    }

    fn any_data() -> impl Strategy<Value = Body> {
        let feedback = any::<(i32, bool)>();
        (any::<[u32; 4]>(), feedback).prop_map(|([sequence, key, cwnd, rtt_us], feedback)| {
            let congestion = Congestion {
                cwnd,
                rtt_us,
                feedback: WindowChange(feedback.0),
                answered: feedback.1,
            };
            Body::Data(Data {
                sequence,
                key,
                congestion,
            })
        })
    }

    /// Generates up to three gaps, from the numbers of frames that have arrived and are missing in
    /// turn.
    fn any_gaps() -> impl Strategy<Value = [Gap; 3]> {
        let pair = (0..20_000u16, 1..1_800u16);
        prop::collection::vec(pair, 0..=3).prop_map(|pairs| {
            let mut missing = NO_GAPS;
            let mut free = 0;
            for (gap, (arrived, frames)) in missing.iter_mut().zip(pairs) {
                let offset = free + arrived;
                *gap = Gap { offset, frames };
                free = offset + frames + 1;
            }
            missing
        })
    }

    fn any_ack() -> impl Strategy<Value = Body> {
        let feedback = any::<(i32, bool, bool)>();
        (any::<[u32; 3]>(), feedback, any_gaps()).prop_map(
            |([cumulative, of, credit], feedback, missing)| {
                Body::Ack(Ack {
                    cumulative,
                    of,
                    credit,
                    feedback: Feedback {
                        change: WindowChange(feedback.0),
                        answered: feedback.1,
                        averaged: feedback.2,
                    },
                    missing,
                })
            },
        )
    }

    fn any_segment() -> impl Strategy<Value = Segment> {
        let number = any::<u32>();
        let reason = (1..=4u8).prop_map(|code| Body::Reset(reason_of(code).unwrap()));
        let body = prop_oneof![
            number.prop_map(|credit| Body::Open { credit }),
            number.prop_map(|credit| Body::Accept { credit }),
            any_data(),
            any_ack(),
            number.prop_map(|sequence| Body::Close { sequence }),
            Just(Body::Probe),
            Just(Body::Alive),
            reason,
        ];
        (any::<u32>(), body).prop_map(|(connection, body)| Segment { connection, body })
    }

    fn mostly(byte: u8) -> impl Strategy<Value = u8> {
        prop_oneof![8 => Just(byte), 1 => 0..=5u8]
    }

    proptest! {
        #[test]
        fn segments_survive_encoding_and_have_the_length_that_links_charge(
            segment in any_segment(), frame in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let mut bytes = segment.encode().as_bytes().to_vec();
            let length = bytes.len();
            prop_assert_eq!(length as u32 + LOWER_BYTES, segment.wire_bytes());
            prop_assert_eq!(Segment::decode(&bytes), Ok((segment, length)));
            if let Body::Data(_) = segment.body {
                bytes.extend(frame);
                prop_assert_eq!(Segment::decode(&bytes), Ok((segment, length)));
            }
        }

        /// The first word and the gaps are drawn so that most inputs are almost valid.
        #[test]
        fn any_bytes_are_refused_or_are_the_encoding_of_their_segment(
            first in (mostly(VERSION), 0..=9u8, mostly(0), mostly(0)),
            middle in any::<[u8; 20]>(),
            gaps in any::<[bool; 12]>(),
        ) {
            let first = [first.0, first.1, first.2, first.3];
            let bytes = [&first[..], &middle, &gaps.map(u8::from)].concat();
            for length in 0..=bytes.len() {
                if let Ok((segment, header)) = Segment::decode(&bytes[..length]) {
                    let encoded = segment.encode();
                    prop_assert_eq!(encoded.as_bytes(), &bytes[..header]);
                }
            }
        }
    }
}
