//! One source block at the sender: chooses the next symbol and produces its bytes.
//!
//! Source symbols are read from the object when they are sent. Repair symbols are encoded by the
//! hundreds, before they are sent, and wait in a [`Storage`]: to hold the intermediate symbols of
//! all blocks would take twice the memory of the files.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use rand::RngExt;
use rand_pcg::Pcg64;
use raptorq::{SourceBlockEncoder, SourceBlockEncodingPlan};

use super::{BlockDigest, Oti, block_digest};
use crate::error::ReadError;
use crate::source::Source;
use crate::storage::Storage;

/// Yields a block's symbols. No symbol repeats before all have been used.
pub(crate) struct BlockEncoder {
    oti: Oti,
    sbn: u32,
    order: Order,
    ahead: Ahead,
    /// The number of symbols to read at a time.
    ahead_max: u32,
    /// The number of repair symbols of a job for a block that is served all the time.
    batch: u32,
}

enum Order {
    /// Without code: a new random order in each round, so that no loss pattern can stay in step
    /// with the rounds. A block of a single symbol is sent like this with RaptorQ too. A receiver
    /// that has this symbol needs no other, and a receiver without it can certainly decode the
    /// block from it, which not every repair symbol guarantees.
    Shuffled { order: Vec<u16>, given: u32 },
    /// RaptorQ: symbols by number.
    Counted(Counted),
}

struct Counted {
    next: u32,
    /// Repair symbols in the storage, by encoding symbol ID. Those before `next` have been sent.
    ready: Range<u32>,
    /// The position of the block's room in the storage, in bytes; `None` if it has no room.
    room: Option<u64>,
    /// The number of jobs that were given, and that of the job whose result is awaited.
    jobs: u32,
    awaited: Option<u32>,
    /// The next source symbol to repeat.
    repeat: u32,
}

impl Counted {
    /// The number of repair symbols that are ready and not sent.
    fn unsent(&self) -> u32 {
        self.ready.end - self.ready.start.max(self.next).min(self.ready.end)
    }
}

/// The symbols that a block has to have ready.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Demand {
    /// The block is served all the time. When a quarter of a batch of repair symbols is left, a
    /// job gives another batch: usually K symbols. The first job gives a quarter of a batch, and
    /// the part `share` of one, from 0 to 1. Equal blocks have different shares, so that their
    /// later jobs are due at different times.
    Steady { share: f64 },
    /// The block is served in visits, each of this number of symbols.
    Visit { symbols: u32 },
}

/// The next symbol of a block.
pub(crate) enum Next {
    /// A source symbol: the bytes of the object at this position, with padding behind.
    Source { esi: u32 },
    /// A repair symbol: the bytes of the storage at this position.
    Repair { esi: u32, position: u64 },
    /// A repair symbol that has not been encoded yet.
    Missing,
}

impl BlockEncoder {
    /// Prepares block `sbn` of an object with these parameters. It reads up to `ahead_max` symbols
    /// at a time.
    pub(crate) fn new(oti: Oti, sbn: u32, first: u32, ahead_max: u32) -> Self {
        let symbols = oti
            .block_symbols(sbn)
            .expect("the caller counts the object's blocks");
        let order = match oti.raptorq_config().filter(|_| symbols > 1) {
            None => Order::Shuffled {
                order: (0..symbols).map(|symbol| symbol as u16).collect(),
                given: 0,
            },
            Some(_) => Order::Counted(Counted {
                next: first,
                ready: first.max(symbols)..first.max(symbols),
                room: None,
                jobs: 0,
                awaited: None,
                repeat: 0,
            }),
        };
        BlockEncoder {
            oti,
            sbn,
            order,
            ahead: Ahead::default(),
            ahead_max,
            batch: symbols,
        }
    }

    /// Returns the same block, which begins with symbol `first` and is encoded in jobs of `batch`
    /// repair symbols.
    pub(crate) fn restarted(&self, first: u32, batch: u32) -> Self {
        let block = BlockEncoder::new(self.oti, self.sbn, first, self.ahead_max);
        BlockEncoder { batch, ..block }
    }

