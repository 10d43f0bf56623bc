//! `manyflow gateway --tcp`: streams of TCP clients to TCP servers behind members.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use crate::common::{LIMIT, Manyflow};
use crate::http_stage::{ANY, listen_address, pattern, start, start_switch, wait_for};
use manyflow_net::reserved::ReservedAddress;
use socket2::SockRef;

/// A TCP server of which the test takes the connections.
struct TcpServer {
    address: SocketAddr,
    streams: Receiver<TcpStream>,
}

impl TcpServer {
    fn start() -> TcpServer {
        let listener = TcpListener::bind(ANY).unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, streams) = mpsc::channel();
        // The thread ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                stream.set_read_timeout(Some(LIMIT)).unwrap();
                stream.set_write_timeout(Some(LIMIT)).unwrap();
                if sender.send(stream).is_err() {
                    return;
                }
            }
        });
        TcpServer { address, streams }
    }

    fn accept(&self) -> TcpStream {
        self.streams.recv_timeout(LIMIT).unwrap()
    }
}

fn start_member(servers: &[SocketAddr], more: &[&str]) -> (Manyflow, SocketAddr) {
    let servers: Vec<_> = servers.iter().map(ToString::to_string).collect();
    let mut arguments = vec!["member", "--listen", ANY];
    servers
        .iter()
        .for_each(|server| arguments.extend(["--tcp", server]));
    arguments.extend(more);
    let (member, started) = start(&arguments);
    let at = listen_address(&started);
    (member, at)
}

fn start_tunnel(to: SocketAddr, port: &str, more: &[&str]) -> (Manyflow, SocketAddr) {
    start_tunnel_before(&["--to", &to.to_string()], port, more)
}

fn start_tunnel_before(service: &[&str], port: &str, more: &[&str]) -> (Manyflow, SocketAddr) {
    let mut arguments = vec!["gateway", "--listen", ANY, port];
    arguments.extend(service);
    arguments.extend(more);
    let (mut gateway, started) = start(&arguments);
    gateway.wait_for(|line| line.contains("connected").then_some(()));
    let at = listen_address(&started);
    (gateway, at)
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    stream
}

/// A server behind one member, and a tunnel to it.
struct Stage {
    server: TcpServer,
    _member: Manyflow,
    _gateway: Manyflow,
    address: SocketAddr,
}

impl Stage {
    fn start(port: &str, of_member: &[&str], of_gateway: &[&str]) -> Stage {
        let server = TcpServer::start();
        let (member, at) = start_member(&[server.address], of_member);
        let (gateway, address) = start_tunnel(at, port, of_gateway);
        Stage {
            server,
            _member: member,
            _gateway: gateway,
            address,
        }
    }

    /// Opens a stream. Returns its client and its server.
    fn open(&self) -> (TcpStream, TcpStream) {
        (connect(self.address), self.server.accept())
    }
}

fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

fn read_some<const BYTES: usize>(stream: &mut TcpStream) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

/// Reads until the stream is reset.
fn expect_reset(stream: &mut TcpStream) {
    let mut buffer = [0; 1024];
    let error = loop {
        match stream.read(&mut buffer) {
            Ok(0) => panic!("the stream ends in order, and should be reset"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
}

fn reset(stream: TcpStream) {
    SockRef::from(&stream)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
}

#[test]
fn bytes_pass_both_ways_and_each_direction_ends_for_itself() {
    let stage = Stage::start("--tcp", &[], &[]);
    let body = pattern(3_000_000);
    // The client ends first.
    let (mut client, mut server) = stage.open();
    let sending = {
        let (mut client, body) = (client.try_clone().unwrap(), body.clone());
        thread::spawn(move || {
            client.write_all(&body).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
        })
    };
    assert!(read_all(&mut server) == body);
    sending.join().unwrap();
    server.write_all(b"the answer comes after the end").unwrap();
    drop(server);
    assert_eq!(read_all(&mut client), b"the answer comes after the end");

    // The server ends first.
    let (mut client, mut server) = stage.open();
    server.write_all(b"hello").unwrap();
    server.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut client), b"hello");
    client.write_all(&body).unwrap();
    drop(client);
    assert!(read_all(&mut server) == body);
}

#[test]
fn a_reset_on_one_side_is_one_on_the_other() {
    let stage = Stage::start("--tcp", &[], &[]);
    let (client, mut server) = stage.open();
    reset(client);
    expect_reset(&mut server);
    let (mut client, server) = stage.open();
    reset(server);
    expect_reset(&mut client);
}

#[test]
fn a_side_that_does_not_read_stops_the_other_and_no_other_stream() {
    let stage = Stage::start("--tcp", &[], &[]);
    let (mut client, mut server) = stage.open();
    for stream in [&client, &server] {
        stream.set_nonblocking(true).unwrap();
    }
    // Buffers of the kernels, the windows and the send buffer of the connection, in each direction.
    const ENOUGH: usize = 64 << 20;
    let chunk = vec![7; 1 << 16];
    for stream in [&mut client, &mut server] {
        let mut written = 0;
        let mut idle = 0;
        while idle < 20 {
            match stream.write(&chunk) {
                Ok(bytes) => (written, idle) = (written + bytes, 0),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    idle += 1;
                    thread::sleep(Duration::from_millis(10));
                }
                Err(error) => panic!("{error}"),
            }
            assert!(
                written < ENOUGH,
                "nobody reads, and the stream takes everything"
            );
        }
    }
    let (mut other_client, mut other_server) = stage.open();
    other_client.write_all(b"ping").unwrap();
    assert_eq!(&read_some::<4>(&mut other_server), b"ping");
    other_server.write_all(b"pong").unwrap();
    assert_eq!(&read_some::<4>(&mut other_client), b"pong");
}

