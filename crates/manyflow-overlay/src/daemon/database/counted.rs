//! A map by daemon that keeps the sums over its values.

use core::ops::{Deref, DerefMut};
use std::collections::BTreeMap;

use crate::message::DaemonId;

/// The size of a value.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    /// The number of changes that wait for earlier ones or for their signature.
    pub(super) changes: usize,
    /// The bytes of groups.
    pub(super) bytes: usize,
}

/// A value whose size is summed.
pub(super) trait Measured {
    fn size(&self) -> Size;
}

/// Values by daemon, and the sum of their sizes. The sum is needed for each change that arrives,
/// and there may be a thousand daemons.
#[derive(Debug)]
pub(super) struct Counted<T> {
    values: BTreeMap<DaemonId, T>,
    total: Size,
}

impl<T: Measured> Counted<T> {
    pub(super) fn new() -> Counted<T> {
        Counted {
            values: BTreeMap::new(),
            total: Size::default(),
        }
    }

    /// Returns the sum of the sizes.
    pub(super) fn total(&self) -> Size {
        self.total
    }

    /// Returns the size of a daemon's value, which is zero for a daemon without one.
    pub(super) fn size_of(&self, daemon: DaemonId) -> Size {
        self.values.get(&daemon).map(T::size).unwrap_or_default()
    }

    pub(super) fn insert(&mut self, daemon: DaemonId, value: T) {
        self.remove(daemon);
        self.total.add(value.size());
        self.values.insert(daemon, value);
    }

    /// Removes a daemon's value. Returns whether there was one.
    pub(super) fn remove(&mut self, daemon: DaemonId) -> bool {
        let removed = self.values.remove(&daemon);
        if let Some(value) = &removed {
            self.total.subtract(value.size());
        }
        removed.is_some()
    }

    /// Returns a daemon's value. The sum follows when the guard is dropped.
    pub(super) fn get_mut(&mut self, daemon: DaemonId) -> Option<Guard<'_, T>> {
        let value = self.values.get_mut(&daemon)?;
        Some(Guard::new(value, &mut self.total))
    }

    /// Returns a daemon's value. For a daemon without one, `value` makes it.
    pub(super) fn get_or_insert(
        &mut self,
        daemon: DaemonId,
        value: impl FnOnce() -> T,
    ) -> Guard<'_, T> {
        if !self.values.contains_key(&daemon) {
            self.insert(daemon, value());
        }
        let value = self.values.get_mut(&daemon).expect("it was just inserted");
        Guard::new(value, &mut self.total)
    }

    /// Calls `change` with each value. Keeps those for which it returns `true`.
    pub(super) fn retain(&mut self, mut change: impl FnMut(DaemonId, &mut T) -> bool) {
        let mut total = Size::default();
        self.values.retain(|daemon, value| {
            let is_kept = change(*daemon, value);
            if is_kept {
                total.add(value.size());
            }
            is_kept
        });
        self.total = total;
    }
}

impl<T> Deref for Counted<T> {
    type Target = BTreeMap<DaemonId, T>;

    fn deref(&self) -> &BTreeMap<DaemonId, T> {
        &self.values
    }
}

impl Size {
    fn add(&mut self, other: Size) {
        self.changes += other.changes;
        self.bytes += other.bytes;
    }

    fn subtract(&mut self, other: Size) {
        self.changes -= other.changes;
        self.bytes -= other.bytes;
    }
}

/// A value that may change. Its size is counted again when the guard is dropped.
pub(super) struct Guard<'a, T: Measured> {
    value: &'a mut T,
    total: &'a mut Size,
}

impl<'a, T: Measured> Guard<'a, T> {
    fn new(value: &'a mut T, total: &'a mut Size) -> Guard<'a, T> {
        total.subtract(value.size());
        Guard { value, total }
    }
}

impl<T: Measured> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value
    }
}

impl<T: Measured> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value
    }
}

impl<T: Measured> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.total.add(self.value.size());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Measured for usize {
        fn size(&self) -> Size {
            Size {
                changes: *self,
                bytes: 10 * *self,
            }
        }
    }

    #[test]
    fn the_sum_follows_every_change() {
        let ids = [1, 2, 3].map(DaemonId);
        let mut counted = Counted::<usize>::new();
        let sum = |counted: &Counted<usize>, changes: usize| {
            let bytes = 10 * changes;
            assert_eq!(counted.total(), Size { changes, bytes });
        };
        counted.insert(ids[0], 1);
        counted.insert(ids[1], 20);
        sum(&counted, 21);
        counted.insert(ids[1], 10);
        sum(&counted, 11);
        *counted.get_mut(ids[0]).unwrap() += 4;
        *counted.get_or_insert(ids[2], || 100) += 100;
        *counted.get_or_insert(ids[2], || 100) += 100;
        sum(&counted, 315);
        counted.retain(|daemon, value| {
            *value += 1;
            daemon != ids[1]
        });
        sum(&counted, 307);
        assert_eq!(counted.size_of(ids[0]).changes, 6);
        assert!(counted.remove(ids[0]) && !counted.remove(ids[0]));
        sum(&counted, 301);
    }
}
