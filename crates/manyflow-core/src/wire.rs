//! Headers of four bytes and the 32-bit words after them, in network order: the form that layered
//! sessions, TFMCC and Anypoint have in common.
//!
//! ```
//! use manyflow_core::wire::{Encoded, words};
//!
//! let header: Encoded<12> = Encoded::new([1, 0, 0, 7], [2]);
//! assert_eq!(header.as_bytes(), [1, 0, 0, 7, 0, 0, 0, 2]);
//! assert_eq!(words(header.as_bytes()), Ok(([1, 0, 0, 7], [2])));
//! assert!(words::<2>(header.as_bytes()).is_err());
//! ```

use std::fmt;

/// An encoded header of at most `BYTES_MAX` bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Encoded<const BYTES_MAX: usize> {
    bytes: [u8; BYTES_MAX],
    length: usize,
}

impl<const BYTES_MAX: usize> Encoded<BYTES_MAX> {
    /// Encodes a header. It does not compile if `BYTES_MAX` is too small.
    pub fn new<const WORDS: usize>(first: [u8; 4], words: [u32; WORDS]) -> Self {
        const { assert!(4 + 4 * WORDS <= BYTES_MAX, "the header is too long") }
        let mut bytes = [0; BYTES_MAX];
        bytes[..4].copy_from_slice(&first);
        for (place, word) in words.into_iter().enumerate() {
            bytes[4 + 4 * place..8 + 4 * place].copy_from_slice(&word.to_be_bytes());
        }
        let length = 4 + 4 * WORDS;
        Encoded { bytes, length }
    }

    /// Returns the bytes of the header.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The reason why bytes are not a header: there are fewer than it takes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TooShort {
    /// The number of bytes.
    pub have: usize,
    /// The length of the header in bytes.
    pub want: usize,
}

impl fmt::Display for TooShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TooShort { have, want } = self;
        write!(f, "{have} bytes are too few: the header takes {want}")
    }
}

impl std::error::Error for TooShort {}

/// Returns the first four bytes of a header and the words after them. More bytes may follow.
///
/// # Errors
/// If there are fewer bytes.
pub fn words<const WORDS: usize>(bytes: &[u8]) -> Result<([u8; 4], [u32; WORDS]), TooShort> {
    let short = TooShort {
        have: bytes.len(),
        want: 4 + 4 * WORDS,
    };
    let header = bytes.get(..short.want).ok_or(short)?;
    let quad = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
    let word = |place: usize| u32::from_be_bytes(quad(4 + 4 * place));
    Ok((quad(0), core::array::from_fn(word)))
}
