//! Reassembles one object from its blocks.

use std::collections::BTreeMap;
use std::io;

use crate::alc::PAYLOAD_ID_BYTES;
use crate::error::ReceiveError;
use crate::fec::{
    BOOKKEEPING_BYTES, BlockDecoder, BlockDigest, DecodeJob, Decoded, Insertion, Oti, block_digest,
};
use crate::storage::{Record, Storage};

/// An object under reassembly. A block is created by its first symbol, so a false transfer length
/// costs no memory.
pub(super) struct Assembly {
    /// The object's number in the storage.
    object: u128,
    oti: Oti,
    /// The blocks' digests; empty if they are not known.
    digests: Vec<BlockDigest>,
    blocks: BTreeMap<u32, Block>,
    complete_blocks: u32,
    bytes: u64,
}

pub(super) enum Block {
    /// The block needs symbols.
    Partial(BlockDecoder),
    /// The block is being decoded, and probably needs no more symbols.
    Decoding(BlockDecoder),
    Complete,
}

/// The result of taking a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// The symbol had arrived before.
    Duplicate,
    /// The symbol's block was already complete.
    Surplus,
    /// The symbol is useful, and its block needs more.
    Kept,
    /// The symbol is useful, and this block can be decoded.
    Enough(u32),
}

impl Assembly {
    pub(super) fn new(object: u128, oti: Oti, digests: Vec<BlockDigest>) -> Self {
        Assembly {
            object,
            oti,
            digests,
            blocks: BTreeMap::new(),
            complete_blocks: 0,
            bytes: 0,
        }
    }

    pub(super) fn oti(&self) -> &Oti {
        &self.oti
    }

    /// The object's number in the storage.
    pub(super) fn object(&self) -> u128 {
        self.object
    }

    /// A block, if it has symbols.
    pub(super) fn block_at(&self, sbn: u32) -> Option<&Block> {
        self.blocks.get(&sbn)
    }

    /// The digest of a block, if it is known.
    pub(super) fn digest(&self, sbn: u32) -> Option<BlockDigest> {
        self.digests.get(sbn as usize).copied()
    }

    /// Memory for the numbers of symbols in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of symbols that incomplete blocks have.
    pub(super) fn held(&self) -> u64 {
        self.blocks.values().map(Block::held).sum()
    }

    /// Whether each block was compared with its digest.
    pub(super) fn verifies_blocks(&self) -> bool {
        !self.digests.is_empty()
    }

    /// Whether all blocks are complete.
    pub(super) fn is_complete(&self) -> bool {
        self.complete_blocks == self.oti.blocks()
    }

    /// Whether all blocks are complete, or almost certainly need no more symbols.
    pub(super) fn has_enough(&self) -> bool {
        let is_enough = |block: &Block| match block {
            Block::Partial(_) => false,
            Block::Decoding(decoder) => decoder.is_certain(),
            Block::Complete => true,
        };
        self.blocks.len() == self.oti.blocks() as usize && self.blocks.values().all(is_enough)
    }

    /// Forgets all blocks.
    pub(super) fn start_over(&mut self, storage: &mut impl Storage) -> io::Result<()> {
        for sbn in std::mem::take(&mut self.blocks).into_keys() {
            note(self.object, storage, |object| Record::Dropped {
                object,
                sbn,
            })?;
        }
        (self.complete_blocks, self.bytes) = (0, 0);
        storage.remove(self.object)
    }

    /// Refuses a packet whose parameters differ from the object's.
    pub(super) fn check_oti(&self, in_packet: Option<Oti>) -> Result<(), ReceiveError> {
        if in_packet.is_some_and(|oti| oti != self.oti) {
            Err(ReceiveError::OtiChanged)
        } else {
            Ok(())
        }
    }

