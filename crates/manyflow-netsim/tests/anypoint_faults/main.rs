//! Connections through a switch under faults drawn at random: losses, duplicates, reordering; members that die, leave and join; a
//! switch that forgets everything. Whatever happens, each frame arrives as documented, and each end hears how it ended.
//!
//! `MANYFLOW_SEEDS=n` runs n seeds (40 by default) from `MANYFLOW_FIRST` on (0), `MANYFLOW_SEED=k` that one alone and prints its
//! plan.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod check;
mod end;
mod plan;
mod world;

use plan::Plan;

/// The number in an environment variable.
fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} must be a number, not \"{value}\"")))
}

fn run(seed: u64) -> Result<(), String> {
    let plan = Plan::of(seed);
    let outcome = world::run(&plan);
    check::check(&plan, &outcome).map_err(|error| format!("{error}\n{outcome}"))
}

#[test]
fn frames_arrive_once_and_in_order_and_every_end_hears_how_it_ended() {
    if let Some(seed) = variable("MANYFLOW_SEED") {
        println!("{:#?}", Plan::of(seed));
        run(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        return;
    }
    let seeds = variable("MANYFLOW_SEEDS").unwrap_or(40);
    let mut failed = 0;
    let first = variable("MANYFLOW_FIRST").unwrap_or(0);
    for seed in first..first + seeds {
        if let Err(error) = run(seed) {
            failed += 1;
            eprintln!("seed {seed}: {error}");
            eprintln!(
                "MANYFLOW_SEED={seed} cargo test -p manyflow-netsim --test anypoint_faults -- --nocapture\n"
            );
        }
    }
    assert_eq!(failed, 0, "of {seeds} seeds");
}
