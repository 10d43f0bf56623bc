//! `manyflow emulate`: runs a command behind an emulated link, or a scenario in real time.

mod agree;

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use manyflow_core::link::Counters;
use manyflow_emulator::EmulateError;
use manyflow_emulator::bell::Bell;
use manyflow_emulator::drive::{LATE, Lateness};
use manyflow_emulator::shell::{Shell, Summary};
use manyflow_emulator::world::{EmulatedWorld, LIMITS, Options, Report};
use manyflow_scenario::{FailedRun, Form, Inspection, Job, Outcome, Scenario};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::cli::EmulateArgs;
use crate::figures;
use crate::inspect::{self, Outputs};
use crate::progress::RunsProgress;
use crate::runs;
use manyflow_terminal::display::{Display, OutputError};
use manyflow_terminal::failure::{CommandFailed, INTERRUPTED};
use manyflow_terminal::signals::interrupted;
use manyflow_terminal::usage;

pub(crate) async fn run(args: EmulateArgs, display: &Display) -> Result<()> {
    match args.scenario.clone() {
        Some(scenario) => run_scenario(scenario, args, display.clone()).await,
        None => run_command(args, display).await,
    }
}

async fn run_command(args: EmulateArgs, display: &Display) -> Result<()> {
    check()?;
    let mut bell = Bell::new().context("no pipe")?;
    let _interruption = Interruption::watch(&bell)?;
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
    let scenario = read(&name, &args)?;
    let runtime = tokio::runtime::Handle::current();
    let run = tokio::task::spawn_blocking(move || {
        let _context = runtime.enter();
        emulate_scenario(&scenario, &args, &display)
    });
    run.await?
}

/// Reads the scenario with this path, or else with this id.
fn read(name: &str, args: &EmulateArgs) -> Result<Scenario> {
    let form = Form {
        fast: args.fast,
        cell: args.cell,
        settings: args.set.clone(),
    };
    let scenario = figures::read(name, args.scenarios.as_deref(), form)?;
    let Some(duration) = args.duration else {
        return Ok(scenario);
    };
    let shortened = scenario.with_duration(duration, args.cell);
    shortened.map_err(|error| usage(error.to_string()))
}

fn emulate_scenario(scenario: &Scenario, args: &EmulateArgs, display: &Display) -> Result<()> {
    let mut jobs = scenario.jobs()?;
    runs::select(&mut jobs, args.cell, args.seed)?;
    for job in &jobs {
        let limits = scenario.check_limits(job.cell, &LIMITS);
        limits.map_err(|error| usage(error.to_string()))?;
    }
    check()?;
    let display = &inspect::display_beside(&args.inspect, display)?;
    let simulated = match args.agree {
        true => simulate(scenario, &jobs)?,
        false => Vec::new(),
    };
    let mut outputs = Outputs::open(&args.inspect, scenario, jobs[0])?;
    let mut progress = RunsProgress::new(display, scenario, &jobs)?;
    let mut outcomes = Vec::with_capacity(jobs.len());
    let manyflow = match args.in_process {
        true => None,
        false => Some(std::env::current_exe().context("the path of this program is unknown")?),
    };
    for (index, job) in jobs.iter().enumerate() {
        let inspected = match index {
            0 => outputs.inspection(),
            _ => Inspection::default(),
        };
        let inspection = Inspection {
            progress: Some(&mut |passed| progress.advance(passed)),
            ..inspected
        };
        let folder = args.out.join(scenario.id());
        let outputs = folder.join(format!("cell-{}-seed-{}", job.cell, job.seed));
        let options = Options {
            outputs,
            manyflow: manyflow.clone(),
        };
        let outcome = emulate_job(scenario, *job, options, inspection, display)?;
        let outcome = outcome.map_err(|failed| replayed_here(failed, args));
        progress.end_run(&outcome);
        outcomes.push(outcome);
    }
    progress.finish();
    let conclusion = runs::conclude(scenario, &jobs, &outcomes, &args.out, display)?;
    if args.agree {
        agree::print(scenario, &jobs, &simulated, &outcomes, display)?;
    }
    runs::demand(&[conclusion])
}

/// Makes the same runs in the simulator, with which the emulated ones are compared.
///
/// # Errors
/// Returns the error of the first run that fails.
fn simulate(scenario: &Scenario, jobs: &[Job]) -> Result<Vec<Outcome>> {
    let runs = jobs.iter().map(|job| Ok(Ok(scenario.run_one(*job)?)));
    runs.collect()
}

/// Makes one run in real time.
///
/// # Errors
/// Returns an error if the user has interrupted the run.
fn emulate_job(
    scenario: &Scenario,
    job: Job,
    options: Options,
    inspection: Inspection,
    display: &Display,
) -> Result<Outcome> {
    let bell = Bell::new().context("no pipe")?;
    let interruption = Interruption::watch(&bell)?;
    let report = Report::default();
    let world = EmulatedWorld::new(job.seed, options, bell, report.clone());
    let outcome = scenario.run_in(Box::new(world), job, inspection);
    if interruption.has_come() {
        return Err(CommandFailed(INTERRUPTED).into());
    }
    display.print_note(&lateness_line(&report.lateness()));
    Ok(outcome)
}

/// Names this command as the one that repeats a run, with the options that change runs.
fn replayed_here(failed: FailedRun, args: &EmulateArgs) -> FailedRun {
    let here = failed
        .replay
        .replacen("manyflow sim", "manyflow emulate", 1);
    let duration = args
        .duration
        .map(|time| format!(" --for {}s", time.as_secs_f64()));
    let in_process = if args.in_process { " --in-process" } else { "" };
    FailedRun {
        replay: here + &duration.unwrap_or_default() + in_process,
        ..failed
    }
}

/// Checks that this user may make namespaces, and removes those of killed emulators.
pub(crate) fn check() -> Result<()> {
    manyflow_emulator::check_rights().map_err(|error| usage(error.to_string()))?;
    manyflow_emulator::netns::remove_stale()?;
    Ok(())
}

/// The signals that would end this process ring a bell instead, until this is dropped.
struct Interruption {
    task: JoinHandle<()>,
    has_come: Arc<AtomicBool>,
}

impl Interruption {
    fn watch(bell: &Bell) -> Result<Interruption> {
        let mut ringer = bell.ringer().context("no pipe")?;
        let has_come = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&has_come);
        let task = tokio::spawn(async move {
            loop {
                interrupted().await;
                flag.store(true, Ordering::Relaxed);
                ringer.ring();
            }
        });
        Ok(Interruption { task, has_come })
    }

    fn has_come(&self) -> bool {
        self.has_come.load(Ordering::Relaxed)
    }
}

impl Drop for Interruption {
    fn drop(&mut self) {
        self.task.abort();
    }
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
    match error.downcast_ref() {
        Some(EmulateError::Command(..)) => Some(127),
        _ => None,
    }
}
