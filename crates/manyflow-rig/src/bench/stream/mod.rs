//! `manyflow-rig bench stream`: a stream of pictures to receivers behind links of 0.3, 1, 3 and 10
//! Mbit/s, with SIM and with RLM.
//!
//! | file | contents |
//! |---|---|
//! | `steady.rs` | the share of each link that is useful, quality, and a link that changes |
//! | `bound.rs` | measured values beside their bounds |
//! | `faults.rs` | `--faults`: relays that die, a receiver that stops, lost reports |
//! | `liars.rs` | `--liars`: receivers that lie about congestion |

mod bound;
mod faults;
mod liars;
mod steady;

use std::sync::Arc;

use anyhow::{Result, ensure};

pub(crate) use self::bound::Bounds;
use crate::cli::{StreamBenchArgs, StreamBenchProtocol};
use manyflow_rig::stream_lab::Pictures;
use manyflow_terminal::Display;

/// Runs the measurements that the options name.
///
/// # Errors
/// Names the bounds that were missed.
pub(crate) async fn run(args: &StreamBenchArgs, display: &Display) -> Result<()> {
    let pictures = Arc::new(tokio::task::spawn_blocking(Pictures::encode).await??);
    let mut bounds = Bounds::default();
    let unit = args.duration / 12;
    if args.faults {
        faults::run(unit, &pictures, &mut bounds, display).await?;
    }
    if args.liars {
        liars::run(unit, &pictures, &mut bounds, display).await?;
    }
    if !args.faults && !args.liars {
        run_protocols(args, &pictures, &mut bounds, display).await?;
    }
    let missed = bounds.missed();
    ensure!(missed.is_empty(), "missed: {}", missed.join("; "));
    Ok(())
}

/// Measures each protocol in turn.
async fn run_protocols(
    args: &StreamBenchArgs,
    pictures: &Arc<Pictures>,
    bounds: &mut Bounds,
    display: &Display,
) -> Result<()> {
    let mut efficiencies = Vec::new();
    for protocol in args.protocol.each() {
        let pictures = Arc::clone(pictures);
        let efficiency = steady::run(protocol, args.duration, pictures, bounds, display).await?;
        efficiencies.push(efficiency);
    }
    if let [sim, rlm] = efficiencies[..] {
        bounds.above(display, "SIM's efficiency beside RLM's, %", sim, rlm)?;
    }
    Ok(())
}

impl StreamBenchProtocol {
    /// Returns the protocols to measure; SIM first.
    fn each(self) -> Vec<StreamBenchProtocol> {
        match self {
            StreamBenchProtocol::Both => vec![StreamBenchProtocol::Sim, StreamBenchProtocol::Rlm],
            one => vec![one],
        }
    }
}
