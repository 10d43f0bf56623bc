//! Reports of receivers that have all files, and the sender that waits for them.

use crate::common;

use std::net::UdpSocket;
use std::path::Path;

use common::{Manyflow, folder_with_file, listing, manyflow, run, send, text, write_random};
use nix::sys::signal::Signal;
use serde_json::Value;

/// The options of a sender that waits for this number of receivers.
fn until_done(receivers: &str) -> [&str; 4] {
    ["--until-done", receivers, "--reports", "127.0.0.1:0"]
}

fn last_event(lines: &str) -> Value {
    serde_json::from_str(lines.lines().last().unwrap()).unwrap()
}

#[test]
fn a_sender_stops_when_the_expected_receivers_have_everything() {
    let folder = folder_with_file(50_000);
    let (sender, url) = send(folder.path(), &until_done("3"));
    let outputs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let receivers: Vec<_> = outputs
        .iter()
        .map(|output| {
            let output = text(output.path());
            Manyflow::start(manyflow(&["recv", &url, "--json", "--output", output]))
        })
        .collect();
    for (receiver, output) in receivers.into_iter().zip(&outputs) {
        let ended = receiver.finish().succeeded("receiver");
        let event = last_event(&ended.stdout);
        assert_eq!(
            (&event["event"], &event["counted"]),
            (&"reported".into(), &true.into())
        );
        let sent = std::fs::read(folder.path().join("file")).unwrap();
        assert!(sent == std::fs::read(output.path().join("file")).unwrap());
        assert_only_number_left(output.path());
    }
    let ended = sender.finish().succeeded("sender");
    assert!(ended.stdout.contains("3 of 3 receivers"), "{ended:?}");
}

/// Asserts that a receiver has left nothing but its file and the number by which the sender knows
/// it.
fn assert_only_number_left(output: &Path) {
    let left = listing(output);
    let [number, file] = &left[..] else {
        panic!("{left:?}")
    };
    assert_eq!(file, "file");
    assert!(
        number.starts_with(".manyflow-") && number.ends_with("/receiver"),
        "{number}"
    );
}

#[test]
fn a_receiver_that_is_started_again_is_counted_once() {
    let folder = folder_with_file(20_000);
    let (sender, url) = send(folder.path(), &until_done("2"));
    let outputs: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
    // The first receiver has all files already when it is started again.
    for output in [&outputs[0], &outputs[0], &outputs[1]] {
        let recv = ["recv", &url, "--json", "--output", text(output.path())];
        let ended = run(&recv).succeeded("receiver");
        assert_eq!(last_event(&ended.stdout)["counted"], true, "{ended:?}");
        assert_only_number_left(output.path());
    }
    let ended = sender.finish().succeeded("sender");
    assert!(ended.stdout.contains("2 of 2 receivers"), "{ended:?}");
}

#[test]
fn reports_of_strangers_to_the_group_key_count_nothing() {
    let folder = folder_with_file(50_000);
    let keys = tempfile::tempdir().unwrap();
    let key = keys.path().join("group.key");
    std::fs::write(&key, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").unwrap();
    let options = [&["--group-key", text(&key)], &until_done("1")[..]].concat();
    let (sender, url) = send(folder.path(), &options);
    // Without the key, files arrive, and the report is not believed. Its three windows have 2 s.
    let output = tempfile::tempdir().unwrap();
    let arguments = ["recv", &url, "--json", "--output", text(output.path())];
    let ended = run(&arguments).succeeded("receiver without the key");
    assert_eq!(last_event(&ended.stdout)["counted"], false);
    assert!(ended.stderr.contains("did not answer"), "{ended:?}");
    let output = tempfile::tempdir().unwrap();
    let arguments = [
        "recv",
        &url,
        "--output",
        text(output.path()),
        "--group-key",
        text(&key),
    ];
    run(&arguments).succeeded("receiver with the key");
    let ended = sender.finish().succeeded("sender");
    assert!(ended.stdout.contains("1 of 1 receivers"), "{ended:?}");
}

#[test]
fn a_sender_fails_if_its_time_is_over_before_all_have_reported() {
    let folder = folder_with_file(1_000);
    let options = [&["--for", "500ms"], &until_done("2")[..]].concat();
    let (sender, _) = send(folder.path(), &options);
    let ended = sender.finish();
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert!(ended.stderr.contains("0 of 2 receivers"), "{ended:?}");
}

#[test]
fn a_receiver_ends_without_a_report_if_asked_to_or_interrupted_or_too_late() {
    let folder = folder_with_file(20_000);
    write_random(&folder.path().join("other"), 5_000, 2);
    // The receiver chooses the time of its report in a window of 2 s for each of them: 23 days.
    let (sender, url) = send(folder.path(), &until_done("1000000"));
    let output = tempfile::tempdir().unwrap();
    let recv = ["recv", &url, "--json", "--output", text(output.path())];
    let ended = run(&[&recv[..], &["--no-report"]].concat()).succeeded("silent receiver");
    assert_eq!(last_event(&ended.stdout)["event"], "done");

    // The files are here, so the interruption is no failure.
    let mut receiver = Manyflow::start(manyflow(&recv));
    receiver.wait_for(|line| line.contains("\"done\"").then_some(()));
    receiver.signal(Signal::SIGINT);
    let ended = receiver.finish().succeeded("interrupted receiver");
    assert!(ended.stderr.contains("interrupted"), "{ended:?}");
    sender.signal(Signal::SIGTERM);
    sender.finish().succeeded("interrupted sender");
}

#[test]
fn an_address_in_use_is_an_error_that_names_the_option() {
    let folder = folder_with_file(1_000);
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = run(&[
        "send",
        text(folder.path()),
        "--listen",
        "127.0.0.1:0",
        "--until-done",
        "1",
        "--reports",
        &address,
    ]);
    assert_eq!(ended.code(), 1, "{ended:?}");
    for part in [&address[..], "--reports"] {
        assert!(ended.stderr.contains(part), "{ended:?}");
    }
}
