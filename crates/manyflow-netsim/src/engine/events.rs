//! The queue of pending events: a binary heap of packed integers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use manyflow_core::Time;

/// A pending event.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// The next packet on the link with this index arrives.
    Link(u32),
    /// The timer of the endpoint with this index expires.
    Timer(u32),
    /// The join or leave with this index arrives.
    Message(u32),
    /// The change with this index is made.
    Change(u32),
}

const KINDS: u64 = 4;
/// The bit that orders an event behind the changes at the same time.
const LATER: u32 = 1 << 31;

/// Pending events in order of time. At equal times, changes come first, and all other events follow
/// in the order in which they were added. A change can therefore be scheduled at any earlier time,
/// with the same result.
#[derive(Debug)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<Key>>,
    /// Whether the event on top has been handed out. Most events lead to another one, which
    /// replaces it. This is cheaper than removing one event and adding another.
    is_top_taken: bool,
    /// The number of the event that was added last.
    sequence: u32,
    /// The last time of the current window. Events after it wait in `deferred`, because the numbers
    /// of a window's events are not final before its end (`parallel/mod.rs`).
    window_end: Time,
    deferred: Vec<Key>,
    /// The time of the first deferred event.
    deferred_from: Time,
}

/// A pending event as one number. The upper 64 bits have the time. Below are a bit that is 0 for
/// changes, 31 bits of sequence, and 32 bits of index and kind.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(u128);

impl Key {
    #[inline]
    fn new(time: Time, number: u32, due: Due) -> Key {
        debug_assert!(number < LATER, "{number} has more than 31 bits");
        let (index, kind) = match due {
            Due::Link(index) => (index, 0),
            Due::Timer(index) => (index, 1),
            Due::Message(index) => (index, 2),
            Due::Change(index) => (index, 3),
        };
        let is_change = matches!(due, Due::Change(_));
        let order = if is_change { 0 } else { LATER } | number;
        let low = u64::from(order) << 32 | (u64::from(index) * KINDS + kind);
        Key(u128::from(time.as_nanos()) << 64 | u128::from(low))
    }

    #[inline]
    pub(super) fn time(self) -> Time {
        Time::from_nanos((self.0 >> 64) as u64)
    }

    /// Returns the event's number in the order in which events were added.
    #[inline]
    pub(super) fn number(self) -> u32 {
        (self.0 >> 32) as u32 & (LATER - 1)
    }

    /// Returns the same event with another number.
    #[inline]
    pub(super) fn with_number(self, number: u32) -> Key {
        let place = u128::from(LATER - 1) << 32;
        Key(self.0 & !place | u128::from(number) << 32)
    }

    #[inline]
    pub(super) fn due(self) -> Due {
        let low = self.0 as u32;
        let index = low / KINDS as u32;
        match u64::from(low) % KINDS {
            0 => Due::Link(index),
            1 => Due::Timer(index),
            2 => Due::Message(index),
            _ => Due::Change(index),
        }
    }
}

impl Default for Events {
    fn default() -> Events {
        Events {
            heap: BinaryHeap::new(),
            is_top_taken: false,
            sequence: 0,
            window_end: Time::MAX,
            deferred: Vec::new(),
            deferred_from: Time::MAX,
        }
    }
}

impl Events {
    #[inline]
    pub(super) fn push(&mut self, time: Time, due: Due) {
        let number = self.take_number();
        self.push_key(Key::new(time, number, due));
    }

    /// Adds an event whose place in the order was taken before.
    #[inline]
    pub(super) fn push_numbered(&mut self, time: Time, number: u32, due: Due) {
        self.push_key(Key::new(time, number, due));
    }

    /// Takes a place in the order of added events.
    #[inline]
    pub(super) fn take_number(&mut self) -> u32 {
        if self.sequence >= LATER - 1 {
            self.renumber();
        }
        self.sequence += 1;
        self.sequence
    }

