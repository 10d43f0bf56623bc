//! `manyflow stream send` and `manyflow stream recv`, directly and through relays, over loopback.

use crate::common;

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use common::{
    Manyflow, PATIENT, folder_with_file, manyflow, run, text, wait_for_end_of, wait_until,
};
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

/// Units of a test, each as long as a file of this many bytes.
const UNIT_BYTES: usize = 40_000;
const UNITS: usize = 5;

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

/// Waits for the URL that a sender publishes.
fn published(sending: &mut Manyflow) -> String {
    sending.wait_for(|line| {
        let event = parsed(line);
        (event["event"] == "published").then(|| event["url"].as_str().unwrap().to_owned())
    })
}

/// Returns a folder with units: the bytes of each are its number.
fn units() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for unit in 0..UNITS {
        fs::write(
            folder.path().join(format!("{unit}.unit")),
            vec![unit as u8; UNIT_BYTES],
        )
        .unwrap();
    }
    folder
}

/// Starts a sender of the units in a folder, again and again; returns it with its URL.
fn sender(folder: &Path, arguments: &[&str]) -> (Manyflow, String) {
    let mut command = manyflow(&["stream", "send", "--json", "--fps", "20", "--repeat"]);
    command.args(["--folder", text(folder), "--listen", "127.0.0.1:0"]);
    command.args(["--publish", "127.0.0.1:0"]);
    let mut running = Manyflow::start({
        command.args(arguments);
        command
    });
    let url = published(&mut running);
    (running, url)
}

/// Starts a relay; returns it with its address.
fn relay(url: &str, arguments: &[&str]) -> (Manyflow, String) {
    let mut command = manyflow(&["relay", "--json", "--session", url]);
    command.args(["--listen", "127.0.0.1:0"]).args(arguments);
    let mut running = Manyflow::start(command);
    let address = running.wait_for(|line| {
        let event = parsed(line);
        (event["event"] == "started").then(|| event["listen"].as_str().unwrap().to_owned())
    });
    (running, address)
}

/// Starts a receiver that writes units to a folder.
fn receiver(url: &str, arguments: &[&str]) -> (Manyflow, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = manyflow(&[
        "stream",
        "recv",
        url,
        "--json",
        "--folder",
        text(folder.path()),
    ]);
    command.args(PATIENT).args(arguments);
    (Manyflow::start(command), folder)
}

/// Waits until a receiver has delivered this number of units.
fn wait_for_units(receiver: &mut Manyflow, units: u64) {
    receiver.wait_for(|line| (parsed(line)["units"].as_u64()? >= units).then_some(()));
}

/// Asserts that each file is the beginning of one of the units. Returns the length of the longest.
fn assert_prefixes(folder: &Path) -> usize {
    let mut longest = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        assert!(bytes.len() <= UNIT_BYTES && usize::from(bytes[0]) < UNITS);
        assert!(
            bytes.iter().all(|byte| *byte == bytes[0]),
            "bytes of two units"
        );
        longest = longest.max(bytes.len());
    }
    assert!(longest > 0, "no unit");
    longest
}

fn stop(running: Manyflow) -> Value {
    running.signal(Signal::SIGTERM);
    let ended = running.finish().succeeded("stream");
    parsed(ended.stdout.lines().last().unwrap())
}

#[test]
fn units_arrive_in_a_folder() {
    let sent = units();
    let (mut sending, url) = sender(sent.path(), &[]);
    let (mut receiving, received) = receiver(&url, &["--extension", "unit"]);
    receiving.wait_for(|line| (parsed(line)["units_complete"].as_u64()? > 0).then_some(()));
    sending.wait_for(|line| (parsed(line)["receivers"].as_u64()? == 1).then_some(()));
    let done = stop(receiving);
    assert_eq!(done["event"], "done");
    assert_eq!(
        assert_prefixes(received.path()),
        UNIT_BYTES,
        "no link is in the way"
    );
    let ended = stop(sending);
    assert!(ended["reports"].as_u64().unwrap() > 0, "{ended}");
}

