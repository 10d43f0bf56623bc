//! The counters of a gateway.

use std::sync::atomic::{AtomicU64, Ordering};

use super::super::NamedCounter;

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
    /// Requests of which another member got a second copy, because the first was silent or its
    /// server slow.
    pub hedged: u64,
    /// Times that the server behind a member was given no requests for a while, because it failed.
    pub ejected: u64,
    /// Streams of clients.
    pub streams: u64,
    /// Streams that were reset by the server, or because the member has died.
    pub streams_reset: u64,
    /// Attempts that ended because no member gave a sign of life in time.
    pub silent: u64,
    /// Requests answered with 502 or 504, and streams for which no server was found.
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

/// The counters of a gateway: name, help and value of each.
pub const GATEWAY_COUNTERS: [NamedCounter<GatewayCounters>; 17] = [
    ("requests", "Requests of clients.", |c| c.requests),
    (
        "answered",
        "Requests whose whole response came from a member.",
        |c| c.answered,
    ),
    (
        "retried",
        "Requests sent again because a member had died or its server had failed.",
        |c| c.retried,
    ),
    (
        "refused",
        "Requests sent again because a member had refused them unseen.",
        |c| c.refused,
    ),
    (
        "hedged",
        "Requests of which a second member got a copy.",
        |c| c.hedged,
    ),
    (
        "ejected",
        "Times that a server got no requests for a while.",
        |c| c.ejected,
    ),
    ("streams", "Streams of clients.", |c| c.streams),
    (
        "streams_reset",
        "Streams that the server or the death of a member has ended.",
        |c| c.streams_reset,
    ),
    (
        "silent",
        "Attempts that ended without a sign of life.",
        |c| c.silent,
    ),
    (
        "failed",
        "Requests answered with 502 or 504, and streams without a server.",
        |c| c.failed,
    ),
    (
        "unavailable",
        "Requests answered with 503: no connection, or too many requests.",
        |c| c.unavailable,
    ),
    (
        "aborted",
        "Responses that were aborted after their beginning.",
        |c| c.aborted,
    ),
    ("cancelled", "Requests that clients gave up.", |c| {
        c.cancelled
    }),
    (
        "rejected",
        "Requests with a head that is too long, and CONNECT.",
        |c| c.rejected,
    ),
    (
        "malformed_messages",
        "Messages of members that are not valid.",
        |c| c.malformed,
    ),
    (
        "foreign_messages",
        "Messages about requests that have ended, or of another member than the response.",
        |c| c.foreign,
    ),
    (
        "connections_lost",
        "Connections to a switch that ended.",
        |c| c.connections_lost,
    ),
];

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
    hedged,
    ejected,
    streams,
    streams_reset,
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
