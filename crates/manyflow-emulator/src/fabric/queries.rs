//! The general queries of the routers beside hosts, and the times at which memberships end (RFC
//! 3376 section 8, RFC 3810 section 9).

use std::time::Duration;

use manyflow_amt::Family;
use manyflow_amt::membership::{DEFAULT_QUERY_INTERVAL, DEFAULT_ROBUSTNESS, GeneralQuery};
use manyflow_core::Time;

/// The time after which a membership without a report ends: the robustness variable times the query
/// interval, and the query response interval of 10 s (RFC 3376 section 8.4, RFC 3810 section 9.4).
pub(super) const MEMBERSHIP_INTERVAL: Duration = Duration::from_secs(260);

/// The queries to all hosts, which are sent at the same time.
pub(super) struct Queries {
    next: Time,
    packets: [Vec<u8>; 2],
}

impl Queries {
    /// Returns the queries of a network whose clock is zero. The first are due at once.
    pub(super) fn new() -> Queries {
        let encode = |family| {
            let mut packet = Vec::new();
            GeneralQuery {
                family,
                robustness: DEFAULT_ROBUSTNESS,
                query_interval: DEFAULT_QUERY_INTERVAL,
            }
            .encode(&mut packet);
            packet
        };
        Queries {
            next: Time::ZERO,
            packets: [Family::V4, Family::V6].map(encode),
        }
    }

    /// Returns the time of the next queries.
    pub(super) fn next(&self) -> Time {
        self.next
    }

    /// Returns the IGMPv3 and the MLDv2 query if they are due.
    pub(super) fn take(&mut self, now: Time) -> Option<&[Vec<u8>; 2]> {
        if now < self.next {
            return None;
        }
        self.next = now + DEFAULT_QUERY_INTERVAL;
        debug_assert!(DEFAULT_QUERY_INTERVAL < MEMBERSHIP_INTERVAL);
        Some(&self.packets)
    }
}
