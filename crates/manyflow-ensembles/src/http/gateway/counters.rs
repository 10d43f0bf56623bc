//! The counters of a gateway.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a gateway.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GatewayCounters {
    /// Requests of clients.
    pub requests: u64,
    /// Requests whose whole response has been received from a member.
    pub answered: u64,
    /// Attempts after the first, because a member had died or its server had failed.
    pub retried: u64,
    /// Attempts after the first, because a member had refused the request unseen.
    pub refused: u64,
    /// Attempts that ended because no member gave a sign of life in time.
    pub silent: u64,
    /// Requests answered with 502.
    pub failed: u64,
    /// Requests answered with 503: there was no connection, or too many requests.
    pub unavailable: u64,
    /// Responses that were aborted after the client had received their beginning.
    pub aborted: u64,
    /// Requests that clients gave up.
    pub cancelled: u64,
    /// Requests that the gateway refused itself: heads that are too long, CONNECT.
    pub rejected: u64,
    /// Messages of members that are not valid.
    pub malformed: u64,
    /// Messages about requests that have ended, or from another member than the response.
    pub foreign: u64,
    /// Connections to the switch that ended.
    pub connections_lost: u64,
}

macro_rules! counters {
    ($($name:ident),*) => {
        /// The counters, shared by all tasks.
        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $name: Counter,)*
        }

        impl Counters {
            pub(super) fn read(&self) -> GatewayCounters {
                GatewayCounters { $($name: self.$name.0.load(Ordering::Relaxed),)* }
            }
        }
    };
}
counters!(
    requests,
    answered,
    retried,
    refused,
    silent,
    failed,
    unavailable,
    aborted,
    cancelled,
    rejected,
    malformed,
    foreign,
    connections_lost
);

/// A counter.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