    #[inline]
    fn push_key(&mut self, key: Key) {
        if key.time() > self.window_end {
            self.deferred_from = self.deferred_from.min(key.time());
            self.deferred.push(key);
        } else if core::mem::take(&mut self.is_top_taken)
            && let Some(mut top) = self.heap.peek_mut()
        {
            *top = Reverse(key);
        } else {
            self.heap.push(Reverse(key));
        }
    }

    /// Numbers the pending events again from 1, in the same order, because 31 bits are used up.
    #[cold]
    fn renumber(&mut self) {
        let mut keys = self.drain();
        keys.sort_unstable_by_key(|key| key.number());
        self.sequence = 0;
        for key in keys {
            self.sequence += 1;
            self.heap.push(Reverse(key.with_number(self.sequence)));
        }
    }

    /// Removes and returns all events, in no particular order.
    pub(super) fn drain(&mut self) -> Vec<Key> {
        debug_assert!(self.deferred.is_empty());
        self.drop_taken();
        let keys = core::mem::take(&mut self.heap).into_vec();
        keys.into_iter().map(|Reverse(key)| key).collect()
    }

    /// Returns the time of the next event.
    pub(super) fn next_time(&mut self) -> Option<Time> {
        self.drop_taken();
        self.heap.peek().map(|Reverse(key)| key.time())
    }

    /// Removes and returns the next event if it is due by `end`.
    #[inline]
    pub(super) fn pop_until(&mut self, end: Time) -> Option<(Time, Due)> {
        self.pop_key(end).map(|key| (key.time(), key.due()))
    }

    /// Removes and returns the next event as [`pop_until`](Events::pop_until) does.
    #[inline]
    pub(super) fn pop_key(&mut self, end: Time) -> Option<Key> {
        self.drop_taken();
        let &Reverse(key) = self.heap.peek()?;
        self.is_top_taken = key.time() <= end;
        self.is_top_taken.then_some(key)
    }

    #[inline]
    fn drop_taken(&mut self) {
        if core::mem::take(&mut self.is_top_taken) {
            self.heap.pop();
        }
    }

    /// Begins a window: events after `end` are deferred, and numbers count on from `number`.
    pub(super) fn begin_window(&mut self, end: Time, number: u32) {
        debug_assert!(self.deferred.is_empty());
        (self.window_end, self.sequence) = (end, number);
        self.deferred_from = Time::MAX;
    }

    /// Changes the numbers of all events. Their order stays the same.
    pub(super) fn for_each_number(&mut self, mut change: impl FnMut(u32) -> u32) {
        let keys = self.drain();
        let keys = keys.into_iter();
        let changed = keys.map(|key| Reverse(key.with_number(change(key.number()))));
        self.heap = changed.collect();
    }

    /// Returns the number that was taken last.
    #[inline]
    pub(super) fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Returns the time of the next event, deferred or not.
    pub(super) fn next_time_of_all(&mut self) -> Time {
        let next = self.next_time().unwrap_or(Time::MAX);
        next.min(self.deferred_from)
    }

    /// Adds the deferred events with their final numbers.
    pub(super) fn add_deferred(&mut self, number: impl Fn(u32) -> u32) {
        self.drop_taken();
        self.window_end = Time::MAX;
        let keys = self.deferred.drain(..);
        self.heap
            .extend(keys.map(|key| Reverse(key.with_number(number(key.number())))));
        self.deferred_from = Time::MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_ordered_by_time_with_changes_first() {
        let mut events = Events::default();
        let (early, late) = (Time::from_nanos(5), Time::from_nanos(9));
        events.push(late, Due::Link(7));
        events.push(early, Due::Timer(1));
        events.push(early, Due::Change(1_000_000_000));
        events.push(early, Due::Message(0));
        let order: Vec<_> = core::iter::from_fn(|| events.pop_until(early))
            .map(|(_, due)| due)
            .collect();
        assert_eq!(
            order,
            [Due::Change(1_000_000_000), Due::Timer(1), Due::Message(0)]
        );
        assert_eq!(events.next_time(), Some(late));
        assert_eq!(events.pop_until(late), Some((late, Due::Link(7))));
        assert_eq!(events.next_time(), None);
    }
}
