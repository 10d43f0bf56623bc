//! FEC Object Transmission Information: how an object is divided into blocks and symbols, and how
//! packets and FDTs encode it.

use raptorq::ObjectTransmissionInformation;

use crate::alc::PAYLOAD_ID_BYTES;
use crate::error::OtiError;

/// Maximum number of source symbols in a RaptorQ block (RFC 6330 section 5.1.2).
pub(crate) const RAPTORQ_BLOCK_SYMBOLS_MAX: u32 = 56_403;
/// Maximum number of source blocks with RaptorQ: both the block number and the number of blocks (Z)
/// have 8 bits.
pub(crate) const RAPTORQ_BLOCKS_MAX: u64 = 255;
/// Maximum length in bytes that these two limits permit with symbols of 65535 bytes (RFC 6330
/// erratum 5548).
const RAPTORQ_TRANSFER_LENGTH_MAX: u64 = 942_574_504_275;
/// The number of symbol numbers with RaptorQ, which have 24 bits.
const RAPTORQ_SYMBOL_IDS: u32 = 1 << 24;
/// The number of block numbers, and of symbol numbers, with Compact No-Code, which have 16 bits
/// each (RFC 5445 section 3.2.1).
const NO_CODE_IDS: u32 = 1 << 16;
/// Maximum transfer length in EXT_FTI, which has 48 bits for it (RFC 5445 section 3.2.2).
const NO_CODE_TRANSFER_LENGTH_MAX: u64 = (1 << 48) - 1;

/// An FEC scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FecScheme {
    /// Compact No-Code: only the source symbols, repeated.
    NoCode,
    /// RaptorQ: a practically endless stream of symbols, of which any K suffice.
    RaptorQ,
}

impl FecScheme {
    /// The scheme's FEC Encoding ID.
    pub const fn encoding_id(self) -> u8 {
        match self {
            FecScheme::NoCode => 0,
            FecScheme::RaptorQ => 6,
        }
    }

    /// Returns the scheme with this FEC Encoding ID.
    ///
    /// # Errors
    /// [`OtiError::Scheme`] if the ID is neither 0 nor 6.
    pub const fn from_encoding_id(id: u64) -> Result<Self, OtiError> {
        match id {
            0 => Ok(FecScheme::NoCode),
            6 => Ok(FecScheme::RaptorQ),
            _ => Err(OtiError::Scheme(id)),
        }
    }
}

/// FEC parameters that an object can have. Every value of this type is within the scheme's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Oti {
    scheme: Scheme,
    transfer_length: u64,
    symbol_length: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    NoCode {
        block_symbols_max: u32,
    },
    RaptorQ {
        blocks: u8,
        sub_blocks: u16,
        alignment: u8,
    },
}

impl Oti {
    /// Compact No-Code: `transfer_length` and `symbol_length` in bytes, `block_symbols_max` in
    /// symbols.
    ///
    /// # Errors
    /// [`OtiError`] if the scheme cannot carry such an object.
    pub fn no_code(
        transfer_length: u64,
        symbol_length: u16,
        block_symbols_max: u32,
    ) -> Result<Self, OtiError> {
        check_lengths(transfer_length, NO_CODE_TRANSFER_LENGTH_MAX, symbol_length)?;
        if block_symbols_max == 0 {
            return Err(OtiError::Missing("maximum source block length"));
        }
        let oti = Oti {
            scheme: Scheme::NoCode { block_symbols_max },
            transfer_length,
            symbol_length,
        };
        check_at_most(
            oti.blocks_needed(),
            u64::from(NO_CODE_IDS),
            |blocks, limit| OtiError::Blocks { blocks, limit },
        )?;
        check_at_most(
            oti.largest_block(),
            u64::from(NO_CODE_IDS),
            |symbols, limit| OtiError::BlockSymbols { symbols, limit },
        )?;
        Ok(oti)
    }

