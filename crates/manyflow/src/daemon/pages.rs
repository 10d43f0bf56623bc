//! The pages of a daemon: metrics for Prometheus, its status as JSON, and a page that shows it.

use std::fmt;
use std::net::SocketAddr;

use anyhow::Result;
use manyflow_messages::{Counters, DaemonStatus, LinkStatus, STATUS_PATH};
use manyflow_net::metrics::{METRICS_PATH, METRICS_TYPE, MetricsServer, Page};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::sync::watch;

use crate::address::cannot_listen;
use crate::metrics::Process;
use manyflow_terminal::Display;

/// Serves the pages on `address` until the returned value is dropped, and prints where they are.
pub(super) async fn serve(
    address: SocketAddr,
    status: watch::Receiver<DaemonStatus>,
    display: &Display,
) -> Result<MetricsServer> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Process));
    registry
        .sub_registry_with_prefix("manyflow_daemon")
        .register_collector(Box::new(Watched(status.clone())));
    let pages = vec![
        Page {
            path: METRICS_PATH,
            media_type: METRICS_TYPE,
            render: Box::new(move || crate::metrics::render(&registry)),
        },
        Page {
            path: STATUS_PATH,
            media_type: "application/json",
            render: Box::new(move || {
                let status = status.borrow().clone();
                serde_json::to_string(&status).expect("all keys are texts")
            }),
        },
        Page {
            path: "/",
            media_type: "text/html; charset=utf-8",
            render: Box::new(|| include_str!("status.html").to_owned()),
        },
    ];
    let server = MetricsServer::serve_pages(address, pages).await;
    let server = server.map_err(|cause| cannot_listen("--metrics", address, cause))?;
    let at = server.local_address();
    display.print_line(&format!(
        "status at http://{at}/, metrics at http://{at}{METRICS_PATH}"
    ))?;
    let url = format!("http://{at}{METRICS_PATH}");
    display.print_json(&json!({"event": "metrics", "url": url}))?;
    Ok(server)
}

/// The latest status of the daemon.
#[derive(Debug)]
struct Watched(watch::Receiver<DaemonStatus>);

impl Collector for Watched {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let status = self.0.borrow();
        encode_counters(&mut encoder, &status.counters)?;
        encode_gauges(&mut encoder, &status)?;
        encode_links(&mut encoder, &status.links)
    }
}

fn encode_counters(encoder: &mut DescriptorEncoder<'_>, counters: &Counters) -> fmt::Result {
    for (name, help, value) in [
        (
            "connections",
            "Connections of clients.",
            counters.connections,
        ),
        (
            "published_messages",
            "Messages from clients.",
            counters.published,
        ),
        (
            "published_bytes",
            "Bytes of messages from clients.",
            counters.published_bytes,
        ),
        (
            "delivered_messages",
            "Messages delivered to clients.",
            counters.delivered,
        ),
        (
            "dropped_messages",
            "Messages that slow members missed.",
            counters.dropped,
        ),
        (
            "pauses",
            "How often senders had to wait for a slow member.",
            counters.blocked,
        ),
        (
            "evictions",
            "Slow members removed from a group.",
            counters.evicted,
        ),
        (
            "failed_links",
            "Connections between daemons that broke.",
            counters.failed_links,
        ),
    ]
    .into_iter()
    .chain(refused(counters))
    {
        let counter = ConstCounter::new(value);
        let metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
        counter.encode(metric)?;
    }
    Ok(())
}

/// Returns the counters of what was refused: their names, meanings and values.
fn refused(counters: &Counters) -> [(&'static str, &'static str, u64); 5] {
    [
        (
            "refused_subscriptions",
            "Subscriptions refused because their users have too many.",
            counters.refused_subscriptions,
        ),
        (
            "refused_credentials",
            "Clients refused for wrong credentials, or for too many of them.",
            counters.refused_credentials,
        ),
        (
            "refused_states",
            "Links refused because the neighbour announced what no daemon can have.",
            counters.refused_states,
        ),
        (
            "refused_groups",
            "Groups of other daemons that do not count, for lack of memory.",
            counters.refused_groups,
        ),
        (
            "refused_messages",
            "Messages from other daemons that no client can have published.",
            counters.refused_messages,
        ),
    ]
}

fn encode_gauges(encoder: &mut DescriptorEncoder<'_>, status: &DaemonStatus) -> fmt::Result {
    for (name, help, value) in [
        ("clients", "Connected clients.", status.clients as f64),
        (
            "groups",
            "Groups with members at any daemon.",
            status.groups as f64,
        ),
        (
            "daemons",
            "Daemons that can be reached.",
            status.daemons.len() as f64,
        ),
        (
            "unacknowledged_bytes",
            "Bytes of messages that other daemons have not acknowledged.",
            status.unacknowledged_bytes as f64,
        ),
        (
            "slow_members",
            "Members that read too slowly now, or did so a short time ago.",
            status.slow_members as f64,
        ),
        (
            "topology_changes",
            "Changes of the topology.",
            status.topology_version as f64,
        ),
    ] {
        let gauge = ConstGauge::new(value);
        let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
        gauge.encode(metric)?;
    }
    Ok(())
}

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

/// Writes the metrics of links, with the neighbour's name as the label `neighbour`.
fn encode_links(encoder: &mut DescriptorEncoder<'_>, links: &[LinkStatus]) -> fmt::Result {
    for (name, help, value) in LINK_GAUGES {
        let samples = links.iter().filter_map(|link| Some((link, value(link)?)));
        encode_family(encoder, (name, help), samples, ConstGauge::new)?;
    }
    for (name, help, value) in LINK_COUNTERS {
        let samples = links.iter().filter_map(|link| Some((link, value(link)?)));
        encode_family(encoder, (name, help), samples, ConstCounter::new)?;
    }
    Ok(())
}

fn encode_family<'a, T: Default, M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    samples: impl Iterator<Item = (&'a LinkStatus, T)>,
    metric: fn(T) -> M,
) -> fmt::Result {
    let kind = metric(T::default()).metric_type();
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for (link, value) in samples {
        let labels = [("neighbour", link.name.as_str())];
        metric(value).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
