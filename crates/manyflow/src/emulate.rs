//! `manyflow emulate`: runs a command behind an emulated link, or a scenario in real time.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use anyhow::{Context, Result, bail};
use manyflow_core::link::Counters;
use manyflow_emulator::EmulateError;
use manyflow_emulator::bell::Bell;
use manyflow_emulator::drive::{LATE, Lateness};
use manyflow_emulator::shell::{Shell, Summary};
use manyflow_emulator::world::{EmulatedWorld, LIMITS, Report};
use manyflow_scenario::{FailedRun, Inspection};
use serde_json::{Value, json};

use crate::cli::EmulateArgs;
use crate::display::{Display, OutputError};
use crate::inspect::{self, Outputs};
use crate::progress::RunsProgress;
use crate::signals::interrupted;
use crate::sim;
use crate::usage;

/// The command behind the link has failed; its exit code is passed on without a message.
#[derive(Debug, thiserror::Error)]
#[error("the command ended with exit code {0}")]
pub(crate) struct CommandFailed(pub(crate) u8);

pub(crate) async fn run(args: EmulateArgs, display: &Display) -> Result<()> {
    match args.scenario.clone() {
        Some(scenario) => run_scenario(scenario, args, display.clone()).await,
        None => run_command(args, display).await,
    }
}

async fn run_command(args: EmulateArgs, display: &Display) -> Result<()> {
    check()?;
    let mut bell = Bell::new().context("no pipe")?;
    ring_when_interrupted(&bell)?;
    let shell = Shell {
        link: args.link.config(),
        seed: args.seed.unwrap_or(1),
        command: args.command,
    };
    let run = tokio::task::spawn_blocking(move || shell.run(&mut bell));
    let (status, summary) = run.await??;
    print(display, &summary)?;
    match code(status) {
        0 => Ok(()),
        code => Err(CommandFailed(code).into()),
    }
}

/// Runs the selected runs of a scenario one after the other.
async fn run_scenario(name: String, args: EmulateArgs, display: Display) -> Result<()> {
    let path = match Path::new(&name).exists() {
        true => PathBuf::from(&name),
        false => sim::find(&sim::list(&args.scenarios)?, &name)?.clone(),
    };
    let runtime = tokio::runtime::Handle::current();
    let run = tokio::task::spawn_blocking(move || {
        let _context = runtime.enter();
        emulate_scenario(&path, &args, &display)
    });
    run.await?
}

fn emulate_scenario(path: &Path, args: &EmulateArgs, display: &Display) -> Result<()> {
    let scenario = sim::read(path, args.fast, args.cell)?;
    let mut jobs = scenario.jobs()?;
    sim::select(&mut jobs, args.cell, args.seed)?;
    for job in &jobs {
        let limits = scenario.check_limits(job.cell, &LIMITS);
        limits.map_err(|error| usage(error.to_string()))?;
    }
    check()?;
    let display = &inspect::display_beside(&args.inspect, display)?;
    let mut outputs = Outputs::open(&args.inspect, &scenario, jobs[0])?;
    let mut progress = RunsProgress::new(display, &scenario, &jobs)?;
    let mut outcomes = Vec::with_capacity(jobs.len());
    for (index, job) in jobs.iter().enumerate() {
        let report = Report::default();
        let bell = Bell::new().context("no pipe")?;
        ring_when_interrupted(&bell)?;
        let world = EmulatedWorld::new(job.seed, bell, report.clone());
        let inspected = match index {
            0 => outputs.inspection(),
            _ => Inspection::default(),
        };
        let inspection = Inspection {
            progress: Some(&mut |passed| progress.advance(passed)),
            ..inspected
        };
        let outcome = scenario.run_in(Box::new(world), *job, inspection);
        let outcome = outcome.map_err(replayed_here);
        progress.end_run(&outcome);
        display.print_note(&lateness_line(&report.lateness()));
        outcomes.push(outcome);
    }
    progress.finish();
    match sim::conclude(&scenario, &jobs, &outcomes, &args.out, display)? {
        true => Ok(()),
        false => bail!("{}: not all expectations are met; see above", scenario.id()),
    }
}

