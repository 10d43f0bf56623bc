//! `manyflow-rig bench group`: messages of three senders to a group of three members, over an
//! overlay of three daemons.
//!
//! The same senders and members then use nats-server, if it is installed: one server, and a cluster
//! of three. All of them speak the NATS client protocol, and share one process and one clock. Two
//! loads are measured: as many messages as the servers carry, and a low rate for the latency.
//!
//! | file | contents |
//! |---|---|
//! | `load.rs` | three senders and three members, and what they measured |
//! | `member.rs` | one member: counts messages and checks their order |
//! | `sender.rs` | one sender: writes messages as fast as it can, or at a rate |
//! | `servers.rs` | the processes of our daemons or of nats-server |
//! | `client.rs` | connections of senders and members |

mod client;
pub(super) mod load;
mod member;
mod sender;
pub(super) mod servers;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use self::load::{Load, Measured, Order};
use self::servers::{Program, Servers, Service};
use crate::bench::profile;
use crate::cli::{GroupArgs, GroupProgram};
use manyflow_terminal::Display;

/// The goals for our daemons, which are printed beside the results.
const GOALS: &str = "goals for manyflow: 70,000 messages/s; 20 us CPU a message; p50 under 180 us; \
                     p99 under 1000 us";
/// The load that latency is measured under: messages per second of all senders together.
pub(super) const LATENCY_MESSAGES_PER_S: u32 = 1_000;
pub(super) const LATENCY_PAYLOAD_BYTES: usize = 100;

/// Measures all programs in turn.
///
/// A program that fails is not measured again, and the others are: the numbers of our daemons do
/// not depend on nats-server.
///
/// # Errors
/// If a program fails, or if members of our daemons miss messages or receive them twice or out of
/// order.
pub(crate) fn run(args: &GroupArgs, display: &Display) -> Result<()> {
    let programs = installed_programs(args, display)?;
    display.print_line(&format!(
        "{:<28} {:>12} {:>14} {:>14} {:>10} {:>10} {:>8}",
        "program", "messages/s", "CPU us/message", "CPU us at 1k/s", "p50 us", "p99 us", "wrong"
    ))?;
    let mut results: Vec<_> = programs
        .into_iter()
        .map(|program| (program, Vec::new()))
        .collect();
    let mut failures = Vec::new();
    for run in 1..=args.runs {
        results.retain_mut(|(program, runs)| {
            match measure_once(*program, run, args, display) {
                Ok(measured) => runs.push(measured),
                Err(error) => failures.push(format!("{error:#}")),
            }
            runs.len() == run as usize
        });
    }
    display.print_line(&format!("medians of {}:", args.runs))?;
    for (program, runs) in &results {
        print_medians(display, *program, runs)?;
    }
    display.print_line(GOALS)?;
    let ours = results.iter().find(|(program, _)| program.is_ours());
    if args.profile
        && let Some((program, _)) = ours
    {
        print_profile(*program, args, display)?;
    }
    ensure!(failures.is_empty(), "{}", failures.join("; "));
    check_order(&results)
}

/// Measures and prints one run of a program.
fn measure_once(program: Program, run: u32, args: &GroupArgs, display: &Display) -> Result<Run> {
    let name = format!("{program}, run {run} of {}", args.runs);
    let spinner = display.spinner(name.clone());
    let measured = measure(program, args).context(name);
    spinner.finish_and_clear();
    let measured = measured?;
    print_run(display, program, &measured)?;
    Ok(measured)
}

/// Both loads on one program.
#[derive(Debug, Clone)]
struct Run {
    full: Measured,
    latency: Measured,
}

impl Run {
    fn order(&self) -> Order {
        self.full.order + self.latency.order
    }
}

fn installed_programs(args: &GroupArgs, display: &Display) -> Result<Vec<Program>> {
    let wanted = args.program.as_deref().unwrap_or(&[
        GroupProgram::Manyflow,
        GroupProgram::NatsServer,
        GroupProgram::NatsCluster,
    ]);
    let wanted = wanted.iter().map(|program| match program {
        GroupProgram::Manyflow => Program::Manyflow(args.layout, args.controller),
        GroupProgram::Agreed => Program::Ordered(args.layout, args.controller, Service::Agreed),
        GroupProgram::Safe => Program::Ordered(args.layout, args.controller, Service::Safe),
        GroupProgram::NatsServer => Program::NatsServer,
        GroupProgram::NatsCluster => Program::NatsCluster,
    });
    let (installed, missing): (Vec<_>, Vec<_>) = wanted.partition(Program::is_installed);
    for program in missing {
        display.print_line(&format!(
            "{program} is not installed (Debian: apt-get install nats-server)"
        ))?;
    }
    Ok(installed)
}

