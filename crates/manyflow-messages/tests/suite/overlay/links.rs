//! Connections between daemons: broken ones, and those of strangers.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use manyflow_messages::certificates::{Subject, make_certificates};
use manyflow_messages::{DaemonConfig, LinkConfig, LinkSecurity, LinkTls, start};
use manyflow_net::reserved::ReservedAddress;
use manyflow_overlay::{DaemonId, OverlayConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::overlay::stage::{
    Nats, certificates, config, link, wait_for_daemons, wait_for_path, wait_until, within,
};

/// Forwards connections to `to`, and breaks all of them whenever `cut` is notified.
async fn proxy(to: SocketAddr, cut: Arc<Notify>) -> SocketAddr {
    gate(to, cut, Arc::new(AtomicBool::new(true))).await
}

/// Forwards connections to `to` while `is_open`, and breaks all of them whenever `cut` is notified.
async fn gate(to: SocketAddr, cut: Arc<Notify>, is_open: Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            if !is_open.load(Ordering::Relaxed) {
                continue;
            }
            let cut = Arc::clone(&cut);
            tokio::spawn(async move {
                let mut far = TcpStream::connect(to).await.unwrap();
                tokio::select! {
                    _ = copy_bidirectional(&mut near, &mut far) => {}
                    () = cut.notified() => {}
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn a_link_that_breaks_and_comes_back_loses_and_repeats_nothing() {
    let a = start(config("a")).await.unwrap();
    let cut = Arc::new(Notify::new());
    let through = proxy(a.addresses().daemons.unwrap(), Arc::clone(&cut)).await;
    let b = DaemonConfig {
        links: vec![link("a", through)],
        ..config("b")
    };
    let b = start(b).await.unwrap();
    wait_for_daemons(&b, 2).await;
    let mut member = Nats::connect(&b).await;
    let mut sender = Nats::connect(&a).await;
    member.send_and_wait("SUB n 1\r\n").await;
    wait_for_path(&mut sender, &mut member, "n").await;
    const COUNT: usize = 20_000;
    let sending = async {
        for number in 0..COUNT {
            if number % 4000 == 2000 {
                cut.notify_waiters();
            }
            let text = format!("{number:0200}");
            sender
                .send(&format!("PUB n {}\r\n{text}\r\n", text.len()))
                .await;
        }
    };
    let reading = async {
        for number in 0..COUNT {
            let (_, payload) = member.message().await;
            let arrived: usize = String::from_utf8(payload).unwrap().parse().unwrap();
            assert_eq!(arrived, number);
        }
    };
    tokio::join!(sending, reading);
}

#[tokio::test]
async fn a_partition_longer_than_the_hold_time_is_counted_as_a_gap_at_both_ends() {
    let short = |name| DaemonConfig {
        overlay: OverlayConfig {
            hold: Duration::from_millis(200),
            ..OverlayConfig::default()
        },
        ..config(name)
    };
    let a = start(short("a")).await.unwrap();
    let mut client = Nats::connect(&a).await;
    client.send_and_wait("SUB a 1\r\n").await;
    let (cut, is_open) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(true)));
    let to = a.addresses().daemons.unwrap();
    let through = gate(to, Arc::clone(&cut), Arc::clone(&is_open)).await;
    let b = DaemonConfig {
        links: vec![link("a", through)],
        ..short("b")
    };
    let b = start(b).await.unwrap();
    let mut other = Nats::connect(&b).await;
    other.send_and_wait("SUB b 1\r\n").await;
    for gaps in [0, 1] {
        for daemon in [&a, &b] {
            wait_until(daemon, |status| status.groups == 2).await;
            assert_eq!(daemon.status().borrow().counters.gaps, gaps);
        }
        is_open.store(false, Ordering::Relaxed);
        cut.notify_waiters();
        for daemon in [&a, &b] {
            wait_until(daemon, |status| status.groups == 1).await;
        }
        is_open.store(true, Ordering::Relaxed);
    }
}

pub(crate) fn secured(folder: &Path, name: &str, certificate: &str) -> DaemonConfig {
    let file = |ending: &str| folder.join(format!("{certificate}.{ending}"));
    let tls = LinkTls::read(&folder.join("ca.crt"), &file("crt"), &file("key")).unwrap();
    DaemonConfig {
        security: LinkSecurity::Tls(tls),
        ..config(name)
    }
}

#[tokio::test]
async fn daemons_with_certificates_of_their_names_connect() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path(), &["a", "b"]);
    let a = start(secured(folder.path(), "a", "a")).await.unwrap();
    let b = DaemonConfig {
        links: vec![link("a", a.addresses().daemons.unwrap())],
        ..secured(folder.path(), "b", "b")
    };
    let b = start(b).await.unwrap();
    wait_for_daemons(&b, 2).await;
    let mut member = Nats::connect(&b).await;
    let mut sender = Nats::connect(&a).await;
    member.send_and_wait("SUB n 1\r\n").await;
    wait_for_path(&mut sender, &mut member, "n").await;
}

/// Checks that the daemon `b` of this configuration never has a link to `a`.
pub(crate) async fn check_refused(a: DaemonConfig, b: DaemonConfig) {
    let a = start(a).await.unwrap();
    let b = DaemonConfig {
        links: vec![link("a", a.addresses().daemons.unwrap())],
        ..b
    };
    let b = start(b).await.unwrap();
    wait_until(&b, |status| status.counters.failed_links >= 2).await;
    assert_eq!(b.status().borrow().daemons.len(), 1);
    assert_eq!(a.status().borrow().daemons.len(), 1);
}

#[tokio::test]
async fn a_daemon_does_not_start_with_the_certificate_of_another_name_or_number() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path(), &["a", "b"]);
    let error = start(secured(folder.path(), "a", "b")).await.unwrap_err();
    assert!(
        error.to_string().contains("is not one of the daemon a"),
        "{error}"
    );
    let numbered = |certificate: &str| DaemonConfig {
        id: Some(DaemonId(17)),
        ..secured(folder.path(), "a", certificate)
    };
    let error = start(numbered("a")).await.unwrap_err().to_string();
    assert!(
        error.contains("--daemon a=id-17.manyflow.internal"),
        "{error}"
    );
}

