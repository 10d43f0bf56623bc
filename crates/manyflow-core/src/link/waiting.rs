//! The packets of a managed queue: one store, and first-in first-out lists in it.
//!
//! A queue with a thousand flows needs a thousand lists, of which most are empty. The lists share
//! one store, whose places are used again. So a packet that waits costs no allocation once the
//! store has grown to the longest queue.

use core::time::Duration;
use std::collections::VecDeque;

use super::{Dropped, Fate, Flow, Item};
use crate::time::Time;

/// No place of the store: the end of a list.
const NONE: u32 = u32::MAX;

/// A packet that waits.
#[derive(Clone, Debug)]
pub(super) struct Waiting<T> {
    pub(super) item: T,
    pub(super) bytes: u32,
    /// The time at which the packet entered the queue.
    pub(super) entered: Time,
    pub(super) flow: Flow,
    pub(super) is_ecn_capable: bool,
    /// Whether the packet is marked ECT(1) or CE, which selects the queue for low latency (RFC 9332
    /// section 2.3).
    pub(super) is_l4s: bool,
    /// Whether the packet will be marked when it leaves.
    pub(super) is_marked: bool,
}

impl<T> Waiting<T> {
    /// Returns how long the packet has waited.
    pub(super) fn sojourn(&self, now: Time) -> Duration {
        now - self.entered
    }
}

/// A list of the store: the packets of one flow, or of all.
#[derive(Copy, Clone, Debug)]
pub(super) struct Fifo {
    first: u32,
    last: u32,
    pub(super) packets: u32,
    pub(super) bytes: u64,
}

impl Default for Fifo {
    fn default() -> Fifo {
        Fifo {
            first: NONE,
            last: NONE,
            packets: 0,
            bytes: 0,
        }
    }
}

#[derive(Debug)]
struct Place<T> {
    next: u32,
    /// `None` while the place is free.
    waiting: Option<Waiting<T>>,
}

/// The waiting packets of a link, and the fates of packets that its world has yet to learn.
#[derive(Debug)]
pub(super) struct Store<T> {
    places: Vec<Place<T>>,
    /// The list of free places.
    free: u32,
    packets: u32,
    bytes: u64,
    /// The sum of the times at which the waiting packets entered, in nanoseconds, modulo 2^64.
    entered: u64,
    /// The sum of the times for which packets have waited that no longer wait, in nanoseconds.
    waits: u64,
    pub(super) fates: VecDeque<Fate<T>>,
    pub(super) drops: u64,
    pub(super) marks: u64,
}

impl<T: Item> Default for Store<T> {
    fn default() -> Store<T> {
        Store {
            places: Vec::new(),
            free: NONE,
            packets: 0,
            bytes: 0,
            entered: 0,
            waits: 0,
            fates: VecDeque::new(),
            drops: 0,
            marks: 0,
        }
    }
}

impl<T: Item> Store<T> {
    /// Returns the number of waiting packets.
    pub(super) fn packets(&self) -> u32 {
        self.packets
    }

    /// Returns the bytes of the waiting packets.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the sum of the times for which packets have waited until `now`, in nanoseconds.
    pub(super) fn waited(&self, now: Time) -> u64 {
        let present = u64::from(self.packets)
            .wrapping_mul(now.as_nanos())
            .wrapping_sub(self.entered);
        self.waits.wrapping_add(present)
    }

    /// Appends a packet to a list.
    pub(super) fn push(&mut self, fifo: &mut Fifo, waiting: Waiting<T>) {
        self.packets += 1;
        self.bytes += u64::from(waiting.bytes);
        self.entered = self.entered.wrapping_add(waiting.entered.as_nanos());
        fifo.packets += 1;
        fifo.bytes += u64::from(waiting.bytes);
        let place = self.place(waiting);
        match fifo.last {
            NONE => fifo.first = place,
            last => self.places[last as usize].next = place,
        }
        fifo.last = place;
    }

