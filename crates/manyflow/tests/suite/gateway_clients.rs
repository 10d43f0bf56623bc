//! Unusual clients of `manyflow gateway`, and unusual servers behind it. Everything runs on
//! loopback.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use crate::common::{LIMIT, Manyflow};
use crate::http_stage::{
    ANY, Client, Stage, listen_address, pattern, read_metric, start_gateway, start_member, wait_for,
};
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
    let stage = Stage::start(&["a"], "affinity", &[]);
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
