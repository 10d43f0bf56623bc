//! Holds packets of objects that no FDT has announced yet, in order of arrival and in bounded
//! memory.

use std::collections::VecDeque;

use crate::alc::{PAYLOAD_ID_BYTES, Symbol};
use crate::fec::Oti;

/// A first-in first-out queue with a limit on its bytes.
pub(super) struct EarlyPackets {
    queue: VecDeque<EarlyPacket>,
    bytes: usize,
    bytes_max: usize,
    dropped: u64,
}

/// A copy of a symbol, independent of its datagram.
pub(super) struct EarlyPacket {
    toi: u128,
    payload_id: [u8; PAYLOAD_ID_BYTES],
    data: Box<[u8]>,
    pub(super) oti: Option<Oti>,
}

impl EarlyPacket {
    pub(super) fn symbol(&self) -> Symbol<'_> {
        Symbol {
            toi: self.toi,
            payload_id: self.payload_id,
            data: &self.data,
        }
    }

    /// The symbol's memory including bookkeeping, which an empty symbol needs too.
    fn bytes(&self) -> usize {
        size_of::<EarlyPacket>() + self.data.len()
    }
}

impl EarlyPackets {
    pub(super) fn new(bytes_max: usize) -> Self {
        EarlyPackets {
            queue: VecDeque::new(),
            bytes: 0,
            bytes_max,
            dropped: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// The number of symbols dropped at the limit.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(super) fn push(&mut self, symbol: Symbol<'_>, oti: Option<Oti>) {
        let packet = EarlyPacket {
            toi: symbol.toi,
            payload_id: symbol.payload_id,
            data: symbol.data.into(),
            oti,
        };
        self.bytes += packet.bytes();
        self.queue.push_back(packet);
        while self.bytes > self.bytes_max
            && let Some(oldest) = self.queue.pop_front()
        {
            self.bytes -= oldest.bytes();
            self.dropped += 1;
        }
    }

    /// Drops a false symbol. Returns whether it was held.
    pub(super) fn withdraw(&mut self, toi: u128, payload_id: [u8; PAYLOAD_ID_BYTES]) -> bool {
        let before = self.queue.len();
        self.queue
            .retain(|packet| packet.toi != toi || packet.payload_id != payload_id);
        self.bytes = self.queue.iter().map(EarlyPacket::bytes).sum();
        self.queue.len() < before
    }

    /// Removes and returns the packets of objects for which `is_known` is true, the oldest first.
    pub(super) fn take_known(&mut self, is_known: impl Fn(u128) -> bool) -> VecDeque<EarlyPacket> {
        let (known, unknown): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.queue)
            .into_iter()
            .partition(|packet| is_known(packet.toi));
        self.bytes = unknown.iter().map(EarlyPacket::bytes).sum();
        self.queue = unknown;
        known
    }
}
