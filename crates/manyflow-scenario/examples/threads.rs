//! Measures what several threads do for one run: the events within a lookahead, the balance of the
//! parts, and the speed-up on this machine. Checks that the results are those of one thread.
//!
//! ```text
//! cargo run --release -p manyflow-scenario --example threads -- fat-tree
//! cargo run --release -p manyflow-scenario --example threads -- scenarios/x-scale.toml 3
//! ```
//!
//! The second argument is the number of the cell, the third the largest number of parts. More parts
//! than the machine has cores show lookahead and balance, but no speed-up. The seconds of processor
//! time are of all threads, with the time in which they spin; on one core (`taskset -c 0`) nobody
//! waits, so they are the work of the parts and of the merge. Two runs of one thread each, at once,
//! show how much more two cores of this machine do than one.
//!
//! The fat tree has 16 ports a switch: 1,024 hosts below 320 switches. Its links have 10 Gbit/s, a
//! queue of 100 packets, a delay of 1 us in the switch, and cables of 5 to 100 m with 5 ns a metre.
//! Each host sends to another one by TCP (SACK, a permutation), and starts within 100 us.

#![allow(clippy::print_stdout, reason = "a program for the terminal")]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "it measures the time that a run takes"
)]

use std::error::Error;
use std::time::{Duration, Instant};

use manyflow_core::link::{LinkConfig, QueueLimit};
use manyflow_core::{EndpointId, Time};
use manyflow_netsim::{Network, NodeId, Windows};
use manyflow_scenario::{Progress, Scenario};
use manyflow_tcp::{Event, Receiver, Segment, Sender, TcpConfig, Variant};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// The ports of a switch.
const PORTS: u32 = 16;
/// The simulated time of the fat tree.
const SIMULATED: Duration = Duration::from_millis(2);
/// Runs of each kind, of which the fastest counts: other processes only slow a run down.
const RUNS: usize = 3;

/// A run: its result, and the work of its threads.
type Made<R> = (R, Option<Windows>);

/// The packets and bytes that each endpoint received.
type Counts = Vec<(u64, u64)>;

/// Runs with the same number of parts.
struct Measured<R> {
    /// The shortest time that a run took.
    real_s: f64,
    /// The least time of processors that a run took.
    processor_s: f64,
    made: Made<R>,
}

/// Returns the processor time of this process so far, from Linux's `/proc`.
fn processor_s() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: Option<Vec<u32>> = ticks.map(|field| field.parse().ok()).collect();
    Some(f64::from(ticks?.iter().sum::<u32>()) / 100.0)
}

fn measure<R: PartialEq>(
    run: impl Fn() -> Result<Made<R>, Box<dyn Error>>,
) -> Result<Measured<R>, Box<dyn Error>> {
    let mut best: Option<Measured<R>> = None;
    for _ in 0..RUNS {
        let (began, before) = (Instant::now(), processor_s());
        let made = run()?;
        let real_s = began.elapsed().as_secs_f64();
        let processor_s = processor_s()
            .zip(before)
            .map_or(f64::NAN, |(now, was)| now - was);
        best = Some(match best {
            None => Measured {
                real_s,
                processor_s,
                made,
            },
            Some(best) => {
                assert!(best.made.0 == made.0, "a run gave another result");
                Measured {
                    real_s: best.real_s.min(real_s),
                    processor_s: best.processor_s.min(processor_s),
                    made,
                }
            }
        });
    }
    best.ok_or_else(|| "nothing ran".into())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize| arguments.get(place).map(|text| text.parse()).transpose();
    let cores = std::thread::available_parallelism()?.get();
    let threads = number(2)?.unwrap_or(cores);
    match arguments.first().map(String::as_str) {
        None | Some("fat-tree") => compare(threads, fat_tree),
        Some(file) => {
            let text = std::fs::read_to_string(file)?;
            let scenario = Scenario::parse(file, &text, false)?;
            let cell = number(1)?.unwrap_or(0);
            let jobs = scenario.jobs()?;
            let job = jobs.into_iter().find(|job| job.cell == cell);
            let job = job.ok_or("the scenario has no such cell")?;
            compare(threads, |threads| {
                let mut work = None;
                let outcomes = scenario.run(&[job], threads, &mut |progress| match progress {
                    Progress::Threads(Ok(windows)) => work = Some(windows),
                    Progress::Threads(Err(why)) => println!("one thread: {why}"),
                    _ => {}
                });
                Ok((format!("{outcomes:?}"), work))
            })
        }
    }
}

fn compare<R: PartialEq + Send>(
    parts: usize,
    run: impl Fn(usize) -> Result<Made<R>, Box<dyn Error>> + Sync,
) -> Result<(), Box<dyn Error>> {
    println!(
        "parts  seconds  speed-up  processor s  lookahead  windows  events/window  balance  crossings/event"
    );
    let one = measure(|| run(1))?;
    show(1, &one, one.real_s);
    let at_once = measure(|| run_twice_at_once(&run))?;
    println!(
        "two runs at once, which share nothing: {:.2} times the work of one in the same time",
        2.0 * one.real_s / at_once.real_s
    );
    let powers = (1..).map(|power| 1 << power);
    for count in powers.take_while(|count| *count <= parts) {
        let measured = measure(|| run(count))?;
        show(count, &measured, one.real_s);
        assert!(measured.made.0 == one.made.0, "threads changed the result");
    }
    Ok(())
}

