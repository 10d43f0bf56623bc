//! Tests the memory use of a large simulation. The allocator counts it, so it is the same in every
//! run.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use manyflow_scenario::{Job, Scenario};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const SCENARIO: &str = include_str!("../../../scenarios/x-scale.toml");
/// The maximum memory of a receiver in bytes: its endpoint, node, links, routes, joins, queues and
/// records.
const RECEIVER_MAX: usize = 2048;

/// Returns the maximum memory in use, from reading the scenario to its results, with k * k * k
/// receivers.
fn peak_bytes(k: usize) -> usize {
    const SWEPT: &str = "k = [1, 10, 22, 46, 100]";
    assert!(SCENARIO.contains(SWEPT));
    let text = SCENARIO.replace(SWEPT, &format!("k = [{k}]"));
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let scenario = Scenario::parse("x-scale.toml", &text, false).unwrap();
    let job = Job {
        cell: 0,
        seed: 1,
        place: 0,
    };
    let run = scenario.run_one(job).unwrap();
    assert_eq!(run.receivers, (k * k * k) as u64);
    // Each receiver gets several packets per second for the 20 s after the last receiver has
    // joined.
    assert!(run.transmissions > 40 * run.receivers);
    ALLOCATOR.peak_usage() - before
}

#[test]
fn each_of_a_hundred_thousand_receivers_takes_at_most_2048_bytes() {
    let (one, many) = (peak_bytes(1), peak_bytes(46));
    let share = (many - one) / (46 * 46 * 46 - 1);
    println!("{share} bytes a receiver");
    assert!(share <= RECEIVER_MAX, "{share} bytes a receiver");
}