    fn place(&mut self, waiting: Waiting<T>) -> u32 {
        let place = Place {
            next: NONE,
            waiting: Some(waiting),
        };
        if self.free == NONE {
            self.places.push(place);
            return self.places.len() as u32 - 1;
        }
        let free = self.free;
        let slot = &mut self.places[free as usize];
        self.free = slot.next;
        *slot = place;
        free
    }

    /// Returns the oldest packet of a list.
    pub(super) fn front(&self, fifo: &Fifo) -> Option<&Waiting<T>> {
        self.places.get(fifo.first as usize)?.waiting.as_ref()
    }

    /// Removes and returns the oldest packet of a list.
    pub(super) fn pop(&mut self, now: Time, fifo: &mut Fifo) -> Option<Waiting<T>> {
        let first = fifo.first;
        let place = self.places.get_mut(first as usize)?;
        let waiting = place.waiting.take()?;
        fifo.first = core::mem::replace(&mut place.next, self.free);
        self.free = first;
        if fifo.first == NONE {
            fifo.last = NONE;
        }
        fifo.packets -= 1;
        fifo.bytes -= u64::from(waiting.bytes);
        self.packets -= 1;
        self.bytes -= u64::from(waiting.bytes);
        self.entered = self.entered.wrapping_sub(waiting.entered.as_nanos());
        self.waits += now.as_nanos() - waiting.entered.as_nanos();
        debug_assert_eq!(fifo.packets == 0, fifo.first == NONE);
        debug_assert!(fifo.packets > 0 || fifo.bytes == 0);
        Some(waiting)
    }

    /// Drops a packet that has been removed from its list.
    pub(super) fn drop(&mut self, waiting: Waiting<T>, why: Dropped) {
        self.drops += 1;
        if T::IS_STORED {
            self.fates.push_back(Fate::Dropped(waiting.item, why));
        }
    }

    /// Marks a packet, which will carry the mark when it leaves.
    pub(super) fn mark(&mut self, waiting: &mut Waiting<T>) {
        debug_assert!(waiting.is_ecn_capable);
        self.marks += u64::from(!waiting.is_marked);
        waiting.is_marked = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(item: u32, at_ns: u64) -> Waiting<u32> {
        Waiting {
            item,
            bytes: 100 + item,
            entered: Time::from_nanos(at_ns),
            flow: Flow::default(),
            is_ecn_capable: false,
            is_l4s: false,
            is_marked: false,
        }
    }

    #[test]
    fn lists_keep_their_order_and_share_places() {
        let mut store = Store::<u32>::default();
        let mut lists = [Fifo::default(); 2];
        for item in 0..6 {
            store.push(&mut lists[item as usize % 2], packet(item, 0));
        }
        assert_eq!((store.packets(), store.bytes()), (6, 615));
        let now = Time::from_nanos(10);
        let popped = |store: &mut Store<u32>, list: &mut Fifo| store.pop(now, list).map(|w| w.item);
        assert_eq!(popped(&mut store, &mut lists[1]), Some(1));
        assert_eq!(popped(&mut store, &mut lists[0]), Some(0));
        store.push(&mut lists[1], packet(7, 10));
        assert_eq!(store.places.len(), 6, "a place is used again");
        for expected in [3, 5, 7] {
            assert_eq!(popped(&mut store, &mut lists[1]), Some(expected));
        }
        assert_eq!(popped(&mut store, &mut lists[1]), None);
        assert_eq!((lists[0].packets, lists[0].bytes), (2, 206));
    }

    #[test]
    fn the_waits_grow_by_each_waiting_packet() {
        let mut store = Store::<u32>::default();
        let mut list = Fifo::default();
        store.push(&mut list, packet(1, 100));
        store.push(&mut list, packet(2, 150));
        assert_eq!(store.waited(Time::from_nanos(200)), 150);
        store.pop(Time::from_nanos(200), &mut list);
        assert_eq!(store.waited(Time::from_nanos(300)), 250);
    }
}
