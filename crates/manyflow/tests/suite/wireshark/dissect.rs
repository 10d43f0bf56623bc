//! Runs tshark with the dissectors, and reads the fields that they show.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::wireshark::expected::{COLUMNS, Fields};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/wireshark");
/// The files that register dissectors.
const SCRIPTS: [&str; 5] = ["webrc", "acp", "layered", "overlay", "tfmcc"];
/// A character that no field contains.
const SEPARATOR: char = '\u{1f}';
/// The expert infos of refused bytes.
const REFUSALS: [&str; 8] = [
    "manyflow_webrc.malformed",
    "manyflow_acp.malformed",
    "manyflow_layered.malformed",
    "manyflow_piece.malformed",
    "manyflow_hop.malformed",
    "manyflow_overlay.malformed",
    "manyflow_overlay_packet.malformed",
    "manyflow_tfmcc.malformed",
];
/// Columns before the refusals: the frame, addresses and payloads.
const FIRST: [&str; 7] = [
    "frame.number",
    "_ws.lua.error",
    "ip.src",
    "udp.dstport",
    "udp.payload",
    "tcp.payload",
    "frame.protocols",
];

/// Returns whether tshark with Lua is missing, and says so.
pub(crate) fn is_missing() -> bool {
    let version = Command::new("tshark").arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    match version {
        Err(_) => println!("skipped: there is no tshark"),
        Ok(version) if !version.contains("with Lua") => println!("skipped: tshark has no Lua"),
        Ok(_) => return false,
    }
    true
}

/// One frame as tshark shows it. Where packets are in packets, the innermost counts.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) frame: u32,
    pub(crate) source: String,
    pub(crate) port: u16,
    pub(crate) udp: Vec<u8>,
    pub(crate) tcp: Vec<u8>,
    /// The names of the protocols, from outside in.
    pub(crate) protocols: String,
    /// Whether a dissector refuses the bytes.
    pub(crate) is_refused: bool,
    /// The shown columns that are not empty.
    pub(crate) columns: BTreeMap<&'static str, String>,
}

/// Dissects a capture, and asserts that no script fails.
pub(crate) fn rows(capture: &Path, options: &[&str]) -> Vec<Row> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(capture).args(options);
    // Installed scripts and preferences do not take part.
    let home = capture.parent().unwrap();
    command.env("HOME", home).env("XDG_CONFIG_HOME", home);
    for script in SCRIPTS {
        command.arg("-X");
        command.arg(format!("lua_script:{FOLDER}/manyflow_{script}.lua"));
    }
    let separator = format!("separator={SEPARATOR}");
    command.args(["-T", "fields", "-E", &separator, "-E", "aggregator=,"]);
    let columns = FIRST.iter().chain(&REFUSALS);
    command.args(columns.chain(&COLUMNS).flat_map(|column| ["-e", column]));
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    assert!(!errors.to_lowercase().contains("lua"), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(row).collect()
}

fn row(line: &str) -> Row {
    let values: Vec<&str> = line.split(SEPARATOR).collect();
    let refusals = FIRST.len()..FIRST.len() + REFUSALS.len();
    assert_eq!(values.len(), refusals.end + COLUMNS.len(), "{line}");
    let [frame, error, source, port, udp, tcp, protocols] = values[..FIRST.len()] else {
        unreachable!("{line}");
    };
    assert_eq!(error, "", "a script fails: {line}");
    let shown = COLUMNS.iter().zip(&values[refusals.end..]);
    let columns = shown
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| (*name, normalised(value)))
        .collect();
    Row {
        frame: frame.parse().unwrap(),
        source: innermost(source).to_owned(),
        port: innermost(port).parse().unwrap_or_default(),
        udp: unhex(innermost(udp)),
        tcp: unhex(innermost(tcp)),
        protocols: protocols.to_owned(),
        is_refused: values[refusals].iter().any(|value| !value.is_empty()),
        columns,
    }
}

fn innermost(values: &str) -> &str {
    values.rsplit(',').next().unwrap_or_default()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|digit| Some(digit.to_digit(16)? as u8))
        .collect();
    let pairs = digits.chunks(2);
    pairs.map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Returns values as versions of tshark agree on them: numbers are decimal, truth is 1, bytes have
/// no colons.
fn normalised(values: &str) -> String {
    let values = values.split(',').map(|value| match value {
        "True" => "1".to_owned(),
        "False" => "0".to_owned(),
        _ => match value.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).unwrap().to_string(),
            None => value.replace(':', ""),
        },
    });
    values.collect::<Vec<_>>().join(",")
}

impl Row {
    /// Asserts that the row shows exactly what our decoder finds; `None` if it refuses the bytes.
    #[track_caller]
    pub(crate) fn check(&self, expected: Option<&Fields>) {
        assert_eq!(
            self.is_refused,
            expected.is_none(),
            "refused: {self:?}, decoded: {expected:?}"
        );
        if let Some(expected) = expected {
            expected.check(&self.columns);
        }
    }
}
