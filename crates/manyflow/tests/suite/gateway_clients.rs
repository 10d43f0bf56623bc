//! Unusual clients of `manyflow gateway`, and unusual servers behind it. Everything runs on
//! loopback.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use crate::common::{LIMIT, Manyflow};
use crate::http_stage::{
    ANY, Client, Stage, listen_address, pattern, read_metric, start_gateway, start_member,
    start_switch, wait_for,
};
use manyflow_net::reserved::ReservedAddress;
use socket2::SockRef;

/// A server of which the test writes the answers, behind one member.
struct Own {
    server: TcpListener,
    _member: Manyflow,
    member_metrics: String,
    _gateway: Manyflow,
    gateway: std::net::SocketAddr,
    metrics: String,
}

impl Own {
    fn start() -> Own {
        let server = TcpListener::bind(ANY).unwrap();
        let (member, started) = start_member(server.local_addr().unwrap(), ANY);
        let (process, gateway, metrics) = start_gateway(listen_address(&started), &[]);
        Own {
            server,
            _member: member,
            member_metrics: started["metrics"].as_str().unwrap().to_owned(),
            _gateway: process,
            gateway,
            metrics,
        }
    }

    /// Sends a request, and returns its connections at the client and at the server, which has read
    /// the head.
    fn ask(&self, request: &str) -> (Client, Client) {
        let mut client = Client::connect(self.gateway);
        client.send(request.as_bytes());
        (client, self.accept())
    }

    /// Accepts the member's connection, and reads a head.
    fn accept(&self) -> Client {
        let (stream, _) = self.server.accept().unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        let mut server = Client {
            reader: std::io::BufReader::new(stream),
        };
        server.head();
        server
    }

    fn wait_for_cancelled(&self) {
        for (metrics, name) in [
            (&self.metrics, "manyflow_gateway_cancelled_total"),
            (&self.member_metrics, "manyflow_member_cancelled_total"),
        ] {
            wait_for(|| (read_metric(metrics, name) == 1).then_some(()));
        }
    }
}

fn half_close(client: &mut Client) {
    client.reader.get_ref().shutdown(Shutdown::Write).unwrap();
}

/// Waits until a connection has ended, in order or by a reset.
fn wait_for_end(stream: &mut TcpStream) {
    let mut buffer = [0; 1024];
    while !matches!(stream.read(&mut buffer), Ok(0) | Err(_)) {}
}

