//! Reassembles one object from its blocks.

use std::collections::BTreeMap;

use crate::alc::PAYLOAD_ID_BYTES;
use crate::error::ReceiveError;
use crate::fec::{BOOKKEEPING_BYTES, BlockDecoder, Insertion, Oti};

/// An object under reassembly. A block is created by its first symbol, so a false transfer length
/// costs no memory.
pub(super) struct Assembly {
    oti: Oti,
    blocks: BTreeMap<u32, Block>,
    complete_blocks: u32,
    bytes: u64,
}

enum Block {
    Partial(BlockDecoder),
    Complete(Vec<u8>),
}

/// The result of taking a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// The symbol had arrived before.
    Duplicate,
    /// The symbol's block was already complete.
    Surplus,
    /// The symbol is useful, and the object needs more.
    Kept,
    /// The symbol was the last one that the object needed.
    Complete,
}

impl Assembly {
    pub(super) fn new(oti: Oti) -> Self {
        Assembly {
            oti,
            blocks: BTreeMap::new(),
            complete_blocks: 0,
            bytes: 0,
        }
    }

    pub(super) fn oti(&self) -> &Oti {
        &self.oti
    }

    /// Memory for the symbols and complete blocks in bytes, including bookkeeping.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
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
    ) -> Result<Taken, ReceiveError> {
        let (sbn, esi) = self.check(payload_id, data)?;
        if let Some(Block::Complete(_)) = self.blocks.get(&sbn) {
            return Ok(Taken::Surplus);
        }
        let oti = self.oti;
        if u64::from(oti.symbol_length()) + BOOKKEEPING_BYTES > memory_left {
            return Err(ReceiveError::Memory);
        }
        let block = self
            .blocks
            .entry(sbn)
            .or_insert_with(|| Block::Partial(BlockDecoder::new(oti, sbn)));
        let Block::Partial(decoder) = block else {
            return Ok(Taken::Surplus);
        };
        let before = decoder.bytes();
        let (taken, after) = match decoder.insert(esi, data) {
            Insertion::Duplicate => (Taken::Duplicate, before),
            Insertion::Kept => (Taken::Kept, decoder.bytes()),
            Insertion::Complete(bytes) => {
                let length = bytes.len() as u64 + BOOKKEEPING_BYTES;
                *block = Block::Complete(bytes);
                self.complete_blocks += 1;
                let is_last = self.complete_blocks == oti.blocks();
                (
                    if is_last {
                        Taken::Complete
                    } else {
                        Taken::Kept
                    },
                    length,
                )
            }
        };
        self.bytes = self.bytes - before + after;
        Ok(taken)
    }

    /// Returns the object's bytes once all blocks are complete, when its length is no longer a mere
    /// claim. Each block is freed as soon as it is copied.
    pub(super) fn into_content(self) -> Vec<u8> {
        let mut content =
            Vec::with_capacity(self.oti.symbols() as usize * usize::from(self.oti.symbol_length()));
        for block in self.blocks.into_values() {
            if let Block::Complete(bytes) = block {
                content.extend_from_slice(&bytes);
            }
        }
        content.truncate(self.oti.transfer_length() as usize);
        content
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
