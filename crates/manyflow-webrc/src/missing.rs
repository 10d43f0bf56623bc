//! The missing numbers of a channel, in a ring of bits.
//!
//! A gap of a slow channel fits into one word. A channel of a fast session can lose thousands of
//! packets in some milliseconds, so its ring has 4096 bits. Both sizes are fixed when the
//! channel is joined: no packet makes a ring grow.

/// The number of bits of a small ring.
const FEW_BITS: u64 = 64;
/// The number of bits of a large ring, which takes 512 bytes.
const MANY_BITS: u64 = 4096;
/// The numbers for which a small ring is made. The packet that shows a gap takes one bit, too.
pub(super) const FEW: u64 = FEW_BITS;
/// The numbers for which a large ring is made. The rest is for packets that are due, and pending
/// before them.
pub(super) const MANY: u64 = MANY_BITS - FEW_BITS;

/// The numbers before the expected one that are missing, and not yet given up. A number's place is
/// its distance back from the last number.
#[derive(Clone, Debug)]
pub(super) enum Missing {
    /// Bit k: the number at k.
    Few(u64),
    Many(Box<Ring>),
}

/// The bits of a channel that sends fast.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    words: [u64; (MANY_BITS / 64) as usize],
    /// The index of the bit of the last number.
    newest: u16,
}

impl Missing {
    /// Makes a ring for gaps of `longest` numbers, or of [`MANY`] if that is less.
    pub(super) fn new(longest: u64) -> Missing {
        match longest <= FEW {
            true => Missing::Few(0),
            false => Missing::Many(Box::new(Ring {
                words: [0; (MANY_BITS / 64) as usize],
                newest: 0,
            })),
        }
    }

    /// Returns the number of bits.
    fn window(&self) -> u64 {
        match self {
            Missing::Few(_) => FEW_BITS,
            Missing::Many(_) => MANY_BITS,
        }
    }

    /// Whether no number is missing.
    pub(super) fn is_empty(&self) -> bool {
        self.words().iter().all(|word| *word == 0)
    }

    /// Returns the count of missing numbers.
    pub(super) fn count(&self) -> u64 {
        let ones = self.words().iter().map(|word| u64::from(word.count_ones()));
        ones.sum()
    }

    /// Moves on by one number, which is missing or not. Returns whether a missing number fell out
    /// of the ring.
    pub(super) fn push(&mut self, is_missing: bool) -> bool {
        match self {
            Missing::Few(word) => {
                let fell_out = *word >> (FEW_BITS - 1) != 0;
                *word = *word << 1 | u64::from(is_missing);
                fell_out
            }
            Missing::Many(ring) => ring.push(is_missing),
        }
    }

    /// Moves on by `gap` missing numbers. Returns the count of missing numbers that do not fit into
    /// the ring. One place remains free for the packet that showed the gap.
    pub(super) fn push_gap(&mut self, gap: u64) -> u64 {
        let pending = gap.min(self.window() - 1);
        let skipped = gap - pending;
        // A gap that exceeds the ring pushes out all numbers before it.
        let mut fallen = if skipped > 0 { self.clear() } else { 0 };
        for _ in 0..pending {
            fallen += u64::from(self.push(true));
        }
        fallen + skipped
    }

    /// Takes the number at `back` out. Returns whether it was missing.
    pub(super) fn take(&mut self, back: u64) -> bool {
        if back >= self.window() {
            return false;
        }
        let (word, bit) = match self {
            Missing::Few(word) => (word, 1 << back),
            Missing::Many(ring) => ring.place(back),
        };
        let was_missing = *word & bit != 0;
        *word &= !bit;
        was_missing
    }

    /// Takes all numbers out except the last `kept`. Returns the count of those that were missing.
    pub(super) fn keep_last(&mut self, kept: u64) -> u64 {
        match self {
            Missing::Few(word) => {
                let outside = u64::MAX.checked_shl(kept.min(FEW_BITS) as u32).unwrap_or(0);
                let taken = *word & outside;
                *word &= !outside;
                taken.count_ones().into()
            }
            Missing::Many(ring) => ring.keep_last(kept),
        }
    }

    /// Takes all numbers out. Returns the count of those that were missing.
    pub(super) fn clear(&mut self) -> u64 {
        let count = self.count();
        match self {
            Missing::Few(word) => *word = 0,
            Missing::Many(ring) => ring.words.fill(0),
        }
        count
    }

    fn words(&self) -> &[u64] {
        match self {
            Missing::Few(word) => std::slice::from_ref(word),
            Missing::Many(ring) => &ring.words,
        }
    }
}

impl Ring {
    fn push(&mut self, is_missing: bool) -> bool {
        self.newest = ((u64::from(self.newest) + 1) % MANY_BITS) as u16;
        let (word, bit) = self.place(0);
        let fell_out = *word & bit != 0;
        *word = *word & !bit | if is_missing { bit } else { 0 };
        fell_out
    }

    /// Returns the word of the number at `back`, and the bit in its word.
    fn place(&mut self, back: u64) -> (&mut u64, u64) {
        let index = (u64::from(self.newest) + MANY_BITS - back) % MANY_BITS;
        (&mut self.words[(index / 64) as usize], 1 << (index % 64))
    }

    fn keep_last(&mut self, kept: u64) -> u64 {
        let newest = u64::from(self.newest);
        let mut taken = 0;
        for (place, word) in self.words.iter_mut().enumerate() {
            let mut left = *word;
            while left != 0 {
                let bit = left & left.wrapping_neg();
                left &= !bit;
                let index = place as u64 * 64 + u64::from(bit.trailing_zeros());
                if (newest + MANY_BITS - index) % MANY_BITS >= kept {
                    *word &= !bit;
                    taken += 1;
                }
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// A ring does what a queue of booleans does that has its length.
        #[test]
        fn a_ring_is_a_queue_of_its_window(
            few: bool,
            steps in prop::collection::vec((0..5u8, 0..6_000u64), 1..200),
        ) {
            let mut ring = Missing::new(if few { FEW } else { FEW + 1 });
            let window = ring.window();
            prop_assert_eq!(window, if few { FEW_BITS } else { MANY_BITS });
            let mut queue = VecDeque::from(vec![false; window as usize]);
            let push = |queue: &mut VecDeque<bool>, missing| {
                queue.push_front(missing);
                queue.pop_back() == Some(true)
            };
            for (step, number) in steps {
                match step {
                    0 => prop_assert_eq!(ring.push(true), push(&mut queue, true)),
                    1 => prop_assert_eq!(ring.push(false), push(&mut queue, false)),
                    2 => {
                        let fallen = (0..number).filter(|_| push(&mut queue, true)).count() as u64;
                        // The ring leaves one place free.
                        let full = number >= window && std::mem::take(&mut queue[window as usize - 1]);
                        prop_assert_eq!(ring.push_gap(number), fallen + u64::from(full));
                    }
                    3 => {
                        let entry = queue.get_mut(number as usize);
                        prop_assert_eq!(ring.take(number), entry.is_some_and(std::mem::take));
                    }
                    _ => {
                        let mut taken = 0;
                        queue.iter_mut().skip(number as usize).for_each(|missing| taken += u64::from(std::mem::take(missing)));
                        prop_assert_eq!(ring.keep_last(number), taken);
                    }
                }
                let count = queue.iter().filter(|missing| **missing).count();
                prop_assert_eq!(ring.count(), count as u64);
                prop_assert_eq!(ring.is_empty(), count == 0);
            }
            let count = ring.count();
            prop_assert_eq!(ring.clear(), count);
            prop_assert!(ring.is_empty());
        }
    }
}
