//! EXT_AUTH with a group-keyed message authentication code, MAC (RFC 6584 section 5): the format of
//! the extension. The MAC itself is computed by the caller, over the whole datagram with the MAC's
//! field set to 0. The tag of an AEAD can take its place, because each session chooses what the
//! number of a scheme (ASID) means (section 2).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! |    HET = 1    |    HEL = 6    | ASID=0|  0  |1|               |
//! |                  anti-replay sequence number                  |
//! |                  MAC, 4 words: HMAC-SHA-256, its first 128 bits
//! ```

use std::ops::Range;

use crate::lct::{self, EXT_AUTH, Header};

/// Length of the MAC in bytes.
pub const MAC_BYTES: usize = 16;
/// Length of the extension in bytes.
pub const EXTENSION_BYTES: usize = SEQUENCE_END + MAC_BYTES;
/// Maximum of a sequence number, which has 40 bits. The first one is 1.
pub const SEQUENCE_MAX: u64 = (1 << 40) - 1;

const SEQUENCE_END: usize = 8;
/// Scheme 0 (ASID), reserved bits, and the flag that there is a sequence number (AR).
const SCHEME: u8 = 1;
/// The reserved bits, which receivers ignore.
const RESERVED: u8 = 0b1110;

/// The extension of a datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMac {
    /// The anti-replay sequence number, up to [`SEQUENCE_MAX`].
    pub sequence: u64,
    /// The place of the MAC's [`MAC_BYTES`] bytes in the datagram.
    pub mac: Range<usize>,
}

impl GroupMac {
    /// Inserts the extension at the end of the LCT header of `datagram`, with a MAC of zeros that
    /// the caller replaces.
    ///
    /// # Panics
    /// If `datagram` does not start with an LCT header, or the header has no room, or `sequence` is
    /// above [`SEQUENCE_MAX`].
    pub fn insert(datagram: &mut Vec<u8>, sequence: u64) -> Self {
        assert!(sequence <= SEQUENCE_MAX, "a sequence number has 40 bits");
        let at = lct::header_length(datagram).expect("the sender wrote an LCT header");
        let end = at + EXTENSION_BYTES;
        let length = datagram.len();
        datagram.resize(length + EXTENSION_BYTES, 0);
        datagram.copy_within(at..length, end);
        let [_, _, _, bytes @ ..] = sequence.to_be_bytes();
        let words = (EXTENSION_BYTES / 4) as u8;
        datagram[at..at + 3].copy_from_slice(&[EXT_AUTH, words, SCHEME]);
        datagram[at + 3..at + SEQUENCE_END].copy_from_slice(&bytes);
        datagram[at + SEQUENCE_END..end].fill(0);
        lct::lengthen_header(datagram, words);
        GroupMac {
            sequence,
            mac: at + SEQUENCE_END..end,
        }
    }

    /// Finds the extension in a datagram with this header; `None` if it has none of this scheme.
    pub fn find(header: &Header<'_>) -> Option<Self> {
        let (content, end) = header.extension_with_end(EXT_AUTH)?;
        let content: &[u8; EXTENSION_BYTES - 2] = content.try_into().ok()?;
        let [scheme, sequence @ ..] = content.first_chunk::<6>()?;
        let [a, b, c, d, e] = *sequence;
        (scheme & !RESERVED == SCHEME).then(|| GroupMac {
            sequence: u64::from_be_bytes([0, 0, 0, a, b, c, d, e]),
            mac: end - MAC_BYTES..end,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lct::Fields;
    use proptest::prelude::*;

    fn datagram(extensions: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let fields = Fields {
            cci: &[7; 8],
            tsi: 1,
            toi: Some(2),
            close_session: false,
            close_object: false,
            codepoint: 6,
            extensions,
        };
        fields.encode(&mut bytes);
        bytes.extend_from_slice(payload);
        bytes
    }

    proptest! {
        #[test]
        fn an_inserted_extension_is_found(sequence in 0..=SEQUENCE_MAX, payload: Vec<u8>, with_fdt: bool) {
            let extensions: &[u8] = if with_fdt { &[192, 0x20, 0, 7] } else { &[] };
            let before = datagram(extensions, &payload);
            let mut sealed = before.clone();
            let inserted = GroupMac::insert(&mut sealed, sequence);
            prop_assert_eq!(sealed.len(), before.len() + EXTENSION_BYTES);
            prop_assert_eq!(&sealed[inserted.mac.clone()], &[0; MAC_BYTES]);
            let (header, rest) = Header::decode(&sealed).unwrap();
            prop_assert_eq!(GroupMac::find(&header), Some(inserted));
            prop_assert_eq!(header.extension(192).is_some(), with_fdt);
            prop_assert_eq!(rest, &payload[..]);
            prop_assert_eq!((header.tsi, header.toi), (1, Some(2)));
        }
    }

    #[test]
    fn the_extension_has_the_format_of_rfc_6584() {
        let mut sealed = datagram(&[], b"x");
        let inserted = GroupMac::insert(&mut sealed, 0x01_0203_0405);
        assert_eq!(sealed[20..28], [1, 6, 1, 1, 2, 3, 4, 5]);
        assert_eq!(inserted.mac, 28..44);
        assert_eq!(sealed[44..], *b"x");
    }

    #[test]
    fn other_schemes_and_lengths_are_not_found() {
        let find = |extensions: &[u8]| {
            let bytes = datagram(extensions, &[]);
            let (header, _) = Header::decode(&bytes).unwrap();
            GroupMac::find(&header)
        };
        let mut extension = [0; EXTENSION_BYTES];
        extension[..3].copy_from_slice(&[EXT_AUTH, 6, SCHEME]);
        assert!(find(&extension).is_some());
        // Receivers ignore the reserved bits.
        extension[2] = SCHEME | RESERVED;
        assert!(find(&extension).is_some());
        // Another scheme, and this one without a sequence number.
        for scheme in [1 << 4 | SCHEME, 0] {
            extension[2] = scheme;
            assert_eq!(find(&extension), None);
        }
        extension[1..3].copy_from_slice(&[5, SCHEME]);
        assert_eq!(find(&extension[..EXTENSION_BYTES - 4]), None);
        assert_eq!(find(&[]), None);
    }
}
