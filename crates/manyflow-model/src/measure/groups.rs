//! The changes of a receiver's groups (section IV-A of SIM's paper).

use manyflow_core::Time;

/// The groups that a receiver has joined, and how often their number changes.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    joined: i32,
    /// The time of the last change.
    changed: Time,
    /// The number of joined groups before that change.
    before: i32,
    /// The number of changes in the current interval, without the one at `changed`.
    changes: u32,
}

impl Groups {
    /// Joins as many groups as `by`, or leaves them if it is negative. Time never goes back.
    pub fn step(&mut self, now: Time, by: i32) {
        if now != self.changed {
            self.settle();
            self.changed = now;
        }
        self.joined += by;
    }

    /// Counts the change at the last instant: one change, for any number of groups. Joining the
    /// first group and leaving the last are changes as well.
    fn settle(&mut self) {
        if self.joined != self.before {
            self.changes += 1;
        }
        self.before = self.joined;
    }

    /// Returns the number of changes since the last call.
    pub fn take_changes(&mut self) -> u32 {
        self.settle();
        std::mem::take(&mut self.changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Time {
        Time::from_nanos(s * 1_000_000_000)
    }

    #[test]
    fn all_steps_at_one_instant_count_as_one_change() {
        let mut groups = Groups::default();
        let mut changes = |steps: &[(u64, i32)]| {
            for &(s, by) in steps {
                groups.step(at(s), by);
            }
            groups.take_changes()
        };
        assert_eq!(changes(&[(1, 1)]), 1);
        assert_eq!(changes(&[(2, 1), (3, 1), (4, -1), (4, -1)]), 3);
        // A join and a leave at the same instant cancel out.
        assert_eq!(changes(&[(5, 1), (5, -1)]), 0);
        // A receiver without a group is still a member.
        assert_eq!(changes(&[(6, -1), (7, 1)]), 2);
        assert_eq!(changes(&[(9, -1)]), 1);
    }
}
