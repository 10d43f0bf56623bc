//! One source block at the receiver: collects symbols in any order until they yield the block's
//! bytes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;

use raptorq::{EncodingPacket, PayloadId, SourceBlockDecoder};

use super::{BlockDigest, Oti, block_digest};
use crate::storage::Storage;

/// Approximate memory of a receiver for each symbol that its storage has, in bytes.
pub const BOOKKEEPING_BYTES: u64 = 64;

/// Maximum number of symbols beyond the first K that are kept while the block is decoded. Decoding
/// hardly ever needs more.
const EXTRA_MAX: usize = 3;

/// Collects a block's symbols. K of them are in the storage, in the bytes that the block itself
/// takes later: source symbols in their own places, if these are free, and the others behind.
pub(crate) struct BlockDecoder {
    oti: Oti,
    sbn: u32,
    /// The kind of symbol in each place.
    taken: Vec<Place>,
    /// The number of places that are taken.
    stored: u32,
    /// The places of stored symbols that are not in their own ones, by encoding symbol ID.
    strayed: BTreeMap<u32, u32>,
    /// An upper bound for free places: every place at or above it is taken.
    free_below: u32,
    /// Symbols beyond the first K, which decoding rarely needs.
    extra: BTreeMap<u32, Vec<u8>>,
}

/// A place for a symbol in the block's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Free,
    /// It has the source symbol that belongs there.
    Own,
    /// It has another symbol.
    Strayed,
}

/// The result of inserting a symbol.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Insertion {
    /// The block already has this symbol.
    Duplicate,
    /// The block already had this symbol with another content. Neither is used: one is false.
    Contradiction,
    /// The symbol is at this place in the storage, or in memory.
    Kept {
        place: Option<u32>,
        /// Whether the block has as many symbols as decoding needs in most cases.
        is_enough: bool,
    },
}

impl BlockDecoder {
    pub(crate) fn new(oti: Oti, sbn: u32) -> Self {
        let symbols = oti.block_symbols(sbn).unwrap_or(0);
        BlockDecoder {
            oti,
            sbn,
            taken: vec![Place::Free; symbols as usize],
            stored: 0,
            strayed: BTreeMap::new(),
            free_below: symbols,
            extra: BTreeMap::new(),
        }
    }

