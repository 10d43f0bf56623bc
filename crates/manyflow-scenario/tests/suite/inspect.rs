//! Tests of captures and traces, in a scenario that causes almost every kind of event.

use std::collections::BTreeSet;
use std::io::{self, Write};

use serde_json::Value;

use manyflow_scenario::*;

const EVENTFUL: &str = include_str!("../eventful.toml");

/// All kinds of events in traces, as listed in the manual.
pub(super) const EVENTS: [&str; 44] = [
    "acceptable",
    "allowed",
    "change",
    "cut",
    "delivered",
    "drop",
    "end",
    "failed",
    "feedback",
    "feedback-sent",
    "feedback-suppressed",
    "finished",
    "graft",
    "group-rate",
    "groups-changed",
    "join",
    "join-timeout",
    "latency",
    "leave",
    "limiting-receiver",
    "loss",
    "loss-event",
    "mark",
    "member-failed",
    "member-resumed",
    "member-stalled",
    "overflow",
    "packets-lost",
    "prune",
    "queue",
    "rate",
    "rates",
    "restore",
    "retransmission",
    "retransmission-timeout",
    "round",
    "rtt",
    "sent",
    "slow-member",
    "slowstart-end",
    "start-up-end",
    "start-up-resumed",
    "view",
    "window",
];

/// Those of [`EVENTS`] that the scenario does not cause.
const RARE: [&str; 5] = [
    "end",
    "join-timeout",
    "member-resumed",
    "member-stalled",
    "start-up-resumed",
];

const JOB: Job = Job {
    cell: 0,
    seed: 1,
    place: 0,
};

fn parse(text: &str) -> Scenario {
    Scenario::parse("scenarios/eventful.toml", text, false).unwrap()
}

fn captured(scenario: &Scenario, link: &str) -> (Run, Vec<u8>) {
    let mut file = Vec::new();
    let links = scenario.links_to_capture(0, &[link.to_owned()]).unwrap();
    let inspection = Inspection {
        capture: Some((links, &mut file)),
        ..Inspection::default()
    };
    (scenario.run_inspected(JOB, inspection).unwrap(), file)
}

fn traced(scenario: &Scenario) -> (Run, String) {
    let mut text = Vec::new();
    let inspection = Inspection {
        trace: Some(&mut text),
        ..Inspection::default()
    };
    let run = scenario.run_inspected(JOB, inspection).unwrap();
    (run, String::from_utf8(text).unwrap())
}

/// Returns the arrival time in nanoseconds and the length in bytes of each frame of a capture file.
fn frames(mut file: &[u8]) -> Vec<(u64, usize)> {
    let mut frames = Vec::new();
    file = &file[24..];
    while let Some((header, rest)) = file.split_first_chunk::<16>() {
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        let time_ns = u64::from(word(0)) * 1_000_000_000 + u64::from(word(4));
        frames.push((time_ns, word(8) as usize));
        assert_eq!(word(8), word(12), "frames are whole");
        file = &rest[word(8) as usize..];
    }
    assert!(file.is_empty());
    frames
}

#[test]
fn a_capture_has_each_packet_that_its_link_delivers() {
    let scenario = parse(EVENTFUL);
    let (run, file) = captured(&scenario, "r1-r2");
    let frames = frames(&file);
    assert_eq!(frames.len() as f64, run.measures[0]);
    assert!(frames.is_sorted_by_key(|(time_ns, _)| *time_ns));
    let in_outage = |time_ns: u64| (5_000_000_000..8_000_000_000).contains(&time_ns);
    assert!(!frames.iter().any(|(time_ns, _)| in_outage(*time_ns)));
    for protocols_length in [1024, 1040, 1000, 1080] {
        assert!(frames.iter().any(|(_, length)| *length == protocols_length));
    }
}

#[test]
fn both_directions_of_a_named_link_are_captured() {
    let scenario = parse(EVENTFUL);
    let lengths = |link| {
        let (_, file) = captured(&scenario, link);
        frames(&file).len()
    };
    assert_eq!(lengths("bottleneck"), lengths("r1-r2") + lengths("r2-r1"));
}

