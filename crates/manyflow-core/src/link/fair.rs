//! Fair queueing by deficit round robin, with priority for sparse flows (DRR++), as in FQ-CoDel
//! (RFC 8290 sections 4.1 and 4.2) and CAKE.
//!
//! A flow that begins to send is new, and is served before all old ones until it has sent its
//! quantum. A flow that sends less than a quantum in each round is therefore never behind a queue.
//! Each flow has CoDel.

use std::collections::VecDeque;

use super::codel::{CoDel, CoDelConfig};
use super::waiting::{Fifo, Store, Waiting};
use super::{Dropped, Item};
use crate::time::Time;

/// The maximum number of packets that are dropped at once from the longest flow of a full queue
/// (RFC 8290 section 4.1).
const BATCH: u32 = 64;

/// Sets the shares of flows.
pub(super) trait Shares {
    /// Returns the bytes that a flow may send in a round; at least one.
    fn quantum(&self, flow: usize) -> u32;
    /// Notes that a flow has packets.
    fn begin(&mut self, _flow: usize) {}
    /// Notes that a flow has become old.
    fn age(&mut self, _flow: usize) {}
    /// Notes that a flow has no more packets. `is_old` tells whether it was old.
    fn end(&mut self, _flow: usize, _is_old: bool) {}
}

#[derive(Copy, Clone, Debug, Default)]
struct FlowQueue {
    fifo: Fifo,
    codel: CoDel,
    /// The bytes that the flow may still send in this round.
    deficit: i64,
    is_listed: bool,
}

/// The flows, and their two lists.
#[derive(Debug)]
pub(super) struct FairQueue {
    queues: Vec<FlowQueue>,
    new: VecDeque<u32>,
    old: VecDeque<u32>,
}

impl FairQueue {
    /// Creates empty queues for this number of flows, at least one.
    pub(super) fn new(flows: usize) -> FairQueue {
        FairQueue {
            queues: vec![FlowQueue::default(); flows.max(1)],
            new: VecDeque::new(),
            old: VecDeque::new(),
        }
    }

    /// Returns whether a flow is in neither list.
    pub(super) fn is_idle(&self, flow: usize) -> bool {
        !self.queues[flow].is_listed
    }

    /// Appends a packet to the queue of a flow.
    pub(super) fn enqueue<T: Item>(
        &mut self,
        flow: usize,
        packet: Waiting<T>,
        store: &mut Store<T>,
        shares: &mut impl Shares,
    ) {
        let queue = &mut self.queues[flow];
        store.push(&mut queue.fifo, packet);
        if !queue.is_listed {
            shares.begin(flow);
            queue.is_listed = true;
            queue.deficit = shares.quantum(flow).into();
            self.new.push_back(flow as u32);
        }
    }

    /// Removes and returns the next packet. Flows take turns; CoDel drops packets of each.
    pub(super) fn dequeue<T: Item>(
        &mut self,
        codel: &CoDelConfig,
        now: Time,
        store: &mut Store<T>,
        shares: &mut impl Shares,
    ) -> Option<Waiting<T>> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let number = *list.front()?;
            let flow = number as usize;
            let queue = &mut self.queues[flow];
            if queue.deficit > 0 {
                if let Some(packet) = queue.codel.dequeue(codel, now, &mut queue.fifo, store) {
                    queue.deficit -= i64::from(packet.bytes);
                    return Some(packet);
                }
                list.pop_front();
                // A new flow passes once through the old ones, so that a flow that begins again and
                // again cannot keep them waiting.
                if is_new && !self.old.is_empty() {
                    shares.age(flow);
                    self.old.push_back(number);
                } else {
                    queue.is_listed = false;
                    shares.end(flow, !is_new);
                }
                continue;
            }
            list.pop_front();
            if is_new {
                shares.age(flow);
            }
            queue.deficit += i64::from(shares.quantum(flow).max(1));
            self.old.push_back(number);
        }
    }

    /// Removes and returns any packet that no other of its flow precedes.
    pub(super) fn take<T: Item>(&mut self, now: Time, store: &mut Store<T>) -> Option<Waiting<T>> {
        let mut fifos = self.queues.iter_mut().map(|queue| &mut queue.fifo);
        let fifo = fifos.find(|fifo| fifo.packets > 0)?;
        store.pop(now, fifo)
    }

    /// Drops half of the packets of the flow with the most bytes, but at most 64, from its head.
    pub(super) fn shed<T: Item>(&mut self, now: Time, store: &mut Store<T>) {
        let longest = self.queues.iter_mut().max_by_key(|queue| queue.fifo.bytes);
        let Some(queue) = longest else { return };
        for _ in 0..queue.fifo.packets.div_ceil(2).min(BATCH) {
            if let Some(packet) = store.pop(now, &mut queue.fifo) {
                store.drop(packet, Dropped::Full);
            }
        }
    }
}

/// Mixes the bits of a number (SplitMix64's last step), so that flows spread over queues.
pub(super) fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
