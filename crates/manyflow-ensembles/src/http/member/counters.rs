//! The counters of a member.

use std::sync::atomic::{AtomicU64, Ordering};

use super::super::NamedCounter;

/// Counters of a member.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberCounters {
    /// Requests and streams of gateways.
    pub requests: u64,
    /// Requests whose whole response was sent, and streams that both sides have closed.
    pub answered: u64,
    /// Requests and streams that were refused before the server saw them: too many, the server
    /// could not be reached, the member is draining, or they are for another member.
    pub refused: u64,
    /// Requests whose response the server did not complete, and streams that it has reset.
    pub failed: u64,
    /// Requests and streams that the gateway gave up, or whose connection ended.
    pub cancelled: u64,
    /// Requests to which the server gave no answer in time; they count as failed, too.
    pub late: u64,
    /// Messages about requests that the member does not know.
    pub unknown: u64,
    /// Messages that are not valid.
    pub malformed: u64,
    /// Requests and streams in progress now.
    pub in_progress: u64,
    /// Whether the server answered when it was last asked or checked.
    pub is_serving: bool,
}

/// The counters that only grow: name, help and value of each.
pub const MEMBER_COUNTERS: [NamedCounter<MemberCounters>; 8] = [
    ("requests", "Requests and streams of gateways.", |c| {
        c.requests
    }),
    (
        "answered",
        "Requests whose whole response was sent, and streams that both sides have closed.",
        |c| c.answered,
    ),
    (
        "refused",
        "Requests that the server has not seen: too many, or it could not be reached.",
        |c| c.refused,
    ),
    (
        "failed",
        "Requests whose response the server did not complete.",
        |c| c.failed,
    ),
    (
        "cancelled",
        "Requests that the gateway gave up, or whose connection ended.",
        |c| c.cancelled,
    ),
    (
        "late",
        "Requests to which the server gave no answer in time.",
        |c| c.late,
    ),
    (
        "unknown_messages",
        "Messages about requests that the member does not know.",
        |c| c.unknown,
    ),
    ("malformed_messages", "Messages that are not valid.", |c| {
        c.malformed
    }),
];

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) requests: AtomicU64,
    pub(super) answered: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) cancelled: AtomicU64,
    pub(super) late: AtomicU64,
    pub(super) unknown: AtomicU64,
    pub(super) malformed: AtomicU64,
    pub(super) in_progress: AtomicU64,
}

pub(super) fn add_one(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    /// Reads the counters. The caller adds the state of the server.
    pub(super) fn read(&self) -> MemberCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MemberCounters {
            requests: read(&self.requests),
            answered: read(&self.answered),
            refused: read(&self.refused),
            failed: read(&self.failed),
            cancelled: read(&self.cancelled),
            late: read(&self.late),
            unknown: read(&self.unknown),
            malformed: read(&self.malformed),
            in_progress: read(&self.in_progress),
            is_serving: false,
        }
    }
}
