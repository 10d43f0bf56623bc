//! Packets of objects that no FDT has announced yet: kept in order of arrival, in bounded memory.

use std::collections::VecDeque;

use crate::alc::{PAYLOAD_ID_BYTES, Symbol};
use crate::fec::Oti;

/// A first-in first-out queue with a bound on its bytes.
pub(super) struct EarlyPackets {
    queue: VecDeque<EarlyPacket>,
    bytes: usize,
    bytes_max: usize,
    dropped: u64,
}

/// A symbol kept beyond its datagram.
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

    /// What it costs: an empty symbol is not free.
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

    /// How many were dropped at the bound.
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

    /// Takes out the packets of objects that `is_known` knows, oldest first.
    pub(super) fn take_known(&mut self, is_known: impl Fn(u128) -> bool) -> VecDeque<EarlyPacket> {
        let (known, unknown): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.queue)
            .into_iter()
            .partition(|packet| is_known(packet.toi));
        self.bytes = unknown.iter().map(EarlyPacket::bytes).sum();
        self.queue = unknown;
        known
    }
}