    /// RaptorQ: `blocks`, `sub_blocks` and `alignment` are Z, N and Al of RFC 6330 section 3.3.
    ///
    /// # Errors
    /// [`OtiError`] if the scheme cannot carry such an object.
    pub fn raptorq(
        transfer_length: u64,
        symbol_length: u16,
        blocks: u8,
        sub_blocks: u16,
        alignment: u8,
    ) -> Result<Self, OtiError> {
        check_lengths(transfer_length, RAPTORQ_TRANSFER_LENGTH_MAX, symbol_length)?;
        if blocks == 0 {
            return Err(OtiError::Blocks {
                blocks: 0,
                limit: RAPTORQ_BLOCKS_MAX,
            });
        }
        let aligned = symbol_length.checked_rem(u16::from(alignment)) == Some(0);
        if !aligned || sub_blocks == 0 || sub_blocks > symbol_length / u16::from(alignment) {
            return Err(OtiError::SubBlocks {
                sub_blocks,
                alignment,
                symbol_length,
            });
        }
        let oti = Oti {
            scheme: Scheme::RaptorQ {
                blocks,
                sub_blocks,
                alignment,
            },
            transfer_length,
            symbol_length,
        };
        let limit = u64::from(RAPTORQ_BLOCK_SYMBOLS_MAX);
        check_at_most(oti.largest_block(), limit, |symbols, limit| {
            OtiError::BlockSymbols { symbols, limit }
        })?;
        Ok(oti)
    }

    /// Chooses parameters for a sender: the fewest blocks of at most `block_symbols_max` symbols
    /// each. An object that is too long for the 255 blocks of RaptorQ gets longer blocks.
    ///
    /// # Errors
    /// [`OtiError`] if the scheme cannot carry an object of this length.
    pub fn choose(
        scheme: FecScheme,
        transfer_length: u64,
        symbol_length: u16,
        block_symbols_max: u32,
    ) -> Result<Self, OtiError> {
        match scheme {
            FecScheme::NoCode => Oti::no_code(transfer_length, symbol_length, block_symbols_max),
            FecScheme::RaptorQ => {
                check_lengths(transfer_length, RAPTORQ_TRANSFER_LENGTH_MAX, symbol_length)?;
                let symbols = transfer_length.div_ceil(u64::from(symbol_length));
                let blocks = symbols
                    .div_ceil(u64::from(block_symbols_max).max(1))
                    .clamp(1, RAPTORQ_BLOCKS_MAX);
                let alignment = if symbol_length.is_multiple_of(4) {
                    4
                } else {
                    1
                };
                Oti::raptorq(transfer_length, symbol_length, blocks as u8, 1, alignment)
            }
        }
    }

    /// The scheme.
    pub fn scheme(&self) -> FecScheme {
        match self.scheme {
            Scheme::NoCode { .. } => FecScheme::NoCode,
            Scheme::RaptorQ { .. } => FecScheme::RaptorQ,
        }
    }

    /// The object's length in bytes.
    pub fn transfer_length(&self) -> u64 {
        self.transfer_length
    }

    /// The length of a symbol in bytes.
    pub fn symbol_length(&self) -> u16 {
        self.symbol_length
    }

    /// The maximum number of source symbols in a block of this object.
    pub fn block_symbols_max(&self) -> u32 {
        match self.scheme {
            Scheme::NoCode { block_symbols_max } => block_symbols_max,
            Scheme::RaptorQ { .. } => self.largest_block() as u32,
        }
    }

    /// The number of source symbols in the whole object.
    pub fn symbols(&self) -> u64 {
        self.transfer_length.div_ceil(u64::from(self.symbol_length))
    }

    /// The number of blocks: at most 65536, and 0 for an empty object.
    pub fn blocks(&self) -> u32 {
        self.blocks_needed().min(self.symbols()) as u32
    }

