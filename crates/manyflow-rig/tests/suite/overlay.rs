//! The soak of overlays, which checks every message itself.

use manyflow_testing::programs::{Manyflow, rig};
use serde_json::Value;

/// Runs a command that must succeed, and returns the events that it prints.
fn events(arguments: &[&str]) -> Vec<Value> {
    let ended = Manyflow::start(rig(arguments)).finish().succeeded("soak");
    let lines = ended.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_short_soak_of_an_overlay_ends_well() {
    let events = events(&["soak", "overlay", "--for", "15s", "--seed", "3", "--json"]);
    let done = events.last().unwrap();
    println!("{done}");
    assert_eq!(done["event"], "done");
    assert!(done["kills"].as_u64().unwrap() > 0);
    assert!(done["cuts"].as_u64().unwrap() > 0);
}
