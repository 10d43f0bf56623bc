//! The answers to malformed lines, which docs/nats.md has beside those of nats-server, and the
//! fields of INFO. `scripts/nats/compare` checks both servers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use manyflow_messages::start;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::overlay::stage::{config, within};

const CONNECT: &str = "CONNECT {\"verbose\":false,\"headers\":true}\r\nSUB > 9\r\nPING\r\n";

/// Returns the cells of the table behind a heading of docs/nats.md.
fn rows(heading: &str) -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/nats.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (_, section) = page.split_once(heading).unwrap();
    let section = section.split("\n#").next().unwrap();
    let lines = section.lines().filter(|line| line.starts_with("| "));
    let cells = |line: &str| {
        let cells = line.trim_matches('|').split(" | ");
        cells
            .map(|cell| cell.trim().trim_matches('`').to_owned())
            .collect()
    };
    lines.skip(1).map(cells).collect()
}

/// Returns the bytes that a cell of the table stands for.
fn unescape(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let digit = |digit: Option<u8>| char::from(digit.unwrap()).to_digit(16).unwrap() as u8;
        bytes.push(match rest.next().unwrap() {
            b'r' => b'\r',
            b'n' => b'\n',
            b't' => b'\t',
            b'x' => 16 * digit(rest.next()) + digit(rest.next()),
            other => other,
        });
    }
    bytes
}

fn escape(line: &[u8]) -> String {
    let escaped = |byte: &u8| match byte {
        b'\t' => "\\t".to_owned(),
        b'\\' => "\\\\".to_owned(),
        b' '..=b'~' => char::from(*byte).to_string(),
        byte => format!("\\x{byte:02x}"),
    };
    line.iter().map(escaped).collect()
}

/// Reads up to PONG or the end of the connection. Returns the lines in words.
async fn answers(socket: &mut TcpStream) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"PONG\r\n") {
        match within(socket.read_buf(&mut read)).await {
            Ok(1..) => {}
            _ => {
                read.extend_from_slice(b"closes\r\n");
                break;
            }
        }
    }
    let text = read.strip_suffix(b"\r\n").unwrap();
    let lines = text.split(|byte| *byte == b'\n');
    let lines = lines.map(|line| escape(line.strip_suffix(b"\r").unwrap_or(line)));
    lines.collect::<Vec<_>>().join(", ")
}

async fn answer_to(line: &[u8], address: SocketAddr) -> String {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(CONNECT.as_bytes()).await.unwrap();
    let greeting = answers(&mut socket).await;
    assert!(greeting.ends_with("PONG"), "{greeting}");
    let sent = [line, b"\r\nPING\r\n"].concat();
    let _ = socket.write_all(&sent).await;
    answers(&mut socket).await
}

#[tokio::test]
async fn malformed_lines_have_the_answers_of_the_guide() {
    let daemon = start(config("a")).await.unwrap();
    let address = daemon.addresses().clients.unwrap();
    let rows = rows("### Malformed lines");
    assert!(rows.len() >= 60, "{} rows", rows.len());
    for row in &rows {
        let [line, theirs, ours, reason] = &row[..] else {
            panic!("{row:?} has not four cells");
        };
        let is_same = ours == "same";
        let expected = if is_same { theirs } else { ours };
        let found = answer_to(&unescape(line), address).await;
        assert_eq!(found, *expected, "{line}");
        assert_eq!(
            reason.is_empty(),
            is_same,
            "{line}: a difference has a reason"
        );
    }
}

#[tokio::test]
async fn info_has_the_fields_of_the_guide() {
    let daemon = start(config("a")).await.unwrap();
    let address = daemon.addresses().clients.unwrap();
    let mut socket = TcpStream::connect(address).await.unwrap();
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n") {
        within(socket.read_buf(&mut read)).await.unwrap();
    }
    let info = read.strip_prefix(b"INFO ").unwrap();
    let info: BTreeMap<String, Value> = serde_json::from_slice(info).unwrap();
    let kind = |value: &Value| match value {
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        _ => "other",
    };
    let found = info
        .iter()
        .map(|(name, value)| (name.as_str(), kind(value)));
    let found: BTreeMap<_, _> = found.collect();
    let rows = rows("### Fields of INFO");
    let cells = rows.iter().map(|row| (row[0].as_str(), row[2].as_str()));
    let listed: BTreeMap<_, _> = cells.filter(|(_, kind)| *kind != "-").collect();
    assert_eq!(found, listed);
}
