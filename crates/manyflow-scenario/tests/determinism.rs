//! Tests that the same scenario and seeds give the same bytes in any profile and on any machine.
//! The expected digests are in this file.
//!
//! `make test` runs this in the test profile, and without assertions and optimisation; releases run
//! it in their own form. If a change of behaviour is intended, replace the digests with those that
//! the failing test prints. Otherwise the failure has found a mistake.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::Path;

use manyflow_results::{Provenance, Results};
use manyflow_scenario::{Progress, Scenario};
use sha2::{Digest, Sha256};

/// WEBRC with random starts on a link that loses, duplicates and reorders, and a cut.
const WEBRC: &str = r#"title = "WEBRC, lossy"
[run]
duration = "120 s"
seeds = 2
leave-latency = "1 s"
[nodes]
names = ["S"]
trees.T = { depth = 2, children = 2 }
[[links]]
all-of = "T"
delay = "10 ms"
rate = "5 Mbit/s"
queue = "20 packets"
[[links]]
name = "lossy"
between = ["S", "T-0"]
delay = "20 ms"
jitter = "5 ms"
bursts = { to-bad = 0.005, to-good = 0.4 }
duplication = "0.1 %"
[[sessions]]
name = "webrc"
protocol = "webrc"
sender = "S"
receivers = [{ node = "T-leaves", start = "uniform 0 s to 10 s" }]
webrc.session-rate = "4 Mbit/s"
[[at]]
time = "80 s"
link = "T-0-T-1"
cut = true
[[at]]
time = "83 s"
link = "T-0-T-1"
cut = false
[[measure]]
name = "rate"
what = "received-rate"
of = "webrc"
[[measure]]
name = "rtt"
what = "rtt"
of = "webrc"
[[plots]]
name = "rates"
title = "Rates"
series = [{ what = "received-rate", of = "webrc" }]
"#;

/// All variants of TCP through RED, competing with sources that send at random times.
const TCP: &str = r#"title = "TCP and noise"
[run]
duration = "60 s"
seeds = 2
[nodes]
dumbbells.D = { left = 3, right = 3 }
[[links]]
all-of = "D"
delay = "5 ms"
rate = "100 Mbit/s"
[[links]]
name = "bottleneck"
between = ["D-router-0", "D-router-1"]
rate = "9.7 Mbit/s"
queue = "60 packets"
red = { variant = "paper" }
loss = "0.1 %"
[[sessions]]
name = "tcp"
protocol = "tcp"
sender = "D-left-0"
receivers = ["D-right-0"]
tcp.ecn = true
tcp.send-jitter = "1 ms"
[[sessions]]
name = "noise"
protocol = "cbr"
sender = "D-left-1"
receivers = ["D-right-1"]
cbr.rate = "500 kbit/s"
cbr.pattern = "poisson"
[[sessions]]
name = "bursts"
protocol = "cbr"
sender = "D-left-2"
receivers = ["D-right-2"]
cbr = { rate = "2 Mbit/s", pattern = "on-off", on = "300 ms", off = "700 ms", random-periods = true }
[sweep]
sessions.tcp.tcp.variant = ["new-reno", "sack", "cubic"]
[[measure]]
name = "rate"
what = "received-rate"
of = ["tcp", "noise", "bursts"]
[[measure]]
name = "marks"
what = "marks"
of = "bottleneck"
[[plots]]
name = "windows"
title = "Windows"
series = [{ what = "cwnd", of = "tcp" }, { what = "queue", of = "bottleneck" }]
"#;