/// Makes two runs of one thread each, at the same time. They wait for each other at no time, so two
/// threads of one run are at most as fast as these: they share caches, memory, and maybe the units
/// of one core.
fn run_twice_at_once<R: PartialEq + Send>(
    run: &(impl Fn(usize) -> Result<Made<R>, Box<dyn Error>> + Sync),
) -> Result<Made<R>, Box<dyn Error>> {
    let (first, second) = std::thread::scope(|scope| {
        let other = scope.spawn(|| run(1).map_err(|error| error.to_string()));
        (run(1), other.join())
    });
    let second = second.map_err(|_| "a run panicked")??;
    let first = first?;
    assert!(first.0 == second.0, "two equal runs have different results");
    Ok(first)
}

fn show<R>(parts: usize, measured: &Measured<R>, one_s: f64) {
    let Measured {
        real_s,
        processor_s,
        made,
    } = measured;
    print!(
        "{parts:5} {real_s:8.3} {:9.2} {processor_s:12.2}",
        one_s / real_s
    );
    if let Some(work) = made.1 {
        let lookahead = format!("{:?}", work.lookahead);
        let (windows, events) = (work.windows as f64, work.events as f64);
        print!(
            " {lookahead:>10} {windows:8} {:14.1} {:8.2} {:16.3}",
            events / windows,
            events / work.longest as f64,
            work.crossings as f64 / events,
        );
    }
    println!();
}

/// Runs the fat tree. Returns the packets and bytes that each endpoint received.
fn fat_tree(threads: usize) -> Result<Made<Counts>, Box<dyn Error>> {
    let mut network = Network::<Segment, Event>::new(1);
    let hosts = add_fat_tree(&mut network)?;
    let endpoints = add_flows(&mut network, &hosts)?;
    network.set_threads(threads);
    network.run_until(Time::ZERO + SIMULATED, &mut ())?;
    let received = endpoints.map(|id| network.received(EndpointId(id)));
    let received = received.map(|all| (all.packets, all.bytes)).collect();
    Ok((received, network.windows()))
}

/// Adds the switches and hosts (Al-Fares, Loukissas, Vahdat, "A scalable, commodity data center
/// network architecture", 2008). Returns the hosts.
fn add_fat_tree(network: &mut Network<Segment, Event>) -> Result<Vec<NodeId>, Box<dyn Error>> {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let half = PORTS / 2;
    let rate = Some("10 Gbit/s".parse()?);
    let mut join = |network: &mut Network<_, _>, a, b| {
        let metres = random.random_range(5..=100);
        let config = LinkConfig {
            rate,
            delay: Duration::from_nanos(1000 + 5 * metres),
            queue: QueueLimit::Packets(100),
            ..LinkConfig::default()
        };
        network.add_duplex(a, b, config);
    };
    let mut hosts = Vec::new();
    let cores = half * half;
    let cores: Vec<_> = (0..cores)
        .map(|core| network.add_node(&format!("core-{core}")))
        .collect();
    for pod in 0..PORTS {
        let above: Vec<_> = (0..half)
            .map(|place| network.add_node(&format!("above-{pod}-{place}")))
            .collect();
        for edge in 0..half {
            let switch = network.add_node(&format!("edge-{pod}-{edge}"));
            for host in 0..half {
                let host = network.add_node(&format!("host-{pod}-{edge}-{host}"));
                join(network, switch, host);
                hosts.push(host);
            }
            above.iter().for_each(|above| join(network, switch, *above));
        }
        for (place, core) in cores.iter().enumerate() {
            join(network, above[place / half as usize], *core);
        }
    }
    Ok(hosts)
}

/// Adds a connection from each host to another one. Returns the endpoints.
fn add_flows(
    network: &mut Network<Segment, Event>,
    hosts: &[NodeId],
) -> Result<std::ops::Range<u32>, Box<dyn Error>> {
    let mut random = Pcg64Mcg::seed_from_u64(2);
    let mut order: Vec<_> = (0..hosts.len()).collect();
    order.shuffle(&mut random);
    for (place, from) in order.iter().enumerate() {
        let to = order[(place + 1) % order.len()];
        let config = TcpConfig {
            start: Time::from_nanos(random.random_range(0..100_000)),
            ..TcpConfig::of(Variant::Sack)
        };
        let sender = network.next_endpoint();
        let receiver = EndpointId(sender.0 + 1);
        network.add(
            hosts[*from],
            Sender::new(config.clone(), receiver, random.random())?,
        );
        network.add(hosts[to], Receiver::new(config, sender)?);
    }
    Ok(0..network.next_endpoint().0)
}