/// Names this command as the one that repeats a run.
fn replayed_here(failed: FailedRun) -> FailedRun {
    FailedRun {
        replay: failed
            .replay
            .replacen("manyflow sim", "manyflow emulate", 1),
        ..failed
    }
}

/// Checks that this user may make namespaces, and removes those of killed emulators.
fn check() -> Result<()> {
    manyflow_emulator::check_rights().map_err(|error| usage(error.to_string()))?;
    manyflow_emulator::netns::remove_stale()?;
    Ok(())
}

/// Rings the bell at each signal that would end this process.
fn ring_when_interrupted(bell: &Bell) -> Result<()> {
    let mut ringer = bell.ringer().context("no pipe")?;
    tokio::spawn(async move {
        loop {
            interrupted().await;
            ringer.ring();
        }
    });
    Ok(())
}

/// Returns the exit code that a shell reports for this status.
fn code(status: ExitStatus) -> u8 {
    let signal = || 128 + status.signal().unwrap_or(0);
    status.code().unwrap_or_else(signal) as u8
}

/// Prints what the links carried, on standard error: standard output is the command's.
fn print(display: &Display, summary: &Summary) -> Result<(), OutputError> {
    let [up_carried, down_carried] = summary.carried;
    display.print_note(&line("up", &summary.up, up_carried));
    display.print_note(&line("down", &summary.down, down_carried));
    let lateness = &summary.lateness;
    display.print_note(&lateness_line(lateness));
    if !lateness.has_kept_time() {
        display.print_note(NOT_IN_TIME);
    }
    display.print_json(&json!({
        "event": "emulated",
        "up": object(&summary.up, up_carried),
        "down": object(&summary.down, down_carried),
        "refused": summary.counts.refused,
        "late_packets": lateness.late,
        "lateness_mean_seconds": lateness.mean().as_secs_f64(),
        "lateness_max_seconds": lateness.max.as_secs_f64(),
        "has_kept_time": lateness.has_kept_time(),
    }))
}

/// The note about a run whose results mean nothing.
pub(crate) const NOT_IN_TIME: &str = "The emulator could not keep time, so results do not count: \
     use a lower rate, or end other programs on this machine.";

fn line(name: &str, link: &Counters, carried: u64) -> String {
    let Counters {
        pushed,
        delivered,
        delivered_bytes,
        dropped,
        lost,
        marked,
        ..
    } = link;
    format!(
        "{name:<5} {pushed} packets in, {delivered} out ({delivered_bytes} bytes), {dropped} dropped, {lost} lost, \
         {marked} marked, {carried} on the way"
    )
}

/// Returns a line about the lateness of deliveries.
pub(crate) fn lateness_line(lateness: &Lateness) -> String {
    format!(
        "late  {:.3} ms on average, at most {:.3} ms; {} of {} packets by more than {} ms, {} refused by the kernel",
        lateness.mean().as_secs_f64() * 1e3,
        lateness.max.as_secs_f64() * 1e3,
        lateness.late,
        lateness.packets,
        LATE.as_millis(),
        lateness.refused,
    )
}

fn object(link: &Counters, carried: u64) -> Value {
    json!({
        "packets_in": link.pushed,
        "packets_out": link.delivered,
        "bytes_out": link.delivered_bytes,
        "dropped": link.dropped,
        "lost": link.lost,
        "marked": link.marked,
        "on_the_way": carried,
    })
}

/// Returns the exit code of a command that has failed or could not be started, as shells do.
pub(crate) fn exit_code(error: &anyhow::Error) -> Option<u8> {
    if let Some(CommandFailed(code)) = error.downcast_ref() {
        return Some(*code);
    }
    match error.downcast_ref() {
        Some(EmulateError::Command(..)) => Some(127),
        _ => None,
    }
}
