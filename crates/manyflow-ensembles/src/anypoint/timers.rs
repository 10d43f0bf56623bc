//! The timers of many connections, in one heap.
//!
//! A timer that moves to a later time leaves its entry where it is: the entry expires early, and
//! its connection sets the timer again. So most calls of [`Timers::set`] do not touch the heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use manyflow_core::time::Time;

/// The pending entries: when each is due, and the connection's slot.
#[derive(Debug, Default)]
pub(super) struct Timers(BinaryHeap<Reverse<(Time, usize)>>);

/// The earliest entry of one connection in [`Timers`].
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Timer(Option<Time>);

impl Timers {
    /// Makes sure that the connection in `slot` expires at `due` or earlier.
    pub(super) fn set(&mut self, timer: &mut Timer, slot: usize, due: Option<Time>) {
        if let Some(due) = due
            && timer.0.is_none_or(|entry| due < entry)
        {
            timer.0 = Some(due);
            self.0.push(Reverse((due, slot)));
        }
    }

    /// Returns when the next entry is due.
    pub(super) fn next(&self) -> Option<Time> {
        self.0.peek().map(|Reverse((due, _))| *due)
    }

    /// Takes the next entry that is due. Its timer must then be [expired](Timer::expire).
    pub(super) fn take_due(&mut self, now: Time) -> Option<(Time, usize)> {
        let entry = self.0.peek_mut()?;
        (entry.0.0 <= now).then(|| std::collections::binary_heap::PeekMut::pop(entry).0)
    }
}

impl Timer {
    /// Handles an entry of this slot. Returns false if the entry is one that an earlier one has
    /// replaced, or that of a connection that no longer exists.
    pub(super) fn expire(&mut self, due: Time) -> bool {
        let is_current = self.0 == Some(due);
        if is_current {
            self.0 = None;
        }
        is_current
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_timer_expires_at_its_earliest_time_and_once() {
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let (mut timers, mut timer) = (Timers::default(), Timer::default());
        timers.set(&mut timer, 7, Some(at(5)));
        timers.set(&mut timer, 7, Some(at(9)));
        timers.set(&mut timer, 7, Some(at(3)));
        assert_eq!(timers.next(), Some(at(3)));
        assert_eq!(timers.take_due(at(2)), None);
        assert_eq!(timers.take_due(at(9)), Some((at(3), 7)));
        assert!(timer.expire(at(3)));
        assert_eq!(timers.take_due(at(9)), Some((at(5), 7)));
        assert!(!timer.expire(at(5)));
        assert_eq!(timers.take_due(at(9)), None);
    }
}
