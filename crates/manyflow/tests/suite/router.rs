//! `manyflow router` as a process, between ends of Anypoint on loopback, and the demo of a service
//! behind such links.

use crate::common;

use std::net::SocketAddr;

use common::{LIMIT, Manyflow, manyflow};
use manyflow_ensembles::anypoint::{Connection, Control, Options, connect, serve};
use nix::sys::signal::Signal;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::time::timeout;

const MESSAGE_BYTES: usize = 1000;
const MESSAGES: usize = 200;

/// Starts a router in front of `server`, and returns it with the address of its clients.
fn start(server: SocketAddr, args: &[&str]) -> (Manyflow, SocketAddr) {
    let mut command = manyflow(&["router", "--json", "--listen", "127.0.0.1:0"]);
    command.args(["--to", &server.to_string()]).args(args);
    let mut router = Manyflow::start(command);
    let at = router.wait_for(|line| {
        let started: Value = serde_json::from_str(line).unwrap();
        started["listen"].as_str().map(|at| at.parse().unwrap())
    });
    (router, at)
}

fn options() -> Options {
    Options {
        control: Control::Xcp,
        ..Options::default()
    }
}

/// Sends messages to a member, whose answers must be the same bytes.
async fn exchange(connection: &Connection, first: u8) {
    for number in 0..MESSAGES {
        let message = vec![first.wrapping_add(number as u8); MESSAGE_BYTES];
        connection.send_frame(0, message.into()).await.unwrap();
    }
    for number in 0..MESSAGES {
        let answer = timeout(LIMIT, connection.recv_frame()).await.unwrap();
        let answer = answer.unwrap().unwrap().payload;
        assert_eq!(
            answer[..],
            vec![first.wrapping_add(number as u8); MESSAGE_BYTES]
        );
    }
}

/// Serves a member that returns each message.
fn start_echo(runtime: &Runtime) -> SocketAddr {
    let _guard = runtime.enter();
    let mut member = serve("127.0.0.1:0".parse().unwrap(), options()).unwrap();
    let address = member.local_address();
    runtime.spawn(async move {
        while let Ok(connection) = member.accept().await {
            tokio::spawn(async move {
                while let Ok(Some(message)) = connection.recv_frame().await {
                    let sent = connection.send_frame(message.key, message.payload);
                    if sent.await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[test]
fn clients_share_a_link_whose_router_controls_their_windows() {
    let runtime = Runtime::new().unwrap();
    let server = start_echo(&runtime);
    let metrics = ["--rate", "20Mbit/s", "--delay", "5ms", "--queue", "20ms"];
    let (router, at) = start(server, &metrics);
    runtime.block_on(async {
        let opened = [connect(at, options()), connect(at, options())];
        let [one, two] = opened.map(|opening| timeout(LIMIT, opening));
        let (one, two) = (one.await.unwrap().unwrap(), two.await.unwrap().unwrap());
        tokio::join!(exchange(&one, 0), exchange(&two, 100));
    });
    router.signal(Signal::SIGTERM);
    let ended = router.finish();
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    let done: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    for direction in ["up", "down"] {
        let bytes = done[direction]["bytes"].as_u64().unwrap();
        assert!(bytes >= (2 * MESSAGES * MESSAGE_BYTES) as u64, "{done}");
        // A busy computer can make bursts that no router prevents. That XCP keeps the queue short
        // is asserted in simulated time, in manyflow-core's tests of links.
        assert!(done[direction]["dropped"].is_u64(), "{done}");
    }
}

#[test]
fn a_file_survives_the_death_of_one_of_its_servers() {
    let demo = manyflow(&["demo", "ensemble", "--size", "2MB", "--json"]);
    let ended = Manyflow::start(demo).finish();
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    let events: Vec<Value> = ended
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let servers = events.iter().filter(|event| event["event"] == "server");
    let killed = servers.clone().filter(|server| server["killed"] == true);
    assert_eq!((servers.count(), killed.count()), (5, 1));
    let done = events.last().unwrap();
    assert!(done["service_share"].as_f64().unwrap() > 0.0, "{done}");
}

#[test]
fn an_address_that_cannot_be_used_is_named() {
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let args = [
        "router",
        "--listen",
        &at,
        "--to",
        "127.0.0.1:9",
        "--rate",
        "1Mbit/s",
    ];
    let ended = Manyflow::start(manyflow(&args)).finish();
    assert_eq!(ended.code(), 1);
    assert!(ended.stderr.contains(&at), "{}", ended.stderr);
}