    /// Takes a symbol if it needs at most `memory_left` bytes.
    pub(super) fn take(
        &mut self,
        payload_id: [u8; PAYLOAD_ID_BYTES],
        data: &[u8],
        memory_left: u64,
        storage: &mut impl Storage,
    ) -> Result<Taken, ReceiveError> {
        let (sbn, esi) = self.check(payload_id, data)?;
        let (oti, object) = (self.oti, self.object);
        let memory = || match BOOKKEEPING_BYTES > memory_left {
            true => Err(ReceiveError::Memory),
            false => Ok(()),
        };
        if !self.blocks.contains_key(&sbn) {
            memory()?;
            let block = Block::Partial(BlockDecoder::new(oti, sbn));
            self.bytes += block.bytes();
            self.blocks.insert(sbn, block);
        }
        let Some(block) = self.blocks.get_mut(&sbn) else {
            return Ok(Taken::Surplus);
        };
        let before = block.bytes();
        let insertion = match block {
            Block::Partial(decoder) => {
                memory()?;
                Some(decoder.insert(esi, data, object, storage))
            }
            Block::Decoding(decoder) if decoder.takes_extra() => {
                memory()?;
                decoder.add_extra(esi, data);
                None
            }
            // A surplus symbol takes no memory, so no other block has to make room for it.
            Block::Decoding(_) | Block::Complete => None,
        };
        self.bytes = self.bytes - before + block.bytes();
        let Some(insertion) = insertion else {
            return Ok(Taken::Surplus);
        };
        match insertion? {
            Insertion::Duplicate => Ok(Taken::Duplicate),
            Insertion::Contradiction => {
                note(object, storage, |object| Record::Withdrawn {
                    object,
                    sbn,
                    esi,
                })?;
                Err(ReceiveError::Contradiction { sbn, esi })
            }
            Insertion::Kept { place, is_enough } => {
                if let Some(place) = place {
                    note(object, storage, |object| Record::Symbol {
                        object,
                        sbn,
                        esi,
                        place,
                    })?;
                }
                if !is_enough {
                    return Ok(Taken::Kept);
                }
                self.set_decoding(sbn, true);
                Ok(Taken::Enough(sbn))
            }
        }
    }

    fn set_decoding(&mut self, sbn: u32, is_decoding: bool) {
        match (self.blocks.remove(&sbn), is_decoding) {
            (Some(Block::Partial(decoder)), true) => {
                self.blocks.insert(sbn, Block::Decoding(decoder));
            }
            (Some(Block::Decoding(decoder)), false) => {
                self.blocks.insert(sbn, Block::Partial(decoder));
            }
            (Some(other), _) => {
                self.blocks.insert(sbn, other);
            }
            (None, _) => {}
        }
    }

    /// Returns the decoding of a block that has enough symbols; `None` if it was dropped since.
    pub(super) fn job(
        &self,
        sbn: u32,
        storage: &mut impl Storage,
    ) -> io::Result<Option<DecodeJob>> {
        let Some(Block::Decoding(decoder)) = self.blocks.get(&sbn) else {
            return Ok(None);
        };
        let digest = self.digests.get(sbn as usize).copied();
        decoder.job(self.object, digest, storage).map(Some)
    }

    /// Takes the result of a job. If more symbols are needed, the block takes them again. Returns
    /// whether it has some already, so that another job is due.
    ///
    /// # Errors
    /// If the digest of the block is wrong. All symbols of the block are dropped in that case.
    pub(super) fn finish_job(
        &mut self,
        decoded: &Decoded,
        storage: &mut impl Storage,
    ) -> Result<bool, ReceiveError> {
        let sbn = decoded.sbn;
        let Some(Block::Decoding(decoder)) = self.blocks.get(&sbn) else {
            return Ok(false);
        };
        if decoded.oti != self.oti {
            return Ok(false);
        }
        let Some(block) = &decoded.block else {
            let has_more = decoder.held() > decoded.symbols;
            if !has_more {
                self.set_decoding(sbn, false);
            }
            return Ok(has_more);
        };
        if !decoded.is_right {
            self.drop_block(sbn, storage)?;
            return Err(ReceiveError::BlockDigest(sbn));
        }
        if !decoded.is_stored {
            storage.write_at(self.object, self.oti.block_range(sbn).start, block)?;
        }
        note(self.object, storage, |object| Record::Decoded {
            object,
            sbn,
        })?;
        self.complete_block(sbn);
        Ok(false)
    }

