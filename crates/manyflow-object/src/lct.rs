//! The LCT header (RFC 5651 section 5): congestion control information, session, object,
//! extensions.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! |   V   | C |PSI|S| O |H|Res|A|B|   HDR_LEN     |   Codepoint   |
//! | CCI, 32 (C+1) bits | TSI, 32 S + 16 H bits | TOI, 32 O + 16 H bits | extensions ...
//! ```

use crate::error::PacketError;

/// EXT_AUTH: the packet's authentication (RFC 5651 section 5.2.2).
pub const EXT_AUTH: u8 = 1;
/// EXT_FTI: the object's FEC parameters (RFC 5775 section 4.2).
pub const EXT_FTI: u8 = 64;
/// EXT_FDT: FLUTE version and FDT Instance ID (RFC 6726 section 3.4.1).
pub const EXT_FDT: u8 = 192;
/// EXT_CENC: the content encoding of an FDT Instance (RFC 6726 section 3.4.3).
pub const EXT_CENC: u8 = 193;

const VERSION: u8 = 1;
const FIXED_BYTES: usize = 4;
/// The first type of the extensions that are one 32-bit word long and have no length field
/// (RFC 5651 section 5.2.1).
const FIRST_FIXED_EXTENSION: u8 = 128;

/// The length in bytes of the header that [`Fields::encode`] writes, without extensions: fixed
/// part, `cci_length`, 32-bit TSI and TOI.
pub const fn encoded_length(cci_length: usize) -> usize {
    FIXED_BYTES + cci_length + 8
}

/// A decoded header; it borrows from the datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// Congestion control information: 4, 8, 12 or 16 bytes.
    pub cci: &'a [u8],
    /// The transport session identifier (TSI), 0 to 48 bits on the wire; 0 if the header has none.
    pub tsi: u64,
    /// The transport object identifier (TOI), up to 112 bits on the wire.
    pub toi: Option<u128>,
    /// Flag A: the sender is about to stop sending to this session.
    pub close_session: bool,
    /// Flag B: the sender is about to stop sending this object.
    pub close_object: bool,
    /// The codepoint, which is the FEC Encoding ID by convention.
    pub codepoint: u8,
    extensions: &'a [u8],
    /// Length of the header in bytes.
    length: usize,
}

impl<'a> Header<'a> {
    /// Splits a datagram into its LCT header and the remaining bytes.
    ///
    /// # Errors
    /// [`PacketError`] if the bytes are not an LCT header of version 1.
    pub fn decode(datagram: &'a [u8]) -> Result<(Self, &'a [u8]), PacketError> {
        let truncated = |field| PacketError::Truncated {
            field,
            length: datagram.len(),
        };
        let fixed: [u8; FIXED_BYTES] = *datagram
            .first_chunk()
            .ok_or_else(|| truncated("first LCT header word"))?;
        let [flags, lengths, header_words, codepoint] = fixed;
        if flags >> 4 != VERSION {
            return Err(PacketError::Version(flags >> 4));
        }
        let header_length = usize::from(header_words) * 4;
        let header = datagram
            .get(..header_length)
            .ok_or_else(|| truncated("LCT header"))?;

        let half_word = usize::from(lengths >> 4 & 1) * 2;
        let cci_end = FIXED_BYTES + (usize::from(flags >> 2 & 3) + 1) * 4;
        let tsi_end = cci_end + usize::from(lengths >> 7) * 4 + half_word;
        let toi_end = tsi_end + usize::from(lengths >> 5 & 3) * 4 + half_word;
        if toi_end > header_length {
            return Err(PacketError::HeaderLength {
                stated: header_length,
                fields: toi_end,
            });
        }
        let extensions = &header[toi_end..];
        check_extensions(extensions)?;
        let decoded = Header {
            cci: &header[FIXED_BYTES..cci_end],
            tsi: big_endian(&header[cci_end..tsi_end]) as u64,
            toi: (toi_end > tsi_end).then(|| big_endian(&header[tsi_end..toi_end])),
            close_session: lengths & 2 != 0,
            close_object: lengths & 1 != 0,
            codepoint,
            extensions,
            length: header_length,
        };
        Ok((decoded, &datagram[header_length..]))
    }

