//! `sim --pcap` and `--trace`: tshark counts the same packets in captures as the results do, and
//! errors are one line.

use crate::common;

use std::path::Path;
use std::process::Command;

use common::{Ended, run};
use manyflow_webrc::Cci;
use serde_json::Value;
use tempfile::TempDir;

/// WEBRC, TCP and CBR over a link that drops, marks and loses packets, and that is cut for a while.
const EVENTFUL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../manyflow-scenario/tests/eventful.toml"
);
/// Wireshark's filter for malformed frames and wrong checksums.
const WRONG: &str = "_ws.malformed || !(ip.checksum.status == 1) || !(udp.checksum.status == 1 || tcp.checksum.status == 1)";
/// Wireshark's filter for a gap in TCP's sequence numbers.
const GAP: &str = "tcp.analysis.lost_segment";

/// A run of the scenario `EVENTFUL`, with a folder for its files.
struct Simulated {
    folder: TempDir,
}

impl Simulated {
    fn new(arguments: &[&str]) -> Simulated {
        let folder = tempfile::tempdir().unwrap();
        let (results, pcap) = (folder.path().join("results"), folder.path().join("pcap"));
        let files = [
            "--out",
            results.to_str().unwrap(),
            "--pcap",
            pcap.to_str().unwrap(),
        ];
        let words = [&["sim", EVENTFUL], &files[..], arguments].concat();
        run(&words).succeeded("simulation");
        Simulated { folder }
    }

    /// The value of a measure in the results.
    fn measured(&self, name: &str) -> usize {
        let summary = self.folder.path().join("results/eventful/summary.json");
        let summary: Value = serde_json::from_slice(&std::fs::read(summary).unwrap()).unwrap();
        summary["cells"][0]["measures"][name]["mean"]
            .as_f64()
            .unwrap() as usize
    }

    /// The given fields of the frames that match `filter`, one line for each frame.
    fn frames(&self, filter: &str, fields: &[&str]) -> Vec<String> {
        let mut command = Command::new("tshark");
        command.arg("-r").arg(self.folder.path().join("pcap"));
        command.args(["-d", "udp.port==5445,alc", "-Y", filter, "-T", "fields"]);
        for check in ["ip", "udp", "tcp"] {
            command.args(["-o", &format!("{check}.check_checksum:TRUE")]);
        }
        let fields = if fields.is_empty() {
            &["frame.number"]
        } else {
            fields
        };
        command.args(fields.iter().flat_map(|field| ["-e", field]));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

fn tshark_is_missing() -> bool {
    let missing = Command::new("tshark").arg("--version").output().is_err();
    if missing {
        println!("skipped: there is no tshark");
    }
    missing
}

#[test]
fn wireshark_finds_every_delivered_packet_and_nothing_wrong() {
    if tshark_is_missing() {
        return;
    }
    let simulated = Simulated::new(&[]);
    assert_eq!(simulated.frames(WRONG, &[]), Vec::<String>::new());
    let delivered = simulated.measured("delivered") + simulated.measured("back");
    assert_eq!(simulated.frames("ip", &[]).len(), delivered);
    let by_protocol = ["alc", "tcp", "udp && !alc"].map(|p| simulated.frames(p, &[]).len());
    assert!(
        by_protocol.iter().all(|count| *count > 100),
        "{by_protocol:?}"
    );
    assert_eq!(by_protocol.iter().sum::<usize>(), delivered);
    let marked = simulated.frames("ip.dsfield.ecn == 3", &[]).len();
    assert!(
        (1..=simulated.measured("marks")).contains(&marked),
        "{marked}"
    );
}

#[test]
fn wireshark_reads_the_congestion_control_information() {
    if tshark_is_missing() {
        return;
    }
    let simulated = Simulated::new(&["--pcap-link", "r1-r2"]);
    let fields = ["rmt-lct.cci", "ip.dst", "rmt-lct.tsi", "rmt-lct.toi"];
    for line in simulated.frames("alc", &fields) {
        let fields: Vec<&str> = line.split('\t').collect();
        let field = u32::from_str_radix(&fields[0].replace(':', ""), 16).unwrap();
        let cci = Cci::decode(&field.to_be_bytes()).unwrap();
        assert_eq!(fields[1], format!("232.1.0.{}", cci.channel), "{line}");
        assert_eq!(fields[2..], ["0", "1"], "{line}");
    }
}

#[test]
fn wireshark_misses_only_the_segments_that_were_lost() {
    if tshark_is_missing() {
        return;
    }
    let before = Simulated::new(&["--pcap-link", "S-r1", "--pcap-link", "r1-S"]);
    assert_eq!(before.frames(GAP, &[]), Vec::<String>::new());
    let retransmitted = before.frames("tcp.analysis.retransmission", &[]).len();
    assert!(retransmitted > 0);
    let behind = Simulated::new(&["--pcap-link", "bottleneck"]);
    let gaps = behind.frames(GAP, &[]).len();
    let lost = behind.measured("drops") + behind.measured("losses");
    assert!((1..=lost).contains(&gaps), "{gaps} gaps, {lost} lost");
}

/// Runs the scenario `EVENTFUL` with a result folder of its own.
fn sim(arguments: &[&str]) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    let out = ["--out", folder.path().to_str().unwrap()];
    run(&[&["sim", EVENTFUL], &out[..], arguments].concat())
}

#[track_caller]
fn fails(arguments: &[&str], code: i32, expected: &str) {
    let ended = sim(arguments);
    assert_eq!(ended.code(), code, "{ended:?}");
    let first = ended.stderr.lines().next().unwrap();
    assert!(first.contains(expected), "{ended:?}");
}

#[test]
fn errors_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let file = file.to_str().unwrap();
    let unknown = "--pcap-link: there is no link `bottlenek`; did you mean `bottleneck`?";
    fails(&["--pcap", file, "--pcap-link", "bottlenek"], 2, unknown);
    let listed = "there is no link `x`; known are `R-r2`, `S-r1`, `bottleneck`,";
    fails(&["--pcap", file, "--pcap-link", "x"], 2, listed);
    fails(&["--pcap", file, "--trace", file], 2, "name two");
    fails(&["--trace", "-", "--json"], 2, "name a file");
    fails(&["--pcap-link", "r1-r2"], 2, "required");
    assert!(!Path::new(file).exists(), "nothing was written");
    let nowhere = folder.path().join("none/file");
    let nowhere = nowhere.to_str().unwrap();
    fails(
        &["--trace", nowhere],
        1,
        &format!("cannot write {nowhere}: "),
    );
}

#[test]
fn a_full_disk_is_reported() {
    for output in ["--pcap", "--trace"] {
        fails(&[output, "/dev/full"], 1, "No space left on device");
    }
}

#[test]
fn a_trace_on_standard_output_is_alone_there() {
    let ended = sim(&["--trace", "-"]).succeeded("trace");
    assert!(ended.stdout.lines().count() > 100);
    for line in ended.stdout.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(line["time"].is_number() && line["event"].is_string());
    }
    assert!(ended.stderr.contains("eventful: "), "{}", ended.stderr);
}
