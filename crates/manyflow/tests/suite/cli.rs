//! The command line as a new user meets it: an error is one line that says what to do, with the
//! exit code that `--help` lists. Everything runs on loopback.

use crate::common;

use std::io::Write as _;
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::http_stage::wait_for;
use common::{
    Ended, Manyflow, assert_same, folder_with_file, listing, manyflow, run, send, text,
    write_random,
};
use manyflow_net::reserved::ReservedAddress;
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

/// Asserts that `ended` failed with `code` and with one line on standard error that contains all of
/// `parts`.
fn assert_fails(ended: &Ended, code: i32, parts: &[&str]) {
    assert_eq!(ended.code(), code, "{ended:?}");
    let errors: Vec<_> = ended
        .stderr
        .lines()
        .filter(|line| line.starts_with("error: "))
        .collect();
    assert_eq!(errors.len(), 1, "{ended:?}");
    for part in parts {
        assert!(errors[0].contains(part), "no {part:?} in {ended:?}");
    }
    assert!(!ended.stderr.contains("panicked"), "{ended:?}");
}

/// Runs the command and asserts as [`assert_fails`] does; standard error must have nothing besides
/// the line.
#[track_caller]
fn fails(arguments: &[&str], code: i32, parts: &[&str]) {
    let ended = run(arguments);
    assert_fails(&ended, code, parts);
    let usage = ended.stderr.contains("For more information, try '--help'.");
    assert!(usage || ended.stderr.lines().count() == 1, "{ended:?}");
}

#[test]
fn what_cannot_be_sent_is_reported() {
    let folder = folder_with_file(100_000);
    let file = folder.path().join("file");
    let file = text(&file);
    let to = ["--listen", "127.0.0.1:0"];
    let fails = |arguments: &[&str], code, parts: &[&str]| {
        fails(&[&["send"], arguments, to.as_slice()].concat(), code, parts);
    };
    fails(&["no/such/file"], 1, &["no/such/file", "check the path"]);
    fails(&["/dev/null"], 1, &["/dev/null", "leave it out"]);
    fails(&[file, file], 1, &["rename one"]);
    for rate in ["1bit/s", "10kbit/s"] {
        fails(&[file, "--rate", rate], 2, &["too slow", "take at least"]);
    }
    fails(&[file, "--rate", "900Gbit/s"], 2, &["at most 100 Gbit/s"]);
    fails(&[file, "--rate", "fast"], 2, &["3.2 Mbit/s"]);
    fails(&[file, "--packet", "10"], 2, &["128..=65000"]);
    fails(&[file, "--packet", "1200", "--set", "TDS=1s"], 2, &["TSD"]);
    fails(&[file, "--set", "QD=x"], 2, &["--set QD=x", "50 ms"]);
    let no_scratch = ["--memory", "100B", "--scratch", "/no/such/folder"];
    let arguments = [&[file][..], &no_scratch].concat();
    fails(&arguments, 1, &["/no/such/folder"]);
    fails(
        &[file, "--session", "/no/such/folder/x.sdp"],
        1,
        &["/no/such/folder/x.sdp"],
    );
    fails(&[file, "--multicast", "10.0.0.0/8"], 2, &["232.1.2.0/24"]);
    fails(
        &[
            file,
            "--multicast",
            "232.1.2.0/31",
            "--interface",
            "127.0.0.1",
        ],
        2,
        &["channels", "groups"],
    );
    fails(
        &[file, "--multicast", "232.1.2.0/24", "--interface", "nope"],
        1,
        &["nope", "ip address"],
    );
    fails(&[file, "--interface", "lo"], 2, &["required"]);
}

#[test]
fn a_port_in_use_is_reported() {
    let folder = folder_with_file(1);
    let file = folder.path().join("file");
    let (udp, tcp) = (
        UdpSocket::bind("127.0.0.1:0").unwrap(),
        TcpListener::bind("127.0.0.1:0").unwrap(),
    );
    let (udp, tcp) = (
        udp.local_addr().unwrap().to_string(),
        tcp.local_addr().unwrap().to_string(),
    );
    fails(
        &["send", text(&file), "--listen", &udp],
        1,
        &[&udp, "choose another"],
    );
    fails(
        &[
            "send",
            text(&file),
            "--listen",
            "127.0.0.1:0",
            "--publish",
            &tcp,
        ],
        1,
        &[&tcp, "choose another"],
    );
}