#[test]
fn a_client_that_ends_its_direction_behind_its_requests_gets_all_answers() {
    let stage = Stage::start(&["a"], &[]);
    let mut client = stage.client();
    client.send(b"GET / HTTP/1.0\r\n\r\n");
    half_close(&mut client);
    assert_eq!(client.answer().text(), "a");
    assert!(client.try_head().is_none(), "one answer");

    let mut client = stage.client();
    let body = pattern(400_000);
    let post = format!(
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let get = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    client.send(&[get, post.as_bytes(), &body, get].concat());
    half_close(&mut client);
    assert_eq!(client.answer().text(), "a");
    assert!(client.answer().body.unwrap() == body);
    assert_eq!(client.answer().text(), "a");
    assert_eq!(stage.counter("cancelled"), 0);
}

#[test]
fn a_request_whose_client_resets_its_connection_is_cancelled_at_once() {
    for has_ended in [false, true] {
        let own = Own::start();
        let (mut client, mut server) = own.ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        if has_ended {
            half_close(&mut client);
        }
        let linger = Some(Duration::ZERO);
        SockRef::from(client.reader.get_ref())
            .set_linger(linger)
            .unwrap();
        drop(client);
        wait_for_end(server.reader.get_mut());
        own.wait_for_cancelled();
    }
}

#[test]
fn a_request_whose_client_has_gone_is_cancelled_when_the_answer_is_written() {
    let own = Own::start();
    let (client, server) = own.ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    drop(client);
    let mut server = server.reader.into_inner();
    server.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
    // An answer without an end: were it kept, the test would not end.
    while server.write_all(&[7; 1 << 16]).is_ok() {}
    own.wait_for_cancelled();
}

const EXPECTING: &str =
    "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";

#[test]
fn an_early_answer_reaches_a_client_that_still_sends_its_body() {
    let own = Own::start();
    let body = pattern(3_000_000);
    let head = format!(
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let (mut client, mut server) = own.ask(&(head.clone() + "begin"));
    server.send(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 5\r\n\r\nlarge");
    let answer = client.answer();
    assert_eq!((answer.status(), answer.text().as_str()), (413, "large"));
    assert_eq!(answer.head.headers["connection"], "close");
    // The connection to the server has half a request, and so no use.
    wait_for_end(server.reader.get_mut());

    // A client that reads no answer before it has sent its whole body gets the same one.
    let (mut client, mut server) = own.ask(&head);
    server.send(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 5\r\n\r\nlarge");
    client.send(&body);
    assert_eq!(client.answer().text(), "large");
}

#[test]
fn the_final_answer_to_an_expectation_needs_no_body() {
    let own = Own::start();
    let (mut client, mut server) = own.ask(EXPECTING);
    server.send(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno");
    let answer = client.answer();
    assert_eq!((answer.status(), answer.text().as_str()), (401, "no"));
    assert_eq!(answer.head.headers["connection"], "close");
    assert!(client.try_head().is_none(), "one answer");
    wait_for_end(server.reader.get_mut());
}

#[test]
fn a_client_that_expects_100_gets_that_of_the_server() {
    let own = Own::start();
    let (mut client, mut server) = own.ask(EXPECTING);
    server.send(b"HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(client.head().line, "HTTP/1.1 100 Continue");
    client.send(b"hello");
    let mut body = [0; 5];
    server.reader.read_exact(&mut body).unwrap();
    assert_eq!(&body, b"hello");
    server.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone");
    assert_eq!(client.answer().text(), "done");
}

#[test]
fn a_client_that_expects_100_gets_it_also_from_a_server_that_sends_none() {
    let stage = Stage::start(&["a"], &[]);
    let mut client = stage.client();
    client.send(EXPECTING.as_bytes());
    assert_eq!(client.head().line, "HTTP/1.1 100 Continue");
    client.send(b"hello");
    assert_eq!(client.answer().text(), "hello");
    let seen = stage.servers[0].seen.lock().unwrap()[0].clone();
    assert_eq!(seen.headers["expect"], "100-continue");
    // The connection remains in use.
    assert_eq!(client.ask("GET", "/").text(), "a");
}

#[test]
fn a_response_with_another_coding_than_chunked_is_refused_with_the_reason() {
    for codings in [
        "Transfer-Encoding: identity\r\nContent-Length: 5\r\n\r\nhello",
        "Transfer-Encoding: identity\r\n\r\nhello",
        "Transfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ] {
        let own = Own::start();
        let (mut client, mut server) = own.ask("POST / HTTP/1.1\r\nHost: h\r\n\r\n");
        // The server keeps its connection open.
        server.send(format!("HTTP/1.1 200 OK\r\n{codings}").as_bytes());
        let answer = client.answer();
        assert_eq!(answer.status(), 502, "{codings:?}");
        assert!(answer.text().contains("Transfer-Encoding"), "{answer:?}");
    }
}

#[test]
fn targets_pass_unchanged_or_are_refused() {
    let stage = Stage::start(&["a"], &[]);
    let good = ["/a?b={c|d}^`\\%zz%", "/a|{b}\"%", "/ä", "//a//?", "*"];
    for target in good {
        let answer = stage.client().ask("GET", target);
        assert_eq!(answer.status(), 200, "{target}");
        let line = format!("GET {target} HTTP/1.1");
        assert_eq!(
            stage.servers[0].seen.lock().unwrap().last().unwrap().line,
            line
        );
    }
    for target in ["/a?b=\"c\"", "/a`b", "/a<b", "/a?b>c", "/a\u{1}b", "a"] {
        let answer = stage.client().ask("GET", target);
        assert_eq!(answer.status(), 400, "{target}");
    }
}

#[test]
fn a_status_without_a_name_has_no_reason() {
    let own = Own::start();
    let (mut client, mut server) = own.ask("POST / HTTP/1.1\r\nHost: h\r\n\r\n");
    server.send(b"HTTP/1.1 520 Unknown Error\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.head().line, "HTTP/1.1 520");
}

#[test]
fn a_body_that_is_cut_ends_its_request() {
    for head in [
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\nbegin",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegin\r\n",
    ] {
        let own = Own::start();
        let (mut client, mut server) = own.ask(head);
        half_close(&mut client);
        let answer = client.answer();
        assert_eq!(answer.status(), 400, "{answer:?}");
        assert!(answer.text().contains("body"), "{answer:?}");
        wait_for_end(server.reader.get_mut());
    }
}

#[test]
fn a_body_that_arrives_slowly_is_sent_again_while_no_server_has_seen_it() {
    let stage = Stage::start(&["a"], &[]);
    let free = ReservedAddress::new().unwrap();
    let (_broken, broken) = start_member(free.get(), ANY);
    let (_member, whole) = start_member(stage.servers[0].address, ANY);
    let members = [listen_address(&broken), listen_address(&whole)];
    let (_switch, at) = start_switch(&members, "affinity");
    let (_gateway, address, metrics) = start_gateway(at, &[]);
    let mut client = Client::connect(address);
    for number in 0..10 {
        let head = format!("POST /{number} HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\nhalf");
        client.send(head.as_bytes());
        stage.wait_for_server(&format!("/{number} "));
        client.send(b"half");
        assert_eq!(client.answer().text(), "halfhalf");
    }
    assert!(read_metric(&metrics, "manyflow_gateway_refused_total") > 0);
}
