//! The demo and the soak of overlays, which check every message themselves.

use crate::common;

use serde_json::Value;

/// Runs a command that must succeed, and returns the events that it prints.
fn events(arguments: &[&str]) -> Vec<Value> {
    let ended = common::run(arguments).succeeded("the command");
    let lines = ended.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn members_miss_nothing_in_the_demo_although_a_daemon_is_killed() {
    let events = events(&["demo", "overlay", "--for", "24s", "--json"]);
    let done = events.last().unwrap();
    println!("{done}");
    assert_eq!(done["event"], "done");
    assert!(done["messages"].as_u64().unwrap() > 0);
    let seconds = events.iter().filter(|event| event["event"] == "second");
    let mut links = seconds.flat_map(|event| event["links"].as_array().unwrap());
    assert!(links.any(|link| link["up"] == false), "a daemon is killed");
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
