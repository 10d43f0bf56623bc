//! The soak and the benchmarks of streams, in short forms.

use std::process::Output;

use manyflow_testing::programs::rig;
use serde_json::Value;

/// Runs the program with `--json`.
fn run(arguments: &[&str]) -> Output {
    let mut command = rig(arguments);
    command.arg("--json");
    command.output().expect("the program runs")
}

fn events(output: &Output, name: &str) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    let events = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    events
        .filter(|event: &Value| event["event"] == name)
        .collect()
}

fn assert_success(output: &Output) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}

#[test]
fn the_soak_finds_each_prefix_right() {
    let output = run(&["soak", "stream", "--for", "8s", "--receivers", "4"]);
    assert_success(&output);
    let done = events(&output, "done");
    assert!(done[0]["units"].as_u64().unwrap() > 0);
    assert!(!events(&output, "change").is_empty());
}

/// Runs a benchmark that is too short for its bounds, and checks that it names those that it
/// missed.
fn measured(arguments: &[&str]) -> Vec<Value> {
    let output = run(&[&["bench", "stream"], arguments].concat());
    let measured = events(&output, "measured");
    let is_missed = |event: &&Value| event["holds"] == false;
    let missed = measured.iter().filter(is_missed).count();
    assert_eq!(output.status.code(), Some(i32::from(missed > 0)));
    let errors = String::from_utf8_lossy(&output.stderr);
    for event in measured.iter().filter(is_missed) {
        assert!(errors.contains(event["name"].as_str().unwrap()), "{errors}");
    }
    measured
}

#[test]
fn the_benchmark_measures_each_receiver() {
    let measured = measured(&["--protocol", "both", "--for", "4s"]);
    let of = |text: &str| {
        let has = |event: &&Value| event["name"].as_str().unwrap().contains(text);
        measured.iter().filter(has).count()
    };
    for protocol in ["sim", "rlm"] {
        assert_eq!(of(&format!("{protocol}: useful share")), 4);
        assert_eq!(of(&format!("{protocol}: quality")), 4);
        assert_eq!(of(&format!("{protocol}: seconds to follow")), 2);
    }
    assert_eq!(of("SIM's efficiency beside RLM's"), 1);
    let wrong = measured
        .iter()
        .filter(|event| event["name"] == "  wrong prefixes");
    assert!(wrong.clone().count() == 8 && wrong.clone().all(|event| event["value"] == 0.0));
}

#[test]
fn the_benchmark_measures_faults_and_liars() {
    let faults = measured(&["--faults", "--for", "3s"]);
    let bounded = |event: &&Value| event["bound"].is_number();
    assert_eq!(faults.iter().filter(bounded).count(), 5 * 4);
    let liars = measured(&["--liars", "--for", "3s"]);
    assert_eq!(liars.len(), 2 * 4);
}