    /// The block's memory in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.stored) * BOOKKEEPING_BYTES
            + self.taken.len() as u64
            + self.extra.len() as u64 * (BOOKKEEPING_BYTES + self.symbol_length() as u64)
    }

    /// The number of symbols held.
    pub(crate) fn held(&self) -> u32 {
        self.stored + self.extra.len() as u32
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
        Ok(Insertion::Kept {
            place,
            is_enough: self.is_full(),
        })
    }

    /// Whether the block keeps another symbol while it is decoded. Some blocks need more than K
    /// symbols, and in windows the next ones may come only in the next round.
    pub(crate) fn takes_extra(&self) -> bool {
        self.extra.len() < EXTRA_MAX
    }

    /// Whether the block almost certainly needs no more symbols than it has: all source symbols, or
    /// two symbols beyond the number of those, which fail once in a million times (RFC 6330 section
    /// 1).
    pub(crate) fn is_certain(&self) -> bool {
        self.is_full() && (self.extra.len() >= 2 || self.strayed.is_empty())
    }

    /// Whether all places are taken.
    fn is_full(&self) -> bool {
        self.stored as usize == self.taken.len()
    }

    /// Returns the place of a stored symbol.
    fn place_of(&self, esi: u32) -> Option<u32> {
        match self.taken.get(esi as usize) {
            Some(Place::Own) => Some(esi),
            _ => self.strayed.get(&esi).copied(),
        }
    }

    /// Keeps a symbol while the block is decoded.
    pub(crate) fn add_extra(&mut self, esi: u32, symbol: &[u8]) {
        if self.place_of(esi).is_none() {
            let symbol = self.pad(symbol).into_owned();
            self.extra.entry(esi).or_insert(symbol);
        }
    }

    /// Drops symbol `esi`. Returns whether the block had it.
    pub(crate) fn withdraw(&mut self, esi: u32) -> bool {
        let Some(place) = self.place_of(esi) else {
            return self.extra.remove(&esi).is_some();
        };
        self.strayed.remove(&esi);
        self.taken[place as usize] = Place::Free;
        self.stored -= 1;
        self.free_below = self.taken.len() as u32;
        true
    }

    /// Records that the storage has symbol `esi` at `place`. Returns whether this is possible.
    pub(crate) fn restore(&mut self, esi: u32, place: u32) -> bool {
        let is_free = self.taken.get(place as usize) == Some(&Place::Free);
        let is_possible = is_free && self.place_of(esi).is_none();
        if is_possible {
            self.occupy(esi, place);
        }
        is_possible
    }

    fn occupy(&mut self, esi: u32, place: u32) {
        let taken = &mut self.taken[place as usize];
        debug_assert_eq!(*taken, Place::Free, "two symbols at one place");
        *taken = match esi == place {
            true => Place::Own,
            false => Place::Strayed,
        };
        if esi != place {
            self.strayed.insert(esi, place);
        }
        self.stored += 1;
    }

    /// Returns a free place for symbol `esi`: its own, or the last one. Repair symbols are placed
    /// from the end, where they meet source symbols last.
    fn free_place(&mut self, esi: u32) -> Option<u32> {
        if self.taken.get(esi as usize) == Some(&Place::Free) {
            return Some(esi);
        }
        while self.free_below > 0 {
            if self.taken[self.free_below as usize - 1] == Place::Free {
                return Some(self.free_below - 1);
            }
            self.free_below -= 1;
        }
        None
    }

    /// Returns the stored symbols with their places.
    fn places(&self) -> impl Iterator<Item = (u32, u32)> {
        let own = (0..)
            .zip(&self.taken)
            .filter(|(_, taken)| **taken == Place::Own);
        let strayed = self.strayed.iter().map(|(&esi, &place)| (esi, place));
        own.map(|(esi, _)| (esi, esi)).chain(strayed)
    }

    fn symbol(
        &self,
        esi: u32,
        object: u128,
        storage: &mut impl Storage,
    ) -> io::Result<Option<Vec<u8>>> {
        let Some(place) = self.place_of(esi) else {
            return Ok(self.extra.get(&esi).cloned());
        };
        let mut symbol = vec![0; self.symbol_length()];
        storage.read_at(object, self.offset(place), &mut symbol)?;
        Ok(Some(symbol))
    }

    /// Reads the block's symbols, and returns the decoding of them.
    pub(crate) fn job(
        &self,
        object: u128,
        digest: Option<BlockDigest>,
        storage: &mut impl Storage,
    ) -> io::Result<DecodeJob> {
        let mut stored = vec![0; self.taken.len() * self.symbol_length()];
        storage.read_at(object, self.offset(0), &mut stored)?;
        let is_decoded = self.strayed.is_empty() && self.oti.is_contiguous();
        Ok(DecodeJob {
            object,
            oti: self.oti,
            sbn: self.sbn,
            digest,
            symbols: self.held(),
            stored,
            places: match is_decoded {
                true => None,
                false => Some(self.places().collect()),
            },
            extra: self
                .extra
                .iter()
                .map(|(&esi, symbol)| (esi, symbol.clone()))
                .collect(),
        })
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

/// The decoding of one block. It takes some milliseconds for a block of 1000 symbols, so a driver
/// runs it in another thread.
pub struct DecodeJob {
    object: u128,
    oti: Oti,
    sbn: u32,
    digest: Option<BlockDigest>,
    /// The number of symbols.
    symbols: u32,
    /// The symbols in the block's places.
    stored: Vec<u8>,
    /// The places of the symbols, by encoding symbol ID; `None` if they are the block.
    places: Option<Vec<(u32, u32)>>,
    extra: Vec<(u32, Vec<u8>)>,
}

/// The result of a [`DecodeJob`].
pub struct Decoded {
    pub(crate) object: u128,
    pub(crate) oti: Oti,
    pub(crate) sbn: u32,
    /// The number of symbols that the job had.
    pub(crate) symbols: u32,
    /// The block's bytes without padding; `None` if more symbols are needed.
    pub(crate) block: Option<Vec<u8>>,
    /// Whether the storage has the same bytes.
    pub(crate) is_stored: bool,
    /// Whether the bytes have the block's digest, as far as that is known.
    pub(crate) is_right: bool,
}

impl DecodeJob {
    /// Decodes the block, and compares it with its digest.
    pub fn run(self) -> Decoded {
        let Self {
            object,
            oti,
            sbn,
            digest,
            ..
        } = self;
        let is_stored = self.places.is_none();
        let symbols = self.symbols;
        let mut block = self.decode();
        let range = oti.block_range(sbn);
        if let Some(block) = &mut block {
            block.truncate((range.end - range.start) as usize);
        }
        let is_right = |block: &Vec<u8>| digest.is_none_or(|digest| digest == block_digest(block));
        Decoded {
            object,
            oti,
            sbn,
            symbols,
            is_right: block.as_ref().is_some_and(is_right),
            block,
            is_stored,
        }
    }

    fn decode(self) -> Option<Vec<u8>> {
        let Some(places) = self.places else {
            return Some(self.stored);
        };
        let length = usize::from(self.oti.symbol_length());
        let config = self
            .oti
            .raptorq_config()
            .expect("without code, K symbols are all the source symbols");
        let stored = places.into_iter().map(|(esi, place)| {
            let symbol = &self.stored[place as usize * length..][..length];
            (esi, symbol.to_vec())
        });
        let sbn = self.sbn as u8;
        let packets = stored
            .chain(self.extra)
            .map(|(esi, symbol)| EncodingPacket::new(PayloadId::new(sbn, esi), symbol));
        SourceBlockDecoder::new(sbn, &config, self.stored.len() as u64).decode(packets)
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
            let mut decoded = None;
            for esi in ids {
                let inserted = decoder.insert(esi, &[byte ^ esi as u8; 8], 1, &mut storage);
                if let Insertion::Kept { is_enough: true, .. } = inserted.unwrap() {
                    let job = decoder.job(1, None, &mut storage).unwrap();
                    decoded = job.run().block;
                }
                if decoded.is_some() {
                    break;
                }
            }
            prop_assert_eq!(decoded.map(|block| block.len()), Some(symbols as usize * 8));
        }
    }

    #[test]
    fn a_withdrawn_symbol_is_not_used() {
        let oti = Oti::choose(FecScheme::RaptorQ, 5 * 8, 8, 80).unwrap();
        let (mut decoder, mut storage) = (BlockDecoder::new(oti, 0), MemoryStorage::default());
        let mut insert = |decoder: &mut BlockDecoder, esi: u32, byte: u8| {
            decoder.insert(esi, &[byte; 8], 1, &mut storage).unwrap()
        };
        let kept = |place, is_enough| Insertion::Kept {
            place: Some(place),
            is_enough,
        };
        // False symbols, one of which takes the place of source symbol 4.
        assert_eq!(insert(&mut decoder, 99, 0xff), kept(4, false));
        assert_eq!(insert(&mut decoder, 1, 0xff), kept(1, false));
        assert_eq!(insert(&mut decoder, 1, 1), Insertion::Contradiction);
        assert!(decoder.withdraw(99) && !decoder.withdraw(99));
        for esi in [4, 3, 2, 0] {
            let insertion = insert(&mut decoder, esi, esi as u8);
            assert_eq!(insertion, kept(esi, false));
        }
        assert_eq!(insert(&mut decoder, 3, 3), Insertion::Duplicate);
        assert_eq!(insert(&mut decoder, 1, 1), kept(1, true));
        let decoded = decoder.job(1, None, &mut storage).unwrap().run();
        let expected: Vec<u8> = (0..5).flat_map(|byte| [byte; 8]).collect();
        assert_eq!((decoded.block, decoded.is_stored), (Some(expected), true));
    }
}
