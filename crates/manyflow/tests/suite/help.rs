//! Help of all commands, and the files with which a user of the simulator begins.

use crate::common;

use std::process::Command;

use common::{manyflow, run, text};
use manyflow_testing::command_lines::{check_widths, examples};
use manyflow_testing::programs::Ended;
use serde_json::Value;

/// Asserts that a command fails with `code` and an error that contains all of `parts`.
#[track_caller]
fn fails(arguments: &[&str], code: i32, parts: &[&str]) {
    let ended: Ended = run(arguments);
    assert_eq!(ended.code(), code, "{ended:?}");
    assert!(ended.stderr.starts_with("error: "), "{ended:?}");
    for part in parts {
        assert!(ended.stderr.contains(part), "no {part:?} in {ended:?}");
    }
}

#[test]
fn help_shows_examples_that_the_command_line_accepts() {
    for command in [
        "send", "recv", "keygen", "demo", "sim", "top", "store", "put", "get",
    ] {
        let help = run(&[command, "--help"]).succeeded(command);
        let prefix = format!("manyflow {command} ");
        let mut examples = examples(&help.stdout);
        examples.retain(|line| line.starts_with(&prefix) && !line.contains("<COMMAND>"));
        assert!(!examples.is_empty(), "{}", help.stdout);
        for example in examples {
            // With `--help` added, the command line is only checked for unknown options.
            let words = shell_words(&example);
            let words = words.iter().map(String::as_str).skip(1);
            run(&words.chain(["--help"]).collect::<Vec<_>>()).succeeded(&example);
        }
    }
    let help = run(&["--help"]).succeeded("help");
    assert!(help.stdout.contains("Exit codes:"), "{}", help.stdout);
}

#[test]
fn help_fits_the_terminal_and_has_examples_everywhere() {
    check_widths(run, manyflow);
    let mut help = manyflow(&["--help"]);
    let help = help.env("COLUMNS", "80").output().unwrap().stdout;
    let help = String::from_utf8(help).unwrap();
    assert!(help.lines().count() <= 60, "{help}");
    for group in [
        "Files",
        "Streams",
        "Messages",
        "Ensembles",
        "Research",
        "Tools",
    ] {
        assert!(help.contains(&format!("\n{group}:\n")), "{help}");
    }
}

#[test]
fn a_template_is_written_runs_and_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my.toml");
    let written = run(&["sim", "--new", "bottleneck", text(&path)]).succeeded("new");
    let next = format!("run it: manyflow sim {}", text(&path));
    assert!(written.stdout.contains(&next), "{written:?}");
    let out = folder.path().join("results");
    let sim = [
        "sim",
        text(&path),
        "--fast",
        "--cell",
        "0",
        "--out",
        text(&out),
    ];
    run(&sim).succeeded("sim");
    assert!(out.join("my/index.html").exists());
    let again = ["sim", "--new", "bottleneck", text(&path)];
    fails(&again, 1, &["my.toml", "choose a new name"]);
    fails(&["sim", "--new", "bottleneck"], 2, &["FILE|ID"]);
    fails(&["sim", "--new", "bottle", text(&path)], 2, &["bottle"]);
}

#[test]
fn a_figure_is_simulated_by_its_id_and_a_wrong_id_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("results");
    let sim = [
        "sim",
        "webrc-6",
        "--fast",
        "--cell",
        "0",
        "--out",
        text(&out),
    ];
    run(&sim).succeeded("sim");
    assert!(out.join("webrc-6/index.html").exists());
    fails(
        &["sim", "webrc-66"],
        2,
        &["webrc-66", "did you mean `webrc-6`?"],
    );
    fails(&["sim", "no-such.toml"], 2, &["no-such.toml"]);
    fails(&["sim"], 2, &["FILE|ID"]);
}

#[test]
fn the_schema_for_editors_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scenario.schema.json");
    run(&["sim", "--schema", text(&path)]).succeeded("schema");
    let schema: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(schema["type"], "object");
    assert!(schema["properties"]["links"].is_object(), "{schema}");
}

/// Returns the words of a command line, as a shell divides it.
fn shell_words(line: &str) -> Vec<String> {
    let print = format!("printf '%s\\n' {line}");
    let output = Command::new("sh").args(["-c", &print]).output().unwrap();
    assert!(output.status.success(), "{line}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}
