//! Hostile clients and servers of `manyflow gateway`, with a switch and members as processes.
//! `gateway` has more of them, one kind at a time.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use crate::http_stage::{
    ANY, Client, LARGE, Stage, large, listen_address, start_gateway, start_member, start_switch,
};

/// The number of clients that read nothing.
const SLOW: usize = 40;
/// Maximum of the gateway's memory with all of them.
const PEAK_KIB_MAX: u64 = 300 << 10;

/// Requests whose end or host is in doubt.
const REQUESTS: [&str; 7] = [
    "GET /x HTTP/1.1\r\n\r\n",
    "GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "GET /x HTTP/1.1\r\nHost: user@a\r\n\r\n",
    "GET /x HTTP/1.1\nHost: a\n\n",
    "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n",
    "GET http://user@a/x HTTP/1.1\r\nHost: a\r\n\r\n",
];

/// Asserts that another client gets whole and right answers. Gateways close connections that have
/// no request for long, so it connects each time.
fn assert_served(stage: &Stage) {
    let mut bystander = stage.client();
    assert_eq!(bystander.post("/", b"bystander").text(), "bystander");
    let answer = bystander.ask("GET", "/large");
    let body = answer.body.expect("a whole body");
    assert!(body == large());
}

fn peak_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.unwrap().trim().trim_end_matches(" kB");
    peak.parse().unwrap()
}

#[test]
fn hostile_requests_and_clients_that_read_nothing_cost_others_nothing() {
    let stage = Stage::start(&["a", "b"], &[]);
    assert_served(&stage);
    let mut slow: Vec<_> = (0..SLOW).map(|_| stage.client()).collect();
    for client in &mut slow {
        client.send(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(client.head().headers["content-length"], LARGE.to_string());
    }
    for request in REQUESTS {
        let mut client = stage.client();
        client.send(request.as_bytes());
        assert_eq!(client.answer().status(), 400, "{request:?}");
        assert!(client.try_head().is_none(), "{request:?}: one answer");
    }
    assert_served(&stage);
    let peak = peak_kib(stage.gateway.id());
    println!("{SLOW} clients that read nothing: the gateway took {peak} KiB");
    assert!(peak < PEAK_KIB_MAX, "the gateway took {peak} KiB");
    let seen = stage.servers.iter().any(|server| server.has_seen("/x"));
    assert!(!seen, "no server has seen a request in doubt");
    // A client that reads again gets the rest.
    let mut body = vec![0; LARGE];
    slow[0].reader.read_exact(&mut body).unwrap();
    assert!(body == large());
}

/// The answers of a hostile server, by path, and what the client may get: `Some` is the body.
const ANSWERS: [(&str, &str, Option<&str>); 7] = [
    // RFC 9112, 6.3: the chunks count.
    (
        "/both",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        Some("hello"),
    ),
    (
        "/two-lengths",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nhello",
        None,
    ),
    (
        "/short",
        "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhello",
        None,
    ),
    (
        "/short-chunk",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        None,
    ),
    (
        "/no-last-chunk",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        None,
    ),
    (
        "/long-chunk",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n",
        None,
    ),
    (
        "/bare",
        "HTTP/1.1 200 OK\nContent-Length: 500\n\nhello",
        None,
    ),
];

/// Starts the server, which closes each connection behind its answer.
fn start_hostile_server() -> SocketAddr {
    let listener = TcpListener::bind(ANY).unwrap();
    let address = listener.local_addr().unwrap();
    // The thread ends with the test's process.
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || answer(stream));
        }
    });
    address
}

fn answer(mut stream: TcpStream) {
    let head = BufReader::new(stream.try_clone().unwrap()).lines();
    let head: Vec<_> = head
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
        .collect();
    let path = head.first().and_then(|line| line.split(' ').nth(1));
    let answer = ANSWERS.iter().find(|(at, ..)| Some(*at) == path);
    if let Some((_, answer, _)) = answer {
        let _ = stream.write_all(answer.as_bytes());
    }
}

#[test]
fn no_answer_of_a_hostile_server_is_delivered_as_complete_when_it_is_cut() {
    let (_member, started) = start_member(start_hostile_server(), ANY);
    let (_switch, at) = start_switch(&[listen_address(&started)], "affinity");
    let (_gateway, address, _) = start_gateway(at, &[]);
    let stage = Stage::start(&["a"], &[]);
    for (path, _, whole) in ANSWERS {
        let mut client = Client::connect(address);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
        let head = client.try_head();
        let status = head.as_ref().and_then(|head| head.line.split(' ').nth(1));
        let is_success = status == Some("200");
        assert!(
            is_success || matches!(status, None | Some("502")),
            "{path}: {head:?}"
        );
        let body = head
            .filter(|_| is_success)
            .and_then(|head| client.body(&head));
        let body = body.map(|body| String::from_utf8(body).unwrap());
        assert_eq!(body.as_deref(), whole, "{path}");
        // The gateway goes on: it answers what the server leaves unanswered.
        assert_eq!(
            Client::connect(address).ask("GET", "/nothing").status(),
            502
        );
    }
    assert_served(&stage);
}
