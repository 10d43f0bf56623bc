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
#[derive(Debug, Default)]
pub(super) struct Events {
    /// Each key has the time in its upper 64 bits. Below are a bit that is 0 for changes, 31 bits
    /// of sequence, and 32 bits of index and kind. A wrap-around of the sequence can only reorder
    /// events of the same nanosecond that are two thousand million events apart.
    heap: BinaryHeap<Reverse<u128>>,
    /// Whether the event on top has been handed out. Most events lead to another one, which
    /// replaces it. This is cheaper than removing one event and adding another.
    is_top_taken: bool,
    sequence: u32,
}

impl Events {
    #[inline]
    pub(super) fn push(&mut self, time: Time, due: Due) {
        let (index, kind) = match due {
            Due::Link(index) => (index, 0),
            Due::Timer(index) => (index, 1),
            Due::Message(index) => (index, 2),
            Due::Change(index) => (index, 3),
        };
        let is_change = matches!(due, Due::Change(_));
        self.sequence = self.sequence.wrapping_add(1) & (LATER - 1);
        let order = if is_change { 0 } else { LATER } | self.sequence;
        let low = u64::from(order) << 32 | (u64::from(index) * KINDS + kind);
        let key = Reverse(u128::from(time.as_nanos()) << 64 | u128::from(low));
        if core::mem::take(&mut self.is_top_taken)
            && let Some(mut top) = self.heap.peek_mut()
        {
            *top = key;
        } else {
            self.heap.push(key);
        }
    }

    /// Returns the time of the next event.
    pub(super) fn next_time(&mut self) -> Option<Time> {
        if core::mem::take(&mut self.is_top_taken) {
            self.heap.pop();
        }
        let Reverse(key) = self.heap.peek()?;
        Some(Time::from_nanos((key >> 64) as u64))
    }

    /// Removes and returns the next event if it is due by `end`.
    #[inline]
    pub(super) fn pop_until(&mut self, end: Time) -> Option<(Time, Due)> {
        if core::mem::take(&mut self.is_top_taken) {
            self.heap.pop();
        }
        let &Reverse(key) = self.heap.peek()?;
        let time = Time::from_nanos((key >> 64) as u64);
        if time > end {
            return None;
        }
        self.is_top_taken = true;
        let low = key as u32;
        let index = low / KINDS as u32;
        let due = match u64::from(low) % KINDS {
            0 => Due::Link(index),
            1 => Due::Timer(index),
            2 => Due::Message(index),
            _ => Due::Change(index),
        };
        Some((time, due))
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
