//! The dissectors of `contrib/wireshark`: tshark shows the fields that our decoders return, refuses
//! the bytes that they refuse, and no script fails. Skipped without tshark, or if it has no Lua.

use crate::common;
mod dissect;
mod expected;
mod live;
mod overlay;
mod pcap;
mod variants;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use common::run;
use dissect::Row;
use expected::Fields;

const SCENARIO: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/suite/wireshark/families.toml"
);
/// The links of the scenario on which all protocols are seen.
const LINKS: [&str; 3] = ["multicast", "streams", "anypoint"];
/// Simulated streams number segments instead of bytes.
const SIMULATED: [&str; 4] = [
    "-o",
    "tcp.analyze_sequence_numbers:FALSE",
    "-o",
    "tcp.desegment_tcp_streams:FALSE",
];

/// A protocol, by the name of its dissector.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Protocol {
    Webrc,
    Tfmcc,
    Layered,
    Hop,
    Acp,
    Overlay,
    OverlayPacket,
}

impl Protocol {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Protocol::Webrc => "manyflow_webrc",
            Protocol::Tfmcc => "manyflow_tfmcc",
            Protocol::Layered => "manyflow_layered",
            Protocol::Hop => "manyflow_hop",
            Protocol::Acp => "manyflow_acp",
            Protocol::Overlay => "manyflow_overlay",
            Protocol::OverlayPacket => "manyflow_overlay_packet",
        }
    }

    /// Decodes a datagram; `None` if our decoder refuses it.
    pub(crate) fn decode(self, bytes: &[u8]) -> Option<Fields> {
        match self {
            Protocol::Webrc => expected::webrc(bytes),
            Protocol::Tfmcc => expected::tfmcc(bytes),
            Protocol::Layered => expected::layered(bytes),
            Protocol::Hop => expected::hop(bytes),
            Protocol::Acp => expected::acp(bytes),
            Protocol::Overlay => overlay::datagram(bytes),
            Protocol::OverlayPacket => overlay::packet(bytes),
        }
    }

    /// The protocol of a datagram of the scenario, by the addresses and lengths that it has there.
    fn of_simulated(row: &Row) -> Protocol {
        let node: u8 = row.source.rsplit('.').next().unwrap().parse().unwrap();
        match row.port {
            5445 => Protocol::Webrc,
            47445 => Protocol::Tfmcc,
            48445 => Protocol::Layered,
            // P and x are the eighth and ninth node.
            _ if matches!(node, 8..) => Protocol::Acp,
            _ if row.udp[0] >> 5 == 1 => Protocol::Overlay,
            _ if matches!(row.udp.len(), 8 | 40) => Protocol::Layered,
            _ if row.udp.len() == 16 => Protocol::Tfmcc,
            _ => panic!("a datagram of no protocol: {row:?}"),
        }
    }
}

/// Runs the scenario with a capture.
fn simulate(folder: &Path) -> PathBuf {
    let (results, capture) = (folder.join("results"), folder.join("capture.pcap"));
    let mut words = vec!["sim", SCENARIO, "--out", common::text(&results)];
    words.extend(["--pcap", common::text(&capture)]);
    words.extend(LINKS.iter().flat_map(|link| ["--pcap-link", link]));
    run(&words).succeeded("simulation");
    capture
}

/// The rows of the scenario's capture with their protocols, without TCP.
fn simulated() -> (TempDir, Vec<Row>) {
    let folder = tempfile::tempdir().unwrap();
    let capture = simulate(folder.path());
    let rows = dissect::rows(&capture, &SIMULATED);
    (folder, rows)
}

/// Counts the values of a field.
#[derive(Debug, Default)]
pub(crate) struct Kinds(BTreeMap<&'static str, BTreeMap<String, u32>>);

impl Kinds {
    /// The fields that tell kinds of packets apart.
    const FIELDS: [&str; 6] = [
        "manyflow_tfmcc.kind",
        "manyflow_layered.kind",
        "manyflow_hop.kind",
        "manyflow_acp.type",
        "manyflow_overlay.kind",
        "manyflow_overlay_packet.kind",
    ];

    pub(crate) fn count(&mut self, fields: &Fields) {
        for name in Kinds::FIELDS {
            for value in fields.get(name).into_iter().flat_map(|all| all.split(',')) {
                let counts = self.0.entry(name).or_default();
                *counts.entry(value.to_owned()).or_default() += 1;
            }
        }
    }

    /// Asserts that packets of all these kinds were there.
    #[track_caller]
    pub(crate) fn assert_seen(&self, name: &str, kinds: &[u32]) {
        for kind in kinds {
            let counts = self.0.get(name);
            let seen = counts.is_some_and(|counts| counts.contains_key(&kind.to_string()));
            assert!(seen, "no {name} {kind}: {self:?}");
        }
    }
}

#[test]
fn each_family_is_recognised_and_read_as_our_decoders_do() {
    if dissect::is_missing() {
        return;
    }
    let (_folder, rows) = simulated();
    let (mut kinds, mut formats) = (Kinds::default(), [0; 2]);
    for row in rows.iter().filter(|row| !row.udp.is_empty()) {
        let protocol = Protocol::of_simulated(row);
        let names: Vec<_> = row.protocols.split(':').collect();
        assert!(names.contains(&protocol.name()), "{protocol:?}: {row:?}");
        let fields = protocol.decode(&row.udp);
        row.check(fields.as_ref());
        kinds.count(&fields.unwrap());
        if protocol == Protocol::Webrc {
            formats[usize::from(row.udp[0] >> 2 & 1)] += 1;
        }
    }
    kinds.assert_seen("manyflow_tfmcc.kind", &[1, 2]);
    kinds.assert_seen("manyflow_layered.kind", &[1, 2, 3]);
    kinds.assert_seen("manyflow_acp.type", &[1, 2, 3, 4, 5, 6, 7]);
    kinds.assert_seen("manyflow_overlay.kind", &[1, 2, 3, 6, 7, 8, 9]);
    assert!(formats.iter().all(|count| *count > 20), "{formats:?}");
    println!("{kinds:?}, WEBRC: {formats:?}");
}

#[test]
fn streams_of_daemons_are_recognised_and_other_tcp_is_not() {
    if dissect::is_missing() {
        return;
    }
    let (_folder, rows) = simulated();
    let (mut kinds, mut others) = (Kinds::default(), 0);
    for row in rows.iter().filter(|row| !row.tcp.is_empty()) {
        // A and B are the fifth and sixth node.
        let is_stream = matches!(row.source.as_str(), "10.0.0.5" | "10.0.0.6");
        let is_recognised = row.protocols.contains("manyflow_overlay");
        assert_eq!(is_recognised, is_stream, "{row:?}");
        if is_stream {
            let fields = overlay::stream(&row.tcp).unwrap();
            row.check(Some(&fields));
            kinds.count(&fields);
        } else {
            others += 1;
        }
    }
    assert!(others > 100, "{others} segments of a transfer");
    kinds.assert_seen("manyflow_overlay.kind", &[1, 2, 3, 5]);
    println!("{kinds:?}, {others} other segments");
}

#[test]
fn packets_that_are_decoded_as_alc_get_their_congestion_control_information() {
    if dissect::is_missing() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let capture = simulate(folder.path());
    let rows = dissect::rows(&capture, &["-d", "udp.port==5445,alc"]);
    let rows = rows.iter().filter(|row| row.port == 5445);
    let checked = rows.inspect(|row| {
        assert!(!row.protocols.contains("manyflow_webrc:"), "{row:?}");
        row.check(expected::webrc(&row.udp).as_ref());
    });
    assert!(checked.count() > 100);
}
