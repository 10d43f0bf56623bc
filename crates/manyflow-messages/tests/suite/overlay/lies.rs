//! Daemons that lie about others, and strangers in the name of a daemon.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use manyflow_messages::{DaemonConfig, DaemonHandle, Hello, Resume, daemon_id, start};
use manyflow_overlay::{Body, DaemonId, Frame, Item, Message, Part, Summary};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::overlay::stage::{
    Nats, certificates, config, line, link, wait_for_daemons, wait_for_path, wait_until, within,
};

/// Returns the description of a daemon that does not run.
fn hello(name: &str, incarnation: u32) -> Hello {
    Hello {
        overlay: "test".to_owned(),
        name: name.to_owned(),
        id: daemon_id(name),
        incarnation,
        dials: false,
        datagrams: false,
    }
}

/// Connects in the name of a daemon, as far as the other end lets it.
async fn greet(address: SocketAddr, hello: &Hello) -> TcpStream {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let resume = Resume {
        incarnation: 0,
        received: manyflow_overlay::LinkSeq(0),
    };
    let greeting = [&hello.encode()[..], &resume.encode()].concat();
    socket.write_all(&greeting).await.unwrap();
    socket
}

/// Reads until the other end closes the connection. Returns the number of bytes.
async fn read_to_end(socket: &mut TcpStream) -> usize {
    let mut rest = Vec::new();
    let _ = within(socket.read_to_end(&mut rest)).await;
    rest.len()
}

/// Announces the last incarnation of a daemon.
fn forged_summary(origin: DaemonId) -> Vec<u8> {
    let summary = Summary {
        incarnation: u32::MAX,
        change: manyflow_overlay::ChangeSeq(1),
    };
    let message = Message {
        origin,
        copy: Default::default(),
        body: Body::Summary(summary),
    };
    let frame = Frame::Stream(message).encode_framed(0).unwrap();
    frame.as_bytes().to_vec()
}

async fn check_path(from: &DaemonHandle, to: &DaemonHandle) {
    let (mut sender, mut member) = (Nats::connect(from).await, Nats::connect(to).await);
    member.send_and_wait("SUB well 1\r\n").await;
    wait_for_path(&mut sender, &mut member, "well").await;
}

#[tokio::test]
async fn a_daemon_that_announces_the_last_incarnation_of_another_is_refused_and_harms_nobody() {
    let daemons = line(3).await;
    let address = daemons[1].addresses().daemons.unwrap();
    let changes = daemons[2].status().borrow().topology_version;
    let mut liar = greet(address, &hello("liar", 1)).await;
    liar.write_all(&forged_summary(daemon_id("c")))
        .await
        .unwrap();
    assert!(read_to_end(&mut liar).await > 0, "it was a daemon at first");
    let is_refused = |status: &manyflow_messages::DaemonStatus| status.counters.refused_states == 1;
    wait_until(&daemons[1], is_refused).await;
    let mut again = greet(address, &hello("liar", 2)).await;
    assert_eq!(
        read_to_end(&mut again).await,
        0,
        "it is refused for a minute"
    );
    for daemon in &daemons {
        wait_for_daemons(daemon, 3).await;
    }
    check_path(&daemons[0], &daemons[2]).await;
    let liar_came_and_went = 2;
    let after = daemons[2].status().borrow().topology_version;
    assert!(after <= changes + liar_came_and_went, "{changes} {after}");
}