    /// The content of the first extension of type `het`, without its type and length bytes.
    pub fn extension(&self, het: u8) -> Option<&'a [u8]> {
        extensions(self.extensions)
            .map_while(Result::ok)
            .find(|&(found, _)| found == het)
            .map(|(_, content)| content)
    }

    /// The content of the first extension of type `het`, and its end in the datagram.
    pub(crate) fn extension_with_end(&self, het: u8) -> Option<(&'a [u8], usize)> {
        let mut end = self.length - self.extensions.len();
        let found = extensions(self.extensions).map_while(Result::ok);
        let mut found = found.map(|(found, content)| {
            end += prefix_length(found) + content.len();
            (found, content, end)
        });
        found
            .find(|&(found, _, _)| found == het)
            .map(|(_, content, end)| (content, end))
    }
}

/// The length in bytes of the LCT header at the start of `datagram`, as the header states it;
/// `None` if the datagram is shorter.
pub(crate) fn header_length(datagram: &[u8]) -> Option<usize> {
    let length = usize::from(*datagram.get(2)?) * 4;
    (length <= datagram.len()).then_some(length)
}

/// Adds `words` of 32 bits to the length that the header at the start of `datagram` states.
pub(crate) fn lengthen_header(datagram: &mut [u8], words: u8) {
    let length = datagram[2].checked_add(words);
    datagram[2] = length.expect("an LCT header has at most 255 words");
}

/// The fields of a header that a sender writes. It has one form: a 32-bit TSI, and a 32-bit TOI or
/// none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fields<'a> {
    /// Congestion control information: 4, 8, 12 or 16 bytes.
    pub cci: &'a [u8],
    /// Transport session identifier.
    pub tsi: u32,
    /// Transport object identifier.
    pub toi: Option<u32>,
    /// Flag A: the sender is about to stop sending to this session.
    pub close_session: bool,
    /// Flag B: no more packets of this object follow.
    pub close_object: bool,
    /// The codepoint: the FEC Encoding ID.
    pub codepoint: u8,
    /// The extensions, encoded; each is a multiple of four bytes long.
    pub extensions: &'a [u8],
}

impl Fields<'_> {
    /// Appends the encoded header to `out`.
    ///
    /// # Panics
    /// If the CCI is not 4, 8, 12 or 16 bytes long.
    pub fn encode(&self, out: &mut Vec<u8>) {
        assert!(
            matches!(self.cci.len(), 4 | 8 | 12 | 16),
            "a CCI has 4, 8, 12 or 16 bytes"
        );
        let cci_words = self.cci.len() / 4;
        let toi_words = usize::from(self.toi.is_some());
        let header_words = 2 + cci_words + toi_words + self.extensions.len() / 4;
        out.push(VERSION << 4 | (cci_words as u8 - 1) << 2);
        let closes = u8::from(self.close_session) << 1 | u8::from(self.close_object);
        out.push(1 << 7 | (toi_words as u8) << 5 | closes);
        out.push(header_words as u8);
        out.push(self.codepoint);
        out.extend_from_slice(self.cci);
        out.extend_from_slice(&self.tsi.to_be_bytes());
        if let Some(toi) = self.toi {
            out.extend_from_slice(&toi.to_be_bytes());
        }
        out.extend_from_slice(self.extensions);
    }
}

fn big_endian(bytes: &[u8]) -> u128 {
    bytes
        .iter()
        .fold(0, |value, &byte| value << 8 | u128::from(byte))
}

fn check_extensions(bytes: &[u8]) -> Result<(), PacketError> {
    extensions(bytes).try_for_each(|extension| extension.map(|_| ()))
}

/// The extensions in order, as type and content. After an error the iterator ends.
fn extensions(mut bytes: &[u8]) -> impl Iterator<Item = Result<(u8, &[u8]), PacketError>> {
    std::iter::from_fn(move || {
        let &het = bytes.first()?;
        match split_extension(het, bytes) {
            Some((content, rest)) => {
                bytes = rest;
                Some(Ok((het, content)))
            }
            None => {
                bytes = &[];
                Some(Err(PacketError::Extension { het }))
            }
        }
    })
}

