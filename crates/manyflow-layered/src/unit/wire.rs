//! The header of a piece, behind the header of a data packet. Integers are in network order.
//!
//! ```text
//!    0        4          8         12
//!   | unit   | time_us  | offset  | length  | bytes of the piece ...
//! ```
//!
//! A packet of a sender that has nothing to send ends before this header.

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

/// The reason why a payload is not a piece.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PieceError {
    /// The payload ends in the header.
    #[error("{0} bytes are too few: the header of a piece takes {PIECE_BYTES}")]
    Short(usize),
    /// No byte follows the header.
    #[error("the piece has no bytes behind its header")]
    Empty,
    /// The piece ends behind the end of its unit.
    #[error("the piece ends at byte {end} of a unit of {length}")]
    End {
        /// The place behind the last byte of the piece.
        end: u64,
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

    /// Decodes the payload of a data packet: the header, and the bytes of the piece.
    ///
    /// # Errors
    /// If the payload is too short for the header, if no bytes follow, or if they end behind the
    /// end of the unit.
    pub fn decode(payload: &[u8]) -> Result<(Piece, &[u8]), PieceError> {
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
        let (end, length) = (u64::from(piece.offset) + bytes.len() as u64, piece.length);
        match bytes {
            [] => Err(PieceError::Empty),
            _ if end > u64::from(length) => Err(PieceError::End { end, length }),
            _ => Ok((piece, bytes)),
        }
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
        assert_eq!(Piece::decode(&payload), Ok((PIECE, &[7, 8, 9][..])));
    }

    #[test]
    fn a_piece_without_bytes_or_behind_the_end_of_its_unit_is_refused() {
        let mut payload = PIECE.encode().to_vec();
        assert_eq!(Piece::decode(&payload[..15]), Err(PieceError::Short(15)));
        assert_eq!(Piece::decode(&payload), Err(PieceError::Empty));
        payload.extend([7, 8, 9, 10]);
        let (end, length) = (1 << 32, u32::MAX);
        assert_eq!(
            Piece::decode(&payload),
            Err(PieceError::End { end, length })
        );
    }
}
