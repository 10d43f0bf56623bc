//! The configuration of an overlay's daemons.

use core::time::Duration;
use std::collections::BTreeMap;

use super::message::GroupId;
use manyflow_core::ConfigError;

/// The parameters of an overlay's daemons, the same for all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct OverlayConfig {
    /// How many clients' messages wait for a link when the daemon stops reading other links, at
    /// least
    /// 1. A working controller delays clients long before.
    pub queue_messages: usize,
    /// How many messages wait for a client when it counts as slow, at least 1.
    pub client_messages: usize,
    /// What the daemons do about slow members.
    pub slow: SlowPolicy,
    /// What they do about slow members of these groups, instead of [`slow`](OverlayConfig::slow).
    pub slow_groups: BTreeMap<GroupId, SlowPolicy>,
}

/// What a daemon does about a member that reads more slowly than its group's messages arrive.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum SlowPolicy {
    /// The group's senders wait for the member: no message is lost, and the slowest member sets the
    /// pace. This is the default, because the overlay promises every message to every member.
    #[default]
    Block,
    /// The member misses the messages that it has no room for.
    Drop,
    /// The group's senders wait for the member. If it has not caught up this long after they first
    /// did, it is evicted from the group.
    Evict(Duration),
}

/// What a daemon has done about a slow member.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The group's senders wait for the member.
    Blocked,
    /// The member has read enough, and the group's senders no longer wait for it.
    Resumed,
    /// The member missed a message.
    Dropped,
    /// The member was evicted from the group.
    Evicted,
}

impl Default for OverlayConfig {
    fn default() -> OverlayConfig {
        OverlayConfig {
            queue_messages: 1000,
            client_messages: 256,
            slow: SlowPolicy::default(),
            slow_groups: BTreeMap::new(),
        }
    }
}

impl OverlayConfig {
    /// Checks the parameters' ranges.
    ///
    /// # Errors
    /// Returns an error if a parameter is outside its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        ConfigError::first_of([
            (
                "a link's queue",
                "at least one message",
                self.queue_messages >= 1,
            ),
            (
                "a client's buffer",
                "at least one message",
                self.client_messages >= 1,
            ),
        ])
    }

    /// What the daemons do about slow members of a group.
    pub fn slow_policy(&self, group: GroupId) -> SlowPolicy {
        self.slow_groups.get(&group).copied().unwrap_or(self.slow)
    }
}
