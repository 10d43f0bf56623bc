//! Blocks of an object from a former version of it.

use std::io;
use std::ops::Range;

use super::assembly::{Assembly, Block, note};
use crate::fec::{BOOKKEEPING_BYTES, block_digest};
use crate::source::Source;
use crate::storage::{Record, Storage};

/// The length of the parts in which bytes are copied.
const COPY_BYTES: u64 = 1 << 18;

/// A former version of an object, with the parts that both have.
pub(super) struct Former<'a> {
    source: &'a dyn Source,
    /// In the order of their places in the object, without overlap.
    parts: Vec<Part>,
}

/// Bytes that the object and its former version have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    /// The place in the object.
    pub(super) at: u64,
    /// The place in the former version.
    pub(super) from: u64,
    pub(super) length: u64,
}

/// The symbols that were taken from a former version.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Held {
    /// Their length.
    pub(super) bytes: u64,
    /// The symbols that had arrived and were dropped for them.
    pub(super) dropped_symbols: u64,
}

/// The reason why bytes were not copied.
#[derive(Debug)]
pub(super) enum CopyError {
    /// The former version cannot be read.
    Former(io::Error),
    Storage(io::Error),
}

impl<'a> Former<'a> {
    pub(super) fn new(source: &'a dyn Source, mut parts: Vec<Part>) -> Former<'a> {
        parts.sort_by_key(|part| part.at);
        let mut joined: Vec<Part> = Vec::new();
        for part in parts {
            let ends = |last: &Part| (last.at + last.length, last.from + last.length);
            match joined.last_mut() {
                Some(last) if ends(last) == (part.at, part.from) => last.length += part.length,
                _ => joined.push(part),
            }
        }
        debug_assert!(
            joined
                .windows(2)
                .all(|pair| pair[0].at + pair[0].length <= pair[1].at),
            "parts overlap"
        );
        Former {
            source,
            parts: joined,
        }
    }

    /// The parts of a range of the object that the former version has.
    fn parts_in(&self, range: Range<u64>) -> impl Iterator<Item = Part> {
        let first = self
            .parts
            .partition_point(|part| part.at + part.length <= range.start);
        let parts = self.parts[first..].iter();
        parts
            .take_while(move |part| part.at < range.end)
            .map(move |part| {
                let at = part.at.max(range.start);
                Part {
                    at,
                    from: part.from + (at - part.at),
                    length: (part.at + part.length).min(range.end) - at,
                }
            })
    }

    /// The ranges of `range` that the former version has, without gaps of 0 between them.
    fn ranges_in(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for Part { at, length, .. } in self.parts_in(range) {
            match ranges.last_mut() {
                Some(last) if last.end == at => last.end = at + length,
                _ => ranges.push(at..at + length),
            }
        }
        ranges
    }

    /// Copies the parts of a range to the storage of the object.
    fn copy(
        &self,
        range: Range<u64>,
        object: u128,
        storage: &mut impl Storage,
    ) -> Result<(), CopyError> {
        let mut buffer = Vec::new();
        for part in self.parts_in(range) {
            let mut done = 0;
            while done < part.length {
                buffer.resize(COPY_BYTES.min(part.length - done) as usize, 0);
                let read = self.source.read_at(part.from + done, &mut buffer);
                read.map_err(CopyError::Former)?;
                storage.write_at(object, part.at + done, &buffer)?;
                done += buffer.len() as u64;
            }
        }
        Ok(())
    }
}

/// Errors of the storage.
impl From<io::Error> for CopyError {
    fn from(error: io::Error) -> CopyError {
        CopyError::Storage(error)
    }
}

impl Assembly {
    /// Takes the symbols that a former version has, for blocks that have fewer symbols. Their
    /// numbers take up to `memory_left` bytes. Returns the symbols, also if an error has ended this
    /// early.
    pub(super) fn hold(
        &mut self,
        former: &Former<'_>,
        mut memory_left: u64,
        storage: &mut impl Storage,
    ) -> (Held, Result<(), CopyError>) {
        // Sub-blocks interleave the bytes of symbols.
        if !self.oti().is_contiguous() {
            return (Held::default(), Ok(()));
        }
        let mut held = Held::default();
        for sbn in 0..self.oti().blocks() {
            let result = self.hold_in_block(sbn, former, &mut held, &mut memory_left, storage);
            if result.is_err() {
                return (held, result);
            }
        }
        (held, Ok(()))
    }