fn split_extension(het: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = match het {
        FIRST_FIXED_EXTENSION.. => 4,
        _ => usize::from(*bytes.get(1)?) * 4,
    };
    let (extension, rest) = bytes.split_at_checked(length)?;
    Some((extension.get(prefix_length(het)..)?, rest))
}

/// Length of an extension's type and length fields in bytes.
fn prefix_length(het: u8) -> usize {
    if het >= FIRST_FIXED_EXTENSION { 1 } else { 2 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode(fields: &Fields<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        fields.encode(&mut bytes);
        bytes
    }

    fn plain(cci: &[u8]) -> Fields<'_> {
        Fields {
            cci,
            tsi: 1,
            toi: Some(2),
            close_session: false,
            close_object: false,
            codepoint: 6,
            extensions: &[],
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            words in 1_usize..=4, byte: u8, tsi: u32, toi: Option<u32>, close_session: bool, close_object: bool, codepoint: u8, payload: Vec<u8>,
        ) {
            let cci = vec![byte; words * 4];
            let extensions = [0, 1, 9, 9, EXT_FDT, 0x20, 0, 7, 200, 1, 2, 3];
            let fields = Fields { cci: &cci, tsi, toi, close_session, close_object, codepoint, extensions: &extensions };
            let mut bytes = encode(&fields);
            bytes.extend_from_slice(&payload);
            let (header, rest) = Header::decode(&bytes).unwrap();
            prop_assert_eq!(header.cci, &cci[..]);
            prop_assert_eq!((header.tsi, header.toi), (u64::from(tsi), toi.map(u128::from)));
            prop_assert_eq!((header.close_session, header.close_object), (close_session, close_object));
            prop_assert_eq!(header.codepoint, codepoint);
            prop_assert_eq!(header.extension(EXT_FDT), Some(&[0x20, 0, 7][..]));
            prop_assert_eq!(header.extension(EXT_FTI), None);
            prop_assert_eq!(rest, &payload[..]);
        }

        #[test]
        fn any_bytes_give_a_header_or_an_error(bytes: Vec<u8>) {
            let _ = Header::decode(&bytes);
        }
    }

    #[test]
    fn all_legal_tsi_and_toi_lengths_are_decoded() {
        for (s, o, h) in
            (0..2_u8).flat_map(|s| (0..4).flat_map(move |o| (0..2).map(move |h| (s, o, h))))
        {
            let (tsi_length, toi_length) = (usize::from(s * 4 + h * 2), usize::from(o * 4 + h * 2));
            let length = 8 + tsi_length + toi_length;
            let mut bytes = vec![
                0x10,
                s << 7 | o << 5 | h << 4,
                (length / 4) as u8,
                0,
                0,
                0,
                0,
                0,
            ];
            bytes.resize(length, 0xff);
            let (header, rest) = Header::decode(&bytes).unwrap();
            assert_eq!(header.tsi, (1_u64 << (8 * tsi_length)) - 1);
            assert_eq!(
                header.toi,
                (toi_length > 0).then(|| (1_u128 << (8 * toi_length)) - 1)
            );
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn other_versions_are_refused() {
        let mut bytes = encode(&plain(&[0; 4]));
        bytes[0] = 0x20;
        assert_eq!(Header::decode(&bytes), Err(PacketError::Version(2)));
    }

    #[test]
    fn a_header_length_that_lies_is_refused() {
        let mut bytes = encode(&plain(&[0; 4]));
        bytes[2] = 3;
        assert_eq!(
            Header::decode(&bytes),
            Err(PacketError::HeaderLength {
                stated: 12,
                fields: 16
            })
        );
        bytes[2] = 5;
        assert!(matches!(
            Header::decode(&bytes),
            Err(PacketError::Truncated { .. })
        ));
    }

    #[test]
    fn an_extension_of_length_zero_or_past_the_header_is_refused() {
        for length in [0, 2] {
            let extensions = [EXT_FTI, length, 0, 0];
            let bytes = encode(&Fields {
                extensions: &extensions,
                ..plain(&[0; 4])
            });
            assert_eq!(
                Header::decode(&bytes),
                Err(PacketError::Extension { het: EXT_FTI })
            );
        }
    }
}
