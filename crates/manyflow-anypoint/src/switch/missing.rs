//! Frames that a receiver misses, as acknowledgements report them.

use super::ring::before;
use crate::{Gap, NO_GAPS};

/// The gaps of one acknowledgement, filled from the lowest number on.
#[derive(Debug)]
pub(super) struct Gaps {
    cumulative: u32,
    list: [Gap; 3],
    used: usize,
}

impl Gaps {
    /// None yet, beside a cumulative number.
    pub(super) fn new(cumulative: u32) -> Gaps {
        Gaps {
            cumulative,
            list: NO_GAPS,
            used: 0,
        }
    }

    /// Adds a number above those added before; false where there is no room for it.
    pub(super) fn add(&mut self, number: u32) -> bool {
        let Ok(offset) = u16::try_from(number.wrapping_sub(self.cumulative)) else {
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

    pub(super) fn list(&self) -> [Gap; 3] {
        self.list
    }
}

/// The frames of one sender that are known to be missing.
///
/// An acknowledgement names three gaps at most, and a burst lost on one member's leg leaves many in the peer's numbers. So the
/// reports go round: each continues where the one before it ended.
#[derive(Debug, Default)]
pub(super) struct Missing {
    /// In order.
    numbers: Vec<u32>,
    /// The place to continue from.
    turn: usize,
}

impl Missing {
    pub(super) fn insert(&mut self, number: u32) {
        if let Err(place) = self.find(number) {
            self.numbers.insert(place, number);
        }
    }

    pub(super) fn remove(&mut self, number: u32) {
        if self.numbers.is_empty() {
            return;
        }
        if let Ok(place) = self.find(number) {
            self.numbers.remove(place);
        }
    }

    /// The next report begins with this number, if it is missing.
    pub(super) fn begin_with(&mut self, number: u32) {
        if let Ok(place) = self.find(number) {
            self.turn = place;
        }
    }

    /// Adds those whose turn it is.
    pub(super) fn report(&mut self, gaps: &mut Gaps) {
        if self.turn >= self.numbers.len() {
            self.turn = 0;
        }
        let due = self.numbers[self.turn..].iter();
        self.turn += due.take_while(|number| gaps.add(**number)).count();
    }

    fn find(&self, number: u32) -> Result<usize, usize> {
        let place = self.numbers.partition_point(|n| before(*n, number));
        match self.numbers.get(place) {
            Some(found) if *found == number => Ok(place),
            _ => Err(place),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(missing: &mut Missing, cumulative: u32) -> Vec<(u16, u16)> {
        let mut gaps = Gaps::new(cumulative);
        missing.report(&mut gaps);
        let used = gaps.list().into_iter().filter(|gap| gap.frames > 0);
        used.map(|gap| (gap.offset, gap.frames)).collect()
    }

    #[test]
    fn reports_go_round_and_merge_neighbours() {
        let mut missing = Missing::default();
        for number in [30, 10, 12, 11, 20, 40, 11] {
            missing.insert(number);
        }
        assert_eq!(report(&mut missing, 10), [(0, 3), (10, 1), (20, 1)]);
        assert_eq!(report(&mut missing, 10), [(30, 1)]);
        missing.remove(10);
        missing.remove(99);
        assert_eq!(report(&mut missing, 11), [(0, 2), (9, 1), (19, 1)]);
    }
}
