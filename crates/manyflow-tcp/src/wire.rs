//! TCP headers as bytes, for traces that other tools read (RFC 9293 section 3.1, RFC 2018 section
//! 3, RFC 3168 section 6.1).
//!
//! Of a number of marked packets ([`Segment::ecn_echo`]) only ECE remains.
//!
//! The numbers of segments become numbers of bytes, modulo 2^32; the window remains a number of
//! segments. The checksum, which covers addresses and payload, is zero.

use super::Segment;

/// The bytes of the TCP header without options.
const FIXED_BYTES: usize = 20;
/// The bytes of the longest header: with two bytes that align, kind and length, and three blocks of
/// eight bytes.
const MAX_BYTES: usize = FIXED_BYTES + 4 + 3 * 8;

const ACK: u8 = 0x10;
const ECE: u8 = 0x40;
const CWR: u8 = 0x80;

const NO_OPERATION: u8 = 1;
const SACK: u8 = 5;

/// A TCP header in network order.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct EncodedHeader {
    bytes: [u8; MAX_BYTES],
    length: usize,
}

impl EncodedHeader {
    /// Returns the header, including options.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }
}

impl Segment {
    /// Encodes the TCP header from port `source` to port `destination`, for a connection with
    /// segments of `segment_bytes`.
    pub fn encode(&self, source: u16, destination: u16, segment_bytes: u32) -> EncodedHeader {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = ACK | flag(self.ecn_echo != 0, ECE) | flag(self.window_reduced, CWR);
        let option_bytes = self.wire_bytes() - super::HEADER_BYTES;
        let words = (FIXED_BYTES as u32 + option_bytes) / 4;
        let mut header = EncodedHeader {
            bytes: [0; MAX_BYTES],
            length: 0,
        };
        header.put(&source.to_be_bytes());
        header.put(&destination.to_be_bytes());
        let position = |number: u32| number.wrapping_mul(segment_bytes).to_be_bytes();
        header.put(&position(self.sequence));
        header.put(&position(self.acknowledgement));
        header.put(&[(words << 4) as u8, flags]);
        header.put(&self.window.to_be_bytes());
        // The checksum and the urgent pointer are zero.
        header.put(&[0; 4]);
        if option_bytes > 0 {
            header.put(&[NO_OPERATION, NO_OPERATION, SACK, option_bytes as u8 - 2]);
            for (from, to) in self.blocks() {
                header.put(&position(from));
                header.put(&position(to));
            }
        }
        header
    }

    /// Decodes a header that [`encode`](Segment::encode) wrote for `segment_bytes`, if the
    /// connection has not passed 2^32 bytes. Returns its ports and the segment, or `None` for
    /// anything else.
    pub fn decode(header: &[u8], segment_bytes: u32) -> Option<(u16, u16, Segment)> {
        let (fixed, options) = header.split_first_chunk::<FIXED_BYTES>()?;
        let word = |at: usize| {
            u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]])
        };
        let half = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
        if usize::from(fixed[12] >> 4) * 4 != header.len() {
            return None;
        }
        let segment = Segment {
            sequence: number(word(4), segment_bytes)?,
            acknowledgement: number(word(8), segment_bytes)?,
            window: half(14),
            sack: decode_sack(options, segment_bytes)?,
            ecn_echo: u8::from(fixed[13] & ECE != 0),
            window_reduced: fixed[13] & CWR != 0,
        };
        Some((half(0), half(2), segment))
    }
}

/// Returns the segment that begins at `position`, if one does.
fn number(position: u32, segment_bytes: u32) -> Option<u32> {
    (position.checked_rem(segment_bytes)? == 0).then(|| position / segment_bytes)
}

fn decode_sack(options: &[u8], segment_bytes: u32) -> Option<[(u32, u32); 3]> {
    let mut sack = [(0, 0); 3];
    let blocks = match options {
        [] => return Some(sack),
        [NO_OPERATION, NO_OPERATION, SACK, length, blocks @ ..]
            if usize::from(*length) == blocks.len() + 2 =>
        {
            blocks
        }
        _ => return None,
    };
    let (blocks, []) = blocks.as_chunks::<8>() else {
        return None;
    };
    if blocks.is_empty() || blocks.len() > sack.len() {
        return None;
    }
    for (place, [a, b, c, d, e, f, g, h]) in sack.iter_mut().zip(blocks) {
        let from = number(u32::from_be_bytes([*a, *b, *c, *d]), segment_bytes)?;
        let to = number(u32::from_be_bytes([*e, *f, *g, *h]), segment_bytes)?;
        *place = (from < to).then_some((from, to))?;
    }
    Some(sack)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HEADER_BYTES;
    use proptest::prelude::*;

    fn any_segment(numbers: u32) -> impl Strategy<Value = Segment> {
        let block = (0..numbers, 1..numbers)
            .prop_map(move |(from, length)| (from, (from + length).min(numbers)));
        let blocks = prop::collection::vec(block, 0..=3);
        let flags = (any::<bool>(), any::<bool>());
        (0..numbers, 0..numbers, any::<u16>(), blocks, flags).prop_map(
            |(sequence, acknowledgement, window, blocks, (ecn_echo, window_reduced))| {
                let mut sack = [(0, 0); 3];
                sack[..blocks.len()].copy_from_slice(&blocks);
                Segment {
                    sequence,
                    acknowledgement,
                    window,
                    sack,
                    ecn_echo: u8::from(ecn_echo),
                    window_reduced,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_to_itself(
            (segment_bytes, segment) in (1..60_000u32).prop_flat_map(|bytes| (Just(bytes), any_segment(u32::MAX / bytes / 2))),
            source: u16, destination: u16,
        ) {
            let header = segment.encode(source, destination, segment_bytes);
            // The other 20 bytes of the packet on a link are the IPv4 header.
            prop_assert_eq!(header.as_bytes().len() as u32 + 20, segment.wire_bytes());
            prop_assert!(segment.wire_bytes() >= HEADER_BYTES);
            let decoded = Segment::decode(header.as_bytes(), segment_bytes);
            prop_assert_eq!(decoded, Some((source, destination, segment)));
        }

        #[test]
        fn any_bytes_decode_or_are_refused(header: Vec<u8>, segment_bytes: u32) {
            if let Some((source, destination, segment)) = Segment::decode(&header, segment_bytes) {
                prop_assert!(segment.encode(source, destination, segment_bytes).as_bytes().len() <= MAX_BYTES);
            }
        }
    }

    #[test]
    fn an_acknowledgement_looks_as_the_rfcs_draw_it() {
        let ack = Segment {
            acknowledgement: 3,
            sack: [(5, 7), (0, 0), (0, 0)],
            ecn_echo: 1,
            ..Segment::default()
        };
        let header = ack.encode(80, 0x1234, 1000);
        let expected = [
            0, 80, 0x12, 0x34, 0, 0, 0, 0, 0, 0, 0x0b, 0xb8, 0x80, 0x50, 0xff, 0xff, 0, 0, 0,
            0, // fixed
            1, 1, 5, 10, 0, 0, 0x13, 0x88, 0, 0, 0x1b, 0x58, // SACK 5000-7000
        ];
        assert_eq!(header.as_bytes(), expected);
    }
}