#[test]
fn streams_of_a_member_that_dies_are_reset_and_new_ones_go_elsewhere() {
    let servers = [TcpServer::start(), TcpServer::start()];
    let mut members: Vec<_> = servers
        .iter()
        .map(|server| start_member(&[server.address], &[]))
        .collect();
    let addresses: Vec<_> = members.iter().map(|(_, at)| *at).collect();
    let (_switch, at) = start_switch(&addresses, "affinity");
    let (_gateway, address) = start_tunnel(at, "--tcp", &[]);
    let mut clients: Vec<_> = (0..8).map(|_| connect(address)).collect();
    let mut ends: Vec<Vec<TcpStream>> = vec![Vec::new(), Vec::new()];
    wait_for_streams(&servers, &mut ends, 8);
    assert!(ends.iter().all(|ends| !ends.is_empty()), "each has a share");
    for end in ends.iter_mut().flatten() {
        end.write_all(b"hello").unwrap();
    }
    for client in &mut clients {
        assert_eq!(&read_some::<5>(client), b"hello");
    }
    members[0].0.kill();
    // New streams open at the other member at once.
    let new: Vec<_> = (0..4).map(|_| connect(address)).collect();
    let mut more = vec![Vec::new(), Vec::new()];
    wait_for_streams(&servers[1..], &mut more, 4);
    // The clients of the dead member get a reset, the others go on.
    ends[1]
        .iter_mut()
        .for_each(|end| end.write_all(b"x").unwrap());
    let mut resets = 0;
    for mut client in clients {
        let mut byte = [0];
        match client.read(&mut byte) {
            Ok(1) => assert_eq!(&byte, b"x"),
            Ok(_) => panic!("the stream ended in order"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                resets += 1;
            }
        }
    }
    assert_eq!(resets, ends[0].len());
    drop(new);
}

fn wait_for_streams(servers: &[TcpServer], ends: &mut [Vec<TcpStream>], total: usize) {
    wait_for(|| {
        for (server, ends) in servers.iter().zip(ends.iter_mut()) {
            ends.extend(server.streams.try_iter());
        }
        (ends.iter().map(Vec::len).sum::<usize>() == total).then_some(())
    });
}

#[test]
fn a_server_that_refuses_is_passed_over_and_without_any_the_client_is_reset() {
    let free = ReservedAddress::new().unwrap();
    let server = TcpServer::start();
    let (_broken, at_broken) = start_member(&[free.get()], &[]);
    let (_member, at_member) = start_member(&[server.address], &[]);
    let members = [at_broken, at_member].map(|at| format!("m{}={at}", at.port()));
    let members = ["--member", &members[0], "--member", &members[1]];
    let (_gateway, address) = start_tunnel_before(&members, "--tcp", &[]);
    for _ in 0..8 {
        let mut client = connect(address);
        server.accept().write_all(b"hello").unwrap();
        assert_eq!(read_all(&mut client), b"hello");
    }
    let (_gateway, address) = start_tunnel(at_broken, "--tcp", &[]);
    expect_reset(&mut connect(address));
}

