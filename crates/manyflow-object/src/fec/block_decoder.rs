//! One source block at the receiver: collects symbols in any order until they yield the block's
//! bytes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;

use raptorq::{EncodingPacket, PayloadId, SourceBlockDecoder};

use super::Oti;
use crate::storage::Storage;

/// Approximate memory of a receiver for each symbol that its storage has, in bytes.
pub const BOOKKEEPING_BYTES: u64 = 64;

/// Collects a block's symbols. K of them are in the storage, in the bytes that the block itself
/// takes later: source symbols in their own places, if these are free, and the others behind.
pub(crate) struct BlockDecoder {
    oti: Oti,
    sbn: u32,
    /// The place of each stored symbol, by encoding symbol ID.
    places: BTreeMap<u32, u32>,
    /// Whether each place is taken.
    taken: Vec<bool>,
    /// An upper bound for free places: every place at or above it is taken.
    free_below: u32,
    /// Symbols beyond the first K, which decoding rarely needs.
    extra: BTreeMap<u32, Vec<u8>>,
}

/// The result of inserting a symbol.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Insertion {
    /// The block already has this symbol.
    Duplicate,
    /// The block already had this symbol with another content. Neither is used: one is false.
    Contradiction,
    /// The symbol is at this place in the storage, or in memory; the block needs more.
    Kept(Option<u32>),
    /// The symbol was the last one needed.
    Decoded {
        /// The block's bytes, including padding.
        block: Vec<u8>,
        /// Whether the storage has the same bytes.
        is_stored: bool,
    },
}

impl BlockDecoder {
    pub(crate) fn new(oti: Oti, sbn: u32) -> Self {
        let symbols = oti.block_symbols(sbn).unwrap_or(0);
        BlockDecoder {
            oti,
            sbn,
            places: BTreeMap::new(),
            taken: vec![false; symbols as usize],
            free_below: symbols,
            extra: BTreeMap::new(),
        }
    }

