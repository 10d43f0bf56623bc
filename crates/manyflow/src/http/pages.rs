//! The metrics of members and gateways.

use std::fmt;

use manyflow_ensembles::http::{GatewayCounters, GatewayStatus, MemberCounters};

use crate::metrics::{Metrics, Reported};

/// A counter: its name, its help, and its value.
type Counter<T> = (&'static str, &'static str, fn(&T) -> u64);

const GATEWAY_COUNTERS: [Counter<GatewayCounters>; 13] = [
    ("requests", "Requests of clients.", |counters| {
        counters.requests
    }),
    (
        "answered",
        "Requests whose whole response came from a member.",
        |counters| counters.answered,
    ),
    (
        "retried",
        "Requests sent again because a member had died or its server had failed.",
        |counters| counters.retried,
    ),
    (
        "refused",
        "Requests sent again because a member had refused them unseen.",
        |counters| counters.refused,
    ),
    (
        "silent",
        "Attempts that ended without a sign of life.",
        |counters| counters.silent,
    ),
    ("failed", "Requests answered with 502.", |counters| {
        counters.failed
    }),
    (
        "unavailable",
        "Requests answered with 503: no connection, or too many requests.",
        |counters| counters.unavailable,
    ),
    (
        "aborted",
        "Responses that were aborted after their beginning.",
        |counters| counters.aborted,
    ),
    ("cancelled", "Requests that clients gave up.", |counters| {
        counters.cancelled
    }),
    (
        "rejected",
        "Requests with a head that is too long, and CONNECT.",
        |counters| counters.rejected,
    ),
    (
        "malformed_messages",
        "Messages of members that are not valid.",
        |counters| counters.malformed,
    ),
    (
        "foreign_messages",
        "Messages about requests that have ended, or of another member than the response.",
        |counters| counters.foreign,
    ),
    (
        "connections_lost",
        "Connections to the switch that ended.",
        |counters| counters.connections_lost,
    ),
];

impl Reported for GatewayStatus {
    const PREFIX: &str = "manyflow_gateway";

    fn report(out: &mut Metrics<'_, Self>) -> fmt::Result {
        for (name, help, value) in GATEWAY_COUNTERS {
            out.counter(name, help, |status| value(&status.counters))?;
        }
        out.gauge(
            "connected",
            "Whether there is a connection to the switch.",
            |status| Some(u64::from(status.is_connected)),
        )?;
        out.gauge("requests_in_progress", IN_PROGRESS, |status| {
            Some(status.requests as u64)
        })?;
        out.gauge("clients", "Connections of clients.", |status| {
            Some(status.clients as u64)
        })
    }
}

const IN_PROGRESS: &str = "Requests in progress.";

const MEMBER_COUNTERS: [Counter<MemberCounters>; 7] = [
    ("requests", "Requests of gateways.", |counters| {
        counters.requests
    }),
    (
        "answered",
        "Requests whose whole response was sent.",
        |counters| counters.answered,
    ),
    (
        "refused",
        "Requests that the server has not seen: too many, or it could not be reached.",
        |counters| counters.refused,
    ),
    (
        "failed",
        "Requests whose response the server did not complete.",
        |counters| counters.failed,
    ),
    (
        "cancelled",
        "Requests that the gateway gave up, or whose connection ended.",
        |counters| counters.cancelled,
    ),
    (
        "unknown_messages",
        "Messages about requests that the member does not know.",
        |counters| counters.unknown,
    ),
    (
        "malformed_messages",
        "Messages that are not valid.",
        |counters| counters.malformed,
    ),
];

impl Reported for MemberCounters {
    const PREFIX: &str = "manyflow_member";

    fn report(out: &mut Metrics<'_, Self>) -> fmt::Result {
        for (name, help, value) in MEMBER_COUNTERS {
            out.counter(name, help, value)?;
        }
        out.gauge("requests_in_progress", IN_PROGRESS, |counters| {
            Some(counters.in_progress)
        })
    }
}