#[test]
fn the_server_learns_the_client_of_the_proxy_before_the_gateway() {
    let stage = Stage::start("--tcp", &["--proxy-protocol"], &["--accept-proxy"]);
    let mut client = connect(stage.address);
    client
        .write_all(b"PROXY TCP4 192.0.2.7 192.0.2.8 50000 443\r\nhello")
        .unwrap();
    let mut server = stage.server.accept();
    let header: [u8; 28] = read_some(&mut server);
    let (signature, rest) = header.split_at(12);
    assert_eq!(signature, b"\r\n\r\n\0\r\nQUIT\n");
    let (kind, addresses) = rest.split_at(4);
    assert_eq!(kind, [0x21, 0x11, 0, 12], "PROXY, TCP over IPv4");
    let ports = [50_000_u16, 443].map(u16::to_be_bytes).concat();
    assert_eq!(
        addresses,
        [&[192, 0, 2, 7, 192, 0, 2, 8][..], &ports].concat()
    );
    assert_eq!(&read_some::<5>(&mut server), b"hello");
}

#[test]
fn clients_name_their_server_by_socks5_and_may_name_no_other() {
    let servers = [TcpServer::start(), TcpServer::start()];
    let (_member, at) = start_member(&[servers[0].address, servers[1].address], &[]);
    let (_gateway, address) = start_tunnel(at, "--tcp=socks5", &[]);
    let ask = |to: SocketAddr| {
        let mut client = connect(address);
        client.write_all(&[5, 1, 0]).unwrap();
        assert_eq!(read_some::<2>(&mut client), [5, 0]);
        let SocketAddr::V4(to) = to else {
            unreachable!()
        };
        let request = [
            &[5, 1, 0, 1][..],
            &to.ip().octets(),
            &to.port().to_be_bytes(),
        ];
        // The stream begins without waiting for the reply.
        client
            .write_all(&[&request.concat(), &b"early"[..]].concat())
            .unwrap();
        let reply: [u8; 10] = read_some(&mut client);
        (client, reply[1])
    };
    for server in &servers {
        let (mut client, reply) = ask(server.address);
        assert_eq!(reply, 0);
        let mut end = server.accept();
        assert_eq!(&read_some::<5>(&mut end), b"early");
        end.write_all(b"answer").unwrap();
        drop(end);
        assert_eq!(read_all(&mut client), b"answer");
    }
    let (_, reply) = ask("127.0.0.1:1".parse().unwrap());
    assert_eq!(reply, 5, "refused");
}

#[test]
fn clients_name_their_server_by_connect_and_may_name_no_other() {
    let stage = Stage::start("--tcp=connect", &[], &[]);
    let ask = |request: String| -> io::Result<(TcpStream, String)> {
        let mut client = connect(stage.address);
        client.write_all(request.as_bytes())?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.extend(read_some::<1>(&mut client));
        }
        Ok((client, String::from_utf8(head).unwrap()))
    };
    let to = stage.server.address;
    let request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\nearly");
    let (mut client, head) = ask(request).unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let mut end = stage.server.accept();
    assert_eq!(&read_some::<5>(&mut end), b"early");
    end.write_all(b"answer").unwrap();
    drop(end);
    assert_eq!(read_all(&mut client), b"answer");

    let other = "CONNECT example.net:22 HTTP/1.1\r\nHost: example.net:22\r\n\r\n".to_owned();
    let (_, head) = ask(other).unwrap();
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    let get = "GET / HTTP/1.1\r\nHost: example.net\r\n\r\n".to_owned();
    let (_, head) = ask(get).unwrap();
    assert!(head.starts_with("HTTP/1.1 405 "), "{head}");
}

#[test]
fn a_client_of_connect_may_end_its_direction_behind_its_request() {
    let stage = Stage::start("--tcp=connect", &[], &[]);
    let to = stage.server.address;
    let mut client = connect(stage.address);
    let request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\nall of it");
    client.write_all(request.as_bytes()).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut server = stage.server.accept();
    assert_eq!(read_all(&mut server), b"all of it");
    server.write_all(b"the answer").unwrap();
    drop(server);
    let answer = String::from_utf8(read_all(&mut client)).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nthe answer"), "{answer}");
}

#[test]
fn a_reset_behind_the_end_of_a_direction_is_noticed_while_nothing_is_sent() {
    let stage = Stage::start("--tcp", &[], &[]);
    let (mut client, mut server) = stage.open();
    client.write_all(b"the last bytes").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut server), b"the last bytes");
    reset(client);
    // The server sends nothing, and its next read finds the end only. Its connection is gone.
    wait_for(|| SockRef::from(&server).take_error().unwrap());
}

#[test]
fn a_server_that_resets_behind_the_end_of_its_direction_resets_the_client() {
    let stage = Stage::start("--tcp", &[], &[]);
    let (mut client, mut server) = stage.open();
    server.write_all(b"the last bytes").unwrap();
    server.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut client), b"the last bytes");
    reset(server);
    wait_for(|| SockRef::from(&client).take_error().unwrap());
}
