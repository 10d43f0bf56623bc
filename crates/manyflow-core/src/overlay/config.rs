//! What an overlay is like: the same at all its daemons.

use core::time::Duration;
use std::collections::BTreeMap;

use super::message::GroupId;
use crate::config_error::ConfigError;
use crate::tcp::TcpConfig;

/// The parameters of an overlay's daemons.
#[derive(Clone, Debug, PartialEq)]
pub struct OverlayConfig {
    /// What its links are made of.
    pub links: LinkKind,
    /// Messages that wait for a link before the daemon stops reading from others, at least 1. Clients are held up long before, if a
    /// controller does its work.
    pub queue_messages: usize,
    /// Messages that wait for a client before it counts as slow, at least 1.
    pub client_messages: usize,
    /// What is done about slow members.
    pub slow: SlowPolicy,
    /// And for these groups instead.
    pub slow_groups: BTreeMap<GroupId, SlowPolicy>,
}

/// What an overlay's links are made of.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkKind {
    /// TCP, in the simulator our simulated one.
    Streams(TcpConfig),
    /// Datagrams, repaired link by link where they are missing.
    Datagrams,
}

/// What is done about a member that reads more slowly than its group's messages come.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum SlowPolicy {
    /// The group's senders wait for it: nothing is lost, and the slowest member sets the pace. The default, because the overlay's
    /// promise is that every member gets every message.
    #[default]
    Block,
    /// It misses what it has no room for.
    Drop,
    /// Its senders wait for it. Where it has not caught up so long after they first did, it is no longer a member.
    Evict(Duration),
}

/// What was done about a slow member.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its group's senders wait.
    Blocked,
    /// It has read enough: they go on.
    Resumed,
    /// It missed a message.
    Dropped,
    /// It is no longer a member.
    Evicted,
}

impl Default for OverlayConfig {
    fn default() -> OverlayConfig {
        OverlayConfig {
            links: LinkKind::Streams(TcpConfig::default()),
            queue_messages: 1000,
            client_messages: 256,
            slow: SlowPolicy::default(),
            slow_groups: BTreeMap::new(),
        }
    }
}

impl OverlayConfig {
    /// # Errors
    /// Where a parameter is outside its range.
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

    /// What is done about slow members of a group.
    pub fn slow_policy(&self, group: GroupId) -> SlowPolicy {
        self.slow_groups.get(&group).copied().unwrap_or(self.slow)
    }
}
