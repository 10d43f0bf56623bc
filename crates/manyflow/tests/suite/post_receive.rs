//! The command that a receiver runs when all files are stored.

use crate::common;

use std::path::Path;

use common::{Ended, Manyflow, folder_with_file, manyflow, run, send, text, write_random};
use nix::sys::signal::Signal;

/// Receives into `output` with `command` as `--post-receive`.
fn receive(url: &str, output: &Path, command: &str) -> Ended {
    let arguments = ["recv", url, "--json", "--output", text(output)];
    run(&[&arguments[..], &["--post-receive", command]].concat())
}

#[test]
fn a_command_runs_once_when_all_files_are_stored() {
    let folder = folder_with_file(20_000);
    write_random(&folder.path().join("more/other"), 5_000, 2);
    let (_sender, url) = send(folder.path(), &[]);
    let home = tempfile::tempdir().unwrap();
    let output = home.path().join("out");
    let log = home.path().join("log");
    let command = format!(
        r#"cd "$MANYFLOW_OUTPUT"; cat file more/other | wc -c >> {log}; echo "$MANYFLOW_FILES $MANYFLOW_BYTES" >> {log}; echo heard"#,
        log = text(&log)
    );
    let ended = receive(&url, &output, &command).succeeded("receiver");
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "25000\n2 25000\n");
    // Standard output has only JSON.
    assert!(ended.stderr.contains("heard"), "{ended:?}");
    let is_json = |line: &str| serde_json::from_str::<serde_json::Value>(line).is_ok();
    assert!(ended.stdout.lines().all(is_json), "{ended:?}");
}

#[test]
fn a_command_that_fails_makes_the_receiver_fail() {
    let folder = folder_with_file(20_000);
    let (_sender, url) = send(folder.path(), &[]);
    let output = tempfile::tempdir().unwrap();
    let ended = receive(&url, output.path(), "exit 7");
    assert_eq!(ended.code(), 1, "{ended:?}");
    for part in ["`exit 7` failed", "exit status: 7", "All files are stored"] {
        assert!(ended.stderr.contains(part), "{ended:?}");
    }
    assert!(ended.stdout.contains("\"failed\""), "{ended:?}");
    common::assert_same(folder.path(), output.path(), "failed command");
}

#[test]
fn a_command_does_not_run_if_a_file_was_not_stored() {
    let folder = folder_with_file(20_000);
    let (_sender, url) = send(folder.path(), &[]);
    let output = tempfile::tempdir().unwrap();
    std::fs::write(output.path().join("file"), "old").unwrap();
    let ended = receive(&url, output.path(), r#"touch "$MANYFLOW_OUTPUT/ran""#);
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert_eq!(common::listing(output.path()), ["file"]);
}

#[test]
fn a_signal_ends_a_command_that_runs() {
    let folder = folder_with_file(20_000);
    let (_sender, url) = send(folder.path(), &[]);
    let output = tempfile::tempdir().unwrap();
    let begun = output.path().join("begun");
    let command = format!("touch {}; exec sleep 1000", text(&begun));
    let arguments = ["recv", &url, "--output", text(output.path())];
    let receiver = manyflow(&[&arguments[..], &["--post-receive", &command]].concat());
    let receiver = Manyflow::start(receiver);
    common::wait_for_file(&begun);
    receiver.signal(Signal::SIGTERM);
    let ended = receiver.finish();
    assert_eq!(ended.code(), 130, "{ended:?}");
    assert!(ended.stderr.contains("was interrupted"), "{ended:?}");
}

#[test]
fn a_command_that_ignores_signals_ends_with_all_that_it_started() {
    let folder = folder_with_file(20_000);
    let (_sender, url) = send(folder.path(), &[]);
    let output = tempfile::tempdir().unwrap();
    let number = output.path().join("number");
    let wait = "trap '' TERM INT HUP; while :; do sleep 1; done";
    let command = format!("({wait}) & echo $! > {}; {wait}", text(&number));
    let arguments = ["recv", &url, "--output", text(output.path())];
    let receiver = manyflow(&[&arguments[..], &["--post-receive", &command]].concat());
    let receiver = Manyflow::start(receiver);
    let started = || std::fs::read_to_string(&number).is_ok_and(|number| number.ends_with('\n'));
    common::wait_until("the command has started another", started);
    receiver.signal(Signal::SIGTERM);
    assert_eq!(receiver.finish().code(), 130);
    common::wait_for_end_of(&number);
}