#[test]
fn an_invalid_description_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let garbage = folder.path().join("garbage.sdp");
    for content in [
        &b"hello"[..],
        b"\xff\xfe\x00",
        b"v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=x\r\nt=0 0\r\n",
    ] {
        std::fs::write(&garbage, content).unwrap();
        fails(&["recv", text(&garbage)], 2, &[]);
    }
    fails(&["recv", "no/such.sdp"], 2, &["no/such.sdp"]);
    fails(&["recv", "ftp://127.0.0.1/session.sdp"], 2, &["https://"]);
    fails(&["recv"], 2, &["required"]);
    let nobody = ReservedAddress::new().unwrap();
    let url = format!("http://{}/session.sdp", nobody.get());
    let parts = &["cannot connect", "does the sender run there", "--publish"];
    fails(&["recv", &url], 1, parts);
    fails(&["stream", "recv", &url, "--pattern"], 1, parts);
}

#[test]
fn a_session_that_cannot_be_received_is_reported() {
    let folder = folder_with_file(100_000);
    let (_sender, url) = send(folder.path(), &[]);
    let below_a_file = folder.path().join("file/x");
    fails(
        &["recv", &url, "--output", text(&below_a_file)],
        1,
        &["file/x", "choose a folder"],
    );
    fails(&["recv", &url, "--set", "Nu=2"], 2, &[]);
    fails(&["recv", &url, "--set", "Nu"], 2, &["NAME=VALUE"]);
    fails(
        &["recv", &url.replace("session.sdp", "other")],
        2,
        &["404", "/session.sdp"],
    );
    fails(
        &[
            "recv",
            &url,
            "--relay",
            "no-such.invalid",
            "--patience",
            "1s",
        ],
        1,
        &["no-such.invalid"],
    );
    fails(
        &["recv", &url, "--relay", "no such host"],
        2,
        &["--relay", "no such host", "space"],
    );
    let out = folder.path().join("out");
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let relay = silent.local_addr().unwrap().to_string();
    let arguments = [
        "recv",
        &url,
        "--relay",
        &relay,
        "--patience",
        "1s",
        "--output",
        text(&out),
    ];
    fails(&arguments, 3, &[&relay, "does not answer", "--listen"]);
}

#[test]
fn a_full_disk_is_reported_and_leaves_no_partial_file() {
    let folder = folder_with_file(400_000);
    write_random(&folder.path().join("small"), 100, 2);
    let disk = tempfile::tempdir().unwrap();
    // The shell runs in a mount namespace of its own, so the mount ends with the process.
    let script = r#"mount -t tmpfs -o size=128k tmpfs "$1" || exit 77; "$2" recv "$3" --output "$1/out"; code=$?; find "$1" -type f -not -path '*/.manyflow-*' | sed 's/^/stored /'; exit $code"#;
    let (_sender, url) = send(folder.path(), &[]);
    let mut command = Command::new("unshare");
    command.args([
        "-m",
        "sh",
        "-c",
        script,
        "sh",
        text(disk.path()),
        env!("CARGO_BIN_EXE_manyflow"),
        &url,
    ]);
    command.stdin(Stdio::null());
    let ended = Manyflow::start(command).finish();
    if ended.code() == 77 || ended.stderr.contains("unshare failed") {
        println!("skipped: mounting a small disk needs root");
        return;
    }
    assert_fails(&ended, 1, &["bytes are needed", "make room"]);
    assert!(!ended.stdout.contains("stored"), "{ended:?}");
}

#[test]
fn a_receiver_gives_up_a_dead_sender_after_its_patience() {
    let folder = folder_with_file(3_000_000);
    let (sender, url) = send(folder.path(), &["--rate", "2Mbit/s"]);
    // Long enough for a busy computer to start the transfer.
    let (receiver, _output) = receive_some(&url, &["--patience", "20s"]);
    sender.signal(Signal::SIGKILL);
    assert_fails(
        &receiver.finish(),
        3,
        &["nothing was heard", "is the sender running"],
    );
}

#[test]
fn a_sender_announces_its_end_to_its_receivers() {
    let folder = folder_with_file(3_000_000);
    let (sender, url) = send(folder.path(), &["--rate", "2Mbit/s"]);
    let (receiver, output) = receive_some(&url, &[]);
    sender.signal(Signal::SIGINT);
    let sent = sender.finish().succeeded("sender");
    assert!(sent.stdout.contains("sent "), "{sent:?}");
    assert_fails(&receiver.finish(), 3, &["the sender ended the session"]);
    assert_eq!(stored(output.path()), [""; 0]);
}

