//! `manyflow-rig bench sim`: compares the simulator with ns-2, both doing the same work on this
//! machine.
//!
//! The unit is link transmissions per CPU-second. If the package `ns2` is installed, the ratio of
//! the two speeds must reach a bound; otherwise only our own speed is printed. The bounds are meant
//! for a tuned ns-2, but Debian's package is not tuned. Each case names the speed-up by tuning,
//! which was measured once.

pub(crate) mod audience;
mod cases;
pub(crate) mod emulator;
pub(crate) mod group;
mod lan;
pub(crate) mod live;
pub(crate) mod order;
mod profile;
pub(crate) mod relay;
pub(crate) mod scale;
pub(crate) mod stream;
pub(crate) mod switch;

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use cases::{CASES, Case, Ns2};
use manyflow_core::Time;
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde_json::json;

use manyflow_terminal::display::{Display, OutputError};

/// Runs of each case, of which the fastest counts: other processes on the machine only ever slow a
/// run down.
const RUNS: usize = 3;

pub(crate) fn run(display: &Display) -> Result<()> {
    let has_ns2 = Command::new("ns").stdin(Stdio::null()).output().is_ok();
    display.print_line(&format!(
        "{:<44} {:>12} {:>12} {:>8} {:>8}  (million link transmissions per CPU-second)",
        "case", "manyflow", "ns-2", "ratio", "bound"
    ))?;
    let mut missed = Vec::new();
    for case in CASES {
        let ours = fastest(|| measure_ours(case))?;
        let theirs = if has_ns2 {
            let measure = || measure_ns2(case, ours.transmissions);
            // A set-up that takes a minute is measured only once.
            Some(if case.ns2.set_up.is_some() {
                measure()?
            } else {
                fastest(measure)?
            })
        } else {
            None
        };
        let ratio = theirs
            .as_ref()
            .map(|theirs| ours.per_second() / theirs.per_second());
        print_case(display, case, &ours, theirs.as_ref(), ratio)?;
        if ratio.is_some_and(|ratio| ratio < case.bound()) {
            missed.push(case.name);
        }
    }
    if !has_ns2 {
        display.print_line(
            "ns-2 is not installed (Debian: apt-get install ns2), so nothing was compared.",
        )?;
    }
    if !missed.is_empty() {
        bail!("below the bound: {}", missed.join("; "));
    }
    Ok(())
}

/// The work done and the CPU time it took.
#[derive(Clone, Debug)]
struct Measured {
    transmissions: u64,
    cpu: Duration,
    set_up: Duration,
}

impl Measured {
    fn per_second(&self) -> f64 {
        self.transmissions as f64 / self.cpu.as_secs_f64()
    }
}

fn fastest(measure: impl Fn() -> Result<Measured>) -> Result<Measured> {
    let mut best = measure()?;
    for _ in 1..RUNS {
        let next = measure()?;
        if next.per_second() > best.per_second() {
            best = next;
        }
    }
    Ok(best)
}

fn measure_ours(case: &Case) -> Result<Measured> {
    let start = cpu(UsageWho::RUSAGE_SELF)?;
    let mut network = (case.build)();
    let built = cpu(UsageWho::RUSAGE_SELF)?;
    network.run_until(Time::from_secs_f64(case.seconds), &mut ())?;
    let end = cpu(UsageWho::RUSAGE_SELF)?;
    network.check_accounting()?;
    Ok(Measured {
        transmissions: network.transmissions(),
        cpu: end - start,
        set_up: built - start,
    })
}

/// Measures ns-2 on the same work. If its script does not print how many packets its links carried,
/// the number is ours: the sources have constant rates, so both simulators carry the same packets.
fn measure_ns2(case: &Case, ours: u64) -> Result<Measured> {
    let Ns2 {
        script,
        arguments,
        set_up,
    } = case.ns2;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("case.tcl");
    std::fs::write(&path, script)?;
    let run = |arguments: &[&str]| -> Result<(Duration, Option<u64>)> {
        let start = cpu(UsageWho::RUSAGE_CHILDREN)?;
        let mut command = Command::new("ns");
        command.arg(&path).args(arguments).stdin(Stdio::null());
        let output = command.output().context("cannot run ns")?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let printed = printed
            .lines()
            .last()
            .and_then(|line| line.trim().parse().ok());
        Ok((cpu(UsageWho::RUSAGE_CHILDREN)? - start, printed))
    };
    let set_up = set_up.map_or(Ok(Duration::ZERO), |arguments| {
        Ok::<_, anyhow::Error>(run(arguments)?.0)
    })?;
    let (cpu, printed) = run(arguments)?;
    Ok(Measured {
        transmissions: printed.unwrap_or(ours),
        cpu: cpu.saturating_sub(set_up),
        set_up,
    })
}

/// Writes a file of random bytes.
fn write_random(path: &Path, bytes: u64) -> Result<()> {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut file = File::create(path)?;
    let mut buffer = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let length = left.min(buffer.len() as u64) as usize;
        random.fill_bytes(&mut buffer[..length]);
        file.write_all(&buffer[..length])?;
        left -= length as u64;
    }
    Ok(())
}

/// Clock ticks in the times of `/proc/PID/stat`: USER_HZ, which is 100 on all common platforms.
const TICKS_PER_S: f64 = 100.0;

/// Returns the processor time of a process in seconds, user and system (proc(5)).
fn process_cpu_s(process: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name of the program, in parentheses, may contain spaces.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let times = fields.split_whitespace().skip(11).take(2);
    let ticks: f64 = times.filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    Ok(ticks / TICKS_PER_S)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn cpu(who: UsageWho) -> Result<Duration> {
    let usage: Usage = getrusage(who)?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(micros as u64))
}

fn print_case(
    display: &Display,
    case: &Case,
    ours: &Measured,
    theirs: Option<&Measured>,
    ratio: Option<f64>,
) -> Result<(), OutputError> {
    let million = |measured: &Measured| format!("{:.1}", measured.per_second() / 1e6);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    display.print_line(&format!(
        "{:<44} {:>12} {:>12} {:>8} {:>8}",
        case.name,
        million(ours),
        or_dash(theirs.map(million)),
        or_dash(ratio.map(|ratio| format!("{ratio:.1}"))),
        format!("{:.1}", case.bound()),
    ))?;
    display.print_json(&json!({
        "event": "case",
        "case": case.name,
        "transmissions": ours.transmissions,
        "transmissions_per_cpu_second": ours.per_second(),
        "set_up_seconds": ours.set_up.as_secs_f64(),
        "ns2_set_up_seconds": theirs.map(|theirs| theirs.set_up.as_secs_f64()),
        "ns2_transmissions_per_cpu_second": theirs.map(Measured::per_second),
        "ratio": ratio,
        "bound": case.bound(),
    }))
}
