//! `manyflow relay` as the router.

use std::time::{Duration, Instant};

use manyflow_testing::enter;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::{MULTICAST, ThreeHosts};
use crate::common::{LIMIT, Manyflow, manyflow};

impl ThreeHosts {
    fn relay(&self, arguments: &[&str]) -> Manyflow {
        let mut command = manyflow(&["relay", "--json", "--session", &self.description()]);
        command.args(arguments);
        let mut relay = enter(&self.router, || Manyflow::start(command));
        relay.wait_for(|line| (parsed(line)["event"] == "started").then_some(()));
        relay
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
    let ended = enter(&hosts.router, || Manyflow::start(command)).finish();
    assert_eq!(ended.code(), 2, "{ended:?}");
    assert!(ended.stderr.contains("interface upstream"), "{ended:?}");
}