#[test]
fn a_file_that_shrinks_is_withdrawn_and_the_others_arrive() {
    let folder = folder_with_file(3_000_000);
    write_random(&folder.path().join("other"), 1_000_000, 2);
    let arguments = ["--rate", "2Mbit/s", "--bundle", "0B"];
    let (mut sender, url) = send(folder.path(), &arguments);
    let (mut receiver, output) = receive_some(&url, &["--patience", "5s"]);
    let shrinking = std::fs::OpenOptions::new()
        .write(true)
        .open(folder.path().join("file"));
    shrinking.unwrap().set_len(1).unwrap();

    sender.wait_for_message("The other files are still sent");
    receiver.wait_for_message("file: the sender says that it sends no more of this file");
    let expected = ["sends no more of 1 incomplete", "have probably changed"];
    assert_fails(&receiver.finish(), 1, &expected);
    assert_eq!(stored(output.path()), ["other"]);
    sender.signal(Signal::SIGINT);
    assert_fails(&sender.finish(), 1, &["1 file", "could no longer be read"]);
}

#[test]
fn an_interrupted_receiver_continues_where_it_stopped() {
    let folder = folder_with_file(3_000_000);
    // One packet each, which comes after about half of the large file's. A receiver that misses a
    // packet has the next one soon.
    for number in 0..20 {
        write_random(&folder.path().join(format!("small-{number}")), 1, number);
    }
    write_random(&folder.path().join("empty"), 0, 3);
    let (_sender, url) = send(folder.path(), &["--rate", "2Mbit/s"]);
    let output = tempfile::tempdir().unwrap();
    let mut bytes_before = 0;
    let mut kept = Vec::new();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
        let receiver = receive_more(&url, output.path(), bytes_before + 200_000);
        bytes_before += 200_000;
        let names = || stored(output.path()).into_iter();
        wait_for(|| names().find(|name| name.starts_with("small-")));
        receiver.signal(signal);
        let ended = receiver.finish();
        if signal != Signal::SIGKILL {
            assert_fails(&ended, 130, &["before all files were complete", "continue"]);
        }
        let names = stored(output.path());
        assert!(names.contains(&"empty".to_owned()) && !names.contains(&"file".to_owned()));
        assert!(kept.iter().all(|name| names.contains(name)), "{names:?}");
        kept = names;
    }
    let arguments = ["recv", &url, "--json", "--output", text(output.path())];
    let received = run(&arguments).succeeded("last run");
    assert_same(folder.path(), output.path(), "resumed");
    let done = last_event(&received);
    assert!(done["received_bytes"].as_u64() <= Some(2_500_000), "{done}");
}

/// The files that a receiver has stored, without those that are incomplete.
fn stored(output: &Path) -> Vec<String> {
    let mut names = listing(output);
    names.retain(|name| !name.starts_with(".manyflow-"));
    names
}

/// Starts a receiver, and waits until it has some of the session's bytes.
fn receive_some(url: &str, arguments: &[&str]) -> (Manyflow, TempDir) {
    let output = tempfile::tempdir().unwrap();
    let mut command = manyflow(&["recv", url, "--json", "--output", text(output.path())]);
    command.args(arguments);
    (wait_for_bytes(command, 1), output)
}

/// Starts a receiver that continues, and waits until it has `bytes` of the session's bytes.
fn receive_more(url: &str, output: &Path, bytes: u64) -> Manyflow {
    let command = manyflow(&["recv", url, "--json", "--output", text(output)]);
    wait_for_bytes(command, bytes)
}

fn wait_for_bytes(command: Command, bytes: u64) -> Manyflow {
    let mut receiver = Manyflow::start(command);
    receiver.wait_for(|line| {
        let progress: Value = serde_json::from_str(line).unwrap();
        (progress["bytes"].as_u64() >= Some(bytes)).then_some(())
    });
    receiver
}