    /// The number of source symbols (K) in block `sbn`; `None` past the last block.
    pub fn block_symbols(&self, sbn: u32) -> Option<u32> {
        let (large, small, large_blocks) = self.partition();
        (sbn < self.blocks()).then(|| {
            if u64::from(sbn) < large_blocks {
                large as u32
            } else {
                small as u32
            }
        })
    }

    /// The first source symbol of block `sbn`, counted from the object's start.
    pub(crate) fn block_start(&self, sbn: u32) -> u64 {
        let (large, small, large_blocks) = self.partition();
        let sbn = u64::from(sbn);
        sbn.min(large_blocks) * large + sbn.saturating_sub(large_blocks) * small
    }

    /// The byte range of block `sbn` in the object.
    pub(crate) fn block_range(&self, sbn: u32) -> std::ops::Range<u64> {
        let byte = |symbol: u64| (symbol * u64::from(self.symbol_length)).min(self.transfer_length);
        byte(self.block_start(sbn))..byte(self.block_start(sbn + 1))
    }

    /// Splits an FEC Payload ID into block number and symbol number.
    pub(crate) fn split_payload_id(&self, id: [u8; PAYLOAD_ID_BYTES]) -> (u32, u32) {
        let word = u32::from_be_bytes(id);
        let bits = self.symbol_id_bits();
        (word >> bits, word & ((1 << bits) - 1))
    }

    pub(crate) fn payload_id(&self, sbn: u32, esi: u32) -> [u8; PAYLOAD_ID_BYTES] {
        (sbn << self.symbol_id_bits() | esi).to_be_bytes()
    }

    /// The number of distinct symbols that a block of `k` source symbols can produce.
    pub(crate) fn symbol_ids(&self, k: u32) -> u32 {
        match self.scheme {
            Scheme::NoCode { .. } => k,
            Scheme::RaptorQ { .. } => RAPTORQ_SYMBOL_IDS,
        }
    }

    /// The length of symbol `esi` of block `sbn` in a packet. Only without code may the object's
    /// last symbol be short.
    pub(crate) fn payload_length(&self, sbn: u32, esi: u32) -> usize {
        let full = u64::from(self.symbol_length);
        match self.scheme {
            Scheme::RaptorQ { .. } => full as usize,
            Scheme::NoCode { .. } => {
                let offset = (self.block_start(sbn) + u64::from(esi)) * full;
                self.transfer_length.saturating_sub(offset).min(full) as usize
            }
        }
    }

    /// RaptorQ's parameters in the type of the crate `raptorq`; `None` without code.
    pub(crate) fn raptorq_config(&self) -> Option<ObjectTransmissionInformation> {
        match self.scheme {
            Scheme::NoCode { .. } => None,
            Scheme::RaptorQ {
                blocks,
                sub_blocks,
                alignment,
            } => Some(ObjectTransmissionInformation::new(
                self.transfer_length,
                self.symbol_length,
                blocks,
                sub_blocks,
                alignment,
            )),
        }
    }

    /// Whether a block's bytes are its source symbols in order. Sub-blocks interleave them.
    pub(crate) fn is_contiguous(&self) -> bool {
        !matches!(
            self.scheme,
            Scheme::RaptorQ {
                sub_blocks: 2..,
                ..
            }
        )
    }

    fn symbol_id_bits(&self) -> u32 {
        match self.scheme {
            Scheme::NoCode { .. } => 16,
            Scheme::RaptorQ { .. } => 24,
        }
    }

    fn blocks_needed(&self) -> u64 {
        match self.scheme {
            Scheme::NoCode { block_symbols_max } => {
                self.symbols().div_ceil(u64::from(block_symbols_max))
            }
            Scheme::RaptorQ { blocks, .. } => u64::from(blocks),
        }
    }

    fn largest_block(&self) -> u64 {
        self.partition().0
    }

