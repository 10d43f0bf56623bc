//! Who is a member of which group, as a daemon has heard it.

use std::collections::BTreeMap;

use super::message::{DaemonId, GroupId};

/// Each group's members, by their daemons. It does not grow with senders.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    /// Members at each daemon that has any.
    members: BTreeMap<GroupId, BTreeMap<DaemonId, u32>>,
}

impl Groups {
    /// A client at a daemon joins; returns whether it is the daemon's first member.
    pub fn join(&mut self, group: GroupId, at: DaemonId) -> bool {
        let count = self
            .members
            .entry(group)
            .or_default()
            .entry(at)
            .or_default();
        *count += 1;
        *count == 1
    }

    /// A client at a daemon leaves; returns whether it was the daemon's last member.
    pub fn leave(&mut self, group: GroupId, at: DaemonId) -> bool {
        let Some(daemons) = self.members.get_mut(&group) else {
            return false;
        };
        let Some(count) = daemons.get_mut(&at) else {
            return false;
        };
        *count -= 1;
        if *count > 0 {
            return false;
        }
        daemons.remove(&at);
        if daemons.is_empty() {
            self.members.remove(&group);
        }
        true
    }

    /// The daemons with members of a group, in order.
    pub fn daemons(&self, group: GroupId) -> impl Iterator<Item = DaemonId> {
        self.members
            .get(&group)
            .into_iter()
            .flat_map(|daemons| daemons.keys().copied())
    }

    /// Whether a daemon has a member.
    pub fn has_member_at(&self, group: GroupId, daemon: DaemonId) -> bool {
        self.members
            .get(&group)
            .is_some_and(|daemons| daemons.contains_key(&daemon))
    }

    /// A group's members, anywhere.
    pub fn members(&self, group: GroupId) -> u32 {
        self.members
            .get(&group)
            .map_or(0, |daemons| daemons.values().sum())
    }
}
