//! The pieces behind the header of a data packet. Integers are in network order.
//!
//! ```text
//!    0        4          8         12
//!   | unit   | time_us  | offset  | length  | bytes of the piece ... | next piece ...
//! ```
//!
//! A piece ends where its unit ends, or else where the packet ends. So a packet carries several
//! small units, or the end of one and the next, and no piece needs a length of its own. A packet of
//! a sender that has nothing to send ends before the first piece.

/// The length of an encoded [`Piece`] in bytes.
pub const PIECE_BYTES: usize = 16;

/// The place of a range of bytes: its unit, and where it begins there.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The number of the unit, modulo 2^32.
    pub unit: u32,
    /// The time of the unit on the sender's clock, in microseconds modulo 2^32.
    pub time_us: u32,
    /// The place of the first byte of the piece in the unit.
    pub offset: u32,
    /// The length of the whole unit in bytes, whether or not all of it is sent.
    pub length: u32,
}

/// The reason why a payload is not a sequence of pieces.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PieceError {
    /// The payload ends in the header of a piece.
    #[error("{0} bytes are too few: the header of a piece takes {PIECE_BYTES}")]
    Short(usize),
    /// No byte follows the header.
    #[error("the piece has no bytes behind its header")]
    Empty,
    /// The piece begins at or behind the end of its unit.
    #[error("the piece begins at byte {offset} of a unit of {length}")]
    End {
        /// The place of the first byte of the piece.
        offset: u32,
        /// The length of the unit in bytes.
        length: u32,
    },
}

impl Piece {
    /// Encodes the header.
    pub fn encode(&self) -> [u8; PIECE_BYTES] {
        let mut bytes = [0; PIECE_BYTES];
        let words = [self.unit, self.time_us, self.offset, self.length];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// Decodes the first piece of a payload. Returns its header, its bytes, and the rest of the
    /// payload, which is empty behind the last piece.
    ///
    /// # Errors
    /// If the payload is too short for the header, if no bytes follow, or if the piece begins
    /// behind the end of its unit.
    pub fn decode(payload: &[u8]) -> Result<(Piece, &[u8], &[u8]), PieceError> {
        let (header, bytes) = payload
            .split_first_chunk::<PIECE_BYTES>()
            .ok_or(PieceError::Short(payload.len()))?;
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&header[at..at + 4]);
            u32::from_be_bytes(word)
        };
        let piece = Piece {
            unit: word(0),
            time_us: word(4),
            offset: word(8),
            length: word(12),
        };
        let Piece { offset, length, .. } = piece;
        let end = length.saturating_sub(offset) as usize;
        match (bytes.is_empty(), end) {
            (true, _) => Err(PieceError::Empty),
            (_, 0) => Err(PieceError::End { offset, length }),
            _ => {
                let (own, rest) = bytes.split_at(end.min(bytes.len()));
                Ok((piece, own, rest))
            }
        }
    }

    /// Decodes all pieces of a payload. The iterator ends after the first error.
    pub fn decode_all(payload: &[u8]) -> impl Iterator<Item = Result<(Piece, &[u8]), PieceError>> {
        let mut left = payload;
        core::iter::from_fn(move || {
            if left.is_empty() {
                return None;
            }
            let decoded = Piece::decode(left);
            left = decoded.as_ref().map_or(&[], |(_, _, rest)| rest);
            Some(decoded.map(|(piece, bytes, _)| (piece, bytes)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: Piece = Piece {
        unit: 0x0102_0304,
        time_us: 5,
        offset: u32::MAX - 3,
        length: u32::MAX,
    };

    #[test]
    fn a_piece_has_fixed_bytes_and_decodes_to_itself() {
        let mut payload = PIECE.encode().to_vec();
        let wanted = [
            1, 2, 3, 4, 0, 0, 0, 5, 255, 255, 255, 252, 255, 255, 255, 255,
        ];
        assert_eq!(payload, wanted);
        payload.extend([7, 8, 9]);
        let decoded = Piece::decode(&payload);
        assert_eq!(decoded, Ok((PIECE, &[7, 8, 9][..], &[][..])));
    }

    #[test]
    fn a_piece_ends_with_its_unit_and_another_one_follows() {
        let small = Piece {
            unit: 7,
            time_us: 8,
            offset: 0,
            length: 2,
        };
        let payload = [&PIECE.encode()[..], &[1, 2, 3], &small.encode(), &[4, 5]].concat();
        let pieces: Vec<_> = Piece::decode_all(&payload).collect();
        let wanted = [Ok((PIECE, &[1, 2, 3][..])), Ok((small, &[4, 5][..]))];
        assert_eq!(pieces, wanted);
        assert_eq!(Piece::decode_all(&[]).count(), 0);
    }

    #[test]
    fn a_piece_without_bytes_or_behind_the_end_of_its_unit_is_refused() {
        let mut payload = PIECE.encode().to_vec();
        assert_eq!(Piece::decode(&payload[..15]), Err(PieceError::Short(15)));
        assert_eq!(Piece::decode(&payload), Err(PieceError::Empty));
        payload.extend([7, 8, 9, 10]);
        let behind: Vec<_> = Piece::decode_all(&payload).skip(1).collect();
        assert_eq!(behind, [Err(PieceError::Short(1))]);
        payload[8..12].fill(255);
        let (offset, length) = (u32::MAX, u32::MAX);
        let end = Err(PieceError::End { offset, length });
        assert_eq!(Piece::decode(&payload), end);
    }
}
