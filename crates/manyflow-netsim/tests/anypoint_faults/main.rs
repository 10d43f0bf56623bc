//! Connections through a switch under faults drawn at random: losses, duplicates, reordering;
//! members that die, leave and join; a switch that forgets everything. Whatever happens, each frame
//! arrives as documented, and each end hears how it ended.
//!
//! `seeds` tells which seeds are run.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod check;
mod end;
mod plan;
#[path = "../seeds/mod.rs"]
mod seeds;
mod world;

use plan::Plan;

fn run(seed: u64) -> Result<(), String> {
    let plan = Plan::of(seed);
    let outcome = world::run(&plan);
    check::check(&plan, &outcome).map_err(|error| format!("{error}\n{outcome}"))
}

#[test]
fn frames_arrive_once_and_in_order_and_every_end_hears_how_it_ended() {
    seeds::run(
        "anypoint_faults",
        |seed| println!("{:#?}", Plan::of(seed)),
        run,
    );
}
