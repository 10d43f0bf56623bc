//! Ordered groups under random faults: daemons that crash and restart, partitions that heal before
//! or after the overlay gives up, views of the topology that change at each daemon at another time
//! and are sometimes wrong, slow daemons, and clients that come and go and send with all services.
//! In all cases the [checker](manyflow_order::check) finds nothing, and in the end all daemons are
//! in one view, without timers, and keep no messages.
//!
//! `seeds` describes how to choose the seeds.

mod actions;
mod channel;
mod client;
mod plan;
mod world;

use crate::seeds;
use plan::Plan;
use world::World;

fn run(seed: u64) -> Result<(), String> {
    let outcome = World::run(&Plan::of(seed))?;
    let violations = manyflow_order::check::check(&outcome.traces);
    match violations.first() {
        None => Ok(()),
        Some(first) => Err(format!("{first} ({} in all)", violations.len())),
    }
}

/// Prints what each client saw.
fn show(seed: u64) {
    let plan = Plan::of(seed);
    println!("{plan:#?}");
    match World::run(&plan) {
        Ok(outcome) => {
            for trace in &outcome.traces {
                println!("{} ({:?})", trace.member, trace.end);
                for (at, event) in trace.events.iter().enumerate() {
                    println!("  {at}: {event:?}");
                }
            }
        }
        Err(error) => println!("{error}"),
    }
}

#[test]
fn members_see_one_order_and_the_same_views_whatever_fails() {
    seeds::run("suite", show, run);
}

#[test]
fn the_same_seed_gives_the_same_traces() {
    let run = |seed| World::run(&Plan::of(seed)).unwrap().traces;
    assert_eq!(run(3), run(3));
}
