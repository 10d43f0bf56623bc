//! `manyflow-rig bench switch`: the throughput, memory and added latency of a switch, beside
//! HAProxy.
//!
//! The switch and HAProxy are processes of their own. This process is all peers and members.
//! Everything is on loopback, where the kernel delivers a packet in the processor time of the
//! process that sends it. On a machine with few cores this process limits the rates; the frames per
//! second of the switch's own processor time do not depend on it.

mod load;
mod process;
mod tcp;

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::cli::SwitchBenchArgs;
use load::{Flow, Latency};
use manyflow_terminal::Display;
use process::Proxy;

/// Bytes of a long and of a short frame.
const LONG: usize = 1_400;
const SHORT: usize = 64;
/// Minimum rate of long frames, unless HAProxy's is higher.
const RATE_BOUND: f64 = 2e9;
/// Minimum number of short frames for each second of the switch's processor time.
const FRAMES_BOUND: f64 = 400_000.0;
/// Maximum resident memory for 10,000 connections.
const MEMORY_BOUND: f64 = 200e6;
/// Maximum added latency: the median, and the 99th percentile.
const LATENCY_BOUND: [f64; 2] = [50e-6, 500e-6];

pub(crate) async fn run(args: &SwitchBenchArgs, display: &Display) -> Result<()> {
    let mut report = Report {
        display,
        missed: Vec::new(),
    };
    report
        .display
        .print_line(&format!("{:<52} {:>12} {:>12}", "", "measured", "bound"))?;
    let theirs = match process::has_haproxy() {
        true => Some(measure_haproxy(args, &mut report).await?),
        false => None,
    };
    measure_frames(args, theirs, &mut report).await?;
    measure_latency(args, &mut report).await?;
    measure_memory(args, &mut report).await?;
    let missed = report.missed;
    ensure!(missed.is_empty(), "missed: {}", missed.join("; "));
    Ok(())
}

/// Prints values, and collects those beyond their bounds.
struct Report<'a> {
    display: &'a Display,
    missed: Vec<String>,
}

/// A bound of a value.
#[derive(Copy, Clone, Debug)]
enum Bound {
    None,
    AtLeast(f64),
    AtMost(f64),
}

impl Report<'_> {
    /// Prints a value in the unit of its name: `scale` of the unit are 1.
    fn add(&mut self, name: &str, value: f64, scale: f64, bound: Bound) -> Result<()> {
        let (limit, is_met) = match bound {
            Bound::None => (None, true),
            Bound::AtLeast(least) => (Some(least), value >= least),
            Bound::AtMost(most) => (Some(most), value <= most),
        };
        let shown = limit.map_or("-".to_owned(), |limit| format!("{:.1}", limit * scale));
        let value_shown = value * scale;
        self.display
            .print_line(&format!("{name:<52} {value_shown:>12.1} {shown:>12}"))?;
        self.display
            .print_json(&json!({"event": "value", "name": name, "value": value}))?;
        if !is_met {
            self.missed
                .push(format!("{name}: {value_shown:.1} beyond {shown}"));
        }
        Ok(())
    }

    /// Prints the profile of a flow: rate, and processor time for each frame.
    fn add_flow(&mut self, who: &str, bytes: usize, flow: &Flow, rate_bound: Bound) -> Result<()> {
        let frames = flow.bytes as f64 / bytes as f64;
        let rate = flow.bytes as f64 * 8.0 / flow.seconds;
        let name = |what: &str| format!("{who}, {bytes} B frames: {what}");
        self.add(&name("Gbit/s"), rate, 1e-9, rate_bound)?;
        self.add(
            &name("thousand frames/s"),
            frames / flow.seconds,
            1e-3,
            Bound::None,
        )?;
        let per_frame = flow.cpu_s / frames;
        self.add(&name("processor us per frame"), per_frame, 1e6, Bound::None)
    }

    fn add_latency(&mut self, who: &str, latency: &Latency) -> Result<()> {
        self.add(&format!("{who}: p50, us"), latency.p50, 1e6, Bound::None)?;
        self.add(&format!("{who}: p99, us"), latency.p99, 1e6, Bound::None)
    }
}

