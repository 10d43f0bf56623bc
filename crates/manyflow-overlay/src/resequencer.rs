//! Restores the order of one origin's numbered messages.

use std::collections::BTreeMap;

use super::sequence::Sequence;

/// Holds messages that arrive ahead of their turn, and releases them in the order of their numbers,
/// each number once. No message remains here unless a lower number is missing or the start of the
/// series is unknown.
#[derive(Clone, Debug)]
pub(super) struct Resequencer<N, T> {
    /// The number to release next; `None` until the receiver knows where its series starts.
    next: Option<N>,
    /// Messages that wait for lower numbers.
    early: BTreeMap<N, T>,
}

impl<N, T> Default for Resequencer<N, T> {
    fn default() -> Resequencer<N, T> {
        Resequencer {
            next: None,
            early: BTreeMap::new(),
        }
    }
}

impl<N: Sequence, T> Resequencer<N, T> {
    /// Returns an empty resequencer whose first number is `first`.
    pub(super) fn starting_at(first: N) -> Resequencer<N, T> {
        Resequencer {
            next: Some(first),
            ..Resequencer::default()
        }
    }

    /// Holds a message until its turn. Drops the message if its number was already released, is
    /// already held, or precedes the start of the series.
    pub(super) fn insert(&mut self, number: N, message: T) {
        if self.next.is_none_or(|next| number >= next) {
            self.early.entry(number).or_insert(message);
        }
        self.check();
    }

    /// Starts the series at `first`, unless it already starts there or later. Lower numbers will
    /// never be released.
    pub(super) fn start(&mut self, first: N) {
        if self.next.is_none_or(|next| next < first) {
            self.next = Some(first);
            self.early = self.early.split_off(&first);
        }
        self.check();
    }

    /// Returns the number to release next; `None` until the start of the series is known.
    pub(super) fn next(&self) -> Option<N> {
        self.next
    }

    /// Returns the number of held messages.
    pub(super) fn held(&self) -> usize {
        self.early.len()
    }

    /// Releases the next message in order, if it has arrived.
    pub(super) fn pop(&mut self) -> Option<T> {
        let next = self.next?;
        let message = self.early.remove(&next)?;
        self.next = Some(next.next());
        self.check();
        Some(message)
    }

    fn check(&self) {
        debug_assert!(
            self.next.is_none_or(|next| {
                let lowest = self.early.first_key_value();
                lowest.is_none_or(|(number, _)| *number >= next)
            }),
            "a message below the next number {:?} is held: it would never be released",
            self.next
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::OriginSeq;

    type Numbers = Resequencer<OriginSeq, u64>;

    fn insert(numbers: &mut Numbers, all: &[u64]) {
        all.iter()
            .for_each(|n| numbers.insert(OriginSeq::new(*n), *n));
    }

    fn drain(numbers: &mut Numbers) -> Vec<u64> {
        core::iter::from_fn(|| numbers.pop()).collect()
    }

    #[test]
    fn early_messages_wait_and_repeated_ones_are_dropped() {
        let mut numbers = Numbers::starting_at(OriginSeq::new(1));
        insert(&mut numbers, &[2, 3, 2, 5]);
        assert_eq!(drain(&mut numbers), [0u64; 0]);
        insert(&mut numbers, &[1]);
        assert_eq!(drain(&mut numbers), [1, 2, 3]);
        insert(&mut numbers, &[2, 4]);
        assert_eq!(drain(&mut numbers), [4, 5]);
    }

    #[test]
    fn nothing_is_released_before_the_start_is_known() {
        let mut numbers = Numbers::default();
        insert(&mut numbers, &[7, 9, 8]);
        assert_eq!(drain(&mut numbers), [0u64; 0]);
        numbers.start(OriginSeq::new(8));
        assert_eq!(drain(&mut numbers), [8, 9]);
        numbers.start(OriginSeq::new(3));
        insert(&mut numbers, &[10]);
        assert_eq!(drain(&mut numbers), [10]);
    }

    #[test]
    fn the_series_ends_at_the_highest_number_without_a_panic() {
        let highest = OriginSeq::MAX.number();
        let mut numbers = Numbers::starting_at(OriginSeq::new(highest));
        insert(&mut numbers, &[highest, 1]);
        assert_eq!(drain(&mut numbers), [highest]);
    }
}
