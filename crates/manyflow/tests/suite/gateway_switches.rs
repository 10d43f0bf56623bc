//! A gateway with two switches before the same members.

use std::sync::Arc;

use crate::http_stage::{
    ANY, Client, Server, listen_address, start, start_member, start_switch, wait_for,
};
use nix::sys::signal::Signal;

#[test]
fn a_second_switch_takes_over_when_the_first_stops_or_dies() {
    let held = Arc::default();
    let servers = ["a", "b"].map(|name| Server::start(name, &held));
    let started = servers.each_ref().map(|s| start_member(s.address, ANY));
    let members = started.each_ref().map(|(_, event)| listen_address(event));
    for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
        let (first, at_first) = start_switch(&members, "affinity");
        let (_second, at_second) = start_switch(&members, "affinity");
        let [one, two] = [at_first, at_second].map(|at| at.to_string());
        // Longer than the test: nothing waits for this time-out.
        let long = ["--timeout", "90s"];
        let arguments = ["gateway", "--listen", ANY, "--to", &one, "--to", &two];
        let (mut gateway, event) = start(&[&arguments[..], &long].concat());
        gateway.wait_for(|line| line.contains("connected").then_some(()));
        let mut client = Client::connect(listen_address(&event));
        wait_for(|| (client.ask("GET", "/").status() == 200).then_some(()));
        first.signal(signal);
        for _ in 0..20 {
            assert_eq!(client.ask("GET", "/").status(), 200);
        }
        assert_eq!(client.post("/", b"text").text(), "text");
    }
}
