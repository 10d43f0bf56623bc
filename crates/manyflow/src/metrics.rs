//! Metrics of `send` and `recv` in OpenMetrics text, for Prometheus and programs like it.

use std::fmt;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use manyflow_live::filecast::metrics::{METRICS_PATH, MetricsServer};
use manyflow_live::filecast::session::{Progress, SendProgress};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::sync::watch;

use crate::display::Display;
use crate::signals::process_status;

/// Serves the metrics of `progress` on `address`, if there is one, and prints their URL. They are
/// served until the returned value is dropped.
pub(crate) async fn serve<P: Reported>(
    address: Option<SocketAddr>,
    progress: watch::Receiver<P>,
    display: &Display,
) -> Result<Option<MetricsServer>> {
    let Some(address) = address else {
        return Ok(None);
    };
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Process));
    registry
        .sub_registry_with_prefix(P::PREFIX)
        .register_collector(Box::new(Watched(progress)));
    let server = MetricsServer::serve(address, move || render(&registry)).await;
    let server = server.with_context(|| {
        format!("cannot serve metrics on {address}: choose another address or port")
    })?;
    let url = format!("http://{}{METRICS_PATH}", server.local_address());
    display.print_line(&format!("metrics are at {url}"))?;
    display.print_json(&json!({"event": "metrics", "url": url}))?;
    Ok(Some(server))
}

fn render(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry)
        .expect("a String takes all text");
    text
}

/// Progress that has metrics.
pub(crate) trait Reported: fmt::Debug + Copy + Send + Sync + 'static {
    /// The beginning of the metrics' names.
    const PREFIX: &str;

    /// Writes the metrics.
    fn report(&self, out: &mut Metrics<'_>) -> fmt::Result;
}

/// The latest progress.
#[derive(Debug)]
struct Watched<P>(watch::Receiver<P>);

impl<P: Reported> Collector for Watched<P> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let progress = *self.0.borrow();
        progress.report(&mut Metrics(encoder))
    }
}

/// This process, with the name that Prometheus's libraries use.
#[derive(Debug)]
struct Process;

impl Collector for Process {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let kibibytes = process_status("VmRSS:").and_then(|size| size.parse::<u64>().ok());
        let bytes = kibibytes.map(|kibibytes| kibibytes << 10);
        Metrics(encoder).gauge("process_resident_memory_bytes", "Resident memory.", bytes)
    }
}

/// Writes metrics, each with its help.
#[derive(Debug)]
pub(crate) struct Metrics<'a>(DescriptorEncoder<'a>);

impl Metrics<'_> {
    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.0
            .encode_descriptor(name, help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    /// Writes a counter for each value of the label `reason`.
    fn counters(&mut self, name: &str, help: &str, values: &[(&str, u64)]) -> fmt::Result {
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        values.iter().try_for_each(|(reason, value)| {
            family
                .encode_family(&[("reason", *reason)])?
                .encode_counter::<NoLabelSet, _, u64>(value, None)
        })
    }

    /// Writes a gauge; without a value, nothing.
    fn gauge(
        &mut self,
        name: &str,
        help: &str,
        value: Option<impl EncodeGaugeValue>,
    ) -> fmt::Result {
        let Some(value) = value else { return Ok(()) };
        self.0
            .encode_descriptor(name, help, None, MetricType::Gauge)?
            .encode_gauge(&value)
    }
}

impl Reported for Progress {
    const PREFIX: &str = "manyflow_receiver";

    fn report(&self, out: &mut Metrics<'_>) -> fmt::Result {
        report_packets(self, out)?;
        report_objects(self, out)
    }
}

fn report_packets(progress: &Progress, out: &mut Metrics<'_>) -> fmt::Result {
    let (packets, webrc) = (&progress.packets, progress.webrc);
    out.counter(
        "packets_received",
        "Packets received on joined channels.",
        packets.received,
    )?;
    out.counter(
        "packets_lost",
        "Packets lost, by their sequence numbers.",
        packets.lost,
    )?;
    out.counters(
        "packets_dropped",
        "Datagrams that do not belong to the session, have no valid MAC, or found the decoder behind.",
        &[
            ("refused", packets.refused),
            ("unauthenticated", packets.unauthenticated),
            ("behind", packets.behind),
        ],
    )?;
    out.counters(
        "packets_forged",
        "Packets that the sender cannot have sent, included among those refused.",
        &[
            ("channel", packets.forged.channel),
            ("time_slot", packets.forged.time_slot),
            ("sequence_number", packets.forged.sequence_number),
        ],
    )?;
    let rate = webrc.map_or(0.0, |status| status.received.bits_per_s() as f64 / 8.0);
    out.gauge(
        "rate_bytes_per_second",
        "Average reception rate; 0 while no packets come.",
        Some(rate),
    )?;
    out.gauge(
        "waves_joined",
        "Joined waves, besides the base channel.",
        Some(webrc.map_or(0, |status| status.waves)),
    )?;
    out.gauge(
        "rtt_seconds",
        "Average multicast round-trip time.",
        webrc.map(|status| status.rtt_s),
    )
}

