//! Benchmarks of live transfers, by programs of their own.
//!
//! `manyflow-rig bench live` and `manyflow-rig bench heterogeneity` transfer files between network
//! namespaces, in turn by our own programs and by UFTP and udpcast, if they are installed.
//! `manyflow-rig bench loss` transfers files on loopback, with links in user space.
//!
//! | file | contents |
//! |---|---|
//! | `heterogeneity.rs` | receivers behind a fast and behind a slow link |
//! | `loss.rs` | receivers with and without random loss |
//! | `process.rs` | the programs that run |
//! | `transfer.rs` | one transfer, by our programs, UFTP or udpcast |

mod heterogeneity;
mod loss;
mod process;
mod transfer;

use std::path::Path;

use anyhow::{Result, bail};
use serde_json::json;

pub(crate) use self::heterogeneity::run as heterogeneity;
pub(crate) use self::loss::run as loss;
use self::transfer::{Measured, Program, transfer};
use crate::bench::lan::Lan;
use crate::bench::{median, write_random};
use crate::cli::LiveArgs;
use manyflow_terminal::Display;

/// The bounds of the rate as multiples of UFTP's, for one receiver and for more.
const RATE_BOUNDS: (f64, f64) = (1.5, 1.0);
/// The bounds of the processor time for a packet, in microseconds.
const SENDER_BOUND_US: f64 = 3.0;
const RECEIVER_BOUND_US: f64 = 4.0;

/// Compares the rates of transfers to equal receivers.
pub(crate) fn run(args: &LiveArgs, display: &Display) -> Result<()> {
    let lan = Lan::new(args.receivers.into(), None)?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("file");
    write_random(&file, args.size.0)?;
    display.print_line(&format!(
        "{:<28} {:>14} {:>10} {:>22} {:>22}",
        "program", "Mbit/s", "seconds", "sender us/packet", "receiver us/packet"
    ))?;
    let programs = programs(&[
        Program::Ours(args.options),
        Program::UftpUnlimited,
        Program::Udpcast,
    ]);
    let results = in_turn(&lan, &programs, args.runs, &file, folder.path())?;
    let mut rates = Vec::new();
    let mut missed = Vec::new();
    for (program, runs) in programs.iter().zip(&results) {
        let seconds = median(runs.iter().map(|run| run.slowest_s()));
        let rate = args.size.0 as f64 * 8.0 / seconds;
        let sender_us = median(runs.iter().map(|run| run.sender_us));
        let receiver_us = median(runs.iter().map(|run| run.receiver_us));
        rates.push(rate);
        display.print_line(&format!(
            "{:<28} {:>14.0} {seconds:>10.2} {sender_us:>22.1} {receiver_us:>22.1}",
            program.name(),
            rate / 1e6,
        ))?;
        display.print_json(&json!({
            "event": "program", "program": program.name(), "bits_per_s": rate, "seconds": seconds,
            "sender_us_per_packet": sender_us, "receiver_us_per_packet": receiver_us,
        }))?;
        if matches!(program, Program::Ours(..)) {
            if sender_us > SENDER_BOUND_US {
                missed.push(format!(
                    "the sender takes more than {SENDER_BOUND_US} us a packet"
                ));
            }
            if receiver_us > RECEIVER_BOUND_US {
                missed.push(format!(
                    "a receiver takes more than {RECEIVER_BOUND_US} us a packet"
                ));
            }
        }
    }
    let times = if args.receivers == 1 {
        RATE_BOUNDS.0
    } else {
        RATE_BOUNDS.1
    };
    let mut programs = programs.iter();
    if let Some(place) = programs.position(|program| *program == Program::UftpUnlimited) {
        let ratio = rates[0] / rates[place];
        display.print_line(&format!(
            "{ratio:.2} times UFTP's rate, of at least {times}"
        ))?;
        display.print_json(&json!({"event": "compared", "times_uftp": ratio}))?;
        if ratio < times {
            missed.push(format!("the rate is below {times} times UFTP's"));
        }
    }
    end(display, &missed)
}

/// Returns those of the programs that are installed.
fn programs(wanted: &[Program]) -> Vec<Program> {
    let is_there = |program: &&Program| program.is_installed();
    wanted.iter().filter(is_there).copied().collect()
}

/// Runs the programs in turn, and returns the measurements of each.
fn in_turn(
    lan: &Lan,
    programs: &[Program],
    runs: u32,
    file: &Path,
    folder: &Path,
) -> Result<Vec<Vec<Measured>>> {
    let mut results = vec![Vec::new(); programs.len()];
    for _ in 0..runs {
        for (program, results) in programs.iter().zip(&mut results) {
            results.push(transfer(lan, *program, file, folder)?);
        }
    }
    Ok(results)
}

fn end(display: &Display, missed: &[String]) -> Result<()> {
    if !Program::UftpUnlimited.is_installed() {
        display.print_line(
            "UFTP is not installed (Debian: apt-get install uftp), so nothing was compared.",
        )?;
    }
    if !missed.is_empty() {
        bail!("missed: {}", missed.join("; "));
    }
    Ok(())
}
