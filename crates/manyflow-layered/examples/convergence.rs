//! From which states does SIM converge? Runs sessions from random starts, and compares what they
//! reach with the best menu for their receivers. `docs/convergence.md` has the results.
//!
//! ```text
//! cargo run --release -p manyflow-layered --example convergence -- 1000
//! cargo run --release -p manyflow-layered --example convergence -- 1000 paper random runs.csv
//! ```
//!
//! The first argument is the number of seeds (100), then follow the rules and the start (`all`),
//! and a file for one line a run. A run takes about a tenth of a second of
//! one processor.

#![allow(clippy::print_stdout, reason = "a program for the terminal")]
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "it uses all processors and writes a file; its own parameters are valid"
)]

#[path = "../tests/convergence/mod.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod convergence;

use std::error::Error;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use convergence::{Failure, LOSS_MAX, NEAR, RULES, Rules, Run, SPAN_S, STARTS, Start};

/// n_g, as in Fig. 2 of the paper.
const GROUPS: u8 = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |place: usize| arguments.get(place).map_or("all", String::as_str);
    let seeds = arguments.first().map_or(Ok(100), |text| text.parse())?;
    let rules = chosen(&RULES, argument(1), "rules")?;
    let starts = chosen(&STARTS, argument(2), "start")?;
    print_head(seeds);
    let mut lines = String::from(
        "rules,start,seed,capacities,best,efficiency,reached_s,worst_loss,lowest,marked,unmarked,used,needed,changes\n",
    );
    for (rules_name, rules) in rules {
        for (start_name, start) in &starts {
            let runs = run_all(rules, *start, seeds)?;
            show(rules_name, start_name, &runs);
            for run in &runs {
                write_line(&mut lines, rules_name, start_name, run)?;
            }
        }
    }
    match arguments.get(3) {
        Some(file) => Ok(std::fs::write(file, lines).map_err(|error| format!("{file}: {error}"))?),
        None => Ok(()),
    }
}

fn print_head(seeds: u64) {
    let percent = |share: f64| (100.0 * share).round();
    println!(
        "{seeds} seeds, {GROUPS} groups, {SPAN_S} s each. At the best menu: in the last 20 s, at least \
         {} % of its efficiency, and no receiver loses more than {} %",
        percent(NEAR),
        percent(LOSS_MAX)
    );
    println!(
        "few: runs with at most 5 capacities; near: the same whatever is lost; the rest: runs that end elsewhere"
    );
    println!(
        "{:8} {:8} {:>7} {:>7} {:>7} {:>6} {:>6} | {:>7} | {:>7} {:>7} {:>7}",
        "rules",
        "start",
        "best %",
        "few %",
        "many %",
        "50 %",
        "90 %",
        "near %",
        "grown %",
        "lossy %",
        "low %"
    );
}

/// Returns the entry with this name, or all.
fn chosen<T: Copy>(
    known: &[(&'static str, T)],
    name: &str,
    kind: &str,
) -> Result<Vec<(&'static str, T)>, String> {
    let fits = |entry: &&(&'static str, T)| name == "all" || name == entry.0;
    let chosen: Vec<_> = known.iter().filter(fits).copied().collect();
    let names: Vec<_> = known.iter().map(|entry| entry.0).collect();
    match chosen.is_empty() {
        true => Err(format!("no {kind} `{name}`: all, {}", names.join(", "))),
        false => Ok(chosen),
    }
}

/// Runs the seeds from 1 on all processors. Returns the results by seed.
fn run_all(rules: Rules, start: Start, seeds: u64) -> Result<Vec<Run>, Box<dyn Error>> {
    let next = AtomicU64::new(1);
    let work = || {
        let seed = || next.fetch_add(1, Ordering::Relaxed);
        let seeds = std::iter::repeat_with(seed).take_while(|seed| *seed <= seeds);
        let runs: Vec<Run> = seeds
            .map(|seed| convergence::run(rules, start, GROUPS, seed))
            .collect();
        runs
    };
    let threads = std::thread::available_parallelism()?.get();
    let mut runs = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined = workers
            .into_iter()
            .map(|worker| worker.join().expect("a run does not panic"));
        joined.flatten().collect::<Vec<Run>>()
    });
    runs.sort_by_key(|run| run.seed);
    Ok(runs)
}

/// Prints a line: the shares of runs that end at the best menu, of all, of those with at most as
/// many capacities as groups, and of those with more; the times to it; and the states of the runs
/// that end elsewhere.
fn show(rules: &str, start: &str, runs: &[Run]) {
    let percent = |of: &[&Run], holds: &dyn Fn(&Run) -> bool| {
        100.0 * of.iter().filter(|run| holds(run)).count() as f64 / of.len() as f64
    };
    let all: Vec<&Run> = runs.iter().collect();
    let is_few = |run: &&Run| run.capacities <= usize::from(GROUPS);
    let (few, many): (Vec<&Run>, Vec<&Run>) = runs.iter().partition(is_few);
    let mut times: Vec<usize> = runs.iter().filter_map(|run| run.reached_s).collect();
    times.sort_unstable();
    // The quantile of all runs; those that never reach the menu are the slowest.
    let quantile = |share: f64| {
        let place = (share * runs.len() as f64).ceil() as usize;
        let time = times.get(place.saturating_sub(1));
        time.map_or("never".to_owned(), |seconds| format!("{seconds} s"))
    };
    println!(
        "{rules:8} {start:8} {:7.1} {:7.1} {:7.1} {:>6} {:>6} | {:7.1} | {:7.1} {:7.1} {:7.1}",
        percent(&all, &Run::is_at_best),
        percent(&few, &Run::is_at_best),
        percent(&many, &Run::is_at_best),
        quantile(0.5),
        quantile(0.9),
        percent(&all, &Run::is_near),
        percent(&all, &|run| run.failure() == Some(Failure::Grown)),
        percent(&all, &|run| run.failure() == Some(Failure::Lossy)),
        percent(&all, &|run| run.failure() == Some(Failure::Low)),
    );
}

fn write_line(lines: &mut String, rules: &str, start: &str, run: &Run) -> std::fmt::Result {
    let reached = run
        .reached_s
        .map_or(String::new(), |seconds| seconds.to_string());
    writeln!(
        lines,
        "{rules},{start},{},{},{:.4},{:.4},{reached},{:.4},{:.3},{},{},{},{},{}",
        run.seed,
        run.capacities,
        run.best,
        run.efficiency,
        run.worst_loss,
        run.lowest,
        run.marked,
        run.unmarked,
        run.used,
        run.needed,
        run.changes
    )
}