#[test]
fn a_trace_has_every_kind_of_event_and_agrees_with_the_counters() {
    let (run, text) = traced(&parse(EVENTFUL));
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let events: BTreeSet<&str> = lines
        .iter()
        .map(|line| line["event"].as_str().unwrap())
        .collect();
    let known = BTreeSet::from(EVENTS);
    assert!(events.is_subset(&known), "{events:?}");
    // These events occur only if a receiver gets no packets at all, if its start-up ends by losses
    // without a queue, or if a member of a switch reads nothing for 10 s.
    let missing: Vec<_> = known.difference(&events).collect();
    assert!(
        missing.iter().all(|event| RARE.contains(event)),
        "{missing:?}"
    );
    let count = |event: &str, why: &[&str]| {
        let matches = |line: &&Value| {
            line["event"] == event
                && line["link"] == "r1-r2"
                && (why.is_empty() || line["why"].as_str().is_some_and(|w| why.contains(&w)))
        };
        lines.iter().filter(matches).count() as f64
    };
    assert_eq!(count("drop", &["full", "early"]), run.measures[1]);
    assert_eq!(count("mark", &[]), run.measures[2]);
    assert!(count("drop", &["early"]) > 0.0 && count("drop", &["cut"]) > 0.0);
}

#[test]
fn trace_lines_are_stable() {
    let (_, text) = traced(&parse(EVENTFUL));
    let first = |event: &str| {
        let wanted = format!("\"event\":\"{event}\"");
        text.lines().find(|line| line.contains(&wanted)).unwrap()
    };
    assert_eq!(
        first("join"),
        r#"{"time":0.000000000,"event":"join","node":"R","of":"webrc/R","channel":21}"#
    );
    assert_eq!(
        first("graft"),
        r#"{"time":0.010000000,"event":"graft","link":"r2-R","of":"webrc","channel":21}"#
    );
    assert_eq!(
        first("cut"),
        r#"{"time":5.000000000,"event":"cut","link":"r1-r2"}"#
    );
    assert_eq!(
        first("change"),
        r#"{"time":30.000000000,"event":"change","link":"r1-r2","rate":500000,"delay":0.01}"#
    );
}

#[test]
fn inspection_changes_nothing_and_is_reproducible() {
    let scenario = parse(EVENTFUL);
    let unseen = scenario.run_one(JOB).unwrap();
    let (capture, trace) = (captured(&scenario, "bottleneck"), traced(&scenario));
    assert_eq!((&capture.0, &trace.0), (&unseen, &unseen));
    assert_eq!(capture, captured(&scenario, "bottleneck"));
    assert_eq!(trace, traced(&scenario));
}

#[test]
fn without_a_name_the_only_limited_link_is_captured() {
    let chosen = |text: &str| parse(text).links_to_capture(0, &[]);
    let named = parse(EVENTFUL).links_to_capture(0, &["bottleneck".to_owned()]);
    assert_eq!(chosen(EVENTFUL), named);
    let second = EVENTFUL.replace(
        "[[sessions]]\nname = \"webrc\"",
        "[[links]]\nbetween = [\"S\", \"r1\"]\nrate = \"9 Mbit/s\"\n[[sessions]]\nname = \"webrc\"",
    );
    let message = chosen(&second).unwrap_err().to_string();
    assert!(
        message.starts_with("the link is ambiguous: name one of `R-r2`, `S-r1`, `bottleneck`,"),
        "{message}"
    );
    let unknown = parse(EVENTFUL).links_to_capture(0, &["r1-R".to_owned()]);
    let message = unknown.unwrap_err().to_string();
    assert!(message.contains("there is no link `r1-R`"), "{message}");
}

/// A disk that is full after this number of bytes.
struct FullDisk(usize);

impl Write for FullDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self
            .0
            .checked_sub(bytes.len())
            .ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_fails_the_run() {
    let scenario = parse(EVENTFUL);
    let links = scenario.links_to_capture(0, &[]).unwrap();
    let (mut capture, mut trace) = (FullDisk(5000), FullDisk(5000));
    let captured = Inspection {
        capture: Some((links, &mut capture)),
        ..Inspection::default()
    };
    let failed = scenario.run_inspected(JOB, captured).unwrap_err();
    assert!(
        failed.message.starts_with("cannot write the capture: "),
        "{failed}"
    );
    let traced = Inspection {
        trace: Some(&mut trace),
        ..Inspection::default()
    };
    let failed = scenario.run_inspected(JOB, traced).unwrap_err();
    assert!(
        failed.message.starts_with("cannot write the trace: "),
        "{failed}"
    );
}