/// Receivers of WEBRC and TCP on a tree whose links lose packets and change, with enough events for
/// several threads.
const TREE: &str = r#"title = "A tree"
[run]
duration = "6 s"
bin = "500 ms"
[nodes]
names = ["S"]
trees.T = { depth = 2, children = 8 }
[[links]]
all-of = "T"
delay = "20 ms"
rate = "12 Mbit/s"
queue = "30 packets"
loss = "0.1 %"
[[links]]
between = ["S", "T-0"]
delay = "20 ms"
[[sessions]]
name = "webrc"
protocol = "webrc"
sender = "S"
receivers = [{ node = "T-leaves", start = "uniform 0 s to 1 s" }]
webrc.session-rate = "20 Mbit/s"
[[sessions]]
name = "tcp"
protocol = "tcp"
sender = "S"
receivers = ["T-leaves"]
tcp.variant = "cubic"
[[at]]
time = "2 s"
link = "T-0-T-1"
set = { rate = "3 Mbit/s", delay = "5 ms" }
[[at]]
time = "3 s"
link = "T-0-T-1"
cut = true
[[at]]
time = "3500 ms"
link = "T-0-T-1"
cut = false
[[measure]]
name = "rate"
what = "received-rate"
of = ["webrc", "tcp"]
[[measure]]
name = "loss"
what = "loss"
of = "tcp"
[[plots]]
name = "windows"
title = "Windows"
series = [{ what = "cwnd", of = "tcp" }]
[[plots]]
name = "times"
title = "Round-trip times"
series = [{ what = "rtt", of = "webrc" }]
[[plots]]
name = "channels"
title = "Channels"
series = [{ what = "channel-rate", of = "S-T-0" }]
"#;

/// Returns the digest of the tables and the summary, without the program's version.
fn digest(name: &str, text: &str, threads: usize) -> String {
    digest_of(name, text, threads, &mut |_| {})
}

fn digest_of(
    name: &str,
    text: &str,
    threads: usize,
    progress: &mut dyn FnMut(Progress<'_>),
) -> String {
    let scenario = Scenario::parse(name, text, false).unwrap_or_else(|error| panic!("{error}"));
    let jobs = scenario.jobs().unwrap();
    let outcomes = scenario.run(&jobs, threads, progress);
    let results = Results::new(
        scenario.outline().unwrap(),
        &jobs,
        &outcomes,
        Provenance::default(),
    );
    assert!(results.failures().is_empty());
    let folder = tempfile::tempdir().unwrap();
    results.write(folder.path()).unwrap();
    let mut hash = Sha256::new();
    for path in tables(folder.path()) {
        for line in std::fs::read_to_string(path).unwrap().lines() {
            if !line.trim_start().starts_with("\"version\"") {
                hash.update(line);
                hash.update("\n");
            }
        }
    }
    let digest = hash.finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn tables(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_table = |path: &Path| {
        path.extension()
            .is_some_and(|end| end == "csv" || end == "json")
    };
    let mut tables: Vec<_> = paths.filter(|path| is_table(path)).collect();
    tables.sort();
    assert!(tables.len() >= 3, "{tables:?}");
    tables
}

#[test]
fn a_run_of_webrc_has_the_expected_digest() {
    let expected = "5d9a0b10549e650bbd539c35f34b231916780a52544331fd22fed910eadca64a";
    for threads in [1, 2] {
        assert_eq!(digest("webrc.toml", WEBRC, threads), expected);
    }
}

#[test]
fn a_run_of_tcp_has_the_expected_digest() {
    let expected = "cda822dc2d872123a39c2d4b83b06afa9e46b90302041c672bc8b3dcadffd8d1";
    for threads in [1, 2] {
        assert_eq!(digest("tcp.toml", TCP, threads), expected);
    }
}

#[test]
fn a_run_on_several_threads_has_the_digest_of_one() {
    let expected = digest("tree.toml", TREE, 1);
    for threads in [2, 3] {
        let mut work = None;
        let digest = digest_of("tree.toml", TREE, threads, &mut |progress| {
            if let Progress::Threads(made) = progress {
                work = Some(made);
            }
        });
        assert_eq!(digest, expected);
        let work = work.expect("the run may use several threads");
        let work = work.expect("several threads make the run");
        assert_eq!(work.parts, threads);
        println!("{work}");
    }
}
