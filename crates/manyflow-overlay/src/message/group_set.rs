//! The groups of a message.

use super::GroupId;

/// One to four groups that a message is for (section III of Cost-Benefit's paper). A link carries
/// its payload once for all of them.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct GroupSet {
    /// Places behind the last group have group 0.
    groups: [GroupId; GroupSet::MAX],
    count: u8,
}

impl GroupSet {
    /// The maximum number of groups.
    pub const MAX: usize = 4;

    /// Returns a set of these groups in this order; `None` if the list is empty, longer than
    /// [`MAX`](GroupSet::MAX), or has a group twice.
    pub fn of(groups: &[GroupId]) -> Option<GroupSet> {
        let (first, rest) = groups.split_first()?;
        rest.iter()
            .try_fold(GroupSet::from(*first), |set, group| set.with(*group))
    }

    /// Returns these groups and another one; `None` if there is no room, or it is there already.
    pub(crate) fn with(mut self, group: GroupId) -> Option<GroupSet> {
        if self.contains(group) {
            return None;
        }
        *self.groups.get_mut(usize::from(self.count))? = group;
        self.count += 1;
        Some(self)
    }

    /// Returns the first group.
    #[inline]
    pub fn first(&self) -> GroupId {
        self.groups[0]
    }

    /// Returns the groups, at least one.
    #[inline]
    pub fn as_slice(&self) -> &[GroupId] {
        &self.groups[..usize::from(self.count)]
    }

    /// Returns whether this is one of the groups.
    pub fn contains(&self, group: GroupId) -> bool {
        self.as_slice().contains(&group)
    }

    /// Returns the groups that are not in `other`, if there are any.
    pub(crate) fn without(&self, other: &GroupSet) -> Option<GroupSet> {
        let mut left = self.as_slice().iter();
        let first = left.by_ref().find(|group| !other.contains(**group))?;
        let mut set = GroupSet::from(*first);
        for group in left.filter(|group| !other.contains(**group)) {
            set = set.with(*group)?;
        }
        Some(set)
    }
}

impl From<GroupId> for GroupSet {
    #[inline]
    fn from(group: GroupId) -> GroupSet {
        let mut groups = [GroupId(0); GroupSet::MAX];
        groups[0] = group;
        GroupSet { groups, count: 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_one_to_four_different_groups() {
        let set = |groups: &[u32]| {
            let groups: Vec<_> = groups.iter().copied().map(GroupId).collect();
            GroupSet::of(&groups)
        };
        assert_eq!(set(&[]), None);
        assert_eq!(set(&[1, 2, 1]), None);
        assert_eq!(set(&[1, 2, 3, 4, 5]), None);
        let all = set(&[3, 1, 0]).unwrap();
        assert_eq!(all.as_slice(), [GroupId(3), GroupId(1), GroupId(0)]);
        assert_eq!(all.without(&set(&[1]).unwrap()), set(&[3, 0]));
        assert_eq!(all.without(&all), None);
        assert!(!set(&[1]).unwrap().contains(GroupId(0)));
    }
}