    /// Returns a block, which is created if it has no symbol yet.
    fn block(&mut self, sbn: u32) -> &mut Block {
        let oti = self.oti;
        self.blocks
            .entry(sbn)
            .or_insert_with(|| Block::Partial(BlockDecoder::new(oti, sbn)))
    }

    pub(super) fn complete_block(&mut self, sbn: u32) {
        let before = self.change(sbn, |assembly| assembly.blocks.insert(sbn, Block::Complete));
        if !matches!(before, Some(Block::Complete)) {
            self.complete_blocks += 1;
        }
    }

    fn remove_block(&mut self, sbn: u32) {
        let removed = self.change(sbn, |assembly| assembly.blocks.remove(&sbn));
        if matches!(removed, Some(Block::Complete)) {
            self.complete_blocks -= 1;
        }
    }

    pub(super) fn drop_block(&mut self, sbn: u32, storage: &mut impl Storage) -> io::Result<()> {
        self.remove_block(sbn);
        note(self.object, storage, |object| Record::Dropped {
            object,
            sbn,
        })
    }

    /// Drops the last incomplete block behind block `after`, or of all blocks if that is `None`.
    /// Returns the number of symbols that it had; `None` if there is no such block.
    pub(super) fn drop_last_block(
        &mut self,
        after: Option<u32>,
        storage: &mut impl Storage,
    ) -> io::Result<Option<u64>> {
        let is_partial = |block: &Block| matches!(block, Block::Partial(_));
        let last = self
            .blocks
            .iter()
            .rev()
            .find(|(_, block)| is_partial(block));
        let last = last.map(|(&sbn, block)| (sbn, block.held()));
        let Some((sbn, held)) = last.filter(|(sbn, _)| after.is_none_or(|after| *sbn > after))
        else {
            return Ok(None);
        };
        self.drop_block(sbn, storage)?;
        Ok(Some(held))
    }

    /// Drops a symbol of an incomplete block, which is false. Returns whether the object had it.
    pub(super) fn withdraw(
        &mut self,
        payload_id: [u8; PAYLOAD_ID_BYTES],
        storage: &mut impl Storage,
    ) -> io::Result<bool> {
        let (sbn, esi) = self.oti.split_payload_id(payload_id);
        let had = self.remove_symbol(sbn, esi);
        if had {
            note(self.object, storage, |object| Record::Withdrawn {
                object,
                sbn,
                esi,
            })?;
        }
        Ok(had)
    }

    /// Repeats a change that an earlier receiver recorded. Records that do not fit are ignored.
    pub(super) fn restore(&mut self, record: Record) {
        match record {
            Record::Symbol {
                sbn, esi, place, ..
            } => {
                let symbols = self.oti.block_symbols(sbn);
                if symbols.is_some_and(|symbols| esi < self.oti.symbol_ids(symbols)) {
                    self.change(sbn, |assembly| {
                        if let Block::Partial(decoder) = assembly.block(sbn) {
                            decoder.restore(esi, place);
                        }
                    });
                }
            }
            Record::Withdrawn { sbn, esi, .. } => {
                self.remove_symbol(sbn, esi);
            }
            Record::Decoded { sbn, .. } => {
                if self.oti.block_symbols(sbn).is_some() {
                    self.complete_block(sbn);
                }
            }
            Record::Dropped { sbn, .. } => self.remove_block(sbn),
        }
    }

    fn remove_symbol(&mut self, sbn: u32, esi: u32) -> bool {
        self.change(sbn, |assembly| match assembly.blocks.get_mut(&sbn) {
            Some(Block::Partial(decoder)) => decoder.withdraw(esi),
            _ => false,
        })
    }

    /// Compares the restored complete blocks with their digests, and drops those that differ: the
    /// machine may have stopped before they were on disk. Returns the number of bytes restored.
    pub(super) fn verify_restored(&mut self, storage: &mut impl Storage) -> io::Result<u64> {
        let complete: Vec<u32> = self
            .blocks
            .iter()
            .filter(|(_, block)| matches!(block, Block::Complete))
            .map(|(&sbn, _)| sbn)
            .collect();
        let mut restored = 0;
        for sbn in complete {
            let range = self.oti.block_range(sbn);
            let mut bytes = vec![0; (range.end - range.start) as usize];
            let read = storage.read_at(self.object, range.start, &mut bytes);
            let digest = self.digests.get(sbn as usize);
            let is_right = digest.is_none_or(|digest| *digest == block_digest(&bytes));
            if read.is_ok() && is_right {
                restored += range.end - range.start;
            } else {
                self.drop_block(sbn, storage)?;
            }
        }
        Ok(restored + self.held() * u64::from(self.oti.symbol_length()))
    }

