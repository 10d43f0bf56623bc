//! The configuration of an overlay's daemons.

use core::time::Duration;
use std::collections::BTreeMap;

use super::message::GroupId;
use manyflow_core::ConfigError;

/// The parameters of an overlay's daemons. All daemons of an overlay use the same parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct OverlayConfig {
    /// The number of clients' messages in a link's queue that counts as full; at least one. While a
    /// queue is full, the daemon does not read its other links. A working controller delays clients
    /// long before that.
    pub queue_messages: usize,
    /// The number of messages that wait for a client when the client counts as slow, at least 1.
    pub client_messages: usize,
    /// The policy for slow members of every group that is not in
    /// [`slow_groups`](OverlayConfig::slow_groups).
    pub slow: SlowPolicy,
    /// The policies for slow members of particular groups.
    pub slow_groups: BTreeMap<GroupId, SlowPolicy>,
    /// The time for which the members of a daemon that can not be reached still count: their
    /// messages are kept. In a living overlay.
    pub hold: Duration,
    /// The number of bytes of unacknowledged messages at which clients must wait, at least one. In
    /// a living overlay.
    pub retain_bytes: usize,
    /// The maximum number of daemons that a daemon knows, at least 2. In a living overlay.
    pub daemons_max: usize,
    /// The maximum number of links that count of any daemon, at least 1. In a living overlay.
    pub neighbours_max: usize,
    /// The number of bytes that groups with members at any daemon may take, names included. In a
    /// living overlay.
    ///
    /// No daemon may take more than a quarter: it accepts no more groups of its own clients, and
    /// loses the link to a neighbour that announces more. Other daemons together take at most three
    /// quarters, and each of them at most half of what the others leave. So there is always room
    /// for another group of any daemon.
    pub state_bytes: usize,
    /// The number by which the incarnation of another daemon may be ahead of this daemon's own one
    /// plus the seconds since it started. Later ones are not believed: nobody could outbid a daemon
    /// that announced the highest one. A day suits incarnations that are times in seconds;
    /// `u32::MAX` believes all of them. In a living overlay.
    pub incarnation_ahead_max: u32,
}

/// A daemon's policy for a member that reads more slowly than its group's messages arrive.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SlowPolicy {
    /// The group's senders wait for the member. No message is lost, and the slowest member sets the
    /// pace. This is the default, because the overlay delivers every message to every member.
    #[default]
    Block,
    /// The member misses the messages that it has no room for.
    Drop,
    /// The group's senders wait for the member. A member that has not caught up this long after the
    /// senders first waited is evicted from the group.
    Evict(Duration),
    /// The group's senders wait for the member. A member that takes no message for this long
    /// meanwhile is evicted from the group, and so is one for which they wait six times as long
    /// without a break. One that reads slowly remains if it reads half of its buffer in that time.
    EvictStalled(Duration),
}

/// A daemon's action on a slow member.
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
            hold: Duration::from_secs(5),
            retain_bytes: 64_000_000,
            daemons_max: 1024,
            neighbours_max: 64,
            state_bytes: 256_000_000,
            incarnation_ahead_max: 86_400,
        }
    }
}

impl OverlayConfig {
    /// Returns the number of bytes that the groups of one daemon may take.
    pub fn share_bytes(&self) -> usize {
        self.state_bytes / 4
    }

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
            (
                "the bytes of kept messages",
                "at least one",
                self.retain_bytes >= 1,
            ),
            (
                "the number of daemons",
                "2 to 65,534",
                (2..65_535).contains(&self.daemons_max),
            ),
            (
                "the number of a daemon's links",
                "1 to 65,534",
                (1..65_535).contains(&self.neighbours_max),
            ),
        ])
    }

    /// Returns the policy for slow members of a group.
    pub fn slow_policy(&self, group: GroupId) -> SlowPolicy {
        self.slow_groups.get(&group).copied().unwrap_or(self.slow)
    }
}