    /// The number of the next symbol; `None` without code.
    pub(crate) fn next_symbol(&self) -> Option<u32> {
        match &self.order {
            Order::Counted(counted) => Some(counted.next),
            Order::Shuffled { .. } => None,
        }
    }

    /// Whether the next symbol can be sent, and need not be encoded first.
    pub(crate) fn is_ready(&self) -> bool {
        match &self.order {
            Order::Counted(counted) => {
                counted.next < self.symbols() || counted.ready.contains(&counted.next)
            }
            Order::Shuffled { .. } => true,
        }
    }

    /// The number of repair symbols that the block stores.
    fn capacity(&self) -> u32 {
        self.batch + spare(self.batch)
    }

    /// The room for repair symbols in bytes: those of a job, and a quarter more that are sent while
    /// the next job is under way.
    pub(crate) fn room_bytes(&self) -> u64 {
        match &self.order {
            Order::Counted(_) => u64::from(self.capacity()) * u64::from(self.oti.symbol_length()),
            Order::Shuffled { .. } => 0,
        }
    }

    /// Assigns room in the storage, from this position on, to a block without repair symbols.
    pub(crate) fn set_room(&mut self, position: u64) {
        if let Order::Counted(counted) = &mut self.order {
            counted.room = Some(position);
        }
    }

    /// Gives up the room for repair symbols. Those that were not sent are dropped, and so is the
    /// result of the job that is under way.
    pub(crate) fn drop_repair_symbols(&mut self) {
        let symbols = self.symbols();
        let symbol_ids = self.oti.symbol_ids(symbols);
        if let Order::Counted(counted) = &mut self.order {
            let end = counted.ready.end;
            // Source symbols that were not sent are still to be sent, and all repair symbols after
            // them.
            let has_source = counted.next < symbols;
            let first = if has_source || end == symbol_ids {
                symbols
            } else {
                end
            };
            counted.ready = first..first;
            if !has_source {
                counted.next = first;
            }
            (counted.awaited, counted.room) = (None, None);
        }
        self.ahead = Ahead::default();
    }

    /// The number of source symbols in the block.
    pub(crate) fn symbols(&self) -> u32 {
        self.oti.block_symbols(self.sbn).unwrap_or(0)
    }

    /// The number of source symbols that were not sent; 0 without code, which has nothing else.
    pub(crate) fn source_left(&self) -> u32 {
        match &self.order {
            Order::Counted(counted) => self.symbols().saturating_sub(counted.next),
            Order::Shuffled { .. } => 0,
        }
    }

    /// Returns the next symbol and counts it as sent, unless it is missing.
    pub(crate) fn next(&mut self, rng: &mut Pcg64) -> Next {
        let symbols = self.symbols();
        let symbol_ids = self.oti.symbol_ids(symbols);
        let symbol_length = u64::from(self.oti.symbol_length());
        let capacity = self.capacity();
        match &mut self.order {
            Order::Shuffled { order, given } => {
                // Each symbol takes one step of a Fisher-Yates shuffle; the rest of the round stays
                // in random order.
                let position = *given as usize;
                *given = (*given + 1) % order.len() as u32;
                let pick = rng.random_range(position..order.len());
                order.swap(position, pick);
                let esi = u32::from(order[position]);
                Next::Source { esi }
            }
            Order::Counted(counted) => {
                let esi = counted.next;
                if esi >= symbols && !counted.ready.contains(&esi) {
                    return Next::Missing;
                }
                counted.next = (esi + 1) % symbol_ids;
                if counted.next == 0 {
                    counted.ready = symbols..symbols;
                }
                if esi < symbols {
                    return Next::Source { esi };
                }
                let place = u64::from(esi % capacity);
                let room = counted
                    .room
                    .expect("symbols are ready only if they have room");
                let position = room + place * symbol_length;
                Next::Repair { esi, position }
            }
        }
    }