fn measure(program: Program, args: &GroupArgs) -> Result<Run> {
    let servers = Servers::start(program, None)?;
    run_loads(&servers, args).map_err(|error| error.context(servers.last_lines()))
}

/// Prints where the processor time of our daemons goes under the first load.
fn print_profile(program: Program, args: &GroupArgs, display: &Display) -> Result<()> {
    if !profile::is_installed(display)? {
        return Ok(());
    }
    let records = tempfile::tempdir()?;
    let mut servers = Servers::start_recorded(program, None, Some(records.path()))?;
    load::run(&servers, &full_load(args)).map_err(|error| error.context(servers.last_lines()))?;
    servers.end()?;
    display.print_line("processor time of the daemons by the code that takes it:")?;
    for name in servers::NAMES {
        profile::print(display, name, &records.path().join(name))?;
    }
    Ok(())
}

fn run_loads(servers: &Servers<'_>, args: &GroupArgs) -> Result<Run> {
    let full = load::run(servers, &full_load(args))?;
    let latency = load::run(
        servers,
        &Load {
            payload_bytes: LATENCY_PAYLOAD_BYTES,
            messages_per_s: Some(LATENCY_MESSAGES_PER_S),
            duration: args.duration,
            messages_max: None,
        },
    )?;
    Ok(Run { full, latency })
}

/// Returns the load of as many messages as the servers carry.
fn full_load(args: &GroupArgs) -> Load {
    Load {
        payload_bytes: args.size.0 as usize,
        messages_per_s: None,
        duration: args.duration,
        messages_max: args.count,
    }
}

/// A line of the table: the numbers of one run, or their medians.
#[derive(Debug)]
struct Row {
    messages_per_s: f64,
    cpu_us: f64,
    latency_cpu_us: f64,
    p50_us: f64,
    p99_us: f64,
    order: Order,
}

impl Row {
    fn of(runs: &[Run]) -> Row {
        let median = |value: fn(&Run) -> f64| super::median(runs.iter().map(value));
        Row {
            messages_per_s: median(|run| run.full.messages_per_s()),
            cpu_us: median(|run| run.full.cpu_us_per_message()),
            latency_cpu_us: median(|run| run.latency.cpu_us_per_message()),
            p50_us: median(|run| run.latency.latency_us(0.5)),
            p99_us: median(|run| run.latency.latency_us(0.99)),
            order: runs
                .iter()
                .map(Run::order)
                .fold(Order::default(), |sum, order| sum + order),
        }
    }
}

fn print_run(display: &Display, program: Program, run: &Run) -> Result<()> {
    print_row(display, "run", program, &Row::of(std::slice::from_ref(run)))
}

fn print_medians(display: &Display, program: Program, runs: &[Run]) -> Result<()> {
    print_row(display, "program", program, &Row::of(runs))
}

fn print_row(display: &Display, event: &str, program: Program, row: &Row) -> Result<()> {
    display.print_line(&format!(
        "{:<28} {:>12.0} {:>14.1} {:>14.1} {:>10.0} {:>10.0} {:>8}",
        program.to_string(),
        row.messages_per_s,
        row.cpu_us,
        row.latency_cpu_us,
        row.p50_us,
        row.p99_us,
        row.order.failures(),
    ))?;
    display.print_json(&json!({
        "event": event, "program": program.to_string(), "messages_per_s": row.messages_per_s,
        "cpu_us_per_message": row.cpu_us, "cpu_us_per_message_at_low_rate": row.latency_cpu_us,
        "latency_p50_us": row.p50_us, "latency_p99_us": row.p99_us, "missed": row.order.missed,
        "repeated": row.order.repeated,
    }))?;
    Ok(())
}

/// Fails if our members missed messages, or received them twice or out of order. nats-server
/// disconnects slow members, so their losses are only printed.
fn check_order(results: &[(Program, Vec<Run>)]) -> Result<()> {
    for (program, runs) in results {
        let order = Row::of(runs).order;
        ensure!(
            order.failures() == 0 || !program.is_ours(),
            "members of {program} missed {} messages, and received {} twice or out of order",
            order.missed,
            order.repeated
        );
    }
    Ok(())
}