#[test]
fn units_pass_from_program_to_program() {
    let seen = tempfile::tempdir().unwrap();
    let copy = seen.path().join("units");
    // Units of 3 bytes, with their lengths, as fast as one per 50 ms.
    let program = "while sleep 0.05; do printf '\\000\\000\\000\\003abc'; done";
    let mut command = manyflow(&["stream", "send", "--json", "--program", program]);
    command.args(["--listen", "127.0.0.1:0", "--publish", "127.0.0.1:0"]);
    let mut sending = Manyflow::start(command);
    let url = published(&mut sending);
    let consumer = format!("cat > {}", text(&copy));
    let mut command = manyflow(&["stream", "recv", &url, "--json", "--program", &consumer]);
    // A unit that a busy computer delivers later would not be whole.
    command.args(["--latency", "5s"]);
    let mut receiving = Manyflow::start(command);
    wait_for_units(&mut receiving, 10);
    stop(receiving);
    let bytes = fs::read(&copy).unwrap();
    assert!(bytes.len() >= 70 && bytes.len().is_multiple_of(7));
    assert!(
        bytes.chunks(7).all(|unit| unit == b"\0\0\0\x03abc"),
        "{bytes:?}"
    );
}

/// A command that writes its process number into a file, ignores signals and waits.
fn stubborn(folder: &Path) -> (String, std::path::PathBuf) {
    let number = folder.join("number");
    let write = format!("echo $$ > {}", text(&number));
    let wait = "trap '' TERM INT HUP; while :; do sleep 1; done";
    (format!("{write}; {wait}"), number)
}

#[test]
fn a_pipe_without_a_reader_does_not_keep_a_receiver() {
    let sent = units();
    let (_sending, url) = sender(sent.path(), &[]);
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for ends in [&["--for", "2s"][..], &[]] {
        let mut command = manyflow(&["stream", "recv", &url, "--json", "--pipe", text(&pipe)]);
        command.args(PATIENT).args(ends);
        let mut receiving = Manyflow::start(command);
        wait_for_units(&mut receiving, 1);
        if ends.is_empty() {
            receiving.signal(Signal::SIGTERM);
        }
        let ended = receiving.finish().succeeded("the receiver");
        assert!(
            ended.stderr.contains("the last units are lost"),
            "{ended:?}"
        );
    }
}

#[test]
fn a_reader_that_has_what_it_wants_ends_a_receiver_in_silence() {
    let sent = units();
    let (_sending, url) = sender(sent.path(), &[]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = manyflow(&["stream", "recv", &url, "--pipe", "-"]);
    command.args(PATIENT).stdout(writer).stderr(Stdio::piped());
    let ended = command.output().unwrap();
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(141), "{errors}");
    assert!(!errors.contains("error"), "{errors}");
}

#[test]
fn programs_that_ignore_signals_end_with_the_sender_and_the_receiver() {
    let folder = tempfile::tempdir().unwrap();
    let (program, number) = stubborn(folder.path());
    let source = format!("printf '\\000\\000\\000\\003abc'; {program}");
    let mut command = manyflow(&["stream", "send", "--json", "--program", &source]);
    command.args(["--listen", "127.0.0.1:0", "--publish", "127.0.0.1:0"]);
    let mut sending = Manyflow::start(command);
    published(&mut sending);
    wait_until("the source begins", || {
        fs::read_to_string(&number).is_ok_and(|number| number.ends_with('\n'))
    });
    stop(sending);
    wait_for_end_of(&number);

    let sent = units();
    let (_sending, url) = sender(sent.path(), &[]);
    let mut command = manyflow(&["stream", "recv", &url, "--json", "--program", &program]);
    command.args(PATIENT);
    let mut receiving = Manyflow::start(command);
    wait_for_units(&mut receiving, 1);
    stop(receiving);
    wait_for_end_of(&number);
}

/// Units of 800 kbit/s behind links of 1 Mbit/s: a receiver that gets them whole has 85 % of its
/// link, with the headers. `manyflow-layered` measures the rates after absences in simulated time.
#[test]
fn a_receiver_that_leaves_and_joins_ten_times_gets_whole_units_each_time() {
    let folder = tempfile::tempdir().unwrap();
    common::write_random(&folder.path().join("unit"), 5_000, 1);
    let (sending, url) = sender(folder.path(), &[]);
    let (relaying, address) = relay(&url, &["--link", "127.0.0.1/32=1Mbit/s"]);
    let join = || {
        let mut command = manyflow(&["stream", "recv", &url, "--json", "--relay", &address]);
        command.args(PATIENT);
        Manyflow::start(command)
    };
    let whole = |line: &str| parsed(line)["units_complete"].as_u64();
    let wait_for_whole = |receiving: &mut Manyflow, count| {
        receiving.wait_for(|line| whole(line).filter(|units| *units >= count))
    };
    let mut staying = join();
    let mut of_staying = wait_for_whole(&mut staying, 20);
    for absence in 0..10 {
        let (mut receiving, joined) = (join(), Instant::now());
        wait_for_whole(&mut receiving, 20);
        println!("{absence}: 20 whole units after {:.1?}", joined.elapsed());
        // Every other time it goes without a word.
        match absence % 2 {
            0 => drop(stop(receiving)),
            _ => receiving.kill(),
        }
        of_staying = wait_for_whole(&mut staying, of_staying + 20);
    }
    for running in [staying, relaying, sending] {
        stop(running);
    }
}

