//! The pages of a switch: metrics for Prometheus, its status as JSON, and its status page.

use std::fmt;

use manyflow_ensembles::anypoint::switch::{Counters, MemberStatus, SwitchStatus};
use manyflow_messages::STATUS_PATH;
use tokio::sync::watch;

use super::{Metrics, Pages, Reported};

/// Returns the pages of a switch.
pub fn switch_pages(status: watch::Receiver<SwitchStatus>) -> Pages {
    let latest = status.clone();
    Pages::new(move || latest.borrow().clone())
        .with_status(STATUS_PATH, status.clone())
        .with_page_of("switch", status)
}

impl Reported for SwitchStatus {
    const PREFIX: &str = "manyflow_switch";

    fn report(out: &mut Metrics<'_, Self>) -> fmt::Result {
        for (name, help, value) in COUNTERS {
            out.counter(name, help, |status| value(&status.counters))?;
        }
        for (name, help, value) in GAUGES {
            out.gauge(name, help, |status| Some(value(status) as f64))?;
        }
        for (name, help, is_counter, value) in MEMBER_VALUES {
            match is_counter {
                true => out.counters(name, help, "member", |status| by_member(status, value))?,
                false => out.gauges(name, help, "member", |status| {
                    by_member(status, |member| value(member) as f64)
                })?,
            }
        }
        Ok(())
    }
}

/// Returns the counts of events, each with its description.
pub(crate) fn switch_counts(counters: &Counters) -> impl Iterator<Item = (&'static str, u64)> {
    let all = COUNTERS.into_iter();
    all.map(|(_, help, value)| (help, value(counters)))
}

/// A metric: its name, its help, and its value.
type Metric<T> = (&'static str, &'static str, fn(&T) -> u64);

const COUNTERS: [Metric<Counters>; 10] = [
    ("opened", "Connections that peers opened.", |counters| {
        counters.opened
    }),
    ("refused", "Opens that were refused.", |counters| {
        counters.refused
    }),
    (
        "challenges",
        "Challenges sent to peers without a valid cookie.",
        |counters| counters.challenges,
    ),
    (
        "resets",
        "Resets sent for unknown connections.",
        |counters| counters.resets,
    ),
    (
        "invalid_datagrams",
        "Datagrams that were not valid.",
        |counters| counters.invalid,
    ),
    (
        "silent",
        "Connections whose peers fell silent.",
        |counters| counters.silent,
    ),
    (
        "failures",
        "Members that failed in a connection.",
        |counters| counters.failures,
    ),
    (
        "dropped_frames",
        "Frames that were dropped, because they were for clients that are gone.",
        |counters| counters.dropped,
    ),
    (
        "unsent_datagrams",
        "Datagrams that the kernel did not take.",
        |counters| counters.unsent,
    ),
    (
        "too_long_datagrams",
        "Datagrams that were longer than the MTU of the interface.",
        |counters| counters.too_long,
    ),
];

const GAUGES: [Metric<SwitchStatus>; 3] = [
    ("connections", "Open connections.", |status| {
        status.connections
    }),
    (
        "window_bytes",
        "Sum of the congestion windows of peers.",
        |status| status.window_bytes,
    ),
    (
        "draining",
        "Whether no connections are accepted.",
        |status| u64::from(status.is_draining),
    ),
];

/// A metric of members: its name, its help, whether it is a counter, and its value.
type MemberValue = (&'static str, &'static str, bool, fn(&MemberStatus) -> u64);

const MEMBER_VALUES: [MemberValue; 9] = [
    (
        "member_up",
        "Whether datagrams come from the member.",
        false,
        |m| u64::from(m.is_up),
    ),
    (
        "member_connections",
        "Connections of the member.",
        false,
        |m| m.connections,
    ),
    (
        "member_stalled_connections",
        "Connections in which the member takes no frames.",
        false,
        |m| m.stalled,
    ),
    (
        "member_outstanding_frames",
        "Frames that the member has not acknowledged.",
        false,
        |m| m.outstanding,
    ),
    (
        "member_frames_to",
        "Frames sent to the member.",
        true,
        |m| m.frames_to,
    ),
    (
        "member_bytes_to",
        "Bytes of frames sent to the member.",
        true,
        |m| m.bytes_to,
    ),
    (
        "member_frames_from",
        "Frames received from the member.",
        true,
        |m| m.frames_from,
    ),
    (
        "member_bytes_from",
        "Bytes of frames received from the member.",
        true,
        |m| m.bytes_from,
    ),
    (
        "member_failures",
        "How often the member failed in a connection.",
        true,
        |m| m.failures,
    ),
];

/// Returns a value of all members by their names.
fn by_member<V>(status: &SwitchStatus, value: impl Fn(&MemberStatus) -> V) -> Vec<(String, V)> {
    let members = status.members.iter();
    members
        .map(|member| (member.name.clone(), value(member)))
        .collect()
}
