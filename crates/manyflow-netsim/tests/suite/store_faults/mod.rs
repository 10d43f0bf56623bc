//! Tests the chunk store through a switch under random faults: lossy links that reorder, members
//! that crash with or without their disk, leave, join and come back, and a switch that loses its
//! state. No chunk is lost that an upload has acknowledged while fewer members than copies are
//! gone, and each download ends with the right bytes or a true error.
//!
//! `seeds` describes how to choose the seeds.

mod check;
mod client;
mod member;
mod plan;
use crate::seeds;
mod task;
mod world;

use plan::Plan;

fn run(seed: u64) -> Result<(), String> {
    let plan = Plan::of(seed);
    let outcome = world::run(&plan);
    check::check(&plan, &outcome).map_err(|error| format!("{error}\n{outcome}"))
}

#[test]
fn acknowledged_chunks_survive_and_every_download_ends_truthfully() {
    seeds::run(
        "store_faults",
        |seed| {
            let plan = Plan::of(seed);
            println!("{plan:#?}\n{}", world::run(&plan));
        },
        run,
    );
}

/// Faults must not make most transfers fail, or the test above would show little.
#[test]
fn most_transfers_succeed_in_spite_of_faults() {
    let outcomes: Vec<_> = (0..40).map(|seed| world::run(&Plan::of(seed))).collect();
    let ended = outcomes.iter().flat_map(|outcome| &outcome.log.ended);
    let (mut done, mut all) = (0, 0);
    for (_, end) in ended {
        done += usize::from(end.is_success());
        all += 1;
    }
    println!("{done} of {all} transfers succeeded");
    assert!(all >= 80 && 5 * done >= 4 * all, "{done} of {all}");
}