#[test]
fn json_lines_report_everything_to_the_end() {
    let folder = folder_with_file(50_000);
    let mut command = manyflow(&[
        "send",
        ".",
        "--listen",
        "127.0.0.1:0",
        "--publish",
        "127.0.0.1:0",
        "--json",
    ]);
    command.current_dir(folder.path());
    let mut sender = Manyflow::start(command);
    let url = sender.wait_for(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        event["url"].as_str().map(str::to_owned)
    });
    let output = tempfile::tempdir().unwrap();
    let received =
        run(&["recv", &url, "--json", "--output", text(output.path())]).succeeded("receiver");
    assert_same(folder.path(), output.path(), "json");
    let done = last_event(&received);
    assert_eq!(
        (done["event"].as_str(), done["bytes"].as_u64()),
        (Some("done"), Some(50_000))
    );
    assert_eq!(done["files"][0]["name"], "file");

    let failed = run(&[
        "recv",
        &url,
        "--json",
        "--output",
        text(&folder.path().join("file")),
    ]);
    let event = last_event(&failed);
    assert_eq!(
        (event["event"].as_str(), event["exit_code"].as_u64()),
        (Some("failed"), Some(1))
    );

    sender.signal(Signal::SIGTERM);
    let done = last_event(&sender.finish().succeeded("sender"));
    assert_eq!(done["event"], "done");
    assert!(done["packets"].as_u64() > Some(0), "{done}");
}

/// Returns the last line of standard output; all lines must be JSON.
fn last_event(ended: &Ended) -> Value {
    let parse = |line| serde_json::from_str(line).unwrap();
    let mut events: Vec<Value> = ended.stdout.lines().map(parse).collect();
    events.pop().unwrap()
}

#[test]
fn a_description_comes_from_a_file_or_from_standard_input() {
    let folder = folder_with_file(20_000);
    let home = tempfile::tempdir().unwrap();
    let description = home.path().join("session.sdp");
    let (_sender, _) = send(folder.path(), &["--session", text(&description)]);
    let (by_file, by_pipe) = (home.path().join("file"), home.path().join("pipe"));
    run(&["recv", text(&description), "--output", text(&by_file)]).succeeded("file");
    assert_same(folder.path(), &by_file, "file");

    let mut command = manyflow(&["recv", "-", "--output", text(&by_pipe)]);
    command.stdin(Stdio::piped());
    let mut receiver = Manyflow::start(command);
    receiver
        .stdin()
        .write_all(&std::fs::read(&description).unwrap())
        .unwrap();
    receiver.finish().succeeded("standard input");
    assert_same(folder.path(), &by_pipe, "standard input");
}

#[test]
fn existing_files_are_replaced_only_with_overwrite() {
    let folder = folder_with_file(20_000);
    let (_sender, url) = send(folder.path(), &[]);
    let output = tempfile::tempdir().unwrap();
    let existing = output.path().join("file");
    std::fs::write(&existing, "old").unwrap();
    let arguments = ["recv", &url, "--output", text(output.path())];
    let ended = run(&arguments);
    assert_fails(&ended, 1, &["1 of the session's files"]);
    for part in [text(&existing), "--overwrite"] {
        assert!(ended.stderr.contains(part), "{ended:?}");
    }
    assert_eq!(std::fs::read(&existing).unwrap(), b"old");
    run(&[&arguments[..], &["--overwrite"]].concat()).succeeded("overwrite");
    assert_same(folder.path(), output.path(), "overwrite");
}

#[test]
fn a_description_without_the_digest_of_the_table_needs_consent() {
    let folder = folder_with_file(20_000);
    let home = tempfile::tempdir().unwrap();
    let description = home.path().join("session.sdp");
    let (_sender, _) = send(folder.path(), &["--session", text(&description)]);
    let lines = std::fs::read_to_string(&description).unwrap();
    let lines = lines.split_inclusive('\n');
    let rest = lines.filter(|line| !line.starts_with("a=fdt-digest:"));
    std::fs::write(&description, rest.collect::<String>()).unwrap();
    let output = home.path().join("out");
    let arguments = ["recv", text(&description), "--output", text(&output)];
    fails(&arguments, 2, &["a=fdt-digest", "--allow-unverified"]);
    run(&[&arguments[..], &["--allow-unverified"]].concat()).succeeded("unverified");
    assert_same(folder.path(), &output, "unverified");
}

#[test]
fn a_sender_stops_after_its_time() {
    let folder = folder_with_file(1);
    let (sender, _) = send(folder.path(), &["--for", "1s"]);
    let sent = sender.finish().succeeded("sender");
    assert!(sent.stdout.contains("sending 1 file, 1 B"), "{sent:?}");
}

