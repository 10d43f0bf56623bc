//! The pages of a daemon: metrics for Prometheus, its status as JSON, and a page that shows it.

use std::fmt;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use manyflow_live::filecast::metrics::{METRICS_PATH, METRICS_TYPE, MetricsServer, Page};
use manyflow_live::overlay::{Counters, DaemonStatus, LinkStatus};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use crate::display::Display;
use crate::metrics::Process;

/// The path of the status as JSON.
const STATUS_PATH: &str = "/status.json";

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
    let server = server.with_context(|| {
        format!("cannot serve metrics on {address}: choose another address or port")
    })?;
    let at = server.local_address();
    display.print_line(&format!(
        "status at http://{at}/, metrics at http://{at}{METRICS_PATH}"
    ))?;
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
        encode_links(&mut encoder, &status)
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
    ] {
        let counter = ConstCounter::new(value);
        let metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
        counter.encode(metric)?;
    }
    Ok(())
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

/// Writes the metrics of links, with the neighbour's name as the label `neighbour`.
fn encode_links(encoder: &mut DescriptorEncoder<'_>, status: &DaemonStatus) -> fmt::Result {
    type Value = fn(&LinkStatus) -> f64;
    let gauges: [(&str, &str, Value); 6] = [
        ("link_up", "Whether the link has a connection.", |link| {
            f64::from(u8::from(link.is_up))
        }),
        (
            "link_queue_messages",
            "Messages that wait for the link.",
            |link| link.queue_messages as f64,
        ),
        (
            "link_price_dollars",
            "The price of the link under Cost-Benefit.",
            |link| link.price_dollars.unwrap_or(0.0),
        ),
        (
            "link_outgoing_bytes",
            "Bytes that the connection has not taken.",
            |link| link.outgoing_bytes as f64,
        ),
        (
            "link_rtt_seconds",
            "The average round-trip time of the link; 0 if it is not known.",
            |link| link.rtt_ms.unwrap_or(0.0) / 1e3,
        ),
        (
            "link_retransmissions",
            "Messages or segments sent again since the link or its connection began.",
            |link| link.retransmissions.unwrap_or(0) as f64,
        ),
    ];
    for (name, help, value) in gauges {
        let kind = ConstGauge::new(0.0).metric_type();
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for link in &status.links {
            let labels = [("neighbour", link.name.as_str())];
            let sample = family.encode_family(&labels)?;
            ConstGauge::new(value(link)).encode(sample)?;
        }
    }
    Ok(())
}
