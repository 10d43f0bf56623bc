//! Tests groups under random faults: lossy links that reorder and duplicate; links that are cut and
//! restored repeatedly; clients that join late, leave, crash, read slowly or pause; queues, buffers
//! and windows of few messages. In all cases each member reads each sender's messages in order,
//! none twice and none missing after its first one, and every sender makes progress.
//!
//! `seeds` describes how to choose the seeds.

mod check;
mod client;
mod living;
mod plan;
use crate::seeds;
mod world;

use std::sync::Arc;

use plan::Plan;

fn run(seed: u64) -> Result<(), String> {
    let plan = Plan::of(seed);
    let outcome = world::run(&plan);
    check::check(&plan, &outcome).map_err(|error| format!("{error}\n{outcome}"))
}

#[test]
fn members_read_every_senders_messages_once_in_order_and_without_a_gap() {
    seeds::run(
        "overlay_faults",
        |seed| println!("{:#?}\n{}", Plan::of(seed), world::run(&Plan::of(seed))),
        run,
    );
}

#[test]
fn those_who_remain_connected_miss_nothing_while_the_topology_changes() {
    let run = |seed| {
        let plan = Arc::new(living::Plan::of(seed));
        let outcome = living::run(&plan);
        living::check(&plan, &outcome).map_err(|error| format!("{error}\n{outcome}"))
    };
    let show = |seed| {
        let plan = Arc::new(living::Plan::of(seed));
        println!("{plan:#?}\n{}", living::run(&plan));
    };
    seeds::run("overlay_faults", show, run);
}

#[test]
fn ordered_groups_keep_their_promises_while_the_topology_changes() {
    let plan = |seed| Arc::new(living::Plan::of(seed).without_clients());
    let run = |seed| {
        let traces = living::run_ordered(&plan(seed))?;
        let violations = manyflow_order::check::check(&traces);
        match violations.first() {
            None => Ok(()),
            Some(first) => Err(format!("{first} ({} in all)", violations.len())),
        }
    };
    let show = |seed| {
        println!("{:#?}", plan(seed));
        for trace in living::run_ordered(&plan(seed)).into_iter().flatten() {
            println!("{} ({:?})", trace.member, trace.end);
            for (at, event) in trace.events.iter().enumerate() {
                println!("  {at}: {event:?}");
            }
        }
    };
    seeds::run("suite", show, run);
}
