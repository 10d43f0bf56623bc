//! Tests connections through a switch under random faults: losses, duplicates, reordering, members
//! that crash, leave and join, and a switch that loses its state. In all cases each frame arrives
//! as documented, and each end learns how its connection ended.
//!
//! `seeds` describes how to choose the seeds.

mod check;
pub(crate) mod end;
pub(crate) mod plan;
use crate::seeds;
mod world;

use plan::Plan;

fn run(plan: &Plan) -> Result<(), String> {
    let outcome = world::run(plan);
    check::check(plan, &outcome).map_err(|error| format!("{error}\n{outcome}"))
}

#[test]
fn frames_arrive_once_and_in_order_and_every_end_terminates() {
    seeds::run(
        "anypoint_faults",
        |seed| println!("{:#?}", Plan::of(seed)),
        |seed| run(&Plan::of(seed)),
    );
}

#[test]
fn learned_shares_keep_the_same_promises() {
    seeds::run(
        "learned_shares",
        |seed| println!("{:#?}", Plan::learning(seed)),
        |seed| run(&Plan::learning(seed)),
    );
}
