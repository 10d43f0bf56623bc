//! Members of other programs as processes, and what they measured.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use nix::time::{ClockId, clock_gettime};
use serde_json::Value;

use super::Figures;
use super::peers::{Built, Daemons, Peer};
use crate::bench::group::load::Load;
use crate::bench::lan::Lan;
use crate::bench::process_cpu_s;

/// The time for daemons and members to find each other.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// The time for a member to end, after the load.
const END_LIMIT: Duration = Duration::from_secs(40);
/// The time before the measurement, in which caches and windows grow.
const WARM_UP: Duration = Duration::from_secs(1);

/// A member as a process, which is killed on drop.
struct Member {
    child: Child,
    lines: Receiver<String>,
    /// Everything that it writes to its standard error.
    log: PathBuf,
}

impl Member {
    fn start(mut command: Command, log: PathBuf) -> Result<Member> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.stderr(File::create(&log)?).spawn();
        let mut child = child.with_context(|| format!("cannot run {command:?}"))?;
        let output = child.stdout.take().context("the output is piped")?;
        let lines = read_lines(output);
        Ok(Member { child, lines, log })
    }

    /// Returns the next line, or an error if the process has ended.
    fn line(&self, limit: Duration) -> Result<String> {
        self.lines.recv_timeout(limit).map_err(|error| {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let reason = match error {
                RecvTimeoutError::Timeout => "does not answer",
                RecvTimeoutError::Disconnected => "has ended",
            };
            let last = log.lines().next_back().unwrap_or("nothing").trim();
            anyhow!("a member {reason}; it wrote last: {last}")
        })
    }

    fn write(&mut self, line: &str) -> Result<()> {
        let input = self.child.stdin.as_mut().context("the input is piped")?;
        Ok(input.write_all(line.as_bytes())?)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines in a thread: a program that nobody reads stops when its pipe is full.
fn read_lines(output: ChildStdout) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let output = BufReader::new(output).lines();
        output
            .map_while(Result::ok)
            .try_for_each(|line| sender.send(line))
    });
    lines
}

/// Starts a member on each host, and measures a load.
///
/// # Errors
/// If a member fails or does not get ready.
pub(super) fn run_load(
    peer: Peer,
    built: &Built,
    lan: &Lan,
    daemons: &Daemons,
    load: &Load,
) -> Result<Figures> {
    let start = |number| {
        let kind = (load.payload_bytes, load.messages_per_s);
        let log = built.folder.path().join(format!("member-{number}.log"));
        Member::start(peer.member(built, lan, number, kind)?, log)
    };
    let mut members = (0..lan.hosts().count())
        .map(start)
        .collect::<Result<Vec<_>>>()?;
    for member in &members {
        // JGroups prints its address first.
        while member.line(READY_LIMIT)? != "ready" {}
    }
    let mut processes: Vec<u32> = daemons.0.iter().map(|daemon| daemon.id()).collect();
    if processes.is_empty() {
        processes = members.iter().map(|member| member.child.id()).collect();
    }
    let cpu_s = || {
        processes
            .iter()
            .map(|process| process_cpu_s(*process))
            .sum::<Result<f64>>()
    };
    let from = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC)?) + WARM_UP;
    let until = from + load.duration;
    for member in &mut members {
        member.write(&format!("{} {}\n", from.as_nanos(), until.as_nanos()))?;
    }
    thread::sleep(WARM_UP);
    let before = cpu_s()?;
    thread::sleep(load.duration);
    let cpu_s = cpu_s()? - before;
    let mut results = Vec::new();
    for member in &members {
        let line = member.line(END_LIMIT)?;
        results.push(serde_json::from_str::<Value>(&line).context("a member's results")?);
    }
    figures(&results, load.duration, cpu_s)
}

/// Returns the figures of all members together.
fn figures(results: &[Value], duration: Duration, cpu_s: f64) -> Result<Figures> {
    let sum = |key: &str| {
        results
            .iter()
            .filter_map(|result| result[key].as_u64())
            .sum::<u64>()
    };
    let mut latencies_ns: Vec<u64> = results
        .iter()
        .filter_map(|result| result["latencies_ns"].as_array())
        .flat_map(|latencies| latencies.iter().filter_map(Value::as_u64))
        .collect();
    latencies_ns.sort_unstable();
    let quantile = |quantile: f64| {
        let index = (latencies_ns.len() as f64 * quantile) as usize;
        let latency = latencies_ns.get(index).or(latencies_ns.last());
        latency.map_or(f64::NAN, |latency| *latency as f64 / 1e3)
    };
    let delivered = sum("delivered");
    ensure!(delivered > 0, "no message was delivered");
    let digests: Vec<_> = results.iter().map(|result| &result["digest"]).collect();
    Ok(Figures {
        deliveries_per_s: delivered as f64 / duration.as_secs_f64(),
        cpu_us_per_delivery: cpu_s * 1e6 / delivered as f64,
        latency_us: [0.5, 0.9, 0.99].map(quantile),
        wrong: sum("wrong"),
        is_one_order: Some(digests.iter().all(|digest| *digest == digests[0])),
    })
}
