//! Groups under faults drawn at random: lossy links that reorder and duplicate, links that are cut and restored again and again, clients that
//! join late, leave, crash, read slowly or not at all for a while, queues, buffers and windows of few messages. Whatever happens, each
//! member reads each sender's messages in order, none twice, and from its first one on none is missing; and every sender gets on.
//!
//! `MANYFLOW_SEEDS=n` runs n seeds (40 by default) from `MANYFLOW_FIRST` on (0), `MANYFLOW_SEED=k` that one alone and prints its
//! plan.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod check;
mod client;
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
fn members_read_every_senders_messages_once_in_order_and_without_a_gap() {
    if let Some(seed) = variable("MANYFLOW_SEED") {
        println!("{:#?}", Plan::of(seed));
        let outcome = world::run(&Plan::of(seed));
        println!("{outcome}");
        run(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        return;
    }
    let seeds = variable("MANYFLOW_SEEDS").unwrap_or(40);
    let mut failed = 0;
    let first = variable("MANYFLOW_FIRST").unwrap_or(0);
    for seed in first..first + seeds {
        if let Err(error) = run(seed) {
            failed += 1;
            eprintln!("seed {seed} ({:?}): {error}", Plan::of(seed).control);
            eprintln!(
                "MANYFLOW_SEED={seed} cargo test -p manyflow-netsim --test overlay_faults -- --nocapture\n"
            );
        }
    }
    assert_eq!(failed, 0, "of {seeds} seeds");
}
