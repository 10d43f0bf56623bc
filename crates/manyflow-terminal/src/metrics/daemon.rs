//! The pages of a daemon: metrics for Prometheus, its status as JSON, and its status page.

use std::fmt;

use manyflow_messages::{
    Counters, DaemonHandle, DaemonStatus, LinkStatus, MONITOR_PATHS, Monitor, STATUS_PATH,
};
use manyflow_net::metrics::{Page, StatusCode};

use super::{JSON, Metrics, Pages, Reported};

/// Returns the pages of a daemon.
pub fn daemon_pages(daemon: &DaemonHandle) -> Pages {
    let latest = daemon.status();
    let mut pages = Pages::new(move || latest.borrow().clone())
        .with_status(STATUS_PATH, daemon.status())
        .with_page_of("daemon", daemon.status());
    for path in MONITOR_PATHS {
        pages = pages.with(monitor_page(daemon.monitor(), path));
    }
    pages
}

/// Returns a page of nats-server's monitoring.
fn monitor_page(monitor: Monitor, path: &'static str) -> Page {
    Page::with_query(path, JSON, move |query| {
        let (monitor, query) = (monitor.clone(), query.to_owned());
        async move {
            let page = monitor.page(path, &query).await;
            let status = StatusCode::from_u16(page.status);
            (status.expect("the status is one of HTTP"), page.json)
        }
    })
}

impl Reported for DaemonStatus {
    const PREFIX: &str = "manyflow_daemon";

    fn report(out: &mut Metrics<'_, Self>) -> fmt::Result {
        for (name, help, value) in COUNTERS.into_iter().chain(REFUSED) {
            out.counter(name, help, |status| value(&status.counters))?;
        }
        for (name, help, value) in GAUGES {
            out.gauge(name, help, |status| Some(value(status)))?;
        }
        for (name, help, value) in LINK_GAUGES {
            out.gauges(name, help, "neighbour", |status| {
                by_neighbour(status, value)
            })?;
        }
        for (name, help, value) in LINK_COUNTERS {
            out.counters(name, help, "neighbour", |status| {
                by_neighbour(status, value)
            })?;
        }
        Ok(())
    }
}

/// Returns the counts of events, each with its description.
pub(crate) fn daemon_counts(counters: &Counters) -> impl Iterator<Item = (&'static str, u64)> {
    let all = COUNTERS.into_iter().chain(REFUSED);
    all.map(|(_, help, value)| (help, value(counters)))
}

/// A metric: its name, its help, and its value.
type Metric<T, V> = (&'static str, &'static str, fn(&T) -> V);

const COUNTERS: [Metric<Counters, u64>; 9] = [
    ("connections", "Connections of clients.", |counters| {
        counters.connections
    }),
    ("published_messages", "Messages from clients.", |counters| {
        counters.published
    }),
    (
        "published_bytes",
        "Bytes of messages from clients.",
        |counters| counters.published_bytes,
    ),
    (
        "delivered_messages",
        "Messages delivered to clients.",
        |counters| counters.delivered,
    ),
    (
        "dropped_messages",
        "Messages that slow members missed.",
        |counters| counters.dropped,
    ),
    (
        "pauses",
        "How often senders had to wait for a slow member.",
        |counters| counters.blocked,
    ),
    (
        "evictions",
        "Slow members removed from a group.",
        |counters| counters.evicted,
    ),
    (
        "gaps",
        "Daemons that came back so late that messages from there are missing.",
        |counters| counters.gaps,
    ),
    (
        "failed_links",
        "Connections between daemons that broke.",
        |counters| counters.failed_links,
    ),
];

/// The counters of refusals.
const REFUSED: [Metric<Counters, u64>; 5] = [
    (
        "refused_subscriptions",
        "Subscriptions refused because their users have too many.",
        |counters| counters.refused_subscriptions,
    ),
    (
        "refused_credentials",
        "Clients refused for wrong credentials, or for too many of them.",
        |counters| counters.refused_credentials,
    ),
    (
        "refused_states",
        "Links refused because the neighbour announced what no daemon can have.",
        |counters| counters.refused_states,
    ),
    (
        "refused_groups",
        "Groups of other daemons that do not count, for lack of memory.",
        |counters| counters.refused_groups,
    ),
    (
        "refused_messages",
        "Messages from other daemons that no client can have published.",
        |counters| counters.refused_messages,
    ),
];

const GAUGES: [Metric<DaemonStatus, f64>; 6] = [
    ("clients", "Connected clients.", |status| {
        status.clients as f64
    }),
    ("groups", "Groups with members at any daemon.", |status| {
        status.groups as f64
    }),
    ("daemons", "Daemons that can be reached.", |status| {
        status.daemons.len() as f64
    }),
    (
        "unacknowledged_bytes",
        "Bytes of messages that other daemons have not acknowledged.",
        |status| status.unacknowledged_bytes as f64,
    ),
    (
        "slow_members",
        "Members that read too slowly now, or did so a short time ago.",
        |status| status.slow_members as f64,
    ),
    ("topology_changes", "Changes of the topology.", |status| {
        status.topology_version as f64
    }),
];

/// A value of a link; `None` if it is not known.
type LinkValue<T> = fn(&LinkStatus) -> Option<T>;

const LINK_GAUGES: [(&str, &str, LinkValue<f64>); 5] = [
    ("link_up", "Whether the link has a connection.", |link| {
        Some(f64::from(u8::from(link.is_up)))
    }),
    (
        "link_queue_messages",
        "Messages that wait for the link.",
        |link| Some(link.queue_messages as f64),
    ),
    (
        "link_price_dollars",
        "The price of the link under Cost-Benefit.",
        |link| Some(link.price_dollars.unwrap_or(0.0)),
    ),
    (
        "link_outgoing_bytes",
        "Bytes that the connection has not taken.",
        |link| Some(link.outgoing_bytes as f64),
    ),
    (
        "link_rtt_seconds",
        "The round-trip time of the connection.",
        |link| Some(link.rtt_ms? / 1e3),
    ),
];

const LINK_COUNTERS: [(&str, &str, LinkValue<u64>); 5] = [
    (
        "link_retransmissions",
        "Segments that were sent again to the neighbour.",
        |link| link.retransmissions,
    ),
    (
        "link_sent_bytes",
        "Bytes of frames for the neighbour.",
        |link| Some(link.sent_bytes),
    ),
    (
        "link_received_bytes",
        "Bytes of frames from the neighbour.",
        |link| Some(link.received_bytes),
    ),
    (
        "link_sent_messages",
        "Messages for the neighbour, repeated ones included.",
        |link| Some(link.sent_messages),
    ),
    (
        "link_received_messages",
        "Messages from the neighbour, repeated ones included.",
        |link| Some(link.received_messages),
    ),
];

/// Returns a value of the links for which it is known, by the names of the neighbours.
fn by_neighbour<V>(status: &DaemonStatus, value: LinkValue<V>) -> Vec<(String, V)> {
    let links = status.links.iter();
    let known = links.filter_map(|link| Some((link.name.clone(), value(link)?)));
    known.collect()
}