/// Connects with the certificate of a daemon, in the name of this or another one.
async fn greet_with(
    folder: &Path,
    certificate: &str,
    address: SocketAddr,
    hello: &Hello,
) -> TlsStream<TcpStream> {
    let pem = |ending: &str| folder.join(format!("{certificate}.{ending}"));
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(folder.join("ca.crt")).unwrap();
    roots.add(authority).unwrap();
    let chain = vec![CertificateDer::from_pem_file(pem("crt")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(pem("key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .unwrap();
    let socket = TcpStream::connect(address).await.unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let name = ServerName::try_from("b").unwrap();
    let mut stream = connector.connect(name, socket).await.unwrap();
    let resume = Resume {
        incarnation: 0,
        received: manyflow_overlay::LinkSeq(0),
    };
    let greeting = [&hello.encode()[..], &resume.encode()].concat();
    stream.write_all(&greeting).await.unwrap();
    stream
}

#[tokio::test]
async fn a_daemon_with_a_certificate_can_announce_neither_a_name_a_number_nor_a_state_of_another() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path(), &["a", "b", "c", "liar"]);
    let secured = |name: &str, links| DaemonConfig {
        links,
        ..crate::overlay::links::secured(folder.path(), name, name)
    };
    let b = start(secured("b", Vec::new())).await.unwrap();
    let address = b.addresses().daemons.unwrap();
    let a = start(secured("a", vec![link("b", address)])).await.unwrap();
    let c = start(secured("c", vec![link("b", address)])).await.unwrap();
    wait_for_daemons(&a, 3).await;
    let mut other_number = hello("liar", 1);
    other_number.id = daemon_id("d");
    for pretended in [hello("d", 1), other_number] {
        let mut liar = greet_with(folder.path(), "liar", address, &pretended).await;
        let mut answer = Vec::new();
        let _ = within(liar.read_to_end(&mut answer)).await;
        assert_eq!(answer, b"", "it is no daemon");
    }
    let mut liar = greet_with(folder.path(), "liar", address, &hello("liar", 1)).await;
    // A state of `c` without links, later than its present one, although it may have begun in the
    // same second.
    let since_2020 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let incarnation = (since_2020.unwrap().as_secs() - 1_577_836_800) as u32;
    let change = manyflow_overlay::ChangeSeq(1000);
    let summary = Summary {
        incarnation,
        change,
    };
    let count = 0;
    let first = Part {
        change,
        index: 0,
        item: Item::Count { count, incarnation },
    };
    for body in [Body::Summary(summary), Body::Part(first)] {
        let message = Message {
            origin: daemon_id("c"),
            copy: Default::default(),
            body,
        };
        let frame = Frame::Stream(message).encode_framed(0).unwrap();
        liar.write_all(frame.as_bytes()).await.unwrap();
    }
    wait_until(&b, |status| status.counters.refused_states == 1).await;
    for daemon in [&a, &b, &c] {
        wait_for_daemons(daemon, 3).await;
    }
    check_path(&a, &c).await;
}

#[tokio::test]
async fn a_stranger_without_a_certificate_does_not_take_the_place_of_a_link_that_is_up() {
    let daemons = line(2).await;
    let address = daemons[0].addresses().daemons.unwrap();
    let changes = daemons[0].status().borrow().topology_version;
    for garbage in [&b""[..], &[0xff; 10_000]] {
        let mut stranger = greet(address, &hello("b", 77)).await;
        let _ = stranger.write_all(garbage).await;
        let name_only = hello("a", 0).encode().len();
        assert_eq!(read_to_end(&mut stranger).await, name_only, "no link");
    }
    check_path(&daemons[0], &daemons[1]).await;
    assert_eq!(daemons[0].status().borrow().topology_version, changes);
    assert_eq!(daemons[0].status().borrow().counters.failed_links, 0);
}

#[tokio::test]
async fn a_second_daemon_with_the_same_name_and_certificate_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path(), &["a", "b"]);
    let secured = |name: &str| crate::overlay::links::secured(folder.path(), name, name);
    let a = start(secured("a")).await.unwrap();
    let address = a.addresses().daemons.unwrap();
    let to_a = |name: &str| DaemonConfig {
        links: vec![link("a", address)],
        ..secured(name)
    };
    let b = start(to_a("b")).await.unwrap();
    wait_for_daemons(&a, 2).await;
    // Incarnations are times in seconds: wait for the next.
    let second = || {
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
            .as_secs()
    };
    let started = second();
    while second() == started {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let twin = start(to_a("b")).await.unwrap();
    wait_until(&twin, |status| status.counters.failed_links > 0).await;
    assert_eq!(twin.status().borrow().daemons.len(), 1);
    check_path(&a, &b).await;
}

#[tokio::test]
async fn a_daemon_whose_clock_is_far_ahead_is_refused() {
    let a = start(config("a")).await.unwrap();
    let address = a.addresses().daemons.unwrap();
    for (incarnation, is_served) in [(1, true), (u32::MAX, false), (u32::MAX / 2, false)] {
        let mut other = greet(address, &hello("future", incarnation)).await;
        other.shutdown().await.unwrap();
        assert_eq!(
            read_to_end(&mut other).await > 0,
            is_served,
            "{incarnation}"
        );
    }
}
