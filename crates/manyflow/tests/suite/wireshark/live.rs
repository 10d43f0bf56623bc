//! Live sessions over taps, which pass on and record what they get.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use manyflow_ensembles::anypoint::{Options, connect, serve};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::{Kinds, Protocol, dissect, overlay};
use crate::common::{LIMIT, Manyflow, get, manyflow, run, text};
use crate::wireshark::pcap::{Pcap, SENDER, UNICAST};

const ANY: &str = "127.0.0.1:0";
/// The time after which a thread looks whether it has to end.
const PATIENCE: Duration = Duration::from_millis(20);

/// A packet or a part of a stream. It went to the server, or came from there.
type Passed = (bool, Vec<u8>);

/// Datagrams of one client with one server.
struct UdpTap {
    address: SocketAddr,
    passed: Arc<Mutex<Vec<Passed>>>,
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl UdpTap {
    fn new(server: SocketAddr) -> UdpTap {
        let (front, back) = (udp_socket(), udp_socket());
        back.connect(server).unwrap();
        let address = front.local_addr().unwrap();
        let (passed, ends) = (Arc::default(), Arc::default());
        let client = Arc::new(Mutex::new(None));
        let ways = [true, false].map(|up| Way {
            up,
            sockets: [front.try_clone().unwrap(), back.try_clone().unwrap()],
            client: Arc::clone(&client),
            passed: Arc::clone(&passed),
            ends: Arc::clone(&ends),
        });
        let threads = ways.map(|way| thread::spawn(move || way.pass_on())).into();
        UdpTap {
            address,
            passed,
            ends,
            threads,
        }
    }

    /// Waits until datagrams have passed for which `is_enough` is true.
    fn wait_for(&self, is_enough: impl Fn(&[Passed]) -> bool) {
        let deadline = Instant::now() + LIMIT;
        while !is_enough(&self.passed.lock().unwrap()) {
            assert!(Instant::now() < deadline, "too little has passed");
            thread::sleep(PATIENCE);
        }
    }

    /// Ends the tap, and returns the datagrams.
    fn finish(self) -> Vec<Passed> {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
        std::mem::take(&mut self.passed.lock().unwrap())
    }
}

fn udp_socket() -> UdpSocket {
    let socket = UdpSocket::bind(ANY).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// One direction of a tap.
struct Way {
    up: bool,
    /// The sockets towards the client and the server.
    sockets: [UdpSocket; 2],
    client: Arc<Mutex<Option<SocketAddr>>>,
    passed: Arc<Mutex<Vec<Passed>>>,
    ends: Arc<AtomicBool>,
}

impl Way {
    fn pass_on(&self) {
        let [front, back] = &self.sockets;
        let mut bytes = vec![0; 65_536];
        while !self.ends.load(Ordering::Relaxed) {
            let from = if self.up { front } else { back };
            // The system reports that nothing has come, or that a server has closed its socket.
            let Ok((length, source)) = from.recv_from(&mut bytes) else {
                continue;
            };
            let datagram = &bytes[..length];
            let record = (self.up, datagram.to_vec());
            self.passed.lock().unwrap().push(record);
            let mut client = self.client.lock().unwrap();
            // A datagram that cannot be passed on is lost, as on a path.
            let _ = match (self.up, *client) {
                (true, _) => {
                    *client = Some(source);
                    back.send(datagram)
                }
                (false, Some(client)) => front.send_to(datagram, client),
                (false, None) => Ok(0),
            };
        }
    }
}

/// Compares the rows of recorded datagrams with our decoders. `protocol` is the protocol of a
/// datagram, or `None` for one that is not of this project.
fn check_datagrams(
    passed: &[Passed],
    port: u16,
    protocol: impl Fn(&[u8]) -> Option<Protocol>,
) -> Kinds {
    let mut pcap = Pcap::new();
    for (up, bytes) in passed {
        let (client, server) = ((SENDER, 50_000), (UNICAST, port));
        let (from, to) = if *up {
            (client, server)
        } else {
            (server, client)
        };
        pcap.udp(from, to, bytes);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("live.pcap");
    pcap.write(&file);
    let rows = dissect::rows(&file, &[]);
    assert_eq!(rows.len(), passed.len());
    let mut kinds = Kinds::default();
    for row in rows {
        let Some(protocol) = protocol(&row.udp) else {
            assert!(!row.is_refused, "{row:?}");
            continue;
        };
        assert!(row.protocols.contains(protocol.name()), "{row:?}");
        let fields = protocol.decode(&row.udp);
        row.check(fields.as_ref());
        kinds.count(&fields.unwrap());
    }
    kinds
}

/// Runs a stream through a tap in front of the sender's relay. Returns the recorded datagrams.
fn record_stream(arguments: &[&str]) -> Vec<Passed> {
    let mut command = manyflow(&["stream", "send", "--pattern", "--listen", ANY, "--publish"]);
    command.arg(ANY).args(arguments);
    let mut sender = Manyflow::start(command);
    let url = sender.wait_for(|line| Some(line.split_once("stream recv ")?.1.to_owned()));
    let (_, description) = get(&url);
    let relay = description
        .lines()
        .find_map(|line| line.strip_prefix("a=amt-relay:"));
    let tap = UdpTap::new(relay.unwrap().trim().parse().unwrap());
    let relay = tap.address.to_string();
    let mut command = manyflow(&["stream", "recv", &url, "--pattern", "--relay", &relay]);
    command.args(arguments);
    let receiver = Manyflow::start(command);
    let has = |kind: u8, passed: &[Passed]| passed.iter().any(|(_, bytes)| bytes[0] == kind);
    // Multicast Data of AMT, then soundings, echoes and reports of hops.
    tap.wait_for(|passed| {
        passed.len() > 40 && [6, 0x41, 0x42, 0x43].iter().all(|kind| has(*kind, passed))
    });
    drop(receiver);
    sender.signal(Signal::SIGINT);
    sender.finish().succeeded("sender");
    tap.finish()
}

/// The port of AMT and of messages between hops.
const AMT_PORT: u16 = 2268;

/// The protocol of an innermost datagram of a stream. IGMP is not in a datagram.
fn of_stream(bytes: &[u8]) -> Option<Protocol> {
    match bytes.first()? {
        0x41..=0x44 => Some(Protocol::Hop),
        1..=3 if bytes.len() >= 20 && bytes[16..20] == [0; 4] => Some(Protocol::Layered),
        _ => None,
    }
}

#[test]
fn hops_and_pieces_of_a_stream_are_read_beside_amt() {
    if dissect::is_missing() {
        return;
    }
    let passed = record_stream(&[]);
    let kinds = check_datagrams(&passed, AMT_PORT, of_stream);
    kinds.assert_seen("manyflow_hop.kind", &[0x41, 0x42, 0x43]);
    kinds.assert_seen("manyflow_layered.kind", &[1, 2]);
    println!("{kinds:?}");
}

#[test]
fn sealed_messages_between_hops_are_read_without_their_key() {
    if dissect::is_missing() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    run(&["keygen", "--shared-key", text(&key)]).succeeded("keygen");
    let passed = record_stream(&["--key", text(&key)]);
    let is_sealed = |(_, bytes): &Passed| bytes[0] >> 4 == 4 && bytes[1] == 1;
    assert!(passed.iter().any(is_sealed));
    let kinds = check_datagrams(&passed, AMT_PORT, of_stream);
    kinds.assert_seen("manyflow_hop.kind", &[0x41, 0x42, 0x43]);
}

#[tokio::test(flavor = "multi_thread")]
async fn live_connections_of_acp_are_read_with_cookies_and_fragments() {
    if dissect::is_missing() {
        return;
    }
    let mut member = serve(ANY.parse().unwrap(), Options::default()).unwrap();
    let tap = UdpTap::new(member.local_address());
    let answers = tokio::spawn(async move {
        let connection = member.accept().await.unwrap();
        while let Some(message) = connection.recv_frame().await.unwrap() {
            let sent = connection.send_frame(message.key, message.payload).await;
            sent.unwrap();
        }
        connection.close().await.unwrap();
    });
    let connection = connect(tap.address, Options::default()).await.unwrap();
    let message = Bytes::from(vec![7; 20_000]);
    for key in 0..5 {
        connection.send_frame(key, message.clone()).await.unwrap();
        let answer = connection.recv_frame().await.unwrap().unwrap();
        assert_eq!(answer.payload, message);
    }
    connection.close().await.unwrap();
    answers.await.unwrap();
    let passed = tap.finish();
    // On a port that no dissector has, so heuristics decide.
    let kinds = check_datagrams(&passed, 50_001, |_| Some(Protocol::Acp));
    kinds.assert_seen("manyflow_acp.type", &[1, 2, 3, 4, 5, 6]);
    println!("{kinds:?}");
}

/// Streams of clients with one server.
struct TcpTap {
    address: SocketAddr,
    passed: Arc<Mutex<Vec<Passed>>>,
}

impl TcpTap {
    /// Taps one connection.
    fn new(server: String) -> TcpTap {
        let listener = TcpListener::bind(ANY).unwrap();
        let address = listener.local_addr().unwrap();
        let passed = Arc::default();
        let recorded = Arc::clone(&passed);
        thread::spawn(move || {
            let (client, _) = listener.accept().unwrap();
            let server = TcpStream::connect(server).unwrap();
            let ways = [(true, &client, &server), (false, &server, &client)];
            thread::scope(|scope| {
                for (up, from, to) in ways {
                    let recorded = &recorded;
                    scope.spawn(move || copy(up, from, to, recorded));
                }
            });
        });
        TcpTap { address, passed }
    }
}

/// Copies a stream to its end.
fn copy(up: bool, mut from: &TcpStream, mut to: &TcpStream, recorded: &Mutex<Vec<Passed>>) {
    let mut bytes = vec![0; 32_768];
    loop {
        match from.read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) | Ok(0) => break,
            Ok(length) => {
                let part = bytes[..length].to_vec();
                recorded.lock().unwrap().push((up, part));
                if to.write_all(&bytes[..length]).is_err() {
                    break;
                }
            }
        }
    }
    // The other end may have closed the connection already.
    let _ = to.shutdown(Shutdown::Write);
}

/// Starts a daemon. Returns it with the addresses for daemons and clients.
fn daemon(name: &str, arguments: &[&str]) -> (Manyflow, String, String) {
    let words = ["daemon", "--insecure", "--json", "--controller", "none"];
    let mut command = manyflow(&words);
    command.args(["--name", name, "--listen", ANY, "--clients", ANY]);
    command.args(arguments);
    let mut daemon = Manyflow::start(command);
    let started: Value = daemon.wait_for(|line| {
        let event: Value = serde_json::from_str(line).ok()?;
        (event["event"] == "started").then_some(event)
    });
    let address = |key: &str| started[key].as_str().unwrap().to_owned();
    let (daemons, clients) = (address("daemons"), address("clients"));
    (daemon, daemons, clients)
}

/// Two daemons with a link through a tap, and messages over it.
fn record_link() -> Vec<Passed> {
    let (a, daemons, publisher) = daemon("a", &[]);
    let tap = TcpTap::new(daemons);
    let link = format!("a={}", tap.address);
    let (b, _, subscriber) = daemon("b", &["--link", &link]);
    let publisher = publisher.trim_start_matches("nats://").to_owned();
    let subscriber = subscriber.trim_start_matches("nats://").to_owned();
    let mut reader = Manyflow::start(manyflow(&["sub", "n.x", "--server", &subscriber]));
    let long = "x".repeat(50_000);
    let deadline = Instant::now() + LIMIT;
    // A feedback without missing ranges, behind its length.
    let is_feedback = |(up, bytes): &Passed| *up && bytes.windows(3).any(|at| at == [0, 8, 0x29]);
    // The first messages may be published before the link and the membership are known.
    while !reader.lines().iter().any(|line| line.contains(&long))
        || !tap.passed.lock().unwrap().iter().any(is_feedback)
    {
        assert!(
            Instant::now() < deadline,
            "no message, or no feedback, has arrived"
        );
        for message in [&long, "short"] {
            let words = ["pub", "n.x", message, "--server", &publisher];
            run(&words).succeeded("publisher");
        }
    }
    reader.kill();
    for daemon in [b, a] {
        daemon.signal(Signal::SIGTERM);
        daemon.finish().succeeded("daemon");
    }
    std::mem::take(&mut tap.passed.lock().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_of_live_daemons_is_read_from_its_handshake_on() {
    if dissect::is_missing() {
        return;
    }
    let passed = record_link();
    let (mut pcap, mut frames, mut streams) = (Pcap::new(), Vec::new(), [vec![], vec![]]);
    for (up, bytes) in &passed {
        let (client, server) = ((SENDER, 50_000), (UNICAST, 4747));
        let (from, to) = if *up {
            (client, server)
        } else {
            (server, client)
        };
        let stream = &mut streams[usize::from(*up)];
        let numbers = pcap.tcp(from, to, 1 + stream.len() as u32, bytes);
        frames.extend(numbers.iter().map(|_| *up));
        stream.extend_from_slice(bytes);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("link.pcap");
    pcap.write(&file);
    let rows = dissect::rows(&file, &[]);
    assert_eq!(rows.len(), frames.len());
    for up in [true, false] {
        let fields = overlay::connection(&streams[usize::from(up)])
            .await
            .unwrap();
        let mut shown = crate::wireshark::expected::Fields::default();
        for (row, _) in rows.iter().zip(&frames).filter(|(_, way)| **way == up) {
            assert!(!row.is_refused, "{row:?}");
            shown.extend(&row.columns);
        }
        fields.check(shown.values());
        let mut kinds = Kinds::default();
        kinds.count(&fields);
        println!("{kinds:?}");
        let wanted: &[u32] = if up { &[2, 9] } else { &[1, 2, 3] };
        kinds.assert_seen("manyflow_overlay.kind", wanted);
    }
}
