//! Benchmarks of live transfers, by programs of their own.
//!
//! `manyflow-rig bench live` and `manyflow-rig bench heterogeneity` transfer files between network
//! namespaces, in turn by our own programs and by UFTP and udpcast, if they are installed.
//! `manyflow-rig bench downloads` compares with one HTTP download for each receiver.
//! `manyflow-rig bench loss` transfers files on loopback, with links in user space.
//!
//! | file | contents |
//! |---|---|
//! | `downloads.rs` | many receivers behind one link, beside downloads by HTTP |
//! | `heterogeneity.rs` | receivers behind a fast and behind a slow link |
//! | `loss.rs` | receivers with and without random loss |
//! | `process.rs` | the programs that run |
//! | `round_trip.rs` | the round-trip time of links in user space |
//! | `transfer.rs` | one transfer, by our programs, UFTP or udpcast |

mod downloads;
mod heterogeneity;
mod loss;
mod process;
mod round_trip;
mod transfer;

use std::path::Path;

use anyhow::{Result, bail};
use manyflow_core::units::Bytes;
use serde_json::json;

pub(crate) use self::downloads::run as downloads;
pub(crate) use self::heterogeneity::run as heterogeneity;
pub(crate) use self::loss::run as loss;
use self::transfer::{Measured, PROFILES, Program, transfer};
use crate::bench::lan::{Lan, Layout};
use crate::bench::{median, profile, write_random};
use crate::cli::LiveArgs;
use manyflow_terminal::Display;

/// The bounds of the rate as multiples of UFTP's, for one receiver and for more.
const RATE_BOUNDS: (f64, f64) = (1.5, 1.0);
/// The bounds of the processor time for a packet, in microseconds.
const SENDER_BOUND_US: f64 = 3.0;
const RECEIVER_BOUND_US: f64 = 4.0;

/// Compares the rates of transfers to equal receivers.
pub(crate) fn run(args: &LiveArgs, display: &Display) -> Result<()> {
    let layout = match args.relays {
        true => Layout::TwoRouters,
        false => Layout::Flat,
    };
    let lan = Lan::new(args.receivers.into(), layout)?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("file");
    write_random(&file, args.size.0)?;
    display.print_line(&format!(
        "{:<28} {:>14} {:>10} {:>22} {:>22} {:>20}",
        "program",
        "Mbit/s",
        "seconds",
        "sender us/packet",
        "receiver us/packet",
        "link, times the file"
    ))?;
    let ours = Program::Ours(args.options);
    let programs = match args.relays {
        // As fast as it can, and with TFMCC, UFTP sends the same packets again and again: its
        // proxies lose the same ones each time.
        true => programs(&[ours, Program::UftpFixed]),
        false => programs(&[ours, Program::UftpUnlimited, Program::Udpcast]),
    };
    let results = in_turn(&lan, &programs, args.runs, &file, folder.path())?;
    let mut rates = Vec::new();
    let mut missed = Vec::new();
    for (program, runs) in programs.iter().zip(&results) {
        let rate = print_program(*program, runs, args.size, display, &mut missed)?;
        rates.push(rate);
    }
    if args.relays {
        display.print_line("udpcast has no relays of its own, so it cannot pass the routers.")?;
    }
    if args.profile {
        print_profile(&lan, ours, &file, folder.path(), display)?;
    }
    let times = match args.receivers == 1 && !args.relays {
        true => RATE_BOUNDS.0,
        false => RATE_BOUNDS.1,
    };
    let mut programs = programs.iter();
    if let Some(place) = programs.position(|program| program.is_reference()) {
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

/// Prints the medians of a program's transfers, and adds a message to `missed` for each bound that
/// our own program misses. Returns the rate in bits per second.
fn print_program(
    program: Program,
    runs: &[Measured],
    size: Bytes,
    display: &Display,
    missed: &mut Vec<String>,
) -> Result<f64> {
    let seconds = median(runs.iter().map(Measured::slowest_s));
    let rate = size.0 as f64 * 8.0 / seconds;
    let sender_us = median(runs.iter().map(|run| run.sender_us));
    let receiver_us = median(runs.iter().map(|run| run.receiver_us));
    let of_file = |run: &Measured| run.most_carried() as f64 / size.0 as f64;
    let link_files = median(runs.iter().map(of_file));
    display.print_line(&format!(
        "{:<28} {:>14.0} {seconds:>10.2} {sender_us:>22.1} {receiver_us:>22.1} {link_files:>20.2}",
        program.name(),
        rate / 1e6,
    ))?;
    display.print_json(&json!({
        "event": "program", "program": program.name(), "bits_per_s": rate, "seconds": seconds,
        "sender_us_per_packet": sender_us, "receiver_us_per_packet": receiver_us,
        "link_files": link_files,
    }))?;
    if matches!(program, Program::Ours(..)) {
        let bounds = [
            ("the sender", sender_us, SENDER_BOUND_US),
            ("a receiver", receiver_us, RECEIVER_BOUND_US),
        ];
        let above = bounds.iter().filter(|(_, value, bound)| value > bound);
        missed.extend(
            above.map(|(end, _, bound)| format!("{end} takes more than {bound} us a packet")),
        );
    }
    Ok(rate)
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
            results.push(transfer(lan, *program, file, folder, None)?);
        }
    }
    Ok(results)
}

/// Prints where the processor time of a transfer goes, at the sender and at a receiver.
fn print_profile(
    lan: &Lan,
    program: Program,
    file: &Path,
    folder: &Path,
    display: &Display,
) -> Result<()> {
    if !profile::is_installed(display)? {
        return Ok(());
    }
    let profiles = tempfile::tempdir()?;
    transfer(lan, program, file, folder, Some(profiles.path()))?;
    display.print_line("processor time by the code that takes it:")?;
    for process in PROFILES {
        profile::print(display, process, &profiles.path().join(process))?;
    }
    Ok(())
}

fn end(display: &Display, missed: &[String]) -> Result<()> {
    if !Program::UftpUnlimited.is_installed() {
        display.print_line(
            "UFTP is not installed (Debian: apt-get install uftp), so nothing was compared.",
        )?;
    }
    fail_if_missed(missed)
}

/// Returns an error that names the bounds that are missed, if there are any.
fn fail_if_missed(missed: &[String]) -> Result<()> {
    if !missed.is_empty() {
        bail!("missed: {}", missed.join("; "));
    }
    Ok(())
}
