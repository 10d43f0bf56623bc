//! Scenarios in real time.

use std::path::{Path, PathBuf};
use std::process::Command;

use manyflow_testing::may_make_namespaces;

use crate::common::{Ended, run};

/// A link of 8 Mbit/s that a TCP flow of the kernel, a WEBRC session and a CBR source share.
const SHARED: &str = r#"
title = "Three protocols share a link in real time"
run.duration = "12 s"
run.steady-from = "3 s"
nodes.names = ["S", "r1", "r2", "R"]
[[links]]
chain = ["S", "r1", "r2", "R"]
delay = "5 ms"
[[links]]
name = "bottleneck"
between = ["r1", "r2"]
rate = "8 Mbit/s"
queue = "40 packets"
[[sessions]]
name = "tcp"
protocol = "tcp"
sender = "S"
receivers = ["R"]
tcp.variant = "VARIANT"
[[sessions]]
name = "cbr"
protocol = "cbr"
sender = "S"
receivers = ["R"]
cbr.rate = "1 Mbit/s"
[[sessions]]
name = "webrc"
protocol = "webrc"
sender = "S"
receivers = ["R"]
webrc.session-rate = "2 Mbit/s"
webrc.time-slot = "1 s"
webrc.quiescence = "10 s"
[[measure]]
name = "tcp"
what = "received-rate"
of = "tcp"
[[measure]]
name = "window"
what = "cwnd"
of = "tcp"
[[measure]]
name = "rtt"
what = "rtt"
of = "tcp"
[[measure]]
name = "timeouts"
what = "timeouts"
of = "tcp"
[[measure]]
name = "cbr"
what = "received-rate"
of = "cbr"
[[measure]]
name = "webrc"
what = "received-rate"
of = "webrc"
[[measure]]
name = "others"
value = "cbr + webrc"
[[expect]]
what = "the kernel's TCP uses the link"
value = "mean(tcp)"
at-least = "1 kbit/s"
at-most = "8 Mbit/s"
source = "test"
[[expect]]
what = "the kernel reports its window"
value = "mean(window)"
at-least = "1 packets"
source = "test"
[[expect]]
what = "the kernel reports its round-trip time"
value = "mean(rtt)"
at-least = "30 ms"
source = "test"
[[expect]]
what = "the kernel does not report its time-outs"
value = "mean(timeouts)"
at-least = 0
source = "test"
[[expect]]
what = "other protocols share it"
value = "mean(others)"
at-least = "1 kbit/s"
at-most = "8 Mbit/s"
source = "test"
"#;

pub(crate) fn scenario_file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shared.toml");
    std::fs::write(&file, text).unwrap();
    (folder, file)
}

/// Emulates a scenario into a folder for its results.
pub(crate) fn emulate_file(text: &str) -> (tempfile::TempDir, Ended) {
    let (folder, file) = scenario_file(text);
    let out = folder.path().join("results");
    let ended = run(&[
        "emulate",
        file.to_str().unwrap(),
        "--out",
        out.to_str().unwrap(),
    ]);
    (folder, ended)
}

#[test]
fn a_scenario_runs_in_real_time_with_the_tcp_of_the_kernel() {
    if !may_make_namespaces() {
        return;
    }
    let (folder, file) = scenario_file(&SHARED.replace("VARIANT", "bbr"));
    let out = folder.path().join("results");
    let capture = folder.path().join("pcap");
    let [file, results, pcap] = [&file, &out, &capture].map(|path| path.to_str().unwrap());
    let ended = run(&["emulate", file, "--out", results, "--pcap", pcap]);
    assert_well_formed(&capture);
    if ended.stderr.contains("could not keep time") {
        println!("not judged: other programs kept this machine busy");
        return;
    }
    assert_eq!(ended.stdout.matches("  met ").count(), 4, "{ended:?}");
    let unobserved = "MISSED the kernel does not report its time-outs: no value";
    assert!(ended.stdout.contains(unobserved), "{ended:?}");
    assert!(out.join("shared/index.html").exists());
    assert!(out.join("shared/measures.csv").exists());
}

/// Asserts that Wireshark finds TCP, UDP and ALC in a capture, and no malformed packet. Skipped
/// without `tshark`.
fn assert_well_formed(capture: &Path) {
    if !has_tshark() {
        return;
    }
    for protocol in ["tcp", "udp", "rmt-lct"] {
        let frames = count_frames(capture, protocol);
        assert!(frames > 10, "{protocol}: {frames}");
    }
    assert_eq!(count_frames(capture, "_ws.malformed"), 0);
}

/// Returns whether there is `tshark`, and prints a message if not.
pub(crate) fn has_tshark() -> bool {
    let found = Command::new("tshark").arg("--version").output().is_ok();
    if !found {
        println!("skipped: there is no tshark");
    }
    found
}

/// Returns the number of packets in a capture for which Wireshark's filter holds.
pub(crate) fn count_frames(capture: &Path, filter: &str) -> usize {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(capture);
    command.args(["-d", "udp.port==5445,alc", "-Y", filter]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().count()
}

#[test]
fn a_scenario_beyond_the_limits_is_refused_with_key_and_limit() {
    for (from, to, error) in [
        (
            "8 Mbit/s",
            "10 Gbit/s",
            "`links.bottleneck.rate`: 10 Gbit/s",
        ),
        (
            "nodes.names = [",
            "nodes.groups.many = 1_000_000\nnodes.names = [",
            "`nodes`: 1000004 nodes",
        ),
    ] {
        let text = SHARED.replace("VARIANT", "cubic").replacen(from, to, 1);
        let (_folder, file) = scenario_file(&text);
        let ended = run(&["emulate", file.to_str().unwrap()]);
        assert_eq!(ended.code(), 2, "{ended:?}");
        assert!(ended.stderr.contains(error), "{ended:?}");
        assert!(ended.stderr.contains("at most"), "{ended:?}");
    }
}

#[test]
fn simulated_and_emulated_measures_are_printed_side_by_side() {
    if !may_make_namespaces() {
        return;
    }
    let (folder, file) = scenario_file(&SHARED.replace("VARIANT", "cubic"));
    let out = folder.path().join("results");
    let [file, results] = [&file, &out].map(|path| path.to_str().unwrap());
    let ended = run(&[
        "emulate",
        file,
        "--out",
        results,
        "--agree",
        "--in-process",
        "--json",
    ]);
    let lines = ended.stdout.lines();
    let lines = lines.map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let rows: Vec<_> = lines.filter(|line| line["event"] == "agreement").collect();
    let row = |name: &str| rows.iter().find(|row| row["measure"] == name).unwrap();
    assert!(row("tcp")["simulated"].as_f64().unwrap() > 3e6, "{rows:?}");
    assert!(row("tcp")["emulated"].is_f64(), "{rows:?}");
    assert_eq!(rows.len(), 7, "{rows:?}");
    assert!(row("timeouts")["simulated"].is_f64(), "{rows:?}");
    assert!(row("timeouts")["emulated"].is_null(), "{rows:?}");
}