    /// Begins repetitions of source symbols with a random one.
    pub(crate) fn shuffle_repetitions(&mut self, rng: &mut Pcg64) {
        let symbols = self.symbols();
        if let Order::Counted(counted) = &mut self.order {
            counted.repeat = rng.random_range(0..symbols);
        }
    }

    /// Returns a source symbol, for want of a repair symbol.
    pub(crate) fn repeat(&mut self) -> Next {
        let symbols = self.symbols();
        match &mut self.order {
            Order::Counted(counted) => {
                let esi = counted.repeat;
                counted.repeat = (esi + 1) % symbols;
                Next::Source { esi }
            }
            Order::Shuffled { .. } => Next::Missing,
        }
    }

    /// Returns a job that encodes the repair symbols that `demand` still lacks. Returns `None` if
    /// it lacks none, or if a job of this block is under way.
    pub(crate) fn job(
        &mut self,
        unit: usize,
        demand: Demand,
        object: &ObjectSource,
        plans: &Arc<Plans>,
    ) -> Option<EncodeJob> {
        let count = self.wanted(demand);
        let symbol_ids = self.oti.symbol_ids(self.symbols());
        let Order::Counted(counted) = &mut self.order else {
            return None;
        };
        if count == 0 {
            return None;
        }
        let first = counted.ready.end;
        counted.jobs = counted.jobs.wrapping_add(1);
        counted.awaited = Some(counted.jobs);
        Some(EncodeJob {
            unit,
            visit: 0,
            number: counted.jobs,
            name: Arc::clone(&object.name),
            oti: self.oti,
            sbn: self.sbn,
            symbols: first..(first + count).min(symbol_ids),
            source: Arc::clone(&object.source),
            digest: object.digests.get(self.sbn as usize).copied(),
            plans: Arc::clone(plans),
        })
    }

    /// The number of repair symbols that the block's next job has to give; 0 if none is due.
    pub(crate) fn wanted(&self, demand: Demand) -> u32 {
        let symbols = self.symbols();
        let Order::Counted(counted) = &self.order else {
            return 0;
        };
        let is_possible = counted.awaited.is_none()
            && counted.room.is_some()
            && counted.ready.end < self.oti.symbol_ids(symbols);
        let unsent = counted.unsent();
        let count = match demand {
            Demand::Steady { share } if counted.ready.is_empty() => {
                spare(self.batch) + (f64::from(self.batch) * share) as u32
            }
            Demand::Steady { .. } if unsent <= spare(self.batch) => self.batch,
            Demand::Steady { .. } => 0,
            Demand::Visit { symbols: visit } => {
                let source = symbols.saturating_sub(counted.next);
                let room = self.capacity() - unsent;
                visit.saturating_sub(source + unsent).min(room)
            }
        };
        if is_possible { count } else { 0 }
    }

    /// Allows another job, although one is under way, because its result is needed now.
    pub(crate) fn abandon_job(&mut self) {
        if let Order::Counted(counted) = &mut self.order {
            counted.awaited = None;
        }
    }

    /// Stores the result of a job, unless it was abandoned. The next job can then begin.
    pub(crate) fn store(
        &mut self,
        encoded: &Encoded,
        storage: &mut impl Storage,
    ) -> io::Result<()> {
        let capacity = self.capacity();
        let length = usize::from(self.oti.symbol_length());
        let Order::Counted(counted) = &mut self.order else {
            return Ok(());
        };
        let Some(room) = counted
            .room
            .filter(|_| counted.awaited == Some(encoded.number))
        else {
            return Ok(());
        };
        counted.awaited = None;
        let mut bytes = &encoded.bytes[..];
        let mut place = encoded.symbols.start % capacity;
        while !bytes.is_empty() {
            // The room is a ring.
            let until_end = (capacity - place) as usize * length;
            let (now, later) = bytes.split_at(bytes.len().min(until_end));
            let position = room + u64::from(place) * length as u64;
            storage.write_at(REPAIR_SYMBOLS, position, now)?;
            (bytes, place) = (later, 0);
        }
        counted.ready.end = encoded.symbols.end;
        Ok(())
    }

