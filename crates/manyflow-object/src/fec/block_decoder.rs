//! One source block at the receiver: collects symbols in any order until they yield the block's
//! bytes.

use std::collections::BTreeSet;

use raptorq::{EncodingPacket, PayloadId, SourceBlockDecoder};

use super::Oti;

/// Approximate memory for each symbol besides its bytes, so that the limit also stops a flood of
/// tiny symbols.
pub(crate) const BOOKKEEPING_BYTES: u64 = 64;

/// Collects a block's symbols.
pub(crate) struct BlockDecoder {
    oti: Oti,
    sbn: u32,
    seen: BTreeSet<u32>,
    /// Symbols in order of arrival, `symbol_length` bytes each. `ids` has their numbers.
    data: Vec<u8>,
    ids: Vec<u32>,
    /// Created by the first attempt to decode, which needs K symbols; from then on the solver owns
    /// the symbols.
    solver: Option<SourceBlockDecoder>,
}

/// The result of inserting a symbol.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Insertion {
    /// The block already has this symbol.
    Duplicate,
    /// The symbol was kept; the block needs more.
    Kept,
    /// The symbol was the last one needed: the block's bytes, including padding.
    Complete(Vec<u8>),
}

impl BlockDecoder {
    pub(crate) fn new(oti: Oti, sbn: u32) -> Self {
        BlockDecoder {
            oti,
            sbn,
            seen: BTreeSet::new(),
            data: Vec::new(),
            ids: Vec::new(),
            solver: None,
        }
    }

    /// Memory for the symbols kept so far, including bookkeeping, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.seen.len() as u64 * (u64::from(self.oti.symbol_length()) + BOOKKEEPING_BYTES)
    }

    /// Takes symbol `esi`. The caller has checked its number and length against the OTI.
    pub(crate) fn insert(&mut self, esi: u32, symbol: &[u8]) -> Insertion {
        if !self.seen.insert(esi) {
            return Insertion::Duplicate;
        }
        match &mut self.solver {
            None => self.keep(esi, symbol),
            Some(solver) => solve(solver, std::iter::once(packet(self.sbn, esi, symbol))),
        }
    }

    fn keep(&mut self, esi: u32, symbol: &[u8]) -> Insertion {
        self.ids.push(esi);
        self.data.extend_from_slice(symbol);
        self.data.resize(self.ids.len() * self.symbol_length(), 0);
        if self.ids.len() < self.symbols() {
            return Insertion::Kept;
        }
        let all_source = self
            .seen
            .last()
            .is_some_and(|&last| (last as usize) < self.symbols());
        if all_source && self.oti.is_contiguous() {
            Insertion::Complete(self.in_order())
        } else {
            self.first_attempt()
        }
    }

    /// Returns the block's bytes when all K source symbols have arrived, which needs no decoding.
    fn in_order(&mut self) -> Vec<u8> {
        let length = self.symbol_length();
        let mut block = vec![0; self.data.len()];
        for (symbol, &esi) in self.data.chunks_exact(length).zip(&self.ids) {
            block[esi as usize * length..][..length].copy_from_slice(symbol);
        }
        block
    }

    fn first_attempt(&mut self) -> Insertion {
        let config = self
            .oti
            .raptorq_config()
            .expect("without code, K symbols are all the source symbols");
        let length = self.symbol_length();
        let block_length = self.symbols() as u64 * length as u64;
        let (data, ids) = (
            std::mem::take(&mut self.data),
            std::mem::take(&mut self.ids),
        );
        let packets = data
            .chunks_exact(length)
            .zip(ids)
            .map(|(symbol, esi)| packet(self.sbn, esi, symbol));
        let solver = self.solver.insert(SourceBlockDecoder::new(
            self.sbn as u8,
            &config,
            block_length,
        ));
        solve(solver, packets)
    }

    fn symbols(&self) -> usize {
        self.oti.block_symbols(self.sbn).unwrap_or(0) as usize
    }

    fn symbol_length(&self) -> usize {
        usize::from(self.oti.symbol_length())
    }
}

fn packet(sbn: u32, esi: u32, symbol: &[u8]) -> EncodingPacket {
    EncodingPacket::new(PayloadId::new(sbn as u8, esi), symbol.to_vec())
}

fn solve(
    solver: &mut SourceBlockDecoder,
    packets: impl Iterator<Item = EncodingPacket>,
) -> Insertion {
    solver
        .decode(packets)
        .map_or(Insertion::Kept, Insertion::Complete)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fec::FecScheme;
    use proptest::prelude::*;

    proptest! {
        /// An attacker can send symbols that belong to no block, with any numbers. K of them, or a
        /// few more, still yield K symbols.
        #[test]
        fn symbols_of_an_enemy_give_a_block_of_the_right_length(
            symbols in 1_u32..80, ids in proptest::collection::btree_set(0_u32..1 << 24, 100), low_ids: u16, byte: u8,
        ) {
            let oti = Oti::choose(FecScheme::RaptorQ, u64::from(symbols) * 8, 8, 80).unwrap();
            let mut decoder = BlockDecoder::new(oti, 0);
            let ids = (0..u32::from(low_ids) % symbols).chain(ids);
            let inserted = ids.map(|esi| decoder.insert(esi, &[byte ^ esi as u8; 8]));
            let complete = inserted.into_iter().find_map(|insertion| match insertion {
                Insertion::Complete(bytes) => Some(bytes.len()),
                _ => None,
            });
            prop_assert_eq!(complete, Some(symbols as usize * 8));
        }
    }
}
