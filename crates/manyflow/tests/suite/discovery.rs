//! Relays that the DNS names for a session's source (RFC 8777). Needs root: the receiver's host is
//! a network namespace with a nameserver and an `/etc/resolv.conf` of its own.

use crate::common;

use std::fs;
use std::process::Command;

use common::{Manyflow, PATIENT, assert_same, manyflow, text, wait_until, write_random};
use manyflow_testing::TwoHosts;
use manyflow_testing::nameserver::{Nameserver, Reply};
use nix::sys::signal::Signal;

/// Runs the program with a file in the place of `/etc/resolv.conf`, in a mount namespace that ends
/// with it.
const WITH_RESOLV_CONF: &str = r#"mount --bind "$0" /etc/resolv.conf && exec "$@""#;

/// Receives a session whose description does not name the sender's relay, with a nameserver that
/// replies so. Returns the receiver's messages.
fn receive(command: &[&str], reply: Reply) -> Option<Vec<String>> {
    let hosts = TwoHosts::new()?;
    let stage = tempfile::tempdir().unwrap();
    let path = |name: &str| stage.path().join(name);
    write_random(&path("files/file"), 50_000, 1);
    let mut send = manyflow(&["send", text(&path("files")), "--session"]);
    send.arg(path("session.sdp"))
        .args(["--listen", "10.77.0.1:2268"]);
    let sender = hosts.on_sender(|| Manyflow::start(send));
    wait_until("the description", || path("session.sdp").exists());
    let described = fs::read_to_string(path("session.sdp")).unwrap();
    let lines = described
        .lines()
        .filter(|line| !line.starts_with("a=amt-relay"));
    let unnamed: String = lines.map(|line| format!("{line}\r\n")).collect();
    assert!(unnamed.len() < described.len(), "{described}");
    fs::write(path("unnamed.sdp"), unnamed).unwrap();
    fs::write(path("resolv.conf"), "nameserver 127.0.0.1\n").unwrap();

    let server = hosts.on_receiver(|| Nameserver::start("127.0.0.1:53", reply));
    let mut receive = Command::new("unshare");
    receive.args([
        "--mount",
        "sh",
        "-c",
        WITH_RESOLV_CONF,
        text(&path("resolv.conf")),
    ]);
    receive.arg(env!("CARGO_BIN_EXE_manyflow")).args(command);
    receive.args([path("unnamed.sdp").as_os_str(), "--output".as_ref()]);
    receive.arg(path("output"));
    let receiver = hosts.on_receiver(|| Manyflow::start(receive));
    let received = receiver.finish();
    assert_eq!(*server.asked.lock().unwrap(), ["1.0.77.10.in-addr.arpa"]);
    if received.status.success() {
        assert_same(&path("files"), &path("output/files"), "by DNS");
    }
    sender.signal(Signal::SIGINT);
    sender.finish().succeeded("sender");
    let code = received.code();
    let log = received.stderr.lines().map(str::to_owned);
    Some(log.chain([code.to_string()]).collect())
}

#[test]
fn a_receiver_finds_the_relay_of_its_source_by_dns() {
    let reply = Reply {
        records: vec![vec![10, 1, 10, 77, 0, 1]],
        ..Reply::default()
    };
    let arguments = [&["recv"][..], &PATIENT].concat();
    let Some(log) = receive(&arguments, reply) else {
        return;
    };
    let found = log
        .iter()
        .any(|line| line.contains("the DNS names its relays: 10.77.0.1"));
    assert!(found && log.last().unwrap() == "0", "{log:?}");
}

#[test]
fn a_receiver_without_a_relay_in_the_dns_waits_for_multicast() {
    let reply = Reply {
        code: 3,
        ..Reply::default()
    };
    let Some(log) = receive(&["recv", "--patience", "2s"], reply) else {
        return;
    };
    assert_eq!(log.last().unwrap(), "3", "{log:?}");
}