    /// Symbols in a large block, symbols in a small block, and the number of large blocks (RFC 5052
    /// section 9.1, RFC 6330 section 4.4.1.2).
    fn partition(&self) -> (u64, u64, u64) {
        let (symbols, blocks) = (self.symbols(), self.blocks_needed().max(1));
        (symbols.div_ceil(blocks), symbols / blocks, symbols % blocks)
    }
}

/// The encoding of the parameters in packets (EXT_FTI) and FDTs.
impl Oti {
    /// The length of EXT_FTI in bytes in both schemes, including type and length.
    pub(crate) const EXTENSION_BYTES: usize = 16;

    /// Decodes the content of EXT_FTI.
    ///
    /// # Errors
    /// [`OtiError`] if no object can have these parameters.
    pub fn decode_extension(scheme: FecScheme, content: &[u8]) -> Result<Self, OtiError> {
        let &[f5, f4, f3, f2, f1, f0, a, b, c, d, e, f, g, h] = content else {
            return Err(OtiError::Length(content.len()));
        };
        match scheme {
            FecScheme::NoCode => {
                let length = u64::from_be_bytes([0, 0, f5, f4, f3, f2, f1, f0]);
                let [_, _] = [a, b];
                Oti::no_code(
                    length,
                    u16::from_be_bytes([c, d]),
                    u32::from_be_bytes([e, f, g, h]),
                )
            }
            FecScheme::RaptorQ => {
                let length = u64::from_be_bytes([0, 0, 0, f5, f4, f3, f2, f1]);
                Oti::raptorq(
                    length,
                    u16::from_be_bytes([a, b]),
                    c,
                    u16::from_be_bytes([d, e]),
                    f,
                )
            }
        }
    }

    /// Encodes the whole EXT_FTI, including type and length.
    pub fn encode_extension(&self) -> [u8; 16] {
        let mut bytes = [0; Self::EXTENSION_BYTES];
        bytes[0] = crate::lct::EXT_FTI;
        bytes[1] = (Self::EXTENSION_BYTES / 4) as u8;
        match self.scheme {
            Scheme::NoCode { block_symbols_max } => {
                bytes[2..8].copy_from_slice(&self.transfer_length.to_be_bytes()[2..]);
                bytes[10..12].copy_from_slice(&self.symbol_length.to_be_bytes());
                bytes[12..16].copy_from_slice(&block_symbols_max.to_be_bytes());
            }
            Scheme::RaptorQ { .. } => {
                bytes[2..7].copy_from_slice(&self.transfer_length.to_be_bytes()[3..]);
                bytes[8..10].copy_from_slice(&self.symbol_length.to_be_bytes());
                bytes[10..14].copy_from_slice(&self.scheme_specific().unwrap_or_default());
            }
        }
        bytes
    }

    /// The scheme-specific element of RaptorQ: Z, N and Al (RFC 6330 section 3.3.3); `None` without
    /// code.
    pub fn scheme_specific(&self) -> Option<[u8; 4]> {
        match self.scheme {
            Scheme::NoCode { .. } => None,
            Scheme::RaptorQ {
                blocks,
                sub_blocks,
                alignment,
            } => {
                let [high, low] = sub_blocks.to_be_bytes();
                Some([blocks, high, low, alignment])
            }
        }
    }
}

fn check_lengths(transfer_length: u64, limit: u64, symbol_length: u16) -> Result<(), OtiError> {
    if symbol_length == 0 {
        return Err(OtiError::SymbolLength(0));
    }
    check_at_most(transfer_length, limit, |length, limit| {
        OtiError::TransferLength { length, limit }
    })
}