    /// Changes block `sbn`, which may be created or removed, and counts the change of its memory.
    fn change<R>(&mut self, sbn: u32, change: impl FnOnce(&mut Self) -> R) -> R {
        let bytes = |assembly: &Self| assembly.blocks.get(&sbn).map_or(0, Block::bytes);
        let before = bytes(self);
        let result = change(self);
        self.bytes = self.bytes - before + bytes(self);
        result
    }

    fn check(
        &self,
        payload_id: [u8; PAYLOAD_ID_BYTES],
        data: &[u8],
    ) -> Result<(u32, u32), ReceiveError> {
        let (sbn, esi) = self.oti.split_payload_id(payload_id);
        let symbols = self
            .oti
            .block_symbols(sbn)
            .ok_or(ReceiveError::SymbolId { sbn, esi })?;
        if esi >= self.oti.symbol_ids(symbols) {
            return Err(ReceiveError::SymbolId { sbn, esi });
        }
        let (found, expected) = (data.len(), self.oti.payload_length(sbn, esi));
        if found == expected {
            Ok((sbn, esi))
        } else {
            Err(ReceiveError::PayloadLength { found, expected })
        }
    }
}

impl Block {
    fn bytes(&self) -> u64 {
        match self {
            Block::Partial(decoder) | Block::Decoding(decoder) => {
                BOOKKEEPING_BYTES + decoder.bytes()
            }
            Block::Complete => BOOKKEEPING_BYTES,
        }
    }

    fn held(&self) -> u64 {
        match self {
            Block::Partial(decoder) | Block::Decoding(decoder) => decoder.held().into(),
            Block::Complete => 0,
        }
    }
}

/// Records a change of an object. Those that our senders do not number have no record: only
/// sessions of our senders are resumed.
pub(super) fn note(
    object: u128,
    storage: &mut impl Storage,
    record: impl FnOnce(u32) -> Record,
) -> io::Result<()> {
    match u32::try_from(object) {
        Ok(object) => storage.record(record(object)),
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fec::FecScheme;
    use crate::storage::MemoryStorage;

    #[test]
    fn symbols_that_come_during_a_decoding_that_fails_are_used_by_the_next() {
        let oti = Oti::choose(FecScheme::RaptorQ, 50 * 8, 8, 50).unwrap();
        let mut storage = MemoryStorage::default();
        let mut assembly = Assembly::new(1, oti, Vec::new());
        let mut take = |assembly: &mut Assembly, esi| {
            let id = oti.payload_id(0, esi);
            let taken = assembly.take(id, &[esi as u8; 8], u64::MAX, &mut storage);
            taken.unwrap()
        };
        for esi in 1..50 {
            assert_eq!(take(&mut assembly, esi), Taken::Kept);
        }
        assert_eq!(take(&mut assembly, 50), Taken::Enough(0));
        for (fails_with, late) in [(50, 51..53), (52, 53..53)] {
            let job = assembly.job(0, &mut MemoryStorage::default()).unwrap();
            assert!(job.is_some());
            let has_late = !late.is_empty();
            for esi in late {
                assert_eq!(take(&mut assembly, esi), Taken::Surplus);
            }
            let failed = Decoded {
                object: 1,
                oti,
                sbn: 0,
                symbols: fails_with,
                block: None,
                is_stored: false,
                is_right: false,
            };
            let is_due = assembly.finish_job(&failed, &mut MemoryStorage::default());
            assert_eq!(is_due.unwrap(), has_late);
        }
        // Now the block takes symbols as before.
        assert_eq!(take(&mut assembly, 53), Taken::Enough(0));
    }
}