#[test]
fn both_ends_say_that_nothing_comes_and_when_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut command = manyflow(&["stream", "send", "--json", "--pipe", text(&pipe)]);
    command.args(["--listen", "127.0.0.1:0", "--publish", "127.0.0.1:0"]);
    let mut sending = Manyflow::start(command);
    sending.wait_for_message("no unit has come; still trying");
    fs::write(&pipe, b"\0\0\0\x04unit").unwrap();
    sending.wait_for_message(&format!("the pipe {} is back after", pipe.display()));

    let sent = units();
    let (sending, url) = sender(sent.path(), &[]);
    let mut command = manyflow(&["stream", "recv", &url, "--json"]);
    command.args(PATIENT);
    let mut receiving = Manyflow::start(command);
    wait_for_units(&mut receiving, 1);
    sending.signal(Signal::SIGSTOP);
    receiving.wait_for_message("no packet comes; still trying: is it running?");
    sending.signal(Signal::SIGCONT);
    receiving.wait_for_message("is back after");
    stop(receiving);
}

#[test]
fn a_given_link_of_a_relay_limits_its_receivers() {
    let sent = units();
    let (mut sending, url) = sender(sent.path(), &[]);
    // The units have 6.4 Mbit/s.
    let (relaying, address) = relay(&url, &["--link", "127.0.0.1/32=1Mbit/s"]);
    let started = Instant::now();
    let (mut receiving, received) = receiver(&url, &["--relay", &address]);
    wait_for_units(&mut receiving, 60);
    receiving.wait_for(|line| (parsed(line)["packets_marked"].as_u64()? > 0).then_some(()));
    sending.wait_for(|line| (parsed(line)["reports"].as_u64()? > 0).then_some(()));
    let done = stop(receiving);
    // However slow this computer is, the link carries no more than its rate.
    let bits = 8.0 * done["prefix_bytes"].as_f64().unwrap();
    assert!(bits < 1e6 * started.elapsed().as_secs_f64(), "{done}");
    assert_prefixes(received.path());
    let (_, relay) = (stop(sending), stop(relaying));
    assert_eq!(relay["packets_undeliverable"], 0, "{relay}");
}

#[test]
fn a_sender_and_a_relay_say_why_their_groups_change() {
    let sent = units();
    let metrics = ["--metrics", "127.0.0.1:0"];
    let (mut sending, url) = sender(sent.path(), &["-v", metrics[0], metrics[1]]);
    let link = ["--link", "127.0.0.1/32=1Mbit/s"];
    let (mut relaying, address) = relay(&url, &["-v", link[0], link[1], metrics[0], metrics[1]]);
    let (mut receiving, _received) = receiver(&url, &["--relay", &address]);
    wait_for_units(&mut receiving, 1);
    relaying.wait_for_message("the first gateway has joined it");
    let count = |line: &str, key: &str, reason: &str| parsed(line)[key][reason].as_u64();
    let key = "group_rate_changes_by_reason";
    // The units have 6.4 Mbit/s, so that the rates grow until the link is full.
    for reason in ["starting", "congested"] {
        sending.wait_for(|line| (count(line, key, reason)? > 0).then_some(()));
    }
    sending.wait_for_message("it grows until its receivers report congestion");
    for (running, row) in [
        (&mut sending, "its receivers report congestion"),
        (&mut relaying, "its rate is given"),
    ] {
        let metrics = running.wait_for(|line| {
            let event = parsed(line);
            (event["event"] == "metrics").then(|| event["url"].as_str().unwrap().to_owned())
        });
        let shown = metrics.replace("/metrics", "/page.json");
        wait_until(row, || common::get(&shown).1.contains(row));
        let page = metrics.replace("/metrics", "/");
        assert!(common::get(&page).1.contains("page.js"), "{page}");
    }
    stop(receiving);
    let key = "channel_changes_by_reason";
    relaying.wait_for(|line| {
        let has_left = count(line, key, "gateway-left")? > 0;
        (has_left && parsed(line)["channels_joined"] == 0).then_some(())
    });
    let done = stop(relaying);
    assert_eq!(done["last_change"], "gateway-left", "{done}");
    assert_eq!(
        done[key]["gateway-joined"], done[key]["gateway-left"],
        "{done}"
    );
    let done = stop(sending);
    let reasons = done["group_rate_reasons"].as_array().unwrap();
    assert!(reasons.iter().any(|reason| !reason.is_null()), "{done}");
}