#[test]
fn benchmarks_and_long_tests_are_named_with_their_program() {
    for words in ["bench", "bench group --runs 1", "soak files --for 1min"] {
        let words: Vec<_> = words.split(' ').collect();
        let ended = run(&words);
        assert_eq!(ended.code(), 2, "{ended:?}");
        assert_eq!(ended.stderr.trim().lines().count(), 1, "{ended:?}");
        let build = "cargo build --release -p manyflow -p manyflow-rig";
        assert!(ended.stderr.contains(build), "{ended:?}");
    }
    let unknown = run(&["benches"]);
    assert_eq!(unknown.code(), 2, "{unknown:?}");
    assert!(!unknown.stderr.contains("manyflow-rig"), "{unknown:?}");
}

/// Runs the program with standard output to `to`. Returns its exit code and its standard error.
fn with_output(arguments: &[&str], to: impl Into<Stdio>) -> (Option<i32>, String) {
    let mut command = manyflow(arguments);
    let output = command.stdout(to).stderr(Stdio::piped()).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), errors)
}

/// The writing end of a pipe that nobody reads.
fn closed_pipe() -> std::io::PipeWriter {
    let (_reader, writer) = std::io::pipe().unwrap();
    writer
}

/// Commands that write to standard output, in a folder with what they need.
fn talkative(folder: &TempDir) -> Vec<Vec<String>> {
    let scenario = folder.path().join("small.toml");
    let small = "title = \"Small\"\nrun.duration = \"1 s\"\nnodes.names = [\"S\", \"R\"]\n\
                 [[links]]\nbetween = [\"S\", \"R\"]\ndelay = \"10 ms\"\n\
                 rate = \"1 Mbit/s\"\nqueue = \"10 packets\"\n\
                 [[sessions]]\nname = \"flow\"\nprotocol = \"tcp\"\nsender = \"S\"\nreceivers = [\"R\"]\n";
    std::fs::write(&scenario, small).unwrap();
    let (scenario, folder) = (text(&scenario), text(folder.path()));
    let sim = ["sim", scenario, "--out", folder];
    let with = |more: &[&str]| -> Vec<String> {
        let words = sim.iter().chain(more);
        words.map(|word| (*word).to_owned()).collect()
    };
    let list = ["figure", "--list", "--scenarios", folder].map(str::to_owned);
    vec![
        with(&[]),
        with(&["--json"]),
        with(&["--trace", "-"]),
        with(&["--pcap", "-"]),
        list.to_vec(),
    ]
}

#[test]
fn a_closed_standard_output_ends_the_program_in_silence() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in talkative(&folder) {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let ended = with_output(&arguments, closed_pipe());
        assert_eq!(ended, (Some(141), String::new()), "{arguments:?}");
    }
}

#[test]
fn a_full_standard_output_is_told() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in talkative(&folder) {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let full = std::fs::File::create("/dev/full").unwrap();
        let (code, errors) = with_output(&arguments, full);
        assert_eq!(code, Some(1), "{arguments:?}: {errors}");
        assert!(errors.contains("No space left on device"), "{errors}");
        assert!(!errors.contains("panicked"), "{errors}");
    }
    let full = std::fs::File::create("/dev/full").unwrap();
    let (code, errors) = with_output(&["send", "--help"], full);
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("No space left on device"), "{errors}");
}

#[test]
fn a_sender_that_cannot_print_its_session_ends() {
    let folder = folder_with_file(1000);
    let file = folder.path().join("file");
    let send = ["send", text(&file), "--listen", "127.0.0.1:0"];
    assert_eq!(with_output(&send, closed_pipe()).0, Some(141));
    let full = std::fs::File::create("/dev/full").unwrap();
    let (code, errors) = with_output(&send, full);
    assert_eq!(code, Some(1), "{errors}");
    assert!(
        errors.contains("cannot write to standard output"),
        "{errors}"
    );
}

#[test]
fn a_sender_that_can_no_longer_tell_its_progress_ends() {
    let folder = folder_with_file(1000);
    let file = folder.path().join("file");
    let to = ["--listen", "127.0.0.1:0", "--publish", "127.0.0.1:0"];
    let mut command = manyflow(&[&["send", text(&file), "--json"], to.as_slice()].concat());
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut child = command.stdout(writer).spawn().unwrap();
    drop(command);
    let mut first = [0; 1];
    std::io::Read::read_exact(&mut reader, &mut first).unwrap();
    drop(reader);
    assert_eq!(child.wait().unwrap().code(), Some(141));
}
