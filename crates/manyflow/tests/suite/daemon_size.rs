//! The memory of a daemon with many clients. `--nocapture` prints it.
use crate::common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use common::{Manyflow, manyflow};
use serde_json::Value;

/// The number of clients. Test and daemon take a file for each.
const CLIENTS: usize = 400;
/// A client takes less than this, or the numbers in the guide are wrong.
const CLIENT_BYTES_MAX: u64 = 64 << 10;

/// Returns the resident memory of a process in bytes.
fn resident_bytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: u64 = line
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kib << 10
}

/// Connects a client, and waits until the daemon has handled its operations.
fn connect(address: &str, number: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let operations = format!("CONNECT {{}}\r\nSUB group.{number} 1\r\nSUB all 2\r\nPING\r\n");
    stream.write_all(operations.as_bytes()).unwrap();
    let lines = BufReader::new(stream.try_clone().unwrap()).lines();
    assert!(lines.map(Result::unwrap).any(|line| line == "PONG"));
    stream
}

#[test]
fn a_client_that_waits_takes_little_memory() {
    let mut command = manyflow(&["daemon", "--insecure", "--name", "a", "--json"]);
    command.args(["--clients", "127.0.0.1:0"]);
    let mut daemon = Manyflow::start(command);
    let address = daemon.wait_for(|line| {
        let event: Value = serde_json::from_str(line).ok()?;
        Some(event["clients"].as_str()?.to_owned())
    });
    let mut clients: Vec<_> = (0..10).map(|number| connect(&address, number)).collect();
    let before = resident_bytes(daemon.id());
    clients.extend((0..CLIENTS).map(|number| connect(&address, 10 + number)));
    let after = resident_bytes(daemon.id());
    let bytes = after.saturating_sub(before) / CLIENTS as u64;
    println!(
        "a daemon takes {before} bytes, and {bytes} bytes for each client with two subscriptions"
    );
    assert!(bytes < CLIENT_BYTES_MAX, "{bytes} bytes a client");
}
