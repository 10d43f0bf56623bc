//! `manyflow-rig bench order`: messages in one order among three members, at our daemons and at the
//! programs that others use for it.
//!
//! Three hosts are network namespaces on a bridge. Each has a daemon and a member of one group,
//! which sends and receives. Two loads are measured: as many messages as the programs carry, and a
//! low rate for the latency. Our members are NATS clients of this process; those of the other
//! programs are processes, which are compiled when the benchmark runs ([`peers`](self) are not
//! linked with anything of this repository).
//!
//! | file | contents |
//! |---|---|
//! | `peers.rs` | the other programs: how they are found, compiled, configured and started |
//! | `members.rs` | their members as processes, and what they measured |
//! | `peers/` | the sources of these members |

mod members;
mod peers;

use anyhow::{Context as _, Result, ensure};
use manyflow_terminal::Display;
use serde_json::json;

use self::members::run_load;
use self::peers::{Built, Peer};
use super::group::load::{self, Load, MEMBERS};
use super::group::servers::{Program, Servers, Service};
use super::group::{LATENCY_MESSAGES_PER_S, LATENCY_PAYLOAD_BYTES};
use super::lan::{Lan, Layout};
use super::median;
use crate::cli::{GroupController, GroupLayout, OrderArgs, OrderProgram};

/// The results of a load.
#[derive(Debug)]
struct Figures {
    /// Deliveries to members, in all.
    deliveries_per_s: f64,
    /// Processor time of all daemons.
    cpu_us_per_delivery: f64,
    /// Median, 90th and 99th percentile; NaN without a rate.
    latency_us: [f64; 3],
    /// Messages that were missed, or came twice or out of their sender's order.
    wrong: u64,
    /// Whether all members got all messages in one order; `None` if it was not compared.
    is_one_order: Option<bool>,
}

/// A program, with the service of its messages.
#[derive(Debug)]
enum Subject {
    Ours(Service),
    Peer(Peer, Built),
}

impl Subject {
    fn name(&self) -> String {
        match self {
            Subject::Ours(Service::Agreed) => "manyflow, agreed".to_owned(),
            Subject::Ours(Service::Safe) => "manyflow, safe".to_owned(),
            Subject::Peer(peer, _) => peer.name().to_owned(),
        }
    }

    /// Starts the daemons of a run, and measures both loads.
    fn measure(&self, lan: &Lan, loads: &[Load; 2]) -> Result<[Figures; 2]> {
        match self {
            Subject::Ours(service) => {
                let (layout, controller) = (GroupLayout::Mesh, GroupController::CostBenefit);
                let program = Program::Ordered(layout, controller, *service);
                let servers = Servers::start(program, Some(lan))?;
                let run = |load| our_figures(&servers, load);
                let measured = run(&loads[0]).and_then(|full| Ok([full, run(&loads[1])?]));
                measured.map_err(|error| error.context(servers.last_lines()))
            }
            Subject::Peer(peer, built) => {
                let daemons = peer.start(built, lan)?;
                let run = |load| run_load(*peer, built, lan, &daemons, load);
                Ok([run(&loads[0])?, run(&loads[1])?])
            }
        }
    }
}

fn our_figures(servers: &Servers<'_>, load: &Load) -> Result<Figures> {
    let measured = load::run(servers, load)?;
    Ok(Figures {
        deliveries_per_s: measured.messages_per_s(),
        cpu_us_per_delivery: measured.cpu_us_per_message(),
        latency_us: [0.5, 0.9, 0.99].map(|quantile| measured.latency_us(quantile)),
        wrong: measured.failures(),
        is_one_order: None,
    })
}

/// Measures all programs in turn.
///
/// # Errors
/// If there are no namespaces, if a program fails, or if members of our daemons miss messages.
pub(crate) fn run(args: &OrderArgs, display: &Display) -> Result<()> {
    let subjects = subjects(args, display)?;
    let lan = Lan::new(MEMBERS - 1, Layout::Flat)?;
    let loads = loads(args);
    print_header(display)?;
    let mut results: Vec<(Subject, Vec<[Figures; 2]>)> = subjects
        .into_iter()
        .map(|subject| (subject, Vec::new()))
        .collect();
    let mut failures = Vec::new();
    for run in 1..=args.runs {
        for (subject, runs) in &mut results {
            let name = format!("{}, run {run} of {}", subject.name(), args.runs);
            let spinner = display.spinner(name.clone());
            let measured = subject.measure(&lan, &loads).context(name);
            spinner.finish_and_clear();
            match measured {
                Ok(figures) => {
                    print_row(
                        display,
                        "run",
                        &subject.name(),
                        std::slice::from_ref(&figures),
                    )?;
                    runs.push(figures);
                }
                Err(error) => failures.push(format!("{error:#}")),
            }
        }
    }
    display.print_line(&format!("medians of {}:", args.runs))?;
    for (subject, runs) in results.iter().filter(|(_, runs)| !runs.is_empty()) {
        print_row(display, "program", &subject.name(), runs)?;
    }
    ensure!(failures.is_empty(), "{}", failures.join("; "));
    for (subject, runs) in &results {
        let wrong: u64 = runs.iter().flatten().map(|figures| figures.wrong).sum();
        let is_ours = matches!(subject, Subject::Ours(_));
        ensure!(
            wrong == 0 || !is_ours,
            "members of {} missed {wrong} messages, or got them twice or out of order",
            subject.name()
        );
    }
    Ok(())
}

