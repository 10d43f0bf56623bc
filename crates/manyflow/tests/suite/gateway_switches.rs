//! Gateways with two switches: two before the same members, or one of the gateways and one of the
//! members. And gateways that are a switch themselves.

use std::sync::Arc;

use crate::common::get;
use crate::http_stage::{
    ANY, Client, Server, large, listen_address, pattern, start, start_member, start_switch,
    wait_for,
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

#[test]
fn gateways_that_share_a_connection_get_their_answers() {
    let held = Arc::default();
    let servers = ["a", "b"].map(|name| Server::start(name, &held));
    let started = servers.each_ref().map(|s| start_member(s.address, ANY));
    let members = started.each_ref().map(|(_, event)| listen_address(event));
    let (_switch, service) = start_switch(&members, "affinity");
    let service = service.to_string();
    let (_initiators, event) = start(&["switch", "--listen", ANY, "--to", &service]);
    let entrance = listen_address(&event).to_string();
    let gateways = [0; 3].map(|_| start(&["gateway", "--listen", ANY, "--to", &entrance]));
    let clients = gateways.each_ref().map(|(_, event)| {
        let gateway = listen_address(event);
        std::thread::spawn(move || {
            let mut client = Client::connect(gateway);
            wait_for(|| (client.ask("GET", "/").status() == 200).then_some(()));
            for round in 0..30 {
                assert_eq!(client.ask("GET", "/").status(), 200, "{round}");
                // A body of several messages, which all have to reach one member.
                let body = pattern(1_000_000 + round);
                let answer = client.post("/", &body);
                assert!(answer.body.as_ref() == Some(&body), "{round}");
            }
            let answer = client.ask("GET", "/large");
            assert!(answer.body.as_deref() == Some(large()));
        })
    });
    for client in clients {
        client.join().unwrap();
    }
    // One of them ends with requests in progress.
    let [(first, _), (mut second, event), third] = gateways;
    let mut waiting = Client::connect(listen_address(&event));
    waiting.send(b"GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
    wait_for(|| {
        servers
            .iter()
            .any(|server| server.has_seen("/hold"))
            .then_some(())
    });
    second.kill();
    let mut client = Client::connect(listen_address(&third.1));
    for _ in 0..20 {
        assert_eq!(client.ask("GET", "/").status(), 200);
    }
    drop(first);
}

#[test]
fn a_gateway_with_members_says_which_do_not_answer_and_serves_when_one_does() {
    // Nobody reads it, so its port is free for a member later.
    let silent = std::net::UdpSocket::bind(ANY).unwrap();
    let at = silent.local_addr().unwrap().to_string();
    let (mut gateway, started) = start(&[
        "gateway",
        "--listen",
        ANY,
        "--member",
        &at,
        "--metrics",
        ANY,
    ]);
    gateway.wait_for_message(&format!("the member {at} has not been reachable for"));
    let mut client = Client::connect(listen_address(&started));
    wait_for(|| {
        let answer = client.ask("GET", "/");
        assert_eq!(answer.status(), 503, "{answer:?}");
        let reason = format!("no connection to a member: nothing comes from {at}");
        answer.text().contains(&reason).then_some(())
    });
    let metrics = format!("http://{}/metrics", started["metrics"].as_str().unwrap());
    let wait_for_state = |up: u8| {
        let line = format!("manyflow_switch_member_up{{member=\"{at}\"}} {up}");
        wait_for(|| get(&metrics).1.contains(&line).then_some(()));
    };
    wait_for_state(0);

    drop(silent);
    let server = Server::start("a", &Arc::default());
    let (_member, _) = start_member(server.address, &at);
    wait_for(|| (client.ask("GET", "/").status() == 200).then_some(()));
    assert_eq!(client.post("/", b"text").text(), "text");
    wait_for_state(1);
}