    fn hold_in_block(
        &mut self,
        sbn: u32,
        former: &Former<'_>,
        held: &mut Held,
        memory_left: &mut u64,
        storage: &mut impl Storage,
    ) -> Result<(), CopyError> {
        let range = self.oti().block_range(sbn);
        let symbols = self.symbols_in(&former.ranges_in(range.clone()), sbn);
        let has_more = match self.block_at(sbn) {
            None => !symbols.is_empty(),
            Some(Block::Partial(decoder)) => symbols.len() > decoder.held() as usize,
            Some(Block::Decoding(_) | Block::Complete) => false,
        };
        let is_whole = Some(symbols.len() as u32) == self.oti().block_symbols(sbn);
        let memory = match is_whole {
            true => 0,
            false => symbols.len() as u64 * BOOKKEEPING_BYTES,
        };
        if !has_more || memory > *memory_left {
            return Ok(());
        }
        if let Some(Block::Partial(decoder)) = self.block_at(sbn) {
            held.dropped_symbols += u64::from(decoder.held());
            self.drop_block(sbn, storage)?;
        }
        former.copy(range, self.object(), storage)?;
        self.pad_end(sbn, storage)?;
        if is_whole {
            held.bytes += self.hold_block(sbn, storage)?;
            return Ok(());
        }
        *memory_left -= memory;
        held.bytes += symbols.len() as u64 * u64::from(self.oti().symbol_length());
        Ok(self.hold_symbols(sbn, symbols, storage)?)
    }

    /// Takes a block whose bytes are all in the storage, unless they are false.
    fn hold_block(&mut self, sbn: u32, storage: &mut impl Storage) -> io::Result<u64> {
        let range = self.oti().block_range(sbn);
        let mut bytes = vec![0; (range.end - range.start) as usize];
        storage.read_at(self.object(), range.start, &mut bytes)?;
        let digest = self.digest(sbn);
        if digest.is_some_and(|digest| digest != block_digest(&bytes)) {
            return Ok(0);
        }
        note(self.object(), storage, |object| Record::Decoded {
            object,
            sbn,
        })?;
        self.complete_block(sbn);
        Ok(range.end - range.start)
    }

    fn hold_symbols(
        &mut self,
        sbn: u32,
        symbols: Vec<u32>,
        storage: &mut impl Storage,
    ) -> io::Result<()> {
        let object = self.object();
        for esi in symbols {
            let record = |object| Record::Symbol {
                object,
                sbn,
                esi,
                place: esi,
            };
            note(object, storage, record)?;
            self.restore(record(0));
        }
        Ok(())
    }

    /// The source symbols of a block that are in `parts` as a whole.
    fn symbols_in(&self, parts: &[Range<u64>], sbn: u32) -> Vec<u32> {
        let (block, length) = (
            self.oti().block_range(sbn),
            u64::from(self.oti().symbol_length()),
        );
        let first = parts.partition_point(|part| part.end <= block.start);
        let parts = parts[first..]
            .iter()
            .take_while(|part| part.start < block.end);
        let mut symbols = Vec::new();
        for part in parts {
            let start = part.start.max(block.start) - block.start;
            let end = part.end.min(block.end) - block.start;
            let is_last = end == block.end - block.start;
            // The last symbol of the object can be short.
            let end = if is_last {
                end.div_ceil(length)
            } else {
                end / length
            };
            symbols.extend(start.div_ceil(length) as u32..end as u32);
        }
        symbols
    }

    /// Writes the zeros behind the object's last symbol, which decoding expects.
    fn pad_end(&self, sbn: u32, storage: &mut impl Storage) -> io::Result<()> {
        let end = self.oti().block_range(sbn).end;
        let length = u64::from(self.oti().symbol_length());
        match end % length {
            0 => Ok(()),
            over => {
                let zeros = vec![0; (length - over) as usize];
                storage.write_at(self.object(), end, &zeros)
            }
        }
    }

    /// The blocks that lack symbols, with the numbers of these.
    pub(super) fn needs(&self) -> impl Iterator<Item = (u32, u32)> {
        (0..self.oti().blocks()).filter_map(|sbn| {
            let symbols = self.oti().block_symbols(sbn)?;
            let lacking = match self.block_at(sbn) {
                None => symbols,
                Some(Block::Partial(decoder)) => symbols.saturating_sub(decoder.held()).max(1),
                Some(Block::Decoding(_) | Block::Complete) => 0,
            };
            (lacking > 0).then_some((sbn, lacking))
        })
    }
}
