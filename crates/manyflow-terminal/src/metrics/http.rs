//! The metrics of members and gateways.

use std::fmt;

use manyflow_ensembles::http::{GATEWAY_COUNTERS, GatewayStatus, MEMBER_COUNTERS, MemberCounters};

use super::{Metrics, Reported};

const IN_PROGRESS: &str = "Requests and streams in progress.";

impl Reported for GatewayStatus {
    const PREFIX: &str = "manyflow_gateway";

    fn report(out: &mut Metrics<'_, Self>) -> fmt::Result {
        for (name, help, value) in GATEWAY_COUNTERS {
            out.counter(name, help, |status| value(&status.counters))?;
        }
        out.gauge(
            "connected",
            "Whether there is a connection to a switch.",
            |status| Some(u64::from(status.is_connected)),
        )?;
        out.gauge(
            "members",
            "Members whose servers answer, behind the switch in use.",
            |status| Some(status.members as u64),
        )?;
        out.gauge("requests_in_progress", IN_PROGRESS, |status| {
            Some(status.requests as u64)
        })?;
        out.gauge("clients", "Connections of clients.", |status| {
            Some(status.clients as u64)
        })
    }
}

impl Reported for MemberCounters {
    const PREFIX: &str = "manyflow_member";

    fn report(out: &mut Metrics<'_, Self>) -> fmt::Result {
        for (name, help, value) in MEMBER_COUNTERS {
            out.counter(name, help, value)?;
        }
        out.gauge("requests_in_progress", IN_PROGRESS, |counters| {
            Some(counters.in_progress)
        })?;
        let help = "Whether the server answered when it was last asked or checked.";
        out.gauge("serving", help, |counters| {
            Some(u64::from(counters.is_serving))
        })
    }
}
