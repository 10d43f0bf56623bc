//! Checks the wire format with Wireshark as an independent decoder: it must read a captured session
//! as our own decoder does. Needs root and `tshark`; skipped without them.

use crate::common;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::{Manyflow, assert_same, manyflow, write_random};
use manyflow_object::alc;
use manyflow_testing::TwoHosts;
use manyflow_webrc::Cci;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const TSI: &str = "4026531841";
const PORT: &str = "5445";
/// The fields that tshark prints for each packet, in this order.
const FIELDS: [&str; 9] = [
    "udp.payload",
    "rmt-lct.tsi",
    "rmt-lct.toi",
    "rmt-lct.cci",
    "rmt-lct.codepoint",
    "rmt-lct.fdt_instance_id",
    "rmt-fec.encoding_id",
    "rmt-fec.sbn",
    "rmt-fec.esi",
];

#[test]
fn wireshark_reads_raptorq_sessions_as_we_do() {
    check_session("raptorq", "6");
}

#[test]
fn wireshark_reads_sessions_without_code_as_we_do() {
    check_session("none", "0");
}

fn check_session(fec: &str, encoding_id: &str) {
    if Command::new("tshark").arg("--version").output().is_err() {
        println!("skipped: there is no tshark");
        return;
    }
    let Some(hosts) = TwoHosts::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("session.pcapng");
    let capture = Capture::start(&hosts, &file);
    transfer(&hosts, fec);
    capture.stop();

    let malformed = tshark(&file, &["-Y", "_ws.malformed || !alc"]);
    assert_eq!(
        malformed, "",
        "packets that Wireshark does not take for ALC"
    );
    let mut arguments = vec!["-T", "fields", "-E", "separator=|"];
    arguments.extend(FIELDS.iter().flat_map(|field| ["-e", field]));
    let lines = tshark(&file, &arguments);
    let objects: BTreeSet<u128> = lines
        .lines()
        .map(|line| check_packet(line, encoding_id))
        .collect();
    assert_eq!(
        objects,
        BTreeSet::from([0, 1, 2]),
        "the table of files and both files"
    );
}

/// Transfers a whole session over the captured link.
fn transfer(hosts: &TwoHosts, fec: &str) {
    let (sources, output) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_random(&sources.path().join("one"), 100_000, 1);
    write_random(&sources.path().join("two"), 999, 2);
    let wire = TwoHosts::INTERFACE;
    let mut command = manyflow(&[
        "send",
        ".",
        "--multicast",
        "232.1.2.0/24",
        "--interface",
        wire,
        "--port",
        PORT,
    ]);
    command.args([
        "--fec",
        fec,
        "--rate",
        "3Mbit/s",
        "--tsi",
        TSI,
        "--publish",
        "10.77.0.1:0",
    ]);
    command.current_dir(sources.path());
    let mut sender = hosts.on_sender(|| Manyflow::start(command));
    let mut command = manyflow(&["recv", &sender.url(), "--interface", wire, "--output"]);
    command.arg(output.path());
    let receiver = hosts.on_receiver(|| Manyflow::start(command));
    receiver.finish().succeeded("receiver");
    assert_same(sources.path(), output.path(), "captured session");
    sender.signal(Signal::SIGINT);
    sender.finish().succeeded("sender");
}

/// Compares Wireshark's reading of a packet with ours; returns the packet's object, or 0 if it has
/// none.
fn check_packet(line: &str, encoding_id: &str) -> u128 {
    let fields: Vec<_> = line.split('|').collect();
    let [
        payload,
        tsi,
        toi,
        cci,
        codepoint,
        fdt_instance,
        encoding,
        sbn,
        esi,
    ] = fields[..]
    else {
        panic!("not {} fields: {line}", FIELDS.len());
    };
    let payload = unhex(payload);
    let packet = alc::Packet::decode(&payload).unwrap();
    assert_eq!((tsi, packet.tsi().to_string().as_str()), (TSI, TSI));
    assert_eq!(unhex(cci), packet.cci());
    assert!(Cci::decode(packet.cci()).is_some());
    let Some(symbol) = packet.symbol else {
        assert!(packet.closes_session() && sbn.is_empty(), "{line}");
        return 0;
    };
    assert_eq!(toi, symbol.toi.to_string());
    assert_eq!(codepoint, packet.header.codepoint.to_string());
    assert_eq!(
        fdt_instance,
        packet
            .fdt
            .map_or(String::new(), |fdt| fdt.instance.to_string())
    );
    assert_eq!(packet.fdt.is_some(), symbol.toi == 0);
    let [a, b, c, d] = symbol.payload_id;
    let (own_sbn, own_esi) = match encoding_id {
        "6" => (u32::from(a), u32::from_be_bytes([0, b, c, d])),
        _ => (
            u32::from_be_bytes([0, 0, a, b]),
            u32::from_be_bytes([0, 0, c, d]),
        ),
    };
    assert_eq!(
        (encoding, number(sbn), number(esi)),
        (encoding_id, own_sbn, own_esi),
        "{line}"
    );
    symbol.toi
}

/// A number as Wireshark writes it, decimal or hexadecimal.
fn number(text: &str) -> u32 {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|c| Some(c.to_digit(16)? as u8))
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

fn tshark(file: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("tshark");
    command
        .arg("-r")
        .arg(file)
        .args(["-d", &format!("udp.port=={PORT},alc")])
        .args(arguments);
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// `dumpcap` on the receiving host.
struct Capture(Child);

impl Capture {
    fn start(hosts: &TwoHosts, file: &Path) -> Capture {
        let mut command = Command::new("dumpcap");
        command
            .args([
                "-q",
                "-i",
                TwoHosts::INTERFACE,
                "-f",
                &format!("udp port {PORT}"),
                "-w",
            ])
            .arg(file);
        let mut child = hosts.on_receiver(|| command.stderr(Stdio::piped()).spawn().unwrap());
        // `dumpcap` prints a line once it captures.
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut told = String::new();
        while !told.contains("File:") {
            assert_ne!(stderr.read_line(&mut told).unwrap(), 0, "dumpcap: {told}");
        }
        Capture(child)
    }

    fn stop(mut self) {
        kill(Pid::from_raw(self.0.id() as i32), Signal::SIGINT).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // The process has ended already, unless the test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
