//! The objects of `--json`, against the list in docs/output.md.

use std::collections::{BTreeMap, BTreeSet};

use manyflow_net::reserved::ReservedAddress;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::common::{Ended, Manyflow, folder_with_file, manyflow, run, text};
use super::{daemon, objects, scenario};

const MANUAL: &str = include_str!("../../../../../docs/output.md");

/// The events of each command in the manual's table.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let quoted = |cell: &str| -> Vec<String> {
        cell.split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect()
    };
    let (_, table) = MANUAL
        .split_once("| command | event | when | keys |")
        .unwrap();
    for row in table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
    {
        let cells: Vec<_> = row.trim_matches('|').split('|').collect();
        for command in quoted(cells[0]) {
            all.entry(command).or_default().extend(quoted(cells[1]));
        }
    }
    all
}

/// The objects that commands have printed.
#[derive(Default)]
struct Printed(BTreeMap<&'static str, BTreeSet<String>>);

impl Printed {
    /// Adds the output of a command that was run with `--json`.
    fn add(&mut self, command: &'static str, ended: &Ended) {
        assert!(!ended.stderr.contains("panicked"), "{command}: {ended:?}");
        for object in objects(&ended.stdout) {
            let event = object["event"]
                .as_str()
                .unwrap_or_else(|| panic!("{command}: {object}"));
            self.0.entry(command).or_default().insert(event.to_owned());
        }
    }

    fn run(&mut self, command: &'static str, words: &[&str]) {
        let mut all: Vec<&str> = command.split(' ').collect();
        all.extend(words);
        all.push("--json");
        self.add(command, &run(&all).succeeded(command));
    }

    /// Ends a role with SIGTERM.
    fn stop(&mut self, command: &'static str, running: Manyflow) {
        running.signal(Signal::SIGTERM);
        self.add(command, &running.finish().succeeded(command));
    }
}

/// Starts a role with `--json`, waits for an event, and returns the value of its key.
fn start(words: &[&str], event: &str, key: &str) -> (Manyflow, String) {
    let mut running = Manyflow::start(manyflow(&[words, &["--json"]].concat()));
    let value = running.wait_for(|line| {
        let object: Value = serde_json::from_str(line).unwrap();
        (object["event"] == event).then(|| object[key].as_str().unwrap_or_default().to_owned())
    });
    (running, value)
}

const LISTEN: [&str; 2] = ["--listen", "127.0.0.1:0"];

fn files(printed: &mut Printed) {
    let folder = folder_with_file(300_000);
    let file = folder.path().join("file");
    let metrics = ["--metrics", "127.0.0.1:0"];
    let words = [
        &["send", text(&file), "--publish", "127.0.0.1:0"][..],
        &LISTEN,
        &metrics,
    ]
    .concat();
    let (sender, url) = start(&words, "published", "url");
    let words = [&["relay", "--session", &url][..], &LISTEN, &metrics].concat();
    let (relay, at) = start(&words, "started", "listen");
    let output = tempfile::tempdir().unwrap();
    let words = [
        &[&url, "--relay", &at, "--output", text(output.path())][..],
        &metrics,
    ]
    .concat();
    printed.run("recv", &words);
    printed.stop("relay", relay);
    printed.stop("send", sender);
    let sessions = folder.path().join("sessions.toml");
    let lines = format!(
        "publish = \"127.0.0.1:0\"\n[session.one]\npaths = [{:?}]\nlisten = \"127.0.0.1:0\"\n",
        text(&file)
    );
    std::fs::write(&sessions, lines).unwrap();
    let (serve, _) = start(&["serve", text(&sessions)], "progress", "event");
    printed.stop("serve", serve);
}

fn streams(printed: &mut Printed) {
    let words = [
        &["stream", "send", "--pattern", "--publish", "127.0.0.1:0"][..],
        &LISTEN,
    ]
    .concat();
    let (sender, url) = start(&words, "published", "url");
    let output = tempfile::tempdir().unwrap();
    let words = ["stream", "recv", &url, "--folder", text(output.path())];
    let (receiver, _) = start(&words, "progress", "event");
    printed.stop("stream recv", receiver);
    printed.stop("stream send", sender);
}

fn lab(printed: &mut Printed) {
    let (lab, _) = start(&["lab"], "started", "url");
    printed.stop("lab", lab);
}

fn overlays(printed: &mut Printed) {
    let reserved = ReservedAddress::new().unwrap();
    let at = reserved.get().to_string();
    let mut daemon = daemon(&at);
    let metrics = daemon.wait_for(|line| {
        let object: Value = serde_json::from_str(line).unwrap();
        (object["event"] == "metrics").then(|| object["url"].as_str().unwrap().to_owned())
    });
    daemon.wait_for(|line| line.contains("\"started\"").then_some(()));
    let words = ["sub", "news", "--count", "1", "--server", &at];
    let (subscriber, _) = start(&words, "joined", "event");
    printed.run("pub", &["news", "hello", "--server", &at]);
    printed.add("sub", &subscriber.finish().succeeded("sub"));
    let status = metrics.trim_end_matches("/metrics");
    printed.run("top", &["--once", "--interval", "500ms", status]);
    // For core messages, the daemon takes the place of nats-server.
    let words = [
        "bridge",
        "--site",
        "a",
        "--nats",
        &at,
        "--daemon",
        &at,
        "--subject",
        "x",
    ];
    let (bridge, _) = start(&words, "active", "site");
    printed.stop("bridge", bridge);
    printed.stop("daemon", daemon);
}

/// Runs the commands for a store with one file, behind the switch at this address.
fn store_tasks(printed: &mut Printed, at: &str) {
    printed.run("ls", &["--from", at]);
    for task in [
        "store verify",
        "store repair",
        "store rebalance",
        "store gc",
        "store usage",
    ] {
        printed.run(task, &["--at", at]);
    }
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    std::fs::write(&keys, "AKTEST a-secret-of-this-test").unwrap();
    let words = ["store", "s3", "--at", at, "--credentials", text(&keys)];
    let words = [&words[..], &LISTEN].concat();
    let (surface, _) = start(&words, "started", "url");
    printed.stop("store s3", surface);
    printed.run("rm", &["file", "--from", at]);
}

fn services(printed: &mut Printed) {
    let folder = folder_with_file(100_000);
    let (file, dir) = (folder.path().join("file"), folder.path().join("chunks"));
    let words = [
        &["store", "--dir", text(&dir), "--metrics", "127.0.0.1:0"][..],
        &LISTEN,
    ]
    .concat();
    let (store, member) = start(&words, "started", "listen");
    let named = format!("a={member}");
    let words = [
        &["switch", "--policy", "replicas", "--member", &named][..],
        &LISTEN,
    ]
    .concat();
    let (switch, at) = start(&words, "started", "listen");
    let words = [&["router", "--to", &at, "--rate", "100Mbit/s"][..], &LISTEN].concat();
    let (router, through) = start(&words, "started", "listen");
    printed.run("put", &[text(&file), "--to", &through, "--replicas", "1"]);
    let copy = folder.path().join("copy");
    printed.run("get", &["file", "--from", &through, "-o", text(&copy)]);
    store_tasks(printed, &at);
    printed.stop("router", router);
    printed.stop("switch", switch);
    printed.stop("store", store);
    let words = [
        &["member", "--http", "http://127.0.0.1:1", "--grace", "0s"][..],
        &LISTEN,
    ]
    .concat();
    let (member, at) = start(&words, "started", "listen");
    let words = [&["gateway", "--to", &at, "--grace", "0s"][..], &LISTEN].concat();
    let (gateway, _) = start(&words, "connected", "event");
    printed.stop("gateway", gateway);
    printed.stop("member", member);
}

fn scenarios(printed: &mut Printed) {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (scenario(folder.path()), folder.path().join("out"));
    let (part, merged) = (folder.path().join("part"), folder.path().join("merged"));
    printed.run("sim", &[text(&file), "--out", text(&out)]);
    printed.run(
        "sim",
        &[text(&file), "--shard", "1/1", "--out", text(&part)],
    );
    printed.run("results merge", &[text(&part), "--out", text(&merged)]);
    let folder = text(folder.path());
    printed.run("figure", &["--list", "--scenarios", folder]);
    printed.run(
        "figure",
        &["short", "--scenarios", folder, "--out", text(&out)],
    );
    // CUBIC misses what is known of it, so the command fails.
    let evaluate = ["evaluate", "cubic", "--fast", "--threads", "1", "--json"];
    let words = [&evaluate[..], &["--out", text(&out)]].concat();
    printed.add("evaluate", &run(&words));
}

fn tools(printed: &mut Printed) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    printed.run("keygen", &[&at("key")]);
    printed.run("keygen", &["--shared-key", &at("shared")]);
    let trace: Vec<&str> = crate::check_order::ADA.lines().take(3).collect();
    std::fs::write(at("trace"), trace.join("\n")).unwrap();
    printed.run("check-order", &[&at("trace")]);
    printed.run("doctor", &[]);
    printed.run("completions", &["fish"]);
    printed.run("man", &["--out", &at("man")]);
}

/// Commands that take minutes or need root. Their own tests and targets run them in the same build,
/// which checks each object against the table.
const LONG: [&str; 2] = ["demo", "emulate"];

#[test]
fn commands_print_the_objects_of_the_manual() {
    let mut printed = Printed::default();
    files(&mut printed);
    streams(&mut printed);
    overlays(&mut printed);
    services(&mut printed);
    scenarios(&mut printed);
    lab(&mut printed);
    tools(&mut printed);
    let documented = documented();
    for (command, events) in &printed.0 {
        // Any command can end with `failed`.
        for event in events.iter().filter(|event| *event != "failed") {
            assert!(documented[*command].contains(event), "{command}: {event}");
        }
    }
    for command in documented.keys() {
        let is_long = LONG
            .iter()
            .any(|long| command.split(' ').next() == Some(long));
        assert!(
            is_long || printed.0.contains_key(command.as_str()),
            "{command} was not run"
        );
    }
}