#[tokio::test]
async fn a_daemon_whose_certificate_has_its_number_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let subject = |name: &str, hosts: &[&str]| Subject {
        name: name.to_owned(),
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
    };
    let subjects = [
        subject("a", &["id-17.manyflow.internal"]),
        subject("b", &[]),
    ];
    make_certificates(folder.path(), &subjects, 2026).unwrap();
    let a = DaemonConfig {
        id: Some(DaemonId(17)),
        ..secured(folder.path(), "a", "a")
    };
    let a = start(a).await.unwrap();
    let to_a = LinkConfig {
        id: Some(DaemonId(17)),
        ..link("a", a.addresses().daemons.unwrap())
    };
    let b = DaemonConfig {
        links: vec![to_a],
        ..secured(folder.path(), "b", "b")
    };
    let b = start(b).await.unwrap();
    wait_for_daemons(&b, 2).await;
}

#[tokio::test]
async fn a_daemon_of_another_authority_or_without_tls_is_refused() {
    let [one, two] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    certificates(one.path(), &["a"]);
    certificates(two.path(), &["b"]);
    check_refused(secured(one.path(), "a", "a"), secured(two.path(), "b", "b")).await;
    check_refused(secured(one.path(), "a", "a"), config("b")).await;
}

#[tokio::test]
async fn daemons_of_other_overlays_or_unexpected_names_are_refused() {
    let other = DaemonConfig {
        overlay_name: "other".to_owned(),
        ..config("b")
    };
    check_refused(config("a"), other).await;
    let picky = DaemonConfig {
        accepts: Some(vec!["c".to_owned()]),
        ..config("a")
    };
    check_refused(picky, config("b")).await;
    check_refused(config("x"), config("b")).await;
}

#[tokio::test]
async fn a_stranger_at_the_port_for_daemons_is_disconnected() {
    let a = start(config("a")).await.unwrap();
    let address = a.addresses().daemons.unwrap();
    let random: Vec<u8> = (0..10_000u32)
        .map(|place| ((place * 7919) >> 3) as u8)
        .collect();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &random] {
        let mut stranger = TcpStream::connect(address).await.unwrap();
        let _ = stranger.write_all(bytes).await;
        let mut answer = Vec::new();
        let read = stranger.read_to_end(&mut answer);
        let _ = within(read).await;
        assert_eq!(answer, b"");
    }
    let mut client = Nats::connect(&a).await;
    client.send_and_wait("SUB a 1\r\n").await;
}

#[tokio::test]
async fn a_daemon_that_restarts_at_once_serves_its_clients_again() {
    let a = start(config("a")).await.unwrap();
    // While the daemon is stopped, nobody else gets its address.
    let clients = ReservedAddress::new().unwrap();
    let restarting = || DaemonConfig {
        links: vec![link("a", a.addresses().daemons.unwrap())],
        listen: None,
        clients: Some(clients.get().to_string()),
        ..config("b")
    };
    let mut b = start(restarting()).await.unwrap();
    wait_for_daemons(&b, 2).await;
    let mut sender = Nats::connect(&a).await;
    let mut stable = Nats::connect(&a).await;
    stable.send_and_wait("SUB n 1\r\n").await;
    for round in 0..3 {
        let mut member = Nats::connect(&b).await;
        member.send_and_wait("SUB n 1\r\n").await;
        wait_for_path(&mut sender, &mut member, "n").await;
        sender.send(&format!("PUB n 1\r\n{round}\r\n")).await;
        assert_eq!(member.message().await.1, round.to_string().as_bytes());
        b.stop().await;
        b = start(restarting()).await.unwrap();
        wait_for_daemons(&b, 2).await;
    }
    // The member at the other daemon has missed nothing.
    let mut rounds = 0;
    while rounds < 3 {
        let (_, payload) = stable.message().await;
        rounds += usize::from(payload == rounds.to_string().as_bytes());
    }
}
