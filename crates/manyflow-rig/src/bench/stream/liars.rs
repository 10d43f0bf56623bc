//! `manyflow-rig bench stream --liars`: a fifth receiver, behind a link of its own, that lies about
//! congestion. The others must keep their rates.
//!
//! Times are in units of a twelfth of `--for`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use manyflow_core::units::Rate;
use manyflow_streams::{SendControl, live_sender_config};

use super::bound::Bounds;
use super::steady::start_receivers;
use manyflow_netsim::models::Lie;
use manyflow_rig::stream_lab::{Pictures, Place, Reception, Stage};
use manyflow_terminal::Display;

/// The rate of the fifth receiver's link.
const LINK: Rate = Rate::from_bits_per_s(3_000_000);
/// The minimum share of their rates that the others keep, in percent.
const KEPT_BOUND: f64 = 90.0;
const LIES: [(Lie, &str); 2] = [
    (Lie::AlwaysCongested, "always congested"),
    (Lie::NeverCongested, "never congested"),
];

/// Measures each lie.
///
/// # Errors
/// If a socket cannot be opened.
pub(super) async fn run(
    unit: Duration,
    pictures: &Arc<Pictures>,
    bounds: &mut Bounds,
    display: &Display,
) -> Result<()> {
    Bounds::print_head(display, "liars, beside an honest receiver on the same link")?;
    let control = SendControl::Sim(live_sender_config());
    let mut stage = Stage::start(&control, Arc::clone(pictures), 1).await?;
    let receivers = start_receivers(&mut stage).await?;
    let fifth = receive_fifth(&mut stage, None).await?;
    let honest = measure(&stage, &receivers, 3 * unit, 3 * unit).await;
    drop(fifth);
    for (lie, name) in LIES {
        let liar = receive_fifth(&mut stage, Some(lie)).await?;
        let beside = measure(&stage, &receivers, 2 * unit, 3 * unit).await;
        drop(liar);
        for ((receiver, before), now) in receivers.iter().zip(&honest).zip(beside) {
            let kept = 100.0 * now / before.max(1.0);
            let name = format!("{name}: rate that {} keeps, %", receiver.rate);
            bounds.at_least(display, &name, kept, KEPT_BOUND)?;
        }
    }
    Ok(())
}

async fn receive_fifth(stage: &mut Stage, lie: Option<Lie>) -> Result<Reception> {
    let place = Place {
        lie,
        ..Place::behind(LINK, stage.relays())
    };
    stage.receive(&place).await
}

/// Waits, and returns the useful rate of each receiver in the time after it.
async fn measure(
    stage: &Stage,
    receivers: &[Reception],
    wait: Duration,
    duration: Duration,
) -> Vec<f64> {
    let from = stage.now() + wait;
    stage.wait_until(from + duration).await;
    let rate = |receiver: &Reception| receiver.span(from, stage.now()).useful_bits_per_s();
    receivers.iter().map(rate).collect()
}
