//! The metrics of members and gateways.

use std::fmt;
use std::net::SocketAddr;

use anyhow::Result;
use manyflow_ensembles::http::{GatewayStatus, MemberCounters};
use manyflow_net::metrics::{METRICS_PATH, MetricsServer};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::address::cannot_listen;
use crate::metrics::{Process, render};
use manyflow_terminal::Display;

/// A status that has metrics.
pub(super) trait Status {
    /// The beginning of the metrics' names.
    const PREFIX: &str;

    /// Returns name, help and value of each counter.
    fn counters(&self) -> Vec<(&'static str, &'static str, u64)>;

    /// Returns name, help and value of each gauge.
    fn gauges(&self) -> Vec<(&'static str, &'static str, u64)>;
}

/// Serves the metrics on `address`, if there is one, until the returned value is dropped, and
/// prints where they are.
pub(super) async fn serve<S: Status + 'static>(
    address: Option<SocketAddr>,
    read: impl Fn() -> S + Send + Sync + 'static,
    display: &Display,
) -> Result<Option<MetricsServer>> {
    let Some(address) = address else {
        return Ok(None);
    };
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Process));
    registry
        .sub_registry_with_prefix(S::PREFIX)
        .register_collector(Box::new(Read(read)));
    let server = MetricsServer::serve(address, move || render(&registry)).await;
    let server = server.map_err(|cause| cannot_listen("--metrics", address, cause))?;
    let at = server.local_address();
    display.print_line(&format!("metrics at http://{at}{METRICS_PATH}"))?;
    Ok(Some(server))
}

struct Read<F>(F);

impl<F> fmt::Debug for Read<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Read")
    }
}

impl<S: Status + 'static, F: Fn() -> S + Send + Sync + 'static> Collector for Read<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let status = (self.0)();
        for (name, help, value) in status.counters() {
            let counter = ConstCounter::new(value);
            let metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
            counter.encode(metric)?;
        }
        for (name, help, value) in status.gauges() {
            let gauge = ConstGauge::new(value as i64);
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        Ok(())
    }
}

impl Status for GatewayStatus {
    const PREFIX: &str = "manyflow_gateway";

    fn counters(&self) -> Vec<(&'static str, &'static str, u64)> {
        let counters = &self.counters;
        vec![
            ("requests", "Requests of clients.", counters.requests),
            (
                "answered",
                "Requests whose whole response came from a member.",
                counters.answered,
            ),
            (
                "retried",
                "Requests sent again because a member had died or its server had failed.",
                counters.retried,
            ),
            (
                "refused",
                "Requests sent again because a member had refused them unseen.",
                counters.refused,
            ),
            (
                "silent",
                "Attempts that ended without a sign of life.",
                counters.silent,
            ),
            ("failed", "Requests answered with 502.", counters.failed),
            (
                "unavailable",
                "Requests answered with 503: no connection, or too many requests.",
                counters.unavailable,
            ),
            (
                "aborted",
                "Responses that were aborted after their beginning.",
                counters.aborted,
            ),
            (
                "cancelled",
                "Requests that clients gave up.",
                counters.cancelled,
            ),
            (
                "rejected",
                "Requests with a head that is too long, and CONNECT.",
                counters.rejected,
            ),
            (
                "malformed_messages",
                "Messages of members that are not valid.",
                counters.malformed,
            ),
            (
                "foreign_messages",
                "Messages about requests that have ended, or of another member than the response.",
                counters.foreign,
            ),
            (
                "connections_lost",
                "Connections to the switch that ended.",
                counters.connections_lost,
            ),
        ]
    }

    fn gauges(&self) -> Vec<(&'static str, &'static str, u64)> {
        vec![
            (
                "connected",
                "Whether there is a connection to the switch.",
                self.is_connected.into(),
            ),
            (
                "requests_in_progress",
                "Requests in progress.",
                self.requests as u64,
            ),
            ("clients", "Connections of clients.", self.clients as u64),
        ]
    }
}

impl Status for MemberCounters {
    const PREFIX: &str = "manyflow_member";

    fn counters(&self) -> Vec<(&'static str, &'static str, u64)> {
        vec![
            ("requests", "Requests of gateways.", self.requests),
            (
                "answered",
                "Requests whose whole response was sent.",
                self.answered,
            ),
            (
                "refused",
                "Requests that the server has not seen: too many, or it could not be reached.",
                self.refused,
            ),
            (
                "failed",
                "Requests whose response the server did not complete.",
                self.failed,
            ),
            (
                "cancelled",
                "Requests that the gateway gave up, or whose connection ended.",
                self.cancelled,
            ),
            (
                "unknown_messages",
                "Messages about requests that the member does not know.",
                self.unknown,
            ),
            (
                "malformed_messages",
                "Messages that are not valid.",
                self.malformed,
            ),
        ]
    }

    fn gauges(&self) -> Vec<(&'static str, &'static str, u64)> {
        let help = "Requests in progress.";
        vec![("requests_in_progress", help, self.in_progress)]
    }
}
