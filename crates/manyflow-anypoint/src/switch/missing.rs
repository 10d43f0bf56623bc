//! Missing frames, as acknowledgements report them.

use super::sequence::Sequence;
use crate::{Gap, NO_GAPS};

/// The gaps of one acknowledgement, filled from the lowest number on.
#[derive(Debug)]
pub(super) struct Gaps<S> {
    cumulative: S,
    list: [Gap; 3],
    used: usize,
}

impl<S: Sequence> Gaps<S> {
    /// Creates an empty list for an acknowledgement with this cumulative number.
    pub(super) fn new(cumulative: S) -> Gaps<S> {
        Gaps {
            cumulative,
            list: NO_GAPS,
            used: 0,
        }
    }

    /// Adds a number above those added before. Returns false if there is no room for it.
    pub(super) fn add(&mut self, number: S) -> bool {
        let Ok(offset) = u16::try_from(number.since(self.cumulative)) else {
            return false;
        };
        if let Some(last) = self.list[..self.used].last_mut() {
            let adjacent = last.offset.checked_add(last.frames) == Some(offset);
            if adjacent && last.frames < u16::MAX {
                last.frames += 1;
                return true;
            }
        }
        if self.used == self.list.len() {
            return false;
        }
        self.list[self.used] = Gap { offset, frames: 1 };
        self.used += 1;
        true
    }

    /// Returns the gaps as an acknowledgement carries them.
    pub(super) fn list(&self) -> [Gap; 3] {
        self.list
    }
}

/// The frames of one sender that are known to be missing.
///
/// An acknowledgement names at most three gaps, but a burst that is lost on one member's path
/// leaves many gaps among the peer's numbers. Reports therefore take turns: each continues where
/// the previous one ended.
#[derive(Debug)]
pub(super) struct Missing<S> {
    /// Lowest first, without duplicates.
    numbers: Vec<S>,
    /// The index from which the next report continues.
    turn: usize,
}

impl<S: Sequence> Missing<S> {
    pub(super) fn new() -> Missing<S> {
        Missing {
            numbers: Vec::new(),
            turn: 0,
        }
    }

    /// Adds a number. Returns whether it was not missing before.
    pub(super) fn insert(&mut self, number: S) -> bool {
        let place = self.find(number);
        if let Err(place) = place {
            self.numbers.insert(place, number);
        }
        place.is_err()
    }

    /// Removes a number; does nothing if it is not missing.
    pub(super) fn remove(&mut self, number: S) {
        if self.numbers.is_empty() {
            return;
        }
        if let Ok(place) = self.find(number) {
            self.numbers.remove(place);
        }
    }

    /// Lets the next report begin with this number, if it is missing.
    pub(super) fn begin_with(&mut self, number: S) {
        if let Ok(place) = self.find(number) {
            self.turn = place;
        }
    }

    /// Adds to `gaps` the numbers whose turn it is.
    pub(super) fn report(&mut self, gaps: &mut Gaps<S>) {
        if self.turn >= self.numbers.len() {
            self.turn = 0;
        }
        let due = self.numbers[self.turn..].iter();
        self.turn += due.take_while(|number| gaps.add(**number)).count();
        debug_assert!(self.turn <= self.numbers.len());
    }

    /// Returns the number's index, or `Err` with the index for its insertion.
    fn find(&self, number: S) -> Result<usize, usize> {
        let place = self.numbers.partition_point(|n| n.is_before(number));
        match self.numbers.get(place) {
            Some(found) if *found == number => Ok(place),
            _ => Err(place),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sequence::PeerSeq;
    use super::*;

    fn number(number: u32) -> PeerSeq {
        PeerSeq::from_wire(number)
    }

    fn report(missing: &mut Missing<PeerSeq>, cumulative: u32) -> Vec<(u16, u16)> {
        let mut gaps = Gaps::new(number(cumulative));
        missing.report(&mut gaps);
        let used = gaps.list().into_iter().filter(|gap| gap.frames > 0);
        used.map(|gap| (gap.offset, gap.frames)).collect()
    }

    #[test]
    fn reports_go_round_and_merge_neighbours() {
        let mut missing = Missing::new();
        for lost in [30, 10, 12, 11, 20, 40, 11] {
            missing.insert(number(lost));
        }
        assert_eq!(report(&mut missing, 10), [(0, 3), (10, 1), (20, 1)]);
        assert_eq!(report(&mut missing, 10), [(30, 1)]);
        missing.remove(number(10));
        missing.remove(number(99));
        assert_eq!(report(&mut missing, 11), [(0, 2), (9, 1), (19, 1)]);
    }
}
