//! Attacks on the addresses at which roles show their metrics and status, over loopback.

use crate::common;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

use common::{Manyflow, folder_with_file, get, manyflow, text};
use nix::sys::signal::Signal;
use serde_json::Value;

const ANY: &str = "127.0.0.1:0";
/// More than the server has places for.
const CONNECTIONS: usize = 600;
/// Maximum of a role's resident memory, of which the connections may take a small part.
const PEAK_MAX_KIB: u64 = 96 << 10;

/// Starts a role, and returns it with the address of its metrics.
fn start(arguments: &[&str]) -> (Manyflow, String) {
    let mut command = manyflow(arguments);
    command.args(["--json", "--metrics", ANY]);
    let mut role = Manyflow::start(command);
    let address = role.wait_for(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        let is_metrics = event["event"] == "metrics";
        let text = event["url"].as_str().filter(|_| is_metrics)?;
        let address = text.trim_start_matches("http://").split('/').next()?;
        Some(address.to_owned())
    });
    (role, address)
}

/// Sends bytes, and returns what comes back until the other end closes the connection.
fn answer_to(address: &str, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(common::LIMIT)).unwrap();
    // The server may close the connection before it has read everything.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("the connection stays open"),
        _ => String::from_utf8_lossy(&answer).into_owned(),
    }
}

/// The metrics are there in both formats of text.
fn check_metrics(address: &str) {
    let (head, body) = get(&format!("http://{address}/metrics"));
    assert!(
        head.starts_with("http/1.1 200") && body.ends_with("# EOF\n"),
        "{head}"
    );
    let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: text/plain\r\n\r\n";
    let classic = answer_to(address, request);
    assert!(
        classic.contains("content-type: text/plain; version=0.0.4"),
        "{classic}"
    );
    assert!(!classic.contains("# EOF"), "{classic}");
}

/// The status page loads only its own files, which may run nothing else, and shows this role.
fn check_page(role: &str, address: &str) {
    for (file, media_type) in [
        ("", "text/html"),
        ("page.css", "text/css"),
        ("page.js", "text/javascript"),
        ("page.json", "application/json"),
    ] {
        let (head, _) = get(&format!("http://{address}/{file}"));
        assert!(head.starts_with("http/1.1 200"), "{role} {file}: {head}");
        assert!(
            head.contains(&format!("content-type: {media_type}")),
            "{head}"
        );
        for header in ["content-security-policy: default-src 'none'", "nosniff"] {
            assert!(head.contains(header), "{role} {file}: {head}");
        }
    }
    let (_, page) = get(&format!("http://{address}/page.json"));
    let page: Value = serde_json::from_str(&page).unwrap();
    assert_eq!(page["role"], role);
    assert!(!page["tables"].as_array().unwrap().is_empty(), "{page}");
}

/// Attacks the address of a role, which goes on.
fn attack(arguments: &[&str]) {
    let (role, address) = start(arguments);
    let connections: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| {
            let mut stream = TcpStream::connect(&address).unwrap();
            // Older connections are closed for newer ones.
            let _ = stream.write_all(b"G");
            stream
        })
        .collect();
    let long = [
        b"GET / HTTP/1.1\r\nHost: a\r\nX: ",
        &vec![b'x'; 1 << 20][..],
    ]
    .concat();
    let body = [
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\n",
        &vec![0; 1 << 20][..],
    ]
    .concat();
    let refused: [(&[u8], &str); 9] = [
        (
            b"GET /../../../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n",
            "HTTP/1.1 404",
        ),
        (
            b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n",
            "HTTP/1.1 404",
        ),
        (
            b"GET http://a/../metrics HTTP/1.1\r\nHost: a\r\n\r\n",
            "HTTP/1.1 404",
        ),
        (
            b"DELETE /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
            "HTTP/1.1 405",
        ),
        (b"GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 400"),
        (b"GET / HTTP/1.1\r\nHo st: a\r\n\r\n", "HTTP/1.1 400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", ""),
        (&long, "HTTP/1.1 431"),
        (&body, "HTTP/1.1 405"),
    ];
    for (request, expected) in refused {
        let answer = answer_to(&address, request);
        // A connection with unread bytes may be reset before its answer is read.
        let is_long = request.len() > 1 << 20;
        let shown = String::from_utf8_lossy(&request[..request.len().min(60)]);
        assert!(
            answer.starts_with(expected) || (is_long && answer.is_empty()),
            "{arguments:?}: {shown}: {answer}"
        );
        assert!(!answer.contains("root:"), "{answer}");
    }
    check_metrics(&address);
    check_page(arguments[0], &address);
    drop(connections);
    role.signal(Signal::SIGTERM);
    let ended = role.finish().succeeded("the role");
    assert!(!ended.stderr.contains("panicked"), "{ended:?}");
    assert!(
        ended.peak_memory_kib <= PEAK_MAX_KIB,
        "{} KiB",
        ended.peak_memory_kib
    );
}

#[test]
fn attacks_on_status_addresses_stop_no_role() {
    let folder = folder_with_file(10_000);
    let files = text(folder.path());
    let chunks = tempfile::tempdir().unwrap();
    attack(&["send", files, "--listen", ANY]);
    attack(&[
        "daemon",
        "--name",
        "a",
        "--clients",
        ANY,
        "--insecure",
        "--grace",
        "0s",
    ]);
    attack(&["switch", "--listen", ANY, "--member", "a=127.0.0.1:1"]);
    attack(&["store", "--dir", text(chunks.path()), "--listen", ANY]);
    attack(&["gateway", "--listen", ANY, "--to", "127.0.0.1:1"]);
    attack(&["member", "--listen", ANY, "--http", "http://127.0.0.1:1"]);
    let router = ["router", "--listen", ANY, "--to", "127.0.0.1:1"];
    attack(&[&router[..], &["--rate", "1Mbit/s"]].concat());
}
