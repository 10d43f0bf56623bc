//! Frames in the order of their numbers: what arrives beyond a gap waits until the gap is filled.

use std::collections::VecDeque;

use super::missing::Gaps;
use crate::{Body, Data};

/// A frame is believed missing when so many later ones have arrived.
const REORDERING: usize = 3;

/// What takes a sequence number.
#[derive(Clone, Debug)]
pub(super) enum Numbered<P> {
    Frame(Data, P),
    Close,
}

impl<P: Clone + Default> Numbered<P> {
    /// As a packet, under this number.
    pub(super) fn numbered(&self, sequence: u32) -> (Body, P) {
        match self {
            Numbered::Frame(data, payload) => {
                let data = Data { sequence, ..*data };
                (Body::Data(data), payload.clone())
            }
            Numbered::Close => (Body::Close { sequence }, P::default()),
        }
    }
}

/// Where a number stands.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It is the next.
    Next,
    /// It was there before.
    Known,
    /// There is a gap below it.
    Beyond,
    /// There is no room for it.
    TooFar,
}

/// The next number of a sender, and what it sent beyond it.
#[derive(Debug)]
pub(super) struct Reorder<P> {
    next: u32,
    /// From `next` on, which itself is here only while nothing may go on.
    held: VecDeque<Option<Numbered<P>>>,
    limit: u32,
}

impl<P> Reorder<P> {
    /// Holds what is less than `limit` frames beyond the next.
    pub(super) fn new(limit: u32) -> Reorder<P> {
        Reorder {
            next: 0,
            held: VecDeque::new(),
            limit,
        }
    }

    pub(super) fn next(&self) -> u32 {
        self.next
    }

    pub(super) fn classify(&self, number: u32) -> Arrival {
        match number.wrapping_sub(self.next) as i32 {
            0 => Arrival::Next,
            ..0 => Arrival::Known,
            beyond if (beyond as u32) <= self.limit => Arrival::Beyond,
            _ => Arrival::TooFar,
        }
    }

    /// Keeps what is [`Arrival::Beyond`], or next.
    pub(super) fn hold(&mut self, number: u32, item: Numbered<P>) {
        let place = number.wrapping_sub(self.next) as usize;
        if self.held.len() <= place {
            self.held.resize_with(place + 1, || None);
        }
        self.held[place] = Some(item);
    }

    /// The next number is done; gives what was held under the one after it.
    pub(super) fn advance(&mut self) -> Option<Numbered<P>> {
        self.next = self.next.wrapping_add(1);
        self.held.pop_front();
        self.take_next()
    }

    /// Takes what was held under the next number.
    pub(super) fn take_next(&mut self) -> Option<Numbered<P>> {
        self.held.front_mut().and_then(Option::take)
    }

    /// All below `next` are done, whatever they were.
    pub(super) fn skip_to(&mut self, next: u32) {
        self.next = next;
        self.held.clear();
    }

    /// Adds the numbers that are missing: with three or more held above them.
    pub(super) fn report(&self, gaps: &mut Gaps) {
        let mut above = self.held.iter().flatten().count();
        for (place, held) in self.held.iter().enumerate() {
            if above < REORDERING {
                break;
            }
            match held {
                Some(_) => above -= 1,
                None if !gaps.add(self.next.wrapping_add(place as u32)) => break,
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_a_gap_waits_and_the_gap_is_reported() {
        let mut reorder: Reorder<()> = Reorder::new(6);
        for number in [1, 3, 4] {
            assert_eq!(reorder.classify(number), Arrival::Beyond);
            reorder.hold(number, Numbered::Close);
        }
        let mut gaps = Gaps::new(0);
        reorder.report(&mut gaps);
        let reported = gaps.list().map(|gap| (gap.offset, gap.frames));
        assert_eq!(reported, [(0, 1), (0, 0), (0, 0)], "2 has two above it");
        assert_eq!(reorder.classify(6), Arrival::Beyond);
        assert_eq!(reorder.classify(7), Arrival::TooFar);
        assert!(reorder.advance().is_some(), "1 follows 0");
        assert!(reorder.advance().is_none(), "2 is missing");
        assert_eq!(reorder.next(), 2);
        assert_eq!(reorder.classify(1), Arrival::Known);
    }
}