    /// Appends the FEC Payload ID and the bytes of a symbol.
    pub(crate) fn append(
        &mut self,
        next: &Next,
        source: &dyn Source,
        storage: &mut impl Storage,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let esi = match *next {
            Next::Missing => return Ok(()),
            Next::Source { esi } | Next::Repair { esi, .. } => esi,
        };
        let full = usize::from(self.oti.symbol_length());
        if !self.ahead.contains(esi, full) {
            self.read_ahead(next, source, storage)?;
        }
        let start = (esi - self.ahead.first) as usize * full;
        let length = self.oti.payload_length(self.sbn, esi);
        out.extend_from_slice(&self.oti.payload_id(self.sbn, esi));
        out.extend_from_slice(&self.ahead.bytes[start..start + length]);
        Ok(())
    }

    /// Reads the symbol, and those that are likely to be sent after it.
    fn read_ahead(
        &mut self,
        next: &Next,
        source: &dyn Source,
        storage: &mut impl Storage,
    ) -> io::Result<()> {
        let full = usize::from(self.oti.symbol_length());
        let symbols = self.symbols();
        let (esi, read) = match *next {
            Next::Missing => return Ok(()),
            Next::Source { esi } => (esi, self.ahead_of(symbols - esi)),
            Next::Repair { esi, .. } => {
                let until_end = self.capacity() - esi % self.capacity();
                let ready = match &self.order {
                    Order::Counted(counted) => counted.ready.end - esi,
                    Order::Shuffled { .. } => 1,
                };
                (esi, self.ahead_of(ready.min(until_end)))
            }
        };
        // If reading fails, nothing is there.
        let mut bytes = std::mem::take(&mut self.ahead.bytes);
        bytes.resize(read as usize * full, 0);
        if let Next::Repair { position, .. } = *next {
            storage.read_at(REPAIR_SYMBOLS, position, &mut bytes)?;
        } else {
            let position = (self.oti.block_start(self.sbn) + u64::from(esi)) * full as u64;
            let left = self.oti.transfer_length() - position;
            let length = left.min(bytes.len() as u64) as usize;
            source.read_at(position, &mut bytes[..length])?;
            bytes[length..].fill(0);
        }
        self.ahead = Ahead { first: esi, bytes };
        Ok(())
    }

    /// The number of symbols to read at a time, of those that are `left`.
    fn ahead_of(&self, left: u32) -> u32 {
        match &self.order {
            Order::Counted(_) => self.ahead_max.min(left),
            Order::Shuffled { .. } => 1,
        }
    }
}

/// Symbols that were read together.
#[derive(Default)]
struct Ahead {
    /// The encoding symbol ID of the first.
    first: u32,
    bytes: Vec<u8>,
}

impl Ahead {
    fn contains(&self, esi: u32, length: usize) -> bool {
        let end = self.first as usize + self.bytes.len() / length;
        esi >= self.first && (esi as usize) < end
    }
}

/// Returns the number of symbols of this length to read at a time for each of `blocks` blocks, so
/// that they all take at most 16 MiB.
pub(crate) fn symbols_ahead(blocks: usize, length: u16) -> u32 {
    let of_block = (16 << 20) / blocks.max(1) / usize::from(length);
    of_block.clamp(1, 16) as u32
}

/// The object of a sender's storage that has the repair symbols of all blocks.
pub(crate) const REPAIR_SYMBOLS: u128 = 0;

/// The number of unsent repair symbols at which the next job of `batch` symbols begins.
fn spare(batch: u32) -> u32 {
    batch.div_ceil(4)
}