/// Returns HAProxy's rate of long frames in bit/s.
async fn measure_haproxy(args: &SwitchBenchArgs, report: &mut Report<'_>) -> Result<f64> {
    let servers = tcp::Servers::start().await?;
    let proxy = Proxy::haproxy(&servers.addresses).await?;
    let flow = tcp::measure_throughput(&proxy, &servers, args.duration).await?;
    report.add_flow("HAProxy (TCP)", LONG, &flow, Bound::None)?;
    let direct = tcp::measure_latency(servers.addresses[0], args.duration).await?;
    let proxied = tcp::measure_latency(proxy.address, args.duration).await?;
    let added = proxied.less(&direct);
    report.add_latency("HAProxy (TCP), added latency", &added)?;
    Ok(flow.bytes as f64 * 8.0 / flow.seconds)
}

async fn measure_frames(
    args: &SwitchBenchArgs,
    theirs: Option<f64>,
    report: &mut Report<'_>,
) -> Result<()> {
    let rate_bound = theirs.map_or(RATE_BOUND, |theirs| theirs.max(RATE_BOUND));
    for (bytes, bound) in [(LONG, Bound::AtLeast(rate_bound)), (SHORT, Bound::None)] {
        let members = load::Members::start()?;
        let switch = Proxy::switch(&members.addresses, "round-robin").await?;
        let flow = load::measure_throughput(&switch, &members, bytes, args.duration).await?;
        report.add_flow("switch", bytes, &flow, bound)?;
        if let (LONG, Some(theirs)) = (bytes, theirs) {
            let ratio = flow.bytes as f64 * 8.0 / flow.seconds / theirs;
            let name = format!("switch, {bytes} B frames: rate over HAProxy's");
            report.add(&name, ratio, 1.0, Bound::None)?;
        }
        if bytes == SHORT {
            let per_cpu = flow.bytes as f64 / bytes as f64 / flow.cpu_s;
            let name = format!("switch, {bytes} B frames: thousand per processor s");
            report.add(&name, per_cpu, 1e-3, Bound::AtLeast(FRAMES_BOUND))?;
        }
    }
    Ok(())
}

async fn measure_latency(args: &SwitchBenchArgs, report: &mut Report<'_>) -> Result<()> {
    // All requests have one key, so one member answers them, as without a switch.
    let members = load::Members::start()?;
    let switch = Proxy::switch(&members.addresses, "hash").await?;
    let direct = load::measure_latency(members.addresses[0], args.duration).await?;
    let switched = load::measure_latency(switch.address, args.duration).await?;
    report.add_latency("without a switch, 10,000 requests/s", &direct)?;
    report.add_latency("with a switch, 10,000 requests/s", &switched)?;
    let added = switched.less(&direct);
    let [p50, p99] = LATENCY_BOUND;
    report.add("added latency: p50, us", added.p50, 1e6, Bound::AtMost(p50))?;
    report.add("added latency: p99, us", added.p99, 1e6, Bound::AtMost(p99))
}

async fn measure_memory(args: &SwitchBenchArgs, report: &mut Report<'_>) -> Result<()> {
    let members = load::Members::start()?;
    let switch = Proxy::switch(&members.addresses, "hash").await?;
    let connections = load::open_many(switch.address, args.connections).await?;
    // Timers of idle connections run for a moment, too.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let memory = switch.resident_bytes()? as f64;
    let name = format!("MB of memory for {} connections", connections.len());
    let bound = match args.connections >= 10_000 {
        true => Bound::AtMost(MEMORY_BOUND * f64::from(args.connections) / 10_000.0),
        false => Bound::None,
    };
    report.add(&name, memory, 1e-6, bound)
}
