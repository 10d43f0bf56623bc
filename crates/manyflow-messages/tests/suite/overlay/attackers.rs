//! Attackers: clients and daemons that send too much, too slowly, or twice, and read nothing.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use manyflow_messages::{DaemonConfig, DaemonHandle, Hello, Resume, start};
use manyflow_overlay::{DaemonId, LinkSeq, OverlayConfig};
use manyflow_testing::many_files;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::overlay::links::secured;
use crate::overlay::stage::{
    Nats, certificates, config, link, wait_for_daemons, wait_for_path, wait_until, within,
};

/// Checks that the daemon still serves its clients.
async fn check_service(daemon: &DaemonHandle) {
    let mut client = Nats::connect(daemon).await;
    client.send("SUB well 1\r\nPUB well 2\r\nok\r\n").await;
    assert_eq!(client.message().await.1, b"ok");
}

/// Writes until the other end takes no more bytes, or has taken `most`. Returns how many it took.
async fn write_until_blocked(socket: &mut TcpStream, bytes: &[u8], most: usize) -> usize {
    let mut written = 0;
    while written < most {
        let write = tokio::time::timeout(Duration::from_secs(1), socket.write(bytes));
        match write.await {
            Ok(Ok(count)) => written += count,
            _ => break,
        }
    }
    written
}

#[tokio::test]
async fn a_client_that_reads_no_answers_is_not_read_either() {
    let daemon = start(config("a")).await.unwrap();
    let verbose = "CONNECT {\"verbose\":true}\r\n";
    for (begin, flood) in [
        (verbose, "PING\r\n"),
        (verbose, "PUB nobody 0\r\n\r\n"),
        (verbose, "PUB bad..subject 0\r\n\r\n"),
        ("", "PING\r\n"),
    ] {
        let address = daemon.addresses().clients.unwrap();
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(begin.as_bytes()).await.unwrap();
        const MOST: usize = 200_000_000;
        let written = write_until_blocked(&mut socket, flood.repeat(1000).as_bytes(), MOST).await;
        assert!(written < MOST, "the daemon has read {written} bytes");
        check_service(&daemon).await;
    }
}

#[tokio::test]
async fn ten_thousand_silent_connections_are_closed_and_keep_nobody_out() {
    let files = many_files().await;
    let count = 10_000.min(*files as usize / 2 - 500);
    let daemon = start(config("a")).await.unwrap();
    let address = daemon.addresses().clients.unwrap();
    let mut silent = Vec::new();
    for _ in 0..count {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    check_service(&daemon).await;
    for socket in &mut silent {
        let mut read = Vec::new();
        let _ = within(socket.read_to_end(&mut read)).await;
    }
    check_service(&daemon).await;
}

#[tokio::test]
async fn subscriptions_beyond_the_limits_are_refused() {
    let daemon = DaemonConfig {
        overlay: OverlayConfig {
            state_bytes: 10_000_000,
            ..OverlayConfig::default()
        },
        ..config("a")
    };
    let daemon = start(daemon).await.unwrap();
    let mut kept = Vec::new();
    for client in 0..3 {
        let mut greedy = Nats::connect(&daemon).await;
        for batch in 0..110 {
            let subscribe = |number| format!("SUB n.{client}.{number} {number}\r\n");
            let numbers = 1000 * batch..1000 * (batch + 1);
            let lines: String = numbers.map(subscribe).collect();
            greedy.send(&format!("{lines}PING\r\n")).await;
            if count_refused_subscriptions(&mut greedy).await > 0 {
                kept.push(greedy);
                break;
            }
        }
    }
    assert_eq!(kept.len(), 3);
    // A refusal concerns no earlier subscription, and no other operation.
    for (client, greedy) in kept.iter_mut().enumerate() {
        greedy.send(&format!("PUB n.{client}.0 2\r\nok\r\n")).await;
        assert_eq!(greedy.message().await.1, b"ok");
    }
    check_service(&daemon).await;
}

/// Reads up to PONG. Returns the number of subscriptions that the daemon has refused for their
/// number.
async fn count_refused_subscriptions(client: &mut Nats) -> usize {
    let mut refused = 0;
    loop {
        let line = client.line().await;
        if line == "PONG" {
            return refused;
        }
        let begin = "-ERR 'Permissions Violation for Subscription to \"";
        let is_refusal =
            line.starts_with(begin) && line.ends_with("maximum subscriptions exceeded'");
        assert!(is_refusal, "{line}");
        refused += 1;
    }
}

#[tokio::test]
async fn operations_and_payloads_that_are_too_long_end_the_connection() {
    let daemon = start(config("a")).await.unwrap();
    let long = "a".repeat(5000);
    for operation in [
        "PUB a 99999999999\r\n".to_owned(),
        format!("PUB {}\r\n", 1 << 30),
        format!("SUB {long} 1\r\n"),
        format!("HPUB a 99 9\r\n{long}"),
        format!("CONNECT {}\r\n", long.repeat(20)),
    ] {
        let mut client = Nats::connect(&daemon).await;
        client.send(&operation).await;
        let error = client.line().await;
        assert!(error.starts_with("-ERR"), "{operation:.30}: {error}");
    }
    check_service(&daemon).await;
}

/// Connects from an address of this machine's loopback network.
async fn connect_from(last: u8, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    let from = SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0));
    socket.bind(from).unwrap();
    socket.connect(to).await.unwrap()
}

