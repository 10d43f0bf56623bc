//! Consecutive sequence numbers, with an entry for each.

use std::collections::VecDeque;

use super::sequence::Sequence;
use crate::frame::FLIGHT_FRAMES_MAX;

/// An entry for each number from `base` on.
#[derive(Debug)]
pub(super) struct Ring<S, T> {
    base: S,
    entries: VecDeque<T>,
}

impl<S: Sequence, T> Ring<S, T> {
    /// Creates an empty ring. The first entry gets the number [`Sequence::FIRST`].
    pub(super) fn new() -> Ring<S, T> {
        Ring {
            base: S::FIRST,
            entries: VecDeque::new(),
        }
    }

    /// Returns the first number with an entry.
    #[inline]
    pub(super) fn base(&self) -> S {
        self.base
    }

    /// Returns the number that the next entry gets.
    #[inline]
    pub(super) fn next(&self) -> S {
        self.base.plus(self.entries.len() as u32)
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns whether there are entries for a whole flight of frames.
    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= FLIGHT_FRAMES_MAX as usize
    }

    /// Returns whether the number has an entry, or may get one before the ring is full.
    pub(super) fn reaches(&self, number: S) -> bool {
        number.since(self.base) < FLIGHT_FRAMES_MAX
    }

    #[inline]
    pub(super) fn get(&self, number: S) -> Option<&T> {
        self.entries.get(self.place(number))
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: S) -> Option<&mut T> {
        let place = self.place(number);
        self.entries.get_mut(place)
    }

    /// Returns the entry of the first number.
    pub(super) fn front(&self) -> Option<&T> {
        self.entries.front()
    }

    /// Iterates over the entries and their numbers, lowest first.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (S, &mut T)> {
        let base = self.base;
        let numbered = move |(place, entry)| (base.plus(place as u32), entry);
        self.entries.iter_mut().enumerate().map(numbered)
    }

    /// Adds the entry of the next number.
    pub(super) fn push(&mut self, entry: T) {
        debug_assert!(
            self.entries.len() < 1 << 31,
            "the ring must be shorter than half the circle of numbers"
        );
        self.entries.push_back(entry);
    }

    /// Removes the first number and its entry.
    pub(super) fn pop(&mut self) -> Option<T> {
        let entry = self.entries.pop_front()?;
        self.base = self.base.next();
        Some(entry)
    }

    /// Returns the index of a number's entry. Numbers before the base have indices beyond all
    /// entries.
    #[inline]
    fn place(&self, number: S) -> usize {
        number.since(self.base) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::super::sequence::PeerSeq;
    use super::*;

    #[test]
    fn entries_keep_their_numbers_when_numbers_wrap() {
        let last = PeerSeq::FIRST.previous();
        let mut ring = Ring::new();
        ring.base = last;
        ring.push('a');
        ring.push('b');
        let entries = (ring.get(last), ring.get(PeerSeq::FIRST));
        assert_eq!(entries, (Some(&'a'), Some(&'b')));
        assert_eq!(ring.pop(), Some('a'));
        assert_eq!((ring.base(), ring.next()), (PeerSeq::FIRST, last.plus(2)));
        assert_eq!(ring.get(last), None, "the number is below the base");
    }
}