/// Returns the loads for the rate and for the latency.
fn loads(args: &OrderArgs) -> [Load; 2] {
    let load = |payload_bytes, messages_per_s| Load {
        payload_bytes,
        messages_per_s,
        duration: args.duration,
        messages_max: None,
    };
    [
        load(args.size.0 as usize, None),
        load(LATENCY_PAYLOAD_BYTES, Some(LATENCY_MESSAGES_PER_S)),
    ]
}

fn print_header(display: &Display) -> Result<()> {
    display.print_line(&format!(
        "{:<28} {:>10} {:>11} {:>12} {:>14} {:>8} {:>8} {:>8} {:>6} {:>9}",
        "program",
        "messages/s",
        "delivered/s",
        "CPU us/deliv",
        "CPU us at 1k/s",
        "p50 us",
        "p90 us",
        "p99 us",
        "wrong",
        "one order"
    ))?;
    Ok(())
}

/// Returns the programs to measure, and says which are missing.
fn subjects(args: &OrderArgs, display: &Display) -> Result<Vec<Subject>> {
    let wanted = args.program.as_deref().unwrap_or(&[
        OrderProgram::Manyflow,
        OrderProgram::Corosync,
        OrderProgram::Spread,
        OrderProgram::Jgroups,
    ]);
    let mut subjects = Vec::new();
    for program in wanted {
        let peers: &[Peer] = match program {
            OrderProgram::Manyflow => {
                subjects.extend([Service::Agreed, Service::Safe].map(Subject::Ours));
                continue;
            }
            OrderProgram::Corosync => &[Peer::Corosync],
            OrderProgram::Spread => &[Peer::Spread(Service::Agreed), Peer::Spread(Service::Safe)],
            OrderProgram::Jgroups => &[Peer::Sequencer, Peer::Udp],
        };
        for peer in peers {
            match peer.build() {
                Ok(built) => subjects.push(Subject::Peer(*peer, built)),
                Err(missing) => display.print_line(&format!("{}: {missing:#}", peer.name()))?,
            }
        }
    }
    Ok(subjects)
}

fn print_row(display: &Display, event: &str, name: &str, runs: &[[Figures; 2]]) -> Result<()> {
    let of = |value: fn(&[Figures; 2]) -> f64| median(runs.iter().map(value));
    let deliveries_per_s = of(|[full, _]| full.deliveries_per_s);
    let messages_per_s = deliveries_per_s / MEMBERS as f64;
    let cpu_us = of(|[full, _]| full.cpu_us_per_delivery);
    let low_cpu_us = of(|[_, low]| low.cpu_us_per_delivery);
    let p50_us = of(|[_, low]| low.latency_us[0]);
    let p90_us = of(|[_, low]| low.latency_us[1]);
    let p99_us = of(|[_, low]| low.latency_us[2]);
    let wrong: u64 = runs.iter().flatten().map(|figures| figures.wrong).sum();
    let orders: Vec<_> = runs
        .iter()
        .flatten()
        .filter_map(|figures| figures.is_one_order)
        .collect();
    let is_one_order = (!orders.is_empty()).then(|| orders.iter().all(|is_one| *is_one));
    let one_order = is_one_order.map_or("", |is_one| if is_one { "yes" } else { "no" });
    display.print_line(&format!(
        "{name:<28} {messages_per_s:>10.0} {deliveries_per_s:>11.0} {cpu_us:>12.1} {low_cpu_us:>14.1} {p50_us:>8.0} \
         {p90_us:>8.0} {p99_us:>8.0} {wrong:>6} {one_order:>9}"
    ))?;
    display.print_json(&json!({
        "event": event, "program": name, "messages_per_s": messages_per_s, "delivered_per_s": deliveries_per_s,
        "cpu_us_per_delivery": cpu_us, "cpu_us_per_delivery_at_low_rate": low_cpu_us, "latency_p50_us": p50_us,
        "latency_p90_us": p90_us, "latency_p99_us": p99_us, "wrong": wrong, "one_order": is_one_order,
    }))?;
    Ok(())
}
