//! `manyflow-rig bench audience`: the reports that reach the sender of a stream with 4 and with 400
//! receivers behind relays.
//!
//! Four relays have 1 receiver each, and then 100. Each relay has a link in user space to its
//! receivers, whose delay of 100 ms in each direction is most of the round-trip time of both
//! audiences. The stream has one group of a low rate, because all receivers share this process.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use manyflow_core::link::LinkConfig;
use manyflow_core::units::Rate;
use manyflow_layered::sim;
use manyflow_net::last_mile::LastMile;
use manyflow_streams::{SendControl, live_receiver_config, live_sender_config};
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::stream::Bounds;
use crate::cli::AudienceArgs;
use manyflow_rig::stream_lab::{Crowd, Pictures, Stage, mile_config};
use manyflow_terminal::Display;

const RELAYS: usize = 4;
/// The receivers of each relay.
const AUDIENCES: [usize; 2] = [1, 100];
/// The rate of the stream.
const RATE: Rate = Rate::from_bits_per_s(64_000);
/// The length of packets, which are short so that requests for reports wait for the next one for
/// less than 0.1 s.
const PACKET_BYTES: u32 = 700;
/// The delay of a link in each direction.
const DELAY: Duration = Duration::from_millis(100);
/// The rate of the link that the receivers of a relay share, which is no bottleneck.
const LINK: Rate = Rate::from_bits_per_s(1_000_000_000);
/// The maximum difference between both audiences, in percent.
const DIFFERENCE_BOUND: f64 = 10.0;
/// The time for all receivers to join.
const JOIN_LIMIT: Duration = Duration::from_secs(60);

/// The reports to a sender.
#[derive(Copy, Clone, Debug)]
struct Reports {
    per_s: f64,
    per_selection: f64,
}

/// Measures both audiences.
///
/// # Errors
/// If receivers do not join, or the audiences differ by more than the bound.
pub(crate) async fn run(args: &AudienceArgs, display: &Display) -> Result<()> {
    let pictures = Arc::new(tokio::task::spawn_blocking(Pictures::encode).await??);
    let mut measured = Vec::new();
    for audience in AUDIENCES {
        let pictures = Arc::clone(&pictures);
        measured.push(measure(audience, args.duration, pictures, display).await?);
    }
    let mut bounds = Bounds::default();
    Bounds::print_head(display, "4 receivers compared with 400")?;
    if let [few, many] = measured[..] {
        let difference = |few: f64, many: f64| 100.0 * (many / few.max(1e-9) - 1.0).abs();
        let rows = [
            ("reports per second: difference, %", few.per_s, many.per_s),
            (
                "per selection interval: difference, %",
                few.per_selection,
                many.per_selection,
            ),
        ];
        for (name, few, many) in rows {
            bounds.at_most(display, name, difference(few, many), DIFFERENCE_BOUND)?;
        }
    }
    let missed = bounds.missed();
    ensure!(missed.is_empty(), "missed: {}", missed.join("; "));
    Ok(())
}

fn control() -> SendControl {
    SendControl::Sim(sim::SenderConfig {
        groups: 1,
        packet_bytes: PACKET_BYTES,
        initial_rate: RATE,
        maximum_rate: RATE,
        ..live_sender_config()
    })
}

/// Counts the reports to a sender with this number of receivers behind each relay.
async fn measure(
    audience: usize,
    duration: Duration,
    pictures: Arc<Pictures>,
    display: &Display,
) -> Result<Reports> {
    let stage = Stage::start(&control(), pictures, RELAYS).await?;
    let (mut miles, mut crowd) = (Vec::new(), Crowd::default());
    for relay in stage.relays() {
        let link = LinkConfig {
            delay: DELAY,
            ..mile_config(LINK)
        };
        let mile = LastMile::start(relay, link.clone(), link, 1).await?;
        for _ in 0..audience {
            crowd.add(&stage.description, mile.address());
        }
        miles.push(mile);
    }
    let count = (RELAYS * audience) as u32;
    let bar = display.spinner(format!("{count} receivers join"));
    let all_joined = async {
        while stage.progress.borrow().receivers < count {
            sleep(Duration::from_millis(100)).await;
        }
    };
    let joined = timeout(JOIN_LIMIT, all_joined).await.is_ok();
    let heard = stage.progress.borrow().receivers;
    ensure!(
        joined,
        "the sender knows of {heard} receivers, not of {count}"
    );
    bar.set_message(format!("{count} receivers"));
    let (before, begun) = (stage.progress.borrow().reports, stage.now());
    sleep(duration).await;
    let progress = *stage.progress.borrow();
    bar.finish_and_clear();
    let per_s = (progress.reports - before) as f64 / (stage.now() - begun).as_secs_f64();
    let selection = live_receiver_config().selection_rtts * progress.rtt;
    let per_selection = per_s * selection.as_secs_f64();
    display.print_line(&format!(
        "{count} receivers: {per_s:.2} reports/s, {per_selection:.1} in a selection interval of {:.2} s; the last reports \
         describe {} receivers",
        selection.as_secs_f64(),
        progress.receivers
    ))?;
    display.print_json(&json!({
        "event": "audience", "receivers": count, "reports_per_s": per_s,
        "reports_per_selection": per_selection, "selection_s": selection.as_secs_f64(),
        "population": progress.receivers,
    }))?;
    Ok(Reports {
        per_s,
        per_selection,
    })
}
