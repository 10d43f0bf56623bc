//! One source block at the sender: chooses the next symbol and produces its bytes.

use bytes::Bytes;
use rand::RngExt;
use rand_pcg::Pcg64;
use raptorq::{SourceBlockEncoder, extended_source_block_symbols};

use super::{FecScheme, Oti};

/// Yields a block's symbols. No symbol repeats before all have been used.
pub(crate) struct BlockEncoder {
    oti: Oti,
    sbn: u32,
    /// The block's own bytes; the object's last symbol may be short.
    source: Bytes,
    given: u32,
    order: Order,
}

enum Order {
    /// Without code: a new random order in each round, so that no loss pattern can stay in step
    /// with the rounds. A block of a single symbol is sent like this with RaptorQ too. A receiver
    /// that has this symbol needs no other, and a receiver without it can certainly decode the
    /// block from it, which not every repair symbol guarantees.
    Shuffled(Vec<u16>),
    /// RaptorQ: symbols by number; the encoder produces those from K on.
    Counted(SourceBlockEncoder),
}

impl BlockEncoder {
    /// Prepares block `sbn` of `object`. With RaptorQ this computes the intermediate symbols, which
    /// is most of the work.
    pub(crate) fn new(oti: Oti, sbn: u32, object: &Bytes) -> Self {
        let range = oti.block_range(sbn);
        let source = object.slice(range.start as usize..range.end as usize);
        let symbols = oti
            .block_symbols(sbn)
            .expect("the caller counts the object's blocks");
        let order = match oti.raptorq_config().filter(|_| symbols > 1) {
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

    /// Memory that all blocks of an object will take besides the object itself, in bytes.
    pub(crate) fn memory(oti: &Oti) -> u64 {
        let block = |sbn| match (oti.scheme(), oti.block_symbols(sbn).unwrap_or(0)) {
            (FecScheme::NoCode, symbols) => 2 * u64::from(symbols),
            (FecScheme::RaptorQ, 0 | 1) => 0,
            (FecScheme::RaptorQ, symbols) => {
                raptorq_symbols(symbols) * u64::from(oti.symbol_length())
            }
        };
        (0..oti.blocks()).map(block).sum()
    }

    /// The number of source symbols in the block.
    pub(crate) fn symbols(&self) -> u32 {
        self.oti.block_symbols(self.sbn).unwrap_or(0)
    }

    /// Appends the FEC Payload ID and the bytes of the next symbol.
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
        match &mut self.order {
            Order::Counted(_) => {
                self.given = (position + 1) % self.oti.symbol_ids(self.symbols());
                position
            }
            Order::Shuffled(order) => {
                self.given = (position + 1) % order.len() as u32;
                // Each symbol takes one step of a Fisher-Yates shuffle; the rest of the round stays
                // in random order.
                let position = position as usize;
                let pick = rng.random_range(position..order.len());
                order.swap(position, pick);
                u32::from(order[position])
            }
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

/// Symbols that the encoder of a block stores: K source symbols and, slightly rounded up, L = K' +
/// S + H intermediate ones (RFC 6330 section 5.3.3.3).
fn raptorq_symbols(source_symbols: u32) -> u64 {
    let extended = extended_source_block_symbols(source_symbols);
    u64::from(source_symbols + extended + extended / 16 + 24)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn ids(block: &mut BlockEncoder, count: usize) -> Vec<u32> {
        let mut rng = Pcg64::seed_from_u64(1);
        let id = |_| {
            let mut out = Vec::new();
            block.next_symbol(&mut rng, &mut out);
            assert_eq!(out.len(), 4 + 100);
            block
                .oti
                .split_payload_id([out[0], out[1], out[2], out[3]])
                .1
        };
        (0..count).map(id).collect()
    }

    fn block(scheme: FecScheme, symbols: usize) -> BlockEncoder {
        let object = Bytes::from(vec![1; symbols * 100]);
        let oti = Oti::choose(scheme, object.len() as u64, 100, 1_000).unwrap();
        BlockEncoder::new(oti, 0, &object)
    }

    #[test]
    fn raptorq_symbols_start_again_when_their_numbers_are_used_up() {
        let mut block = block(FecScheme::RaptorQ, 20);
        assert_eq!(ids(&mut block, 30), (0..30).collect::<Vec<_>>());
        block.given = (1 << 24) - 1;
        assert_eq!(ids(&mut block, 2), [(1 << 24) - 1, 0]);
    }

    #[test]
    fn without_code_each_round_is_a_new_order_of_all_symbols() {
        let mut block = block(FecScheme::NoCode, 20);
        let rounds: Vec<Vec<u32>> = (0..3).map(|_| ids(&mut block, 20)).collect();
        assert_ne!(rounds[0], rounds[1]);
        for mut round in rounds {
            round.sort_unstable();
            assert_eq!(round, (0..20).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_block_of_one_symbol_repeats_it() {
        assert_eq!(ids(&mut block(FecScheme::RaptorQ, 1), 3), [0, 0, 0]);
    }
}
