//! `manyflow relay` between two networks with IP multicast: three network namespaces, which need
//! root; the tests are skipped without it.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests are tests"
)]

mod common;
#[path = "../../manyflow-live/tests/common/mod.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod hosts;

use std::process::{Command, id};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::{LIMIT, Manyflow, assert_same, folder_with_file, manyflow, text};
use hosts::{enter, ip, may_make_namespaces};
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

/// A sender, a relay and a receiver, each in a namespace: the relay is on two networks. Nothing
/// else forwards packets between them.
struct ThreeHosts {
    sender: String,
    relay: String,
    receiver: String,
    folder: TempDir,
}

impl ThreeHosts {
    fn new() -> Option<ThreeHosts> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !may_make_namespaces() {
            return None;
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |role| format!("manyflow-{}-{number}-relay-{role}", id());
        let hosts = ThreeHosts {
            sender: name("sender"),
            relay: name("relay"),
            receiver: name("receiver"),
            folder: folder_with_file(1_500_000),
        };
        let (sender, relay, receiver) = (&hosts.sender, &hosts.relay, &hosts.receiver);
        for namespace in [sender, relay, receiver] {
            ip(&format!("netns add {namespace}"));
            ip(&format!("-netns {namespace} link set lo up"));
        }
        for (host, near, far, network) in [
            (sender, "wire", "upstream", 77),
            (receiver, "wire", "downstream", 78),
        ] {
            ip(&format!(
                "link add {near} netns {host} type veth peer name {far} netns {relay}"
            ));
            for (namespace, interface, last) in [(host, near, 2), (relay, far, 1)] {
                ip(&format!(
                    "-netns {namespace} address add 10.{network}.0.{last}/24 dev {interface}"
                ));
                ip(&format!("-netns {namespace} link set {interface} up"));
            }
            // Reverse path filtering expects the source behind this interface.
            ip(&format!(
                "-netns {host} route add default via 10.{network}.0.1"
            ));
        }
        Some(hosts)
    }

    /// Starts a sender, which writes its description.
    fn send(&self, arguments: &[&str]) -> Manyflow {
        let description = self.description();
        let mut command = manyflow(&["send", "file", "--rate", "20Mbit/s"]);
        command.args(["--session", &description]);
        command.args(arguments).current_dir(self.folder.path());
        let sender = enter(&self.sender, || Manyflow::start(command));
        common::wait_for_file(description.as_ref());
        sender
    }

    fn description(&self) -> String {
        format!("{}.sdp", text(self.folder.path()))
    }

    fn relay(&self, arguments: &[&str]) -> Manyflow {
        let mut command = manyflow(&["relay", "--json", "--session", &self.description()]);
        command.args(arguments);
        let mut relay = enter(&self.relay, || Manyflow::start(command));
        relay.wait_for(|line| (parsed(line)["event"] == "started").then_some(()));
        relay
    }

    /// Receives the file and compares it.
    fn receive(&self, arguments: &[&str]) {
        let output = tempfile::tempdir().unwrap();
        let mut command = manyflow(&["recv", &self.description()]);
        command.args(["--output", text(output.path())]);
        command.args(arguments);
        let receiver = enter(&self.receiver, || Manyflow::start(command));
        receiver.finish().succeeded("receiver");
        assert_same(self.folder.path(), output.path(), "receiver");
    }
}

impl Drop for ThreeHosts {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.description());
        for namespace in [&self.sender, &self.relay, &self.receiver] {
            // A namespace that was never created is not a failure.
            let _ = Command::new("ip")
                .args(["netns", "delete", namespace])
                .output();
        }
    }
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

/// Waits until the relay has left all channels; then ends it, and returns its last report.
fn end(relay: Manyflow) -> Value {
    let deadline = Instant::now() + LIMIT;
    let has_left = |status: Value| status["channels_joined"] == 0 && status["packets"] != 0;
    while !relay
        .lines()
        .last()
        .is_some_and(|line| has_left(parsed(line)))
    {
        assert!(Instant::now() < deadline, "{:?}", relay.lines().last());
        std::thread::sleep(Duration::from_millis(10));
    }
    relay.signal(Signal::SIGTERM);
    let ended = relay.finish().succeeded("relay");
    parsed(ended.stdout.lines().last().unwrap())
}

const MULTICAST: &[&str] = &["--multicast", "232.1.2.0/24", "--interface", "wire"];

#[test]
fn a_file_comes_by_multicast_and_goes_on_through_a_tunnel() {
    let Some(hosts) = ThreeHosts::new() else {
        return;
    };
    let _sender = hosts.send(MULTICAST);
    let relay = hosts.relay(&["--interface", "upstream", "--listen", "10.78.0.1:2268"]);
    hosts.receive(&["--relay", "10.78.0.1"]);
    let status = end(relay);
    assert_eq!(status["packets_foreign"], 0, "{status}");
}

#[test]
fn a_file_comes_through_a_tunnel_and_goes_on_by_multicast() {
    let Some(hosts) = ThreeHosts::new() else {
        return;
    };
    let _sender = hosts.send(&["--listen", "10.77.0.2:2268"]);
    let relay = hosts.relay(&["--multicast-interface", "downstream"]);
    hosts.receive(&["--interface", "wire"]);
    let status = end(relay);
    assert_eq!(status["gateways"], 0, "{status}");
    assert!(status["host_packets"].as_u64() > Some(1_000), "{status}");
}

#[test]
fn one_relay_serves_hosts_and_gateways_from_multicast() {
    let Some(hosts) = ThreeHosts::new() else {
        return;
    };
    let _sender = hosts.send(MULTICAST);
    let relay = hosts.relay(&[
        "--interface",
        "upstream",
        "--multicast-interface",
        "downstream",
        "--listen",
        "10.78.0.1:2268",
    ]);
    std::thread::scope(|scope| {
        scope.spawn(|| hosts.receive(&["--interface", "wire"]));
        scope.spawn(|| hosts.receive(&["--relay", "10.78.0.1"]));
    });
    let status = end(relay);
    assert!(status["host_packets"].as_u64() > Some(1_000), "{status}");
    assert!(
        status["datagrams_forwarded"].as_u64() > Some(1_000),
        "{status}"
    );
}

#[test]
fn packets_cannot_be_sent_to_the_interface_that_they_come_from() {
    let Some(hosts) = ThreeHosts::new() else {
        return;
    };
    let _sender = hosts.send(MULTICAST);
    let mut command = manyflow(&["relay", "--session", &hosts.description()]);
    command.args([
        "--interface",
        "upstream",
        "--multicast-interface",
        "10.77.0.1",
    ]);
    let ended = enter(&hosts.relay, || Manyflow::start(command)).finish();
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert!(ended.stderr.contains("interface upstream"), "{ended:?}");
}