#[test]
fn a_receiver_goes_on_with_the_next_relay() {
    let sent = units();
    let (_sending, url) = sender(sent.path(), &[]);
    let (mut first, one) = relay(&url, &[]);
    let (_second, two) = relay(&url, &["--relay", &relay_of(&url)]);
    let (mut receiving, received) = receiver(&url, &["--relay", &one, "--relay", &two]);
    wait_for_units(&mut receiving, 20);
    first.kill();
    let before = units_of(&receiving);
    wait_until("units come through the second relay", || {
        units_of(&receiving) >= before + 20
    });
    stop(receiving);
    assert_prefixes(received.path());
}

/// Returns the address of the sender's own relay, which its description has.
fn relay_of(url: &str) -> String {
    let (_, body) = common::get(url);
    let line = body
        .lines()
        .find_map(|line| line.strip_prefix("a=amt-relay:"));
    line.unwrap().trim().to_owned()
}

fn units_of(receiving: &Manyflow) -> u64 {
    let lines = receiving.lines();
    let last = lines
        .iter()
        .rev()
        .find_map(|line| parsed(line)["units"].as_u64());
    last.unwrap_or(0)
}

#[test]
fn a_session_with_a_key_is_closed_to_receivers_without_it() {
    let keys = tempfile::tempdir().unwrap();
    let key = keys.path().join("stream.key");
    let other = keys.path().join("other.key");
    for path in [&key, &other] {
        run(&["keygen", "--shared-key", text(path)]).succeeded("keygen");
    }
    let sent = units();
    let (sending, url) = sender(sent.path(), &["--key", text(&key)]);
    let without = run(&["stream", "recv", &url]);
    assert_eq!(without.code(), 2);
    assert!(without.stderr.contains("--key"), "{}", without.stderr);
    let relayed = run(&["relay", "--session", &url, "--listen", "127.0.0.1:0"]);
    assert_eq!(relayed.code(), 2);

    let (mut stranger, _folder) = receiver(&url, &["--key", text(&other)]);
    wait_for_units(&mut stranger, 10);
    let reports = |running: &Manyflow| {
        let lines = running.lines();
        let last = lines
            .iter()
            .rev()
            .find_map(|line| parsed(line)["reports"].as_u64());
        last.unwrap_or(0)
    };
    assert_eq!(reports(&sending), 0, "reports with another key are refused");
    stop(stranger);
    let (mut member, _folder) = receiver(&url, &["--key", text(&key)]);
    wait_for_units(&mut member, 10);
    wait_until("a report with the key", || reports(&sending) > 0);
    let ended = stop(sending);
    assert_eq!(ended["event"], "done");
}

#[test]
fn wrong_inputs_are_named() {
    let empty = tempfile::tempdir().unwrap();
    let listen = ["--listen", "127.0.0.1:0"];
    let ended = run(&[
        &["stream", "send", "--folder", text(empty.path())][..],
        &listen[..],
    ]
    .concat());
    assert_ne!(ended.code(), 0);
    assert!(ended.stderr.contains("has no files"), "{}", ended.stderr);

    let files = folder_with_file(1_000);
    let (_sending, url) = common::send(files.path(), &[]);
    let ended = run(&["stream", "recv", &url]);
    assert_eq!(ended.code(), 2);
    assert!(ended.stderr.contains("manyflow recv"), "{}", ended.stderr);

    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let sent = units();
    let (_sending, url) = sender(sent.path(), &[]);
    let relay = silent.local_addr().unwrap().to_string();
    let ended = run(&[
        "stream",
        "recv",
        &url,
        "--relay",
        &relay,
        "--patience",
        "1s",
    ]);
    assert_eq!(ended.code(), 3);
    for part in [&relay, "the relay does not answer"] {
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
    }
}