    /// The block's memory in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.places.len() as u64 * BOOKKEEPING_BYTES
            + self.taken.len() as u64
            + self.extra.len() as u64 * (BOOKKEEPING_BYTES + self.symbol_length() as u64)
    }

    /// The number of symbols held.
    pub(crate) fn held(&self) -> u32 {
        (self.places.len() + self.extra.len()) as u32
    }

    /// Takes symbol `esi` of `object`. The caller has checked its number and length against the
    /// OTI.
    pub(crate) fn insert(
        &mut self,
        esi: u32,
        symbol: &[u8],
        object: u128,
        storage: &mut impl Storage,
    ) -> io::Result<Insertion> {
        let padded = self.pad(symbol);
        if let Some(known) = self.symbol(esi, object, storage)? {
            if known == *padded {
                return Ok(Insertion::Duplicate);
            }
            self.withdraw(esi);
            return Ok(Insertion::Contradiction);
        }
        let place = self.free_place(esi);
        match place {
            Some(place) => {
                storage.write_at(object, self.offset(place), &padded)?;
                self.occupy(esi, place);
            }
            None => {
                self.extra.insert(esi, padded.into_owned());
            }
        }
        if self.places.len() < self.taken.len() {
            return Ok(Insertion::Kept(place));
        }
        let decoded = self.decode(object, storage)?;
        Ok(decoded.unwrap_or(Insertion::Kept(place)))
    }

    /// Drops symbol `esi`. Returns whether the block had it.
    pub(crate) fn withdraw(&mut self, esi: u32) -> bool {
        let Some(place) = self.places.remove(&esi) else {
            return self.extra.remove(&esi).is_some();
        };
        self.taken[place as usize] = false;
        self.free_below = self.taken.len() as u32;
        true
    }

    /// Records that the storage has symbol `esi` at `place`. Returns whether this is possible.
    pub(crate) fn restore(&mut self, esi: u32, place: u32) -> bool {
        let is_free = self.taken.get(place as usize) == Some(&false);
        let is_possible = is_free && !self.places.contains_key(&esi);
        if is_possible {
            self.occupy(esi, place);
        }
        is_possible
    }

    fn occupy(&mut self, esi: u32, place: u32) {
        debug_assert!(!self.taken[place as usize], "two symbols at one place");
        self.places.insert(esi, place);
        self.taken[place as usize] = true;
    }

    /// Returns a free place for symbol `esi`: its own, or the last one. Repair symbols are placed
    /// from the end, where they meet source symbols last.
    fn free_place(&mut self, esi: u32) -> Option<u32> {
        if self.taken.get(esi as usize) == Some(&false) {
            return Some(esi);
        }
        while self.free_below > 0 {
            if !self.taken[self.free_below as usize - 1] {
                return Some(self.free_below - 1);
            }
            self.free_below -= 1;
        }
        None
    }

    fn symbol(
        &self,
        esi: u32,
        object: u128,
        storage: &mut impl Storage,
    ) -> io::Result<Option<Vec<u8>>> {
        let Some(&place) = self.places.get(&esi) else {
            return Ok(self.extra.get(&esi).cloned());
        };
        let mut symbol = vec![0; self.symbol_length()];
        storage.read_at(object, self.offset(place), &mut symbol)?;
        Ok(Some(symbol))
    }

    /// Returns the block's bytes if the symbols suffice.
    fn decode(&self, object: u128, storage: &mut impl Storage) -> io::Result<Option<Insertion>> {
        let length = self.symbol_length();
        let mut stored = vec![0; self.taken.len() * length];
        storage.read_at(object, self.offset(0), &mut stored)?;
        let is_in_order = self.places.iter().all(|(esi, place)| esi == place);
        if is_in_order && self.oti.is_contiguous() {
            return Ok(Some(Insertion::Decoded {
                block: stored,
                is_stored: true,
            }));
        }
        let config = self
            .oti
            .raptorq_config()
            .expect("without code, K symbols are all the source symbols");
        let of_places = self
            .places
            .iter()
            .map(|(&esi, &place)| (esi, stored[place as usize * length..][..length].to_vec()));
        let extra = self
            .extra
            .iter()
            .map(|(&esi, symbol)| (esi, symbol.clone()));
        let sbn = self.sbn as u8;
        let packets = of_places
            .chain(extra)
            .map(|(esi, symbol)| EncodingPacket::new(PayloadId::new(sbn, esi), symbol));
        let decoded = SourceBlockDecoder::new(sbn, &config, stored.len() as u64).decode(packets);
        Ok(decoded.map(|block| Insertion::Decoded {
            block,
            is_stored: false,
        }))
    }

    /// Returns a symbol with zeros behind it: without code, an object's last symbol can be short.
    fn pad<'a>(&self, symbol: &'a [u8]) -> Cow<'a, [u8]> {
        if symbol.len() == self.symbol_length() {
            return symbol.into();
        }
        let mut padded = symbol.to_vec();
        padded.resize(self.symbol_length(), 0);
        padded.into()
    }

    /// The position of a place in the object's bytes.
    fn offset(&self, place: u32) -> u64 {
        (self.oti.block_start(self.sbn) + u64::from(place)) * self.symbol_length() as u64
    }

    fn symbol_length(&self) -> usize {
        usize::from(self.oti.symbol_length())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fec::FecScheme;
    use crate::storage::MemoryStorage;
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
            let mut storage = MemoryStorage::default();
            let ids = (0..u32::from(low_ids) % symbols).chain(ids);
            let inserted = ids.map(|esi| decoder.insert(esi, &[byte ^ esi as u8; 8], 1, &mut storage));
            let decoded = inserted.into_iter().find_map(|insertion| match insertion.unwrap() {
                Insertion::Decoded { block, .. } => Some(block.len()),
                _ => None,
            });
            prop_assert_eq!(decoded, Some(symbols as usize * 8));
        }
    }

    #[test]
    fn a_withdrawn_symbol_is_not_used() {
        let oti = Oti::choose(FecScheme::RaptorQ, 5 * 8, 8, 80).unwrap();
        let (mut decoder, mut storage) = (BlockDecoder::new(oti, 0), MemoryStorage::default());
        let mut insert = |decoder: &mut BlockDecoder, esi: u32, byte: u8| {
            decoder.insert(esi, &[byte; 8], 1, &mut storage).unwrap()
        };
        // False symbols, one of which takes the place of source symbol 4.
        assert_eq!(insert(&mut decoder, 99, 0xff), Insertion::Kept(Some(4)));
        assert_eq!(insert(&mut decoder, 1, 0xff), Insertion::Kept(Some(1)));
        assert_eq!(insert(&mut decoder, 1, 1), Insertion::Contradiction);
        assert!(decoder.withdraw(99) && !decoder.withdraw(99));
        for esi in [4, 3, 2, 0] {
            let place = Some(esi);
            assert_eq!(insert(&mut decoder, esi, esi as u8), Insertion::Kept(place));
        }
        assert_eq!(insert(&mut decoder, 3, 3), Insertion::Duplicate);
        let Insertion::Decoded { block, is_stored } = insert(&mut decoder, 1, 1) else {
            panic!("not decoded");
        };
        let expected: Vec<u8> = (0..5).flat_map(|byte| [byte; 8]).collect();
        assert_eq!((block, is_stored), (expected, true));
    }
}
