//! Acknowledgements of other daemons' messages, in a living overlay.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crate::message::{DaemonId, GroupId};
use manyflow_core::time::Time;

/// The maximum time for which a message waits for its acknowledgement.
const WAIT: Duration = Duration::from_millis(200);
/// An acknowledgement is due when this many messages of an origin wait for it.
const MESSAGES: u32 = 256;
/// An acknowledgement is due when this many bytes of an origin wait for it.
const BYTES: u32 = 256_000;

/// The acknowledgements that are due to each origin, or will be.
#[derive(Debug, Default)]
pub(super) struct Receipts {
    origins: BTreeMap<DaemonId, Receipt>,
    timers: BTreeSet<(Time, DaemonId)>,
    /// Origins whose acknowledgements are due now.
    due: Vec<DaemonId>,
}

/// The messages of one origin that are not acknowledged.
#[derive(Debug, Default)]
struct Receipt {
    /// Groups whose messages have arrived since the last acknowledgement. Each is listed once.
    groups: Vec<GroupId>,
    messages: u32,
    bytes: u32,
    at: Option<Time>,
}

impl Receipts {
    /// Notes that messages of an origin to a group have arrived in order. `is_first` is whether
    /// they are the first of the group since its last acknowledgement.
    pub(super) fn add(
        &mut self,
        now: Time,
        origin: DaemonId,
        group: GroupId,
        is_first: bool,
        (messages, bytes): (u32, u32),
    ) {
        let receipt = self.origins.entry(origin).or_default();
        if is_first {
            receipt.groups.push(group);
        }
        receipt.messages = receipt.messages.saturating_add(messages);
        receipt.bytes = receipt.bytes.saturating_add(bytes);
        if receipt.at.is_none() {
            receipt.at = Some(now + WAIT);
            self.timers.insert((now + WAIT, origin));
        }
        if (receipt.messages >= MESSAGES || receipt.bytes >= BYTES) && !self.due.contains(&origin) {
            self.due.push(origin);
        }
    }

    /// Forgets an origin that begins a new incarnation.
    pub(super) fn forget(&mut self, origin: DaemonId) {
        if let Some(receipt) = self.origins.remove(&origin)
            && let Some(time) = receipt.at
        {
            self.timers.remove(&(time, origin));
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        while let Some(&(time, origin)) = self.timers.first()
            && time <= now
        {
            self.timers.pop_first();
            if let Some(receipt) = self.origins.get_mut(&origin) {
                receipt.at = None;
                self.due.push(origin);
            }
        }
    }

    /// Returns the next origin to acknowledge, and appends the groups to `groups`.
    pub(super) fn pop_due(&mut self, groups: &mut Vec<GroupId>) -> Option<DaemonId> {
        let origin = self.due.pop()?;
        let receipt = self.origins.entry(origin).or_default();
        if let Some(time) = receipt.at.take() {
            self.timers.remove(&(time, origin));
        }
        groups.append(&mut receipt.groups);
        (receipt.messages, receipt.bytes) = (0, 0);
        Some(origin)
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.timers.first().map(|(time, _)| *time)
    }

    /// Returns the number of origins to which an acknowledgement will be due.
    pub(super) fn state_size(&self) -> usize {
        self.timers.len()
    }
}