/// The content of an object, and the digests of its blocks.
pub(crate) struct ObjectSource {
    pub(crate) name: Arc<str>,
    pub(crate) source: Arc<dyn Source>,
    pub(crate) digests: Vec<BlockDigest>,
    /// Whether no more of its packets are sent.
    pub(crate) is_withdrawn: bool,
}

/// The encoding of repair symbols of one block. It takes some milliseconds for a block of 1000
/// symbols, so a driver runs it in another thread.
pub struct EncodeJob {
    pub(crate) unit: usize,
    /// The visit of an image's section that the job is for; in a session of files the number of the
    /// focus, or 0.
    pub(crate) visit: u64,
    /// The number of the block's job.
    number: u32,
    name: Arc<str>,
    oti: Oti,
    sbn: u32,
    symbols: Range<u32>,
    source: Arc<dyn Source>,
    digest: Option<BlockDigest>,
    plans: Arc<Plans>,
}

/// The plans of recent encodings. A plan halves the time of an encoding, but takes as long to make
/// as one, so it is made when a second block has the same number of symbols.
#[derive(Default)]
pub(crate) struct Plans(Mutex<VecDeque<(u32, Option<Arc<SourceBlockEncodingPlan>>)>>);

/// Maximum number of plans. The blocks of a file have at most two lengths.
const PLANS_MAX: usize = 4;

impl Plans {
    /// Returns the plan for blocks of this number of symbols, if there should be one.
    fn plan(&self, symbols: u32) -> Option<Arc<SourceBlockEncodingPlan>> {
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = plans.iter().position(|(of, _)| *of == symbols) else {
            plans.truncate(PLANS_MAX - 1);
            plans.push_front((symbols, None));
            return None;
        };
        let make = || Arc::new(SourceBlockEncodingPlan::generate(symbols as u16));
        Some(Arc::clone(plans[place].1.get_or_insert_with(make)))
    }
}

/// The result of an [`EncodeJob`].
pub struct Encoded {
    pub(crate) unit: usize,
    /// That of the [`EncodeJob`].
    pub(crate) visit: u64,
    number: u32,
    symbols: Range<u32>,
    bytes: Vec<u8>,
}

impl EncodeJob {
    /// Reads the block and encodes its symbols.
    ///
    /// # Errors
    /// If the block cannot be read, or differs from the one that the table of files describes.
    pub fn run(self) -> Result<Encoded, ReadError> {
        let name = Arc::clone(&self.name);
        self.encode().map_err(|error| ReadError {
            name: name.as_ref().to_owned(),
            error,
        })
    }

    fn encode(self) -> io::Result<Encoded> {
        let range = self.oti.block_range(self.sbn);
        let mut block = vec![0; (range.end - range.start) as usize];
        self.source.read_at(range.start, &mut block)?;
        if self
            .digest
            .is_some_and(|digest| digest != block_digest(&block))
        {
            return Err(io::Error::other(
                "its content has changed since sending began",
            ));
        }
        let block_symbols = self.oti.block_symbols(self.sbn).unwrap_or(0);
        let length = usize::from(self.oti.symbol_length());
        block.resize(block_symbols as usize * length, 0);
        let config = self
            .oti
            .raptorq_config()
            .expect("only RaptorQ has repair symbols");
        let sbn = self.sbn as u8;
        let encoder = match self.plans.plan(block_symbols) {
            Some(plan) => SourceBlockEncoder::with_encoding_plan(sbn, &config, &block, &plan),
            None => SourceBlockEncoder::new(sbn, &config, &block),
        };
        drop(block);
        let mut bytes = Vec::with_capacity(self.symbols.len() * length);
        for esi in self.symbols.clone() {
            for symbol in encoder.repair_packets(esi - block_symbols, 1) {
                bytes.extend_from_slice(symbol.data());
            }
        }
        Ok(Encoded {
            unit: self.unit,
            visit: self.visit,
            number: self.number,
            symbols: self.symbols,
            bytes,
        })
    }
}

#[cfg(test)]
mod tests;
