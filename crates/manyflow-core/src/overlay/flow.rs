//! Numbered things of one origin, brought back into order.

use std::collections::BTreeMap;

/// What has come of a numbered series, and waits for what is missing before it. It holds nothing while nothing is missing.
#[derive(Clone, Debug)]
pub(super) struct Flow<T> {
    /// The next number; `None` until it is known where the series begins for us.
    next: Option<u32>,
    held: BTreeMap<u32, T>,
}

impl<T> Default for Flow<T> {
    fn default() -> Flow<T> {
        Flow {
            next: None,
            held: BTreeMap::new(),
        }
    }
}

impl<T> Flow<T> {
    /// A series that begins with this number.
    pub(super) fn from(first: u32) -> Flow<T> {
        Flow {
            next: Some(first),
            ..Flow::default()
        }
    }

    /// Takes one of the series; what was handed out already, or comes before the beginning, is dropped.
    pub(super) fn insert(&mut self, number: u32, thing: T) {
        if self.next.is_none_or(|next| number >= next) {
            self.held.entry(number).or_insert(thing);
        }
    }

    /// From this number on nothing is going to be missing: what is still missing below it never comes.
    pub(super) fn start(&mut self, first: u32) {
        if self.next.is_none_or(|next| next < first) {
            self.next = Some(first);
            self.held = self.held.split_off(&first);
        }
    }

    /// How many wait for what is missing.
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// The next one in order, if it has come.
    pub(super) fn pop(&mut self) -> Option<T> {
        let next = self.next?;
        let thing = self.held.remove(&next)?;
        self.next = Some(next.wrapping_add(1));
        Some(thing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(flow: &mut Flow<u32>) -> Vec<u32> {
        core::iter::from_fn(|| flow.pop()).collect()
    }

    #[test]
    fn what_comes_too_early_waits_and_what_comes_twice_is_dropped() {
        let mut flow = Flow::from(1);
        [2, 3, 2, 5].into_iter().for_each(|n| flow.insert(n, n));
        assert_eq!(drain(&mut flow), []);
        flow.insert(1, 1);
        assert_eq!(drain(&mut flow), [1, 2, 3]);
        flow.insert(2, 2);
        flow.insert(4, 4);
        assert_eq!(drain(&mut flow), [4, 5]);
    }

    #[test]
    fn nothing_comes_out_before_the_beginning_is_known() {
        let mut flow = Flow::default();
        [7, 9, 8].into_iter().for_each(|n| flow.insert(n, n));
        assert_eq!(drain(&mut flow), []);
        flow.start(8);
        assert_eq!(drain(&mut flow), [8, 9]);
        flow.start(3);
        flow.insert(10, 10);
        assert_eq!(drain(&mut flow), [10]);
    }

    #[test]
    fn the_last_number_is_no_end() {
        let mut flow = Flow::from(u32::MAX);
        [u32::MAX, 1].into_iter().for_each(|n| flow.insert(n, n));
        assert_eq!(drain(&mut flow), [u32::MAX]);
    }
}
