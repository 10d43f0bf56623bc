//! manyflow under a service manager: signals in the middle of a transfer, and logs. Everything runs
//! on loopback.

use crate::common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use common::{Ended, Manyflow, assert_same, listing, send, text, write_random};
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

const SIGNALS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// A folder with small and large files, 30 MB in all: they take 12 s.
fn files() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..50 {
        let bytes = if number % 2 == 0 { 1_200_000 } else { 2_000 };
        write_random(&folder.path().join(number.to_string()), bytes, number);
    }
    folder
}

/// `manyflow` with SIGHUP as `hangup` says (see env(1)): processes inherit what `nohup` sets, and
/// the tests may run under it.
fn with_hangup(hangup: &str) -> Command {
    let mut command = Command::new("env");
    command.args([hangup, env!("CARGO_BIN_EXE_manyflow")]);
    command.stdin(Stdio::null());
    command
}

/// Starts a sender of `folder`; returns it with its URL.
fn start_sender(folder: &Path) -> (Manyflow, String) {
    let mut command = with_hangup("--default-signal=HUP");
    command.args(["send", ".", "--rate", "20Mbit/s"]);
    command.args(["--listen", "127.0.0.1:0", "--publish", "127.0.0.1:0"]);
    command.current_dir(folder);
    let mut sender = Manyflow::start(command);
    let url = sender.url();
    (sender, url)
}

/// Starts a receiver with SIGHUP as `hangup` says, and waits until it has some of the files.
fn receive(url: &str, output: &Path, hangup: &str) -> Manyflow {
    let mut command = with_hangup(hangup);
    command.args(["recv", url, "--json", "--output", text(output)]);
    let mut receiver = Manyflow::start(command);
    receiver.wait_for(|line| {
        let progress: Value = serde_json::from_str(line).unwrap();
        (progress["bytes"].as_u64() >= Some(2_400_000)).then_some(())
    });
    receiver
}

/// Sends the signal, and prints how long the process takes to end.
fn end(process: Manyflow, signal: Signal, label: &str) -> Ended {
    let sent_at = Instant::now();
    process.signal(signal);
    let ended = process.finish();
    println!("{label} ends {:?} after {signal}", sent_at.elapsed());
    ended
}

/// Asserts that each file in `output` is a whole file of `sent`; the hidden folder has the others.
fn assert_whole(sent: &Path, output: &Path, label: &str) {
    for name in listing(output) {
        if !name.starts_with(".manyflow-") {
            let (one, two) = (sent.join(&name), output.join(&name));
            let is_same = std::fs::read(one).unwrap() == std::fs::read(two).unwrap();
            assert!(is_same, "{label}: {name} differs");
        }
    }
}

#[test]
fn a_busy_receiver_ends_with_whole_files_on_each_signal() {
    let files = files();
    let (_sender, url) = start_sender(files.path());
    for signal in SIGNALS {
        let output = tempfile::tempdir().unwrap();
        let receiver = receive(&url, output.path(), "--default-signal=HUP");
        let ended = end(receiver, signal, "receiver");
        assert_eq!(ended.code(), 130, "{signal}: {ended:?}");
        assert!(ended.stderr.contains("to continue"), "{signal}: {ended:?}");
        assert_whole(files.path(), output.path(), signal.as_str());
    }
}

#[test]
fn a_busy_sender_ends_its_session_on_each_signal() {
    let files = files();
    for signal in SIGNALS {
        let (sender, url) = start_sender(files.path());
        let output = tempfile::tempdir().unwrap();
        let receiver = receive(&url, output.path(), "--default-signal=HUP");
        let sent = end(sender, signal, "sender");
        assert_eq!(sent.code(), 0, "{signal}: {sent:?}");
        assert!(sent.stdout.contains("sent "), "{signal}: {sent:?}");
        let ended = receiver.finish();
        assert_eq!(ended.code(), 3, "{signal}: {ended:?}");
        assert_whole(files.path(), output.path(), signal.as_str());
    }
}

#[test]
fn a_receiver_under_nohup_goes_on_when_the_terminal_closes() {
    let files = files();
    let (_sender, url) = start_sender(files.path());
    let output = tempfile::tempdir().unwrap();
    let receiver = receive(&url, output.path(), "--ignore-signal=HUP");
    receiver.signal(Signal::SIGHUP);
    receiver.finish().succeeded("nohup");
    assert_same(files.path(), output.path(), "nohup");
}

#[test]
fn log_lines_have_a_time_and_can_be_json() {
    let folder = common::folder_with_file(20_000);
    let (_sender, url) = send(folder.path(), &[]);
    let output = tempfile::tempdir().unwrap();
    std::fs::write(output.path().join("file"), "old").unwrap();
    let arguments = ["recv", &url, "--output", text(output.path())];
    let run = |more: &[&str]| {
        let mut command = common::manyflow(&[&arguments[..], more].concat());
        command.stdin(Stdio::null());
        let ended = Manyflow::start(command).finish();
        assert_eq!(ended.code(), 1, "{ended:?}");
        ended.stderr
    };
    let text = run(&[]);
    let (time, warning) = text.lines().next().unwrap().split_once("  WARN ").unwrap();
    assert_time(time);
    assert!(warning.contains("--overwrite"), "{text}");

    let json = run(&["--log-format", "json"]);
    let lines: Vec<Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let [warning, error] = &lines[..] else {
        panic!("{json}");
    };
    assert_eq!(
        (&warning["level"], &error["level"]),
        (&"WARN".into(), &"ERROR".into())
    );
    for (line, part) in [
        (warning, "--overwrite"),
        (error, "1 of the session's files"),
    ] {
        assert_time(line["timestamp"].as_str().unwrap());
        assert!(line["message"].as_str().unwrap().contains(part), "{json}");
    }
}

/// Asserts that `text` is a time such as 2026-01-31T23:59:59.123456Z.
fn assert_time(text: &str) {
    let shape: String = text
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    assert!(
        shape.starts_with("0000-00-00T00:00:00") && shape.ends_with('Z'),
        "{text}"
    );
}
