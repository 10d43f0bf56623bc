//! The pages of a switch: metrics for Prometheus, and its status as JSON.

use std::fmt;
use std::net::SocketAddr;

use anyhow::Result;
use manyflow_ensembles::anypoint::switch::{MemberStatus, SwitchStatus};
use manyflow_net::metrics::{METRICS_PATH, METRICS_TYPE, MetricsServer, Page};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use crate::address::cannot_listen;
use crate::metrics::Process;
use manyflow_terminal::Display;

/// Serves the pages on `address` until the returned value is dropped, and prints where they are.
pub(super) async fn serve(
    address: SocketAddr,
    status: watch::Receiver<SwitchStatus>,
    display: &Display,
) -> Result<MetricsServer> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Process));
    registry
        .sub_registry_with_prefix("manyflow_switch")
        .register_collector(Box::new(Watched(status.clone())));
    let pages = vec![
        Page {
            path: METRICS_PATH,
            media_type: METRICS_TYPE,
            render: Box::new(move || crate::metrics::render(&registry)),
        },
        Page {
            path: "/status.json",
            media_type: "application/json",
            render: Box::new(move || {
                let status = status.borrow().clone();
                serde_json::to_string(&status).expect("all keys are texts")
            }),
        },
    ];
    let server = MetricsServer::serve_pages(address, pages).await;
    let server = server.map_err(|cause| cannot_listen("--metrics", address, cause))?;
    let at = server.local_address();
    display.print_line(&format!("metrics at http://{at}{METRICS_PATH}"))?;
    Ok(server)
}

/// The latest status of the switch.
#[derive(Debug)]
struct Watched(watch::Receiver<SwitchStatus>);

impl Collector for Watched {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let status = self.0.borrow();
        encode_counters(&mut encoder, &status)?;
        encode_gauges(&mut encoder, &status)?;
        encode_members(&mut encoder, &status)
    }
}

fn encode_counters(encoder: &mut DescriptorEncoder<'_>, status: &SwitchStatus) -> fmt::Result {
    let counters = &status.counters;
    for (name, help, value) in [
        ("opened", "Connections that peers opened.", counters.opened),
        ("refused", "Opens that were refused.", counters.refused),
        (
            "challenges",
            "Challenges sent to peers without a valid cookie.",
            counters.challenges,
        ),
        (
            "resets",
            "Resets sent for unknown connections.",
            counters.resets,
        ),
        (
            "invalid_datagrams",
            "Datagrams that were not valid.",
            counters.invalid,
        ),
        (
            "silent",
            "Connections whose peers fell silent.",
            counters.silent,
        ),
        (
            "failures",
            "Members that failed in a connection.",
            counters.failures,
        ),
        (
            "unsent_datagrams",
            "Datagrams that the kernel did not take.",
            counters.unsent,
        ),
        (
            "too_long_datagrams",
            "Datagrams that were longer than the MTU of the interface.",
            counters.too_long,
        ),
    ] {
        let counter = ConstCounter::new(value);
        let metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
        counter.encode(metric)?;
    }
    Ok(())
}

fn encode_gauges(encoder: &mut DescriptorEncoder<'_>, status: &SwitchStatus) -> fmt::Result {
    for (name, help, value) in [
        ("connections", "Open connections.", status.connections),
        (
            "window_bytes",
            "Sum of the congestion windows of peers.",
            status.window_bytes,
        ),
        (
            "draining",
            "Whether no connections are accepted.",
            u64::from(status.is_draining),
        ),
    ] {
        let gauge = ConstGauge::new(value as f64);
        let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
        gauge.encode(metric)?;
    }
    Ok(())
}

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

/// Writes the metrics of members, with the name as the label `member`.
fn encode_members(encoder: &mut DescriptorEncoder<'_>, status: &SwitchStatus) -> fmt::Result {
    for (name, help, is_counter, value) in MEMBER_VALUES {
        let kind = match is_counter {
            true => ConstCounter::new(0_u64).metric_type(),
            false => ConstGauge::new(0.0).metric_type(),
        };
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for member in &status.members {
            let labels = [("member", member.name.as_str())];
            let sample = family.encode_family(&labels)?;
            match is_counter {
                true => ConstCounter::new(value(member)).encode(sample)?,
                false => ConstGauge::new(value(member) as f64).encode(sample)?,
            }
        }
    }
    Ok(())
}