fn check_at_most(value: u64, limit: u64, error: fn(u64, u64) -> OtiError) -> Result<(), OtiError> {
    if value > limit {
        Err(error(value, limit))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_extension_that_is_encoded_is_decoded(
            raptorq: bool, length in 0_u64..1 << 34, symbol_length in 1_u16.., block in 1_u32..60_000,
        ) {
            let scheme = if raptorq { FecScheme::RaptorQ } else { FecScheme::NoCode };
            if let Ok(oti) = Oti::choose(scheme, length, symbol_length, block) {
                let bytes = oti.encode_extension();
                prop_assert_eq!(usize::from(bytes[1]) * 4, bytes.len());
                prop_assert_eq!(Oti::decode_extension(scheme, &bytes[2..]), Ok(oti));
            }
        }

        #[test]
        fn any_extension_gives_parameters_or_an_error(raptorq: bool, content in proptest::collection::vec(any::<u8>(), 0..20)) {
            let scheme = if raptorq { FecScheme::RaptorQ } else { FecScheme::NoCode };
            if let Ok(oti) = Oti::decode_extension(scheme, &content) {
                prop_assert!(oti.largest_block() <= 65_536);
                let _ = oti.raptorq_config();
            }
        }

        #[test]
        fn blocks_cover_the_object_without_gap(
            raptorq: bool, length in 0_u64..10_000_000, symbol_length in 100_u16..2_000, block in 20_u32..2_000,
        ) {
            let scheme = if raptorq { FecScheme::RaptorQ } else { FecScheme::NoCode };
            let oti = Oti::choose(scheme, length, symbol_length, block).unwrap();
            let mut end = 0;
            for sbn in 0..oti.blocks() {
                let range = oti.block_range(sbn);
                prop_assert_eq!(range.start, end);
                let symbols = (range.end - range.start).div_ceil(u64::from(symbol_length));
                prop_assert_eq!(oti.block_symbols(sbn).map(u64::from), Some(symbols));
                end = range.end;
            }
            prop_assert_eq!(end, length);
            prop_assert_eq!(oti.block_symbols(oti.blocks()), None);
        }

        #[test]
        fn payload_ids_are_split_as_they_were_joined(raptorq: bool, sbn in 0_u32..255, esi in 0_u32..65_536) {
            let scheme = if raptorq { FecScheme::RaptorQ } else { FecScheme::NoCode };
            let oti = Oti::choose(scheme, 1_000, 100, 10).unwrap();
            prop_assert_eq!(oti.split_payload_id(oti.payload_id(sbn, esi)), (sbn, esi));
        }
    }

    #[test]
    fn parameters_no_object_can_have_are_refused() {
        assert!(matches!(
            Oti::no_code(1 << 48, 1_400, 1_000),
            Err(OtiError::TransferLength { .. })
        ));
        assert!(matches!(
            Oti::raptorq(1 << 48, 1_400, 255, 1, 4),
            Err(OtiError::TransferLength { .. })
        ));
        assert!(matches!(
            Oti::raptorq(1_400 * 56_404, 1_400, 1, 1, 4),
            Err(OtiError::BlockSymbols { .. })
        ));
        assert!(Oti::raptorq(1_400 * 56_403, 1_400, 1, 1, 4).is_ok());
        assert!(matches!(
            Oti::no_code(1_400 * 65_537, 1_400, 1),
            Err(OtiError::Blocks { .. })
        ));
        assert!(matches!(
            Oti::no_code(70_000, 1, 70_000),
            Err(OtiError::BlockSymbols { .. })
        ));
        assert!(matches!(
            Oti::no_code(1, 0, 1),
            Err(OtiError::SymbolLength(0))
        ));
        assert!(matches!(Oti::no_code(1, 1, 0), Err(OtiError::Missing(_))));
        assert!(matches!(
            Oti::raptorq(1, 100, 0, 1, 4),
            Err(OtiError::Blocks { .. })
        ));
        for (sub_blocks, alignment) in [(0, 4), (26, 4), (1, 0), (1, 3)] {
            assert!(matches!(
                Oti::raptorq(1, 100, 1, sub_blocks, alignment),
                Err(OtiError::SubBlocks { .. })
            ));
        }
    }
}
