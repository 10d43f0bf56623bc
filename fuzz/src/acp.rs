//! Segments of ACP from an attacker: well-formed, with numbers near those in use.

use arbitrary::Arbitrary;
use manyflow_anypoint::{Ack, Body, Data, Gap, Reason, Segment, UNLIMITED};
use manyflow_core::xcp::{Congestion, Feedback, WindowChange};

/// The connection of most segments.
pub const CONNECTION: u32 = 7;

/// The parts of a segment.
#[derive(Arbitrary, Debug)]
pub struct Forged {
    kind: u8,
    connection: u8,
    numbers: [u16; 2],
    words: [u32; 2],
    feedback: i32,
    answered: bool,
    averaged: bool,
    gaps: [(u8, u8); 3],
}

impl Forged {
    /// Returns the segment if it survives encoding and decoding.
    pub fn segment(&self) -> Option<Segment> {
        let segment = Segment {
            connection: match self.connection {
                0..=15 => self.connection.into(),
                _ => CONNECTION,
            },
            body: self.body(),
        };
        let decoded = Segment::decode(segment.encode().as_bytes()).ok()?;
        assert_eq!(decoded.0, segment);
        Some(segment)
    }

    fn body(&self) -> Body {
        let [first, second] = self.numbers.map(number);
        let [credit, rtt_us] = self.words;
        let credit = if credit % 4 == 0 { UNLIMITED } else { credit };
        let feedback = Feedback {
            change: WindowChange(self.feedback),
            answered: self.answered,
            averaged: self.averaged,
        };
        // A reset is rare because it ends the connection.
        match self.kind {
            0..8 => Body::Open { credit },
            8..16 => Body::Accept { credit },
            16..96 => Body::Data(Data {
                sequence: first,
                key: second,
                congestion: Congestion {
                    cwnd: credit,
                    rtt_us,
                    feedback: feedback.change,
                    answered: feedback.answered,
                },
            }),
            96..220 => Body::Ack(Ack {
                cumulative: first,
                of: second,
                credit,
                feedback,
                missing: self.gaps.map(|(offset, frames)| Gap {
                    offset: offset.into(),
                    frames: frames.into(),
                }),
            }),
            220..236 => Body::Close { sequence: first },
            236..244 => Body::Probe,
            244..252 => Body::Alive,
            _ => Body::Reset(match credit % 4 {
                0 => Reason::Unknown,
                1 => Reason::Refused,
                2 => Reason::TimedOut,
                _ => Reason::Aborted,
            }),
        }
    }
}

/// Usually a small number, near those of frames; sometimes one from the whole range.
fn number(word: u16) -> u32 {
    match word {
        0..0xf000 => u32::from(word % 64),
        0xf000..0xf800 => u32::from(word),
        0xf800..0xff00 => u32::from(word) << 16,
        _ => u32::MAX - u32::from(word & 0xf),
    }
}
