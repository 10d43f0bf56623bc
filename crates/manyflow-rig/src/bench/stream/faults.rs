//! `manyflow-rig bench stream --faults`: relays that die, a receiver that stops, and lost reports.
//!
//! Times are in units of a twelfth of `--for`. Each fault begins after the receivers had time to
//! find their rates. A receiver is back when it gets 80 % of its former useful rate for a second.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use manyflow_streams::{SendControl, live_receiver_config, live_sender_config};

use super::bound::Bounds;
use super::steady::start_receivers;
use manyflow_rig::stream_lab::{Pictures, Reception, Stage};
use manyflow_terminal::Display;

/// The share of its former rate that a receiver gets when it is back.
const BACK: f64 = 0.8;
/// The time over which a rate is measured.
const WINDOW: Duration = Duration::from_secs(1);
/// The maximum time without a picture when the first of two relays dies, in seconds.
const GAP_BOUND: f64 = 3.0;
/// The selection intervals in which a receiver must be back.
const SELECTIONS_BOUND: f64 = 2.0;
/// The receiver that is stopped, and the duration in units.
const STOPPED: usize = 2;
/// The share of reports and joins that are lost.
const UPWARD_LOSS: f64 = 0.2;

/// Measures all faults.
///
/// # Errors
/// If a socket cannot be opened, or a relay does not start again.
pub(super) async fn run(
    unit: Duration,
    pictures: &Arc<Pictures>,
    bounds: &mut Bounds,
    display: &Display,
) -> Result<()> {
    Bounds::print_head(display, "faults")?;
    let mut stage = start(pictures, 1).await?;
    let receivers = start_receivers(&mut stage).await?;
    let mut case = Case::begin("relay killed and restarted", &stage, &receivers, 5 * unit).await;
    stage.kill_relay(0);
    tokio::time::sleep(WINDOW).await;
    stage.restart_relay(0).await?;
    case.end(3 * unit, &stage, &receivers).await;
    case.check(None, &receivers, bounds, display)?;

    let mut case = Case::begin("receiver stopped", &stage, &receivers, 2 * unit).await;
    receivers[STOPPED].stop(true);
    tokio::time::sleep(unit).await;
    receivers[STOPPED].stop(false);
    case.end(3 * unit, &stage, &receivers).await;
    case.check(None, &receivers, bounds, display)?;

    let mut case = Case::begin("reports lost", &stage, &receivers, 2 * unit).await;
    receivers
        .iter()
        .for_each(|receiver| receiver.set_upward_loss(UPWARD_LOSS));
    tokio::time::sleep(2 * unit).await;
    receivers
        .iter()
        .for_each(|receiver| receiver.set_upward_loss(0.0));
    case.end(3 * unit, &stage, &receivers).await;
    case.check(None, &receivers, bounds, display)?;
    drop((receivers, stage));

    let mut stage = start(pictures, 2).await?;
    let receivers = start_receivers(&mut stage).await?;
    let mut case = Case::begin("first of two relays killed", &stage, &receivers, 5 * unit).await;
    stage.kill_relay(0);
    case.end(3 * unit, &stage, &receivers).await;
    case.check(Some(GAP_BOUND), &receivers, bounds, display)
}

async fn start(pictures: &Arc<Pictures>, relays: usize) -> Result<Stage> {
    let control = SendControl::Sim(live_sender_config());
    Stage::start(&control, Arc::clone(pictures), relays).await
}

/// A fault, with the state before it.
struct Case {
    name: &'static str,
    /// The useful rate of each receiver before the fault, in bits per second.
    rates: Vec<f64>,
    /// A selection interval before the fault.
    selection: Duration,
    /// The end of the fault, and the longest time without a picture of each receiver, after the
    /// fault has ended.
    ended: Duration,
    gaps: Vec<Duration>,
}

impl Case {
    /// Waits while the receivers find their rates, and measures them.
    async fn begin(
        name: &'static str,
        stage: &Stage,
        receivers: &[Reception],
        wait: Duration,
    ) -> Case {
        tokio::time::sleep(wait).await;
        let now = stage.now();
        let rtt = stage.progress.borrow().rtt;
        let rate = |receiver: &Reception| {
            receiver.take_gap();
            receiver
                .span(now.saturating_sub(wait / 2), now)
                .useful_bits_per_s()
        };
        Case {
            name,
            rates: receivers.iter().map(rate).collect(),
            selection: live_receiver_config().selection_rtts * rtt,
            ended: now,
            gaps: Vec::new(),
        }
    }

    /// Notes the end of the fault, and waits while the receivers come back.
    async fn end(&mut self, wait: Duration, stage: &Stage, receivers: &[Reception]) {
        self.ended = stage.now();
        tokio::time::sleep(wait).await;
        self.gaps = receivers.iter().map(Reception::take_gap).collect();
    }

    fn check(
        &self,
        gap_bound: Option<f64>,
        receivers: &[Reception],
        bounds: &mut Bounds,
        display: &Display,
    ) -> Result<()> {
        let bound = SELECTIONS_BOUND * self.selection.as_secs_f64();
        for ((receiver, former), gap) in receivers.iter().zip(&self.rates).zip(&self.gaps) {
            let back = receiver.first(self.ended, WINDOW, |span| {
                *former > 0.0 && span.useful_bits_per_s() >= BACK * former
            });
            let seconds = back.map_or(f64::INFINITY, |at| {
                (at - self.ended).saturating_sub(WINDOW).as_secs_f64()
            });
            let name = format!("{}: seconds until {} is back", self.name, receiver.rate);
            bounds.at_most(display, &name, seconds, bound)?;
            let name = format!(
                "{}: seconds without a picture, {}",
                self.name, receiver.rate
            );
            let gap = gap.as_secs_f64();
            match gap_bound {
                Some(bound) => bounds.at_most(display, &name, gap, bound)?,
                None => bounds.note(display, &name, gap)?,
            }
        }
        Ok(())
    }
}
