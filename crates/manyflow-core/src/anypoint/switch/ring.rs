//! Consecutive numbers, and what is known of each.

use std::collections::VecDeque;

use crate::anypoint::frame::FLIGHT_FRAMES_MAX;

/// Whether `a` comes before `b`, of numbers that wrap and are never half the circle apart (RFC 1982 section 3.2).
pub(super) fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// An entry for each number from `base` on.
#[derive(Debug)]
pub(super) struct Ring<T> {
    base: u32,
    entries: VecDeque<T>,
}

impl<T> Ring<T> {
    pub(super) fn new() -> Ring<T> {
        Ring {
            base: 0,
            entries: VecDeque::new(),
        }
    }

    /// The first number with an entry.
    pub(super) fn base(&self) -> u32 {
        self.base
    }

    /// The number that the next entry gets.
    pub(super) fn next(&self) -> u32 {
        self.base.wrapping_add(self.entries.len() as u32)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= FLIGHT_FRAMES_MAX as usize
    }

    /// Whether the number has an entry, or could get one.
    pub(super) fn reaches(&self, number: u32) -> bool {
        number.wrapping_sub(self.base) < FLIGHT_FRAMES_MAX
    }

    pub(super) fn get(&self, number: u32) -> Option<&T> {
        self.entries.get(self.place(number))
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let place = self.place(number);
        self.entries.get_mut(place)
    }

    pub(super) fn front(&self) -> Option<&T> {
        self.entries.front()
    }

    /// The entries and their numbers.
    pub(super) fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (u32, &mut T)> {
        let base = self.base;
        let numbered = move |(place, entry)| (base.wrapping_add(place as u32), entry);
        let entries = self.entries.iter_mut();
        entries.enumerate().map(numbered)
    }

    /// Gives the next number its entry.
    pub(super) fn push(&mut self, entry: T) {
        self.entries.push_back(entry);
    }

    /// Takes the first number's entry.
    pub(super) fn pop(&mut self) -> Option<T> {
        let entry = self.entries.pop_front()?;
        self.base = self.base.wrapping_add(1);
        Some(entry)
    }

    /// A number below the base lies beyond all entries.
    fn place(&self, number: u32) -> usize {
        number.wrapping_sub(self.base) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap() {
        let mut ring = Ring::new();
        ring.base = u32::MAX;
        ring.push('a');
        ring.push('b');
        assert_eq!((ring.get(u32::MAX), ring.get(0)), (Some(&'a'), Some(&'b')));
        assert_eq!((ring.pop(), ring.base(), ring.next()), (Some('a'), 0, 1));
        assert_eq!(ring.get(u32::MAX), None, "it is below the base now");
        assert!(before(u32::MAX, 0) && !before(0, u32::MAX) && !before(7, 7));
    }
}
