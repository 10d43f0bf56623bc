//! The share of each link that is useful, the quality of pictures, and a link that changes.
//!
//! The run has four quarters: the start, which is not measured; the steady quarter; one link of 3
//! Mbit/s changes to 1 Mbit/s; and back.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use manyflow_core::units::Rate;
use manyflow_streams::{SendControl, live_rlm_sender_config, live_sender_config};
use serde_json::json;

use super::bound::Bounds;
use crate::cli::StreamBenchProtocol;
use manyflow_rig::stream_lab::{LINKS_KBIT, Pictures, Place, Reception, Span, Stage};
use manyflow_terminal::Display;

/// The receiver whose link changes, and the rate of the slow link.
const CHANGED: usize = 2;
const SLOW_KBIT: u64 = 1_000;
/// The minimum of useful bytes, as a share of the link in percent.
const USEFUL_BOUND: f64 = 85.0;
/// The share of units without the first byte in percent, below which a receiver must remain.
const MISSING_BOUND: f64 = 1.0;
/// Seconds until a receiver follows a link that got slower, and one that got faster.
const SLOWER_BOUND: f64 = 5.0;
const FASTER_BOUND: f64 = 20.0;
/// A receiver has followed its link when it uses this share of it in percent, and loses at most
/// this share of packets.
const FOLLOWED_USE: f64 = 80.0;
const FOLLOWED_LOSS: f64 = 0.01;
/// The time over which use and loss are measured after a change, and the time before that. Relays
/// repair, so that a packet counts as lost only a round after the one in which it was missed.
const WINDOW: Duration = Duration::from_secs(1);
const LATE: Duration = Duration::from_secs(1);

/// Returns the parameters of the protocol's sender.
pub(super) fn control(protocol: StreamBenchProtocol) -> SendControl {
    match protocol {
        StreamBenchProtocol::Rlm => SendControl::Rlm(live_rlm_sender_config()),
        StreamBenchProtocol::Sim | StreamBenchProtocol::Both => {
            SendControl::Sim(live_sender_config())
        }
    }
}

/// Measures one protocol. Only SIM has bounds: RLM is there for comparison. Returns the efficiency,
/// which is the mean share of the links that is useful in the steady quarter, in percent.
///
/// # Errors
/// If a socket cannot be opened.
pub(super) async fn run(
    protocol: StreamBenchProtocol,
    duration: Duration,
    pictures: Arc<Pictures>,
    bounds: &mut Bounds,
    display: &Display,
) -> Result<f64> {
    let mut stage = Stage::start(&control(protocol), pictures, 1).await?;
    let mut run = Run {
        name: if protocol == StreamBenchProtocol::Rlm {
            "rlm"
        } else {
            "sim"
        },
        receivers: start_receivers(&mut stage).await?,
        stage,
    };
    bounds.are_off = protocol == StreamBenchProtocol::Rlm;
    let quarter = duration / 4;
    run.watch(quarter, display).await?;
    run.watch(2 * quarter, display).await?;
    Bounds::print_head(display, &format!("{}, steady", run.name))?;
    let efficiency = run.check_steady(quarter, bounds, display).await?;
    let (rate, slow) = (LINKS_KBIT[CHANGED], SLOW_KBIT);
    run.change(slow, 3 * quarter, SLOWER_BOUND, bounds, display)
        .await?;
    run.change(rate, 4 * quarter, FASTER_BOUND, bounds, display)
        .await?;
    bounds.are_off = false;
    Ok(efficiency)
}

/// Starts a receiver behind each of the links.
pub(super) async fn start_receivers(stage: &mut Stage) -> Result<Vec<Reception>> {
    let mut receivers = Vec::new();
    for rate in LINKS_KBIT {
        let rate = Rate::from_bits_per_s(1_000 * rate);
        let place = Place::behind(rate, stage.relays());
        receivers.push(stage.receive(&place).await?);
    }
    Ok(receivers)
}

struct Run {
    name: &'static str,
    stage: Stage,
    receivers: Vec<Reception>,
}

