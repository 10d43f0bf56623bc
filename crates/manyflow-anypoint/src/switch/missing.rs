//! Missing frames, as acknowledgements report them.

use super::sequence::Sequence;
use crate::{Gap, NO_GAPS};

/// The gaps of one acknowledgement, filled from the lowest number on.
#[derive(Debug)]
struct Gaps<S> {
    cumulative: S,
    list: [Gap; 3],
    used: usize,
}

impl<S: Sequence> Gaps<S> {
    /// Creates an empty list for an acknowledgement with this cumulative number.
    fn new(cumulative: S) -> Gaps<S> {
        Gaps {
            cumulative,
            list: NO_GAPS,
            used: 0,
        }
    }

    /// Adds a number above those added before, unless the list has `room` gaps and the number
    /// belongs to none of them. Returns whether the number was added.
    fn add(&mut self, number: S, room: usize) -> bool {
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
        if self.used == room {
            return false;
        }
        self.list[self.used] = Gap { offset, frames: 1 };
        self.used += 1;
        true
    }
}

/// The frames of one sender that are known to be missing, on either side of the switch.
///
/// An acknowledgement names at most three gaps, but an overflowing queue leaves many more. The
/// highest gap is the news, and each report has it. The others take turns: each report continues
/// where the previous one ended. Frames that arrived lie between gaps, and each of those is
/// answered, so there are never more gaps than answers to name them.
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

    /// Adds these numbers.
    pub(super) fn extend(&mut self, numbers: impl Iterator<Item = S>) {
        numbers.for_each(|number| {
            self.insert(number);
        });
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

    /// Returns the gaps of the next acknowledgement, whose cumulative number is `cumulative`.
    pub(super) fn report(&mut self, cumulative: S) -> [Gap; 3] {
        let mut gaps = Gaps::new(cumulative);
        let room = gaps.list.len();
        if self.turn >= self.numbers.len() {
            self.turn = 0;
        }
        let highest = self.highest_gap().max(self.turn);
        let due = self.numbers[self.turn..highest].iter();
        self.turn += due.take_while(|older| gaps.add(**older, room - 1)).count();
        if self.turn >= highest {
            self.turn = 0;
        }
        for newest in &self.numbers[highest..] {
            if !gaps.add(*newest, room) {
                break;
            }
        }
        gaps.list
    }

    /// Returns the index at which the highest gap begins.
    fn highest_gap(&self) -> usize {
        let pairs = self.numbers.windows(2).rev();
        let adjacent = pairs.take_while(|pair| pair[0].next() == pair[1]).count();
        self.numbers.len().saturating_sub(adjacent + 1)
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
        let gaps = missing.report(number(cumulative));
        let used = gaps.into_iter().filter(|gap| gap.frames > 0);
        used.map(|gap| (gap.offset, gap.frames)).collect()
    }

    #[test]
    fn reports_have_the_highest_gap_and_others_in_turn_and_merge_neighbours() {
        let mut missing = Missing::new();
        for lost in [30, 10, 12, 11, 20, 40, 41, 11] {
            missing.insert(number(lost));
        }
        assert_eq!(report(&mut missing, 10), [(0, 3), (10, 1), (30, 2)]);
        assert_eq!(report(&mut missing, 10), [(20, 1), (30, 2)]);
        missing.remove(number(10));
        missing.remove(number(99));
        assert_eq!(report(&mut missing, 11), [(0, 2), (9, 1), (29, 2)]);
        missing.begin_with(number(20));
        assert_eq!(report(&mut missing, 11), [(9, 1), (19, 1), (29, 2)]);
    }

    #[test]
    fn one_gap_is_in_each_report() {
        let mut missing = Missing::new();
        assert_eq!(report(&mut missing, 3), []);
        (3..6).for_each(|lost| assert!(missing.insert(number(lost))));
        for _ in 0..3 {
            assert_eq!(report(&mut missing, 3), [(0, 3)]);
        }
    }
}