#[tokio::test]
async fn handshakes_that_never_end_keep_no_daemon_out() {
    let a = start(config("a")).await.unwrap();
    let address = a.addresses().daemons.unwrap();
    let hello = Hello {
        overlay: "test".to_owned(),
        name: "slow".to_owned(),
        id: DaemonId(9),
        incarnation: 1,
        dials: false,
        datagrams: false,
    };
    let mut slow = Vec::new();
    for count in 0..200 {
        let mut socket = connect_from(77, address).await;
        let hello = hello.encode();
        let _ = socket.write_all(&hello[..count % hello.len()]).await;
        slow.push(socket);
    }
    let b = DaemonConfig {
        links: vec![link("a", address)],
        ..config("b")
    };
    let b = start(b).await.unwrap();
    wait_for_daemons(&b, 2).await;
    for mut socket in slow {
        let mut rest = Vec::new();
        let _ = within(socket.read_to_end(&mut rest)).await;
    }
    check_service(&a).await;
}

#[tokio::test]
async fn frames_that_are_too_long_or_forged_end_the_connection() {
    let a = start(config("a")).await.unwrap();
    let address = a.addresses().daemons.unwrap();
    let hello = Hello {
        overlay: "test".to_owned(),
        name: "forger".to_owned(),
        id: DaemonId(9),
        incarnation: 1,
        dials: false,
        datagrams: false,
    };
    let resume = Resume {
        incarnation: u32::MAX,
        received: LinkSeq(u32::MAX),
    };
    let random = (0..4000u32).map(|place| (place.wrapping_mul(2_654_435_761) >> 24) as u8);
    for forged in [vec![0xff; 100_000], random.collect()] {
        let mut socket = connect_from(78, address).await;
        socket.write_all(&hello.encode()).await.unwrap();
        socket.write_all(&resume.encode()).await.unwrap();
        let _ = socket.write_all(&forged).await;
        let mut rest = Vec::new();
        let _ = within(socket.read_to_end(&mut rest)).await;
        assert!(!rest.is_empty(), "the daemon has answered the handshake");
    }
    check_service(&a).await;
}

/// Forwards one connection at a time to `to`, and keeps what the dialling end has sent.
async fn recorder(to: SocketAddr, recorded: Arc<Mutex<Vec<u8>>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (near, _) = listener.accept().await.unwrap();
            let far = TcpStream::connect(to).await.unwrap();
            let (mut near_reader, mut near_writer) = near.into_split();
            let (mut far_reader, mut far_writer) = far.into_split();
            let recorded = Arc::clone(&recorded);
            tokio::spawn(async move {
                let _ = tokio::io::copy(&mut far_reader, &mut near_writer).await;
            });
            let mut bytes = vec![0; 65_536];
            while let Ok(count @ 1..) = near_reader.read(&mut bytes).await {
                recorded.lock().unwrap().extend_from_slice(&bytes[..count]);
                let _ = far_writer.write_all(&bytes[..count]).await;
            }
        }
    });
    address
}

#[tokio::test]
async fn a_recorded_connection_of_a_daemon_is_worthless() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path(), &["a", "b"]);
    let a = start(secured(folder.path(), "a", "a")).await.unwrap();
    let address = a.addresses().daemons.unwrap();
    let recorded = Arc::default();
    let through = recorder(address, Arc::clone(&recorded)).await;
    let b = DaemonConfig {
        links: vec![link("a", through)],
        ..secured(folder.path(), "b", "b")
    };
    let b = start(b).await.unwrap();
    wait_for_daemons(&a, 2).await;
    let (mut sender, mut member) = (Nats::connect(&b).await, Nats::connect(&a).await);
    member.send_and_wait("SUB n 1\r\n").await;
    wait_for_path(&mut sender, &mut member, "n").await;
    let bytes = recorded.lock().unwrap().clone();
    for _ in 0..3 {
        let mut socket = TcpStream::connect(address).await.unwrap();
        let _ = socket.write_all(&bytes).await;
        let mut rest = Vec::new();
        let _ = within(socket.read_to_end(&mut rest)).await;
        // The link is still that of the true daemon, and no message comes twice.
        sender.send("PUB n 5\r\nafter\r\n").await;
        assert_eq!(member.message().await.1, b"after");
    }
    wait_until(&a, |status| status.links.iter().all(|link| link.is_up)).await;
}