fn report_objects(progress: &Progress, out: &mut Metrics<'_>) -> fmt::Result {
    let objects = &progress.objects;
    out.gauge("files", "Announced files.", Some(objects.files))?;
    let complete = Some(objects.files_complete);
    out.gauge("files_complete", "Complete files.", complete)?;
    out.gauge(
        "files_refused",
        "Files that cannot be received.",
        Some(objects.files_refused),
    )?;
    out.gauge(
        "needed_bytes",
        "Length of all announced files, as they are sent.",
        Some(objects.needed_bytes),
    )?;
    out.gauge(
        "earlier_bytes",
        "Bytes that were there before this process.",
        Some(objects.earlier_bytes),
    )?;
    out.counter(
        "useful_bytes",
        "Received bytes that contributed to files.",
        objects.useful_bytes - objects.earlier_bytes,
    )?;
    let symbols = [
        ("duplicate", objects.duplicate_symbols),
        ("surplus", objects.surplus_symbols),
        ("withdrawn", objects.withdrawn_symbols),
        ("evicted", objects.evicted_symbols),
        ("early", objects.early_dropped),
    ];
    out.counters(
        "symbols_unused",
        "Symbols that arrived before, of complete blocks, probably false, dropped for want of memory, or dropped before their file was announced.",
        &symbols,
    )?;
    let refused = &objects.refused;
    let reasons = [
        ("oti", refused.oti),
        ("symbol_id", refused.symbol_id),
        ("payload_length", refused.payload_length),
        ("fdt", refused.fdt),
        ("table", refused.table),
        ("expired", refused.expired),
        ("contradiction", refused.contradiction),
        ("block", refused.block),
        ("memory", refused.memory),
        ("storage", refused.storage),
        ("session", objects.foreign_packets),
    ];
    out.counters(
        "symbols_refused",
        "Symbols and tables of files that the object layer refused.",
        &reasons,
    )
}

impl Reported for SendProgress {
    const PREFIX: &str = "manyflow_sender";

    fn report(&self, out: &mut Metrics<'_>) -> fmt::Result {
        let counters = [
            ("packets", "Packets passed to an outlet.", self.packets),
            ("bytes", "UDP payload of these packets.", self.bytes),
            (
                "packets_unwanted",
                "Packets of channels that nobody had joined.",
                self.unwanted,
            ),
            (
                "packets_skipped",
                "Packets skipped because the machine was busy or suspended.",
                self.skipped,
            ),
            (
                "datagrams_unsent",
                "Datagrams dropped because of a full socket or a gateway's maximum rate.",
                self.unsent,
            ),
        ];
        for (name, help, value) in counters {
            out.counter(name, help, value)?;
        }
        out.gauge(
            "receivers_done",
            "Receivers that have reported that they have all files.",
            Some(self.receivers_done),
        )?;
        report_relay(self, out)
    }
}

fn report_relay(progress: &SendProgress, out: &mut Metrics<'_>) -> fmt::Result {
    let (relay, counters) = (&progress.relay, &progress.relay.counters);
    out.gauge(
        "relay_gateways",
        "Gateways that have joined a channel.",
        Some(relay.gateways),
    )?;
    let joins = Some(relay.joins);
    out.gauge("relay_joins", "Joins of all gateways.", joins)?;
    out.counter(
        "relay_datagrams_forwarded",
        "Datagrams of data for gateways.",
        counters.forwarded,
    )?;
    out.counters(
        "relay_datagrams_dropped",
        "Datagrams above the maximum rate of a gateway or of the relay, or longer than the MTU.",
        &[
            ("gateway_rate", counters.over_rate),
            ("relay_rate", counters.over_relay_rate),
            ("too_long", relay.too_long),
        ],
    )?;
    out.counters(
        "relay_refusals",
        "Messages that are none for a relay, have no valid MAC, exceed the maximum of gateways or joins, or exceed the rate of answers to their prefix.",
        &[
            ("ignored", counters.ignored),
            ("unauthenticated", counters.unauthenticated),
            ("gateways", counters.gateways_refused),
            ("joins", counters.joins_refused),
            ("unanswered", counters.unanswered),
        ],
    )
}
