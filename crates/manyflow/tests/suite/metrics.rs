//! Metrics of a sender and a receiver during a transfer on loopback, read strictly as OpenMetrics
//! demands it.

use crate::common;

use std::collections::{BTreeMap, BTreeSet};

use common::{LIMIT, Manyflow, get, manyflow, text, write_random};
use nix::sys::signal::Signal;
use serde_json::Value;

/// The value of the key `url` of the first event of this kind.
fn url_of(process: &mut Manyflow, kind: &str) -> String {
    process.wait_for(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        let url = event["url"].as_str().filter(|_| event["event"] == kind);
        url.map(str::to_owned)
    })
}

/// Returns the samples of a document by name and labels, after a check of its structure: each
/// family has HELP and TYPE before its samples and appears once, counters end in `_total`, no
/// sample is repeated, and the document ends with EOF.
fn parse(document: &str) -> BTreeMap<String, f64> {
    let lines = document.strip_suffix("# EOF\n").expect("an end");
    let (mut families, mut samples) = (BTreeSet::new(), BTreeMap::new());
    let (mut helped, mut family) = (None, None);
    for line in lines.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            assert!(!help.is_empty(), "{line}");
            helped = Some(name);
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert_eq!(helped.take(), Some(name), "{line}");
            assert!(matches!(kind, "counter" | "gauge"), "{line}");
            assert!(families.insert(name), "{line}: a second time");
            family = Some((name, kind));
        } else {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = sample.split_once('{').unwrap_or((sample, "}"));
            assert!(labels.ends_with('}'), "{line}");
            let (family, kind) = family.expect("a family before its samples");
            let expected = match kind {
                "counter" => format!("{family}_total"),
                _ => family.to_owned(),
            };
            assert_eq!(name, expected, "{line}");
            let value: f64 = value.parse().unwrap();
            assert!(value >= 0.0, "{line}");
            assert!(samples.insert(sample.to_owned(), value).is_none(), "{line}");
        }
    }
    samples
}

/// Fetches the metrics until `is_expected` holds.
fn wait_for(url: &str, is_expected: impl Fn(&BTreeMap<String, f64>) -> bool) {
    let deadline = std::time::Instant::now() + LIMIT;
    loop {
        let (head, body) = get(url);
        let media_type =
            "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
        assert!(head.starts_with("http/1.1 200 ok"), "{head}");
        assert!(format!("{head}\r\n").contains(media_type), "{head}");
        let samples = parse(&body);
        if is_expected(&samples) {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{samples:#?}");
    }
}

#[test]
fn metrics_follow_a_transfer() {
    let folder = tempfile::tempdir().unwrap();
    write_random(&folder.path().join("large"), 4_000_000, 1);
    write_random(&folder.path().join("small"), 1_000, 2);
    let mut command = manyflow(&["send", ".", "--rate", "10Mbit/s", "--json"]);
    command.args(["--listen", "127.0.0.1:0", "--publish", "127.0.0.1:0"]);
    command.args(["--metrics", "127.0.0.1:0"]);
    command.current_dir(folder.path());
    let mut sender = Manyflow::start(command);
    let session = url_of(&mut sender, "published");
    let sent = url_of(&mut sender, "metrics");
    wait_for(&sent, |samples| {
        samples["manyflow_sender_packets_unwanted_total"] > 0.0
            && samples["manyflow_sender_relay_gateways"] == 0.0
    });

    let output = tempfile::tempdir().unwrap();
    let mut command = manyflow(&["recv", &session, "--json", "--output", text(output.path())]);
    // The transfer takes 16 s, in which its metrics are read.
    command.args(["--metrics", "127.0.0.1:0", "--max-rate", "2Mbit/s"]);
    let mut receiver = Manyflow::start(command);
    let received = url_of(&mut receiver, "metrics");
    wait_for(&received, |samples| {
        let of = |name: &str| samples[&format!("manyflow_receiver_{name}")];
        of("packets_received_total") > 0.0
            && of("files") == 2.0
            && of("files_complete") == 1.0
            && of("useful_bytes_total") > 0.0
            && of("needed_bytes") == 4_001_000.0
            && of("rate_bytes_per_second") > 0.0
            && of("symbols_refused_total{reason=\"table\"}") == 0.0
            && of("packets_dropped_total{reason=\"refused\"}") == 0.0
            && samples.contains_key("manyflow_receiver_rtt_seconds")
            && samples["process_resident_memory_bytes"] > 1e6
    });
    wait_for(&sent, |samples| {
        samples["manyflow_sender_relay_gateways"] == 1.0
            && samples["manyflow_sender_relay_joins"] > 0.0
            && samples["manyflow_sender_relay_datagrams_forwarded_total"] > 0.0
            && samples["manyflow_sender_bytes_total"] > 0.0
    });
    let (head, _) = get(&sent.replace("/metrics", "/other"));
    assert!(head.starts_with("http/1.1 404"), "{head}");
    receiver.finish().succeeded("receiver");
    sender.signal(Signal::SIGTERM);
    sender.finish().succeeded("sender");
}

#[test]
fn metrics_of_several_sessions_have_their_names() {
    let folder = common::folder_with_file(1_000);
    let config = r#"
        publish = "127.0.0.1:0"
        metrics = "127.0.0.1:0"
        [defaults]
        paths = ["file"]
        listen = "127.0.0.1:0"
        [session.one]
        [session.two]
    "#;
    let file = folder.path().join("sessions.toml");
    std::fs::write(&file, config).unwrap();
    let mut sender = Manyflow::start(manyflow(&["serve", text(&file), "--json"]));
    let url = url_of(&mut sender, "metrics");
    wait_for(&url, |samples| {
        let of = |name: &str| samples[&format!("manyflow_sender_{name}")];
        let refusals = r#"relay_refusals_total{session="two",reason="joins"}"#;
        of(r#"packets_unwanted_total{session="one"}"#) > 0.0
            && of(r#"packets_unwanted_total{session="two"}"#) > 0.0
            && of(r#"relay_gateways{session="one"}"#) == 0.0
            && of(refusals) == 0.0
            && !samples.contains_key("manyflow_sender_packets_total")
            && samples["process_resident_memory_bytes"] > 1e6
    });
    sender.signal(Signal::SIGTERM);
    sender.finish().succeeded("sender");
}

#[test]
fn a_port_for_metrics_that_is_in_use_is_reported() {
    let folder = common::folder_with_file(10);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let file = folder.path().join("file");
    let arguments = ["send", text(&file), "--listen", "127.0.0.1:0"];
    let ended = common::run(&[&arguments[..], &["--metrics", &address]].concat());
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert!(ended.stderr.contains(&address), "{ended:?}");
    assert!(ended.stderr.contains("choose another"), "{ended:?}");
}