impl Run {
    /// Waits until a time, and reports each second to programs.
    async fn watch(&self, until: Duration, display: &Display) -> Result<()> {
        let bar = display.spinner(String::new());
        let second = Duration::from_secs(1);
        while self.stage.now() < until {
            let next = until.min(self.stage.now() + second);
            self.stage.wait_until(next).await;
            let now = self.stage.now();
            let rates = self.receivers.iter().map(|receiver| {
                let span = receiver.span(now.saturating_sub(second + second / 8), now);
                format!("{:.2}", span.useful_bits_per_s() / 1e6)
            });
            let rates: Vec<_> = rates.collect();
            let seconds = now.as_secs();
            bar.set_message(format!("{seconds} s: {} Mbit/s", rates.join("  ")));
            self.print_second(now, display)?;
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn print_second(&self, now: Duration, display: &Display) -> Result<()> {
        if !display.is_json() {
            return Ok(());
        }
        let sender = *self.stage.progress.borrow();
        let rates: Vec<_> = sender.rates[..sender.groups.into()]
            .iter()
            .map(|rate| rate.bits_per_s())
            .collect();
        let of_receiver = |receiver: &Reception| {
            let span = receiver.span(now.saturating_sub(Duration::from_millis(1_100)), now);
            json!({
                "link_bits_per_s": receiver.rate.bits_per_s(),
                "useful_bits_per_s": span.useful_bits_per_s(),
                "carried_bits_per_s": span.link_bits_per_s(),
                "groups": span.counts.groups, "lost": span.counts.lost,
                "dropped_by_link": span.counts.link_drops, "missing": span.counts.missing,
                "latency_ms": span.counts.latency.as_millis() as u64,
            })
        };
        let receivers: Vec<_> = self.receivers.iter().map(of_receiver).collect();
        Ok(display.print_json(&json!({
            "event": "second", "protocol": self.name, "seconds": now.as_secs_f64(),
            "group_rates": rates, "reports": sender.reports,
            "rtt_ms": sender.rtt.as_millis() as u64, "receivers": receivers,
        }))?)
    }

    /// Checks the time since `from`. Returns the mean share of useful bytes in percent.
    async fn check_steady(
        &self,
        from: Duration,
        bounds: &mut Bounds,
        display: &Display,
    ) -> Result<f64> {
        let now = self.stage.now();
        let (mut shares, mut quality_before) = (Vec::new(), 0.0);
        for receiver in &self.receivers {
            let span = receiver.span(from, now);
            let share = 100.0 * span.useful_bits_per_s() / receiver.rate.bits_per_s() as f64;
            let name = format!("{}: useful share of {}, %", self.name, receiver.rate);
            bounds.at_least(display, &name, share, USEFUL_BOUND)?;
            let quality = receiver.quality_db().await;
            let name = format!("{}: quality behind {}, dB", self.name, receiver.rate);
            bounds.above(display, &name, quality, quality_before)?;
            let whole = receiver.span(Duration::ZERO, now);
            let name = format!(
                "{}: units without a byte behind {}, %",
                self.name, receiver.rate
            );
            bounds.below(display, &name, 100.0 * whole.missing(), MISSING_BOUND)?;
            self.print_details(receiver, &span, bounds, display)?;
            shares.push(share);
            quality_before = quality;
        }
        Ok(shares.iter().sum::<f64>() / shares.len() as f64)
    }

    fn print_details(
        &self,
        receiver: &Reception,
        span: &Span,
        bounds: &Bounds,
        display: &Display,
    ) -> Result<()> {
        let capacity = receiver.rate.bits_per_s() as f64;
        let rows = [
            (
                "use of the link, %",
                100.0 * span.link_bits_per_s() / capacity,
            ),
            ("packets lost, %", 100.0 * span.loss()),
            ("packets dropped by the link", span.counts.link_drops as f64),
            ("groups", f64::from(span.counts.groups)),
            ("latency, ms", span.counts.latency.as_secs_f64() * 1e3),
            ("wrong prefixes", receiver.wrong() as f64),
        ];
        for (name, value) in rows {
            bounds.note(display, &format!("  {name}"), value)?;
        }
        Ok(())
    }

    /// Changes one link, and checks when its receiver has followed.
    async fn change(
        &mut self,
        kbit: u64,
        until: Duration,
        bound: f64,
        bounds: &mut Bounds,
        display: &Display,
    ) -> Result<()> {
        let changed = self.stage.now();
        let rate = Rate::from_bits_per_s(1_000 * kbit);
        self.receivers[CHANGED].set_rate(rate);
        self.watch(until, display).await?;
        let capacity = rate.bits_per_s() as f64;
        let is_followed = |span: &Span| {
            100.0 * span.link_bits_per_s() >= FOLLOWED_USE * capacity
                && span.loss() <= FOLLOWED_LOSS
        };
        let followed = self.receivers[CHANGED].first(changed + LATE, WINDOW, is_followed);
        let seconds = followed.map_or(f64::INFINITY, |at| (at - changed).as_secs_f64());
        let name = format!(
            "{}: seconds to follow a link that changes to {rate}",
            self.name
        );
        bounds.at_most(display, &name, seconds, bound)
    }
}
