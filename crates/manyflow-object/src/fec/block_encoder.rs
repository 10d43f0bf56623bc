//! One source block at the sender: which symbol comes next, and its bytes.

use bytes::Bytes;
use rand::RngExt;
use rand_pcg::Pcg64;
use raptorq::SourceBlockEncoder;

use super::Oti;

/// Gives a block's symbols, none twice before all were given once.
pub(crate) struct BlockEncoder {
    oti: Oti,
    sbn: u32,
    /// The block's own bytes; the object's last symbol may be short.
    source: Bytes,
    given: u32,
    order: Order,
}

enum Order {
    /// Without code: a fresh random order each round, so that no loss pattern can follow the rounds.
    Shuffled(Vec<u16>),
    /// RaptorQ: symbols by number; those from K on are made by the encoder.
    Counted(SourceBlockEncoder),
}

impl BlockEncoder {
    /// Prepares block `sbn` of `object`. With RaptorQ this makes the intermediate symbols, most of the work.
    pub(crate) fn new(oti: Oti, sbn: u32, object: &Bytes) -> Self {
        let range = oti.block_range(sbn);
        let source = object.slice(range.start as usize..range.end as usize);
        let symbols = oti
            .block_symbols(sbn)
            .expect("the caller counts the object's blocks");
        let order = match oti.raptorq_config() {
            None => Order::Shuffled((0..symbols).map(|symbol| symbol as u16).collect()),
            Some(config) => {
                let mut padded = source.to_vec();
                padded.resize(symbols as usize * usize::from(oti.symbol_length()), 0);
                Order::Counted(SourceBlockEncoder::new(sbn as u8, &config, &padded))
            }
        };
        BlockEncoder {
            oti,
            sbn,
            source,
            given: 0,
            order,
        }
    }

    /// Memory that `new` will take beyond the object itself, in bytes: RaptorQ keeps source and intermediate symbols.
    pub(crate) fn memory(oti: &Oti) -> u64 {
        match oti.raptorq_config() {
            None => 2 * oti.symbols(),
            Some(_) => oti.symbols() * u64::from(oti.symbol_length()) * 21 / 10,
        }
    }

    /// Source symbols of the block.
    pub(crate) fn symbols(&self) -> u32 {
        self.oti.block_symbols(self.sbn).unwrap_or(0)
    }

    /// Appends the next symbol, FEC Payload ID first.
    pub(crate) fn next_symbol(&mut self, rng: &mut Pcg64, out: &mut Vec<u8>) {
        let esi = self.next_id(rng);
        out.extend_from_slice(&self.oti.payload_id(self.sbn, esi));
        match &self.order {
            Order::Counted(encoder) if esi >= self.symbols() => {
                for symbol in encoder.repair_packets(esi - self.symbols(), 1) {
                    out.extend_from_slice(symbol.data());
                }
            }
            _ => self.append_source_symbol(esi, out),
        }
    }

    fn next_id(&mut self, rng: &mut Pcg64) -> u32 {
        let position = self.given;
        self.given = (self.given + 1) % self.round();
        match &mut self.order {
            Order::Counted(_) => position,
            Order::Shuffled(order) => {
                // One step of a Fisher-Yates shuffle a symbol: the rest of the round is still in random order.
                let position = position as usize;
                let pick = rng.random_range(position..order.len());
                order.swap(position, pick);
                u32::from(order[position])
            }
        }
    }

    /// Symbols until the first comes again. A block of one symbol repeats it: whoever has it needs no other, and whoever
    /// has not can decode it for certain, which not every repair symbol grants.
    fn round(&self) -> u32 {
        match self.symbols() {
            1 => 1,
            symbols => self.oti.symbol_ids(symbols),
        }
    }

    fn append_source_symbol(&self, esi: u32, out: &mut Vec<u8>) {
        let full = usize::from(self.oti.symbol_length());
        let start = esi as usize * full;
        let bytes = &self.source[start..self.source.len().min(start + full)];
        out.extend_from_slice(bytes);
        let padding = self.oti.payload_length(self.sbn, esi) - bytes.len();
        out.resize(out.len() + padding, 0);
    }
}
