//! Restores the order of frames: those that arrive beyond a gap wait until the gap is filled.

use std::collections::VecDeque;

use super::numbered::Numbered;
use super::sequence::Sequence;

/// A frame counts as missing when this many later frames have arrived.
const REORDERING: usize = 3;

/// The place of an arriving number in its stream.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The number is the next one.
    Next,
    /// The number was forwarded before.
    Known,
    /// Lower numbers are missing; the element can be held.
    Beyond,
    /// The number is too far above the next one to be held.
    TooFar,
}

/// The next number of a stream, and the elements that have arrived beyond it.
#[derive(Debug)]
pub(super) struct Reorder<S, P> {
    next: S,
    /// The elements from `next` on. `next` itself is held only while it may not be forwarded.
    held: VecDeque<Option<Numbered<P>>>,
    /// How far beyond `next` elements are held.
    limit: u32,
    /// The missing numbers before this one were found: [`find_missing`](Reorder::find_missing).
    found: S,
}

impl<S: Sequence, P> Reorder<S, P> {
    /// Creates an empty stream that holds elements up to `limit` numbers beyond the next.
    pub(super) fn new(limit: u32) -> Reorder<S, P> {
        Reorder {
            next: S::FIRST,
            held: VecDeque::new(),
            limit,
            found: S::FIRST,
        }
    }

    /// Returns the next number in order.
    pub(super) fn next(&self) -> S {
        self.next
    }

    /// Returns how far beyond the next number elements are held.
    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns the place of `number` in the stream.
    pub(super) fn classify(&self, number: S) -> Arrival {
        match number.since(self.next) as i32 {
            0 => Arrival::Next,
            ..0 => Arrival::Known,
            beyond if (beyond as u32) <= self.limit => Arrival::Beyond,
            _ => Arrival::TooFar,
        }
    }

    /// Holds an element whose number is [`Arrival::Beyond`] or [`Arrival::Next`].
    pub(super) fn hold(&mut self, number: S, item: Numbered<P>) {
        let place = number.since(self.next) as usize;
        debug_assert!(place <= self.limit as usize, "{number:?} is too far");
        if self.held.len() <= place {
            self.held.resize_with(place + 1, || None);
        }
        self.held[place] = Some(item);
    }

    /// Completes the next number, and returns the element that was held under the one after it.
    pub(super) fn advance(&mut self) -> Option<Numbered<P>> {
        self.next = self.next.next();
        self.held.pop_front();
        self.take_next()
    }

    /// Removes and returns the element that is held under the next number.
    pub(super) fn take_next(&mut self) -> Option<Numbered<P>> {
        self.held.front_mut().and_then(Option::take)
    }

    /// Completes all numbers before `next`, and drops all held elements.
    pub(super) fn skip_to(&mut self, next: S) {
        (self.next, self.found) = (next, next);
        self.held.clear();
    }

    /// Iterates over the numbers that have become missing since the last call: those with three or
    /// more elements held above them.
    pub(super) fn find_missing(&mut self) -> impl Iterator<Item = S> + use<'_, S, P> {
        let places = self.held.iter().enumerate();
        let mut held = places.filter_map(|(place, held)| held.is_some().then_some(place));
        let end = held.nth_back(REORDERING - 1).unwrap_or(0);
        let found = (self.found.since(self.next) as i32).max(0) as usize;
        self.found = self.next.plus(found.max(end) as u32);
        let (next, held) = (self.next, &self.held);
        let missing = (found.min(end)..end).filter(|place| held[*place].is_none());
        missing.map(move |place| next.plus(place as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::super::sequence::MemberSeq;
    use super::*;

    #[test]
    fn elements_beyond_a_gap_wait_and_the_gap_is_found() {
        let number = MemberSeq::from_wire;
        let mut reorder: Reorder<MemberSeq, ()> = Reorder::new(6);
        for beyond in [1, 3, 4].map(number) {
            assert_eq!(reorder.classify(beyond), Arrival::Beyond);
            reorder.hold(beyond, Numbered::Close);
        }
        let missing: Vec<_> = reorder.find_missing().collect();
        assert_eq!(missing, [number(0)], "only two elements are above 2");
        assert_eq!(reorder.find_missing().count(), 0, "each is found once");
        reorder.hold(number(6), Numbered::Close);
        assert_eq!(reorder.find_missing().collect::<Vec<_>>(), [number(2)]);
        assert_eq!(reorder.classify(number(6)), Arrival::Beyond);
        assert_eq!(reorder.classify(number(7)), Arrival::TooFar);
        assert!(reorder.advance().is_some(), "1 follows 0");
        assert!(reorder.advance().is_none(), "2 is missing");
        assert_eq!(reorder.next(), number(2));
        assert_eq!(reorder.classify(number(1)), Arrival::Known);
    }
}
