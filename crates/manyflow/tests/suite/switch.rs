//! `manyflow switch` as a process: its signals, its pages, and its death. Everything runs on
//! loopback.

use crate::common;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use common::{LIMIT, Manyflow, get, manyflow, own_address, text};
use manyflow_ensembles::anypoint::{Connection, Member, Options, connect, serve};
use nix::sys::signal::Signal;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::time::timeout;

const ANY: &str = "127.0.0.1:0";

/// Starts a member that puts its name before each message, and returns its address.
fn start_member(runtime: &Runtime, name: &'static str) -> SocketAddr {
    let _guard = runtime.enter();
    let member = serve(ANY.parse().unwrap(), Options::default()).unwrap();
    let address = member.local_address();
    runtime.spawn(accept(member, name));
    address
}

async fn accept(mut member: Member, name: &'static str) {
    while let Ok(connection) = member.accept().await {
        tokio::spawn(async move {
            while let Ok(Some(message)) = connection.recv_frame().await {
                let answer = [name.as_bytes(), &message.payload].concat();
                let sent = connection.send_frame(message.key, answer.into());
                if sent.await.is_err() {
                    return;
                }
            }
            let _ = connection.close().await;
        });
    }
}

/// Sends one request, and returns its answer.
async fn ask(connection: &Connection, key: u32) -> String {
    connection.send_frame(key, "!".into()).await.unwrap();
    let answer = timeout(LIMIT, connection.recv_frame()).await.unwrap();
    String::from_utf8(answer.unwrap().unwrap().payload.into()).unwrap()
}

async fn open(switch: SocketAddr) -> Connection {
    let opened = timeout(LIMIT, connect(switch, Options::default())).await;
    opened.unwrap().unwrap()
}

fn listen_address(switch: &mut Manyflow) -> SocketAddr {
    switch.wait_for(|line| {
        let started: Value = serde_json::from_str(line).unwrap();
        started["listen"].as_str().map(|at| at.parse().unwrap())
    })
}

fn write_file(path: &Path, members: &[(&str, SocketAddr)]) {
    let mut text = "listen = \"127.0.0.1:0\"\npolicy = \"round-robin\"\n[members]\n".to_owned();
    for (name, address) in members {
        text += &format!("{name} = \"{address}\"\n");
    }
    std::fs::write(path, text).unwrap();
}

#[test]
fn members_in_the_file_change_at_a_hangup_while_a_connection_is_open() {
    let runtime = Runtime::new().unwrap();
    let (one, two) = (start_member(&runtime, "a"), start_member(&runtime, "b"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("service.toml");
    write_file(&file, &[("a", one)]);
    let mut command = manyflow(&["switch", "--json", "--config", text(&file)]);
    command.args(["--grace", "90s"]);
    let mut switch = Manyflow::start(command);
    let address = listen_address(&mut switch);
    let connection = runtime.block_on(open(address));
    assert_eq!(runtime.block_on(ask(&connection, 0)), "a!");

    write_file(&file, &[("b", two)]);
    switch.signal(Signal::SIGHUP);
    runtime.block_on(async {
        let deadline = tokio::time::Instant::now() + LIMIT;
        while ask(&connection, 1).await != "b!" {
            assert!(tokio::time::Instant::now() < deadline, "b never joined");
        }
    });

    // A file with an error changes nothing.
    std::fs::write(&file, "members = 7").unwrap();
    switch.signal(Signal::SIGHUP);
    switch.wait_for_message("the members remain");
    assert_eq!(runtime.block_on(ask(&connection, 2)), "b!");

    switch.signal(Signal::SIGTERM);
    runtime.block_on(async {
        timeout(LIMIT, connection.close()).await.unwrap().unwrap();
        let end = timeout(LIMIT, connection.recv_frame()).await.unwrap();
        assert_eq!(end.unwrap(), None);
    });
    let ended = switch.finish();
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
}

#[test]
fn members_in_the_file_change_without_a_signal() {
    let runtime = Runtime::new().unwrap();
    let (one, two) = (start_member(&runtime, "a"), start_member(&runtime, "b"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("service.toml");
    write_file(&file, &[("a", one)]);
    let command = ["switch", "--json", "--refresh", "100ms", "--config"];
    let mut switch = Manyflow::start(manyflow(&[&command[..], &[text(&file)]].concat()));
    let address = listen_address(&mut switch);
    let connection = runtime.block_on(open(address));
    assert_eq!(runtime.block_on(ask(&connection, 0)), "a!");

    // A switch that reads at this moment sees the former file or the next one.
    let replace = |text: &str| {
        let next = folder.path().join("next.toml");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(&next, &file).unwrap();
    };
    // The error is reported once, and the service goes on.
    replace("members = 7");
    switch.wait_for_message("the members remain");
    assert_eq!(runtime.block_on(ask(&connection, 1)), "a!");

    replace(&format!(
        "listen = \"{ANY}\"\n[members]\nb = \"dns:{two}\"\n"
    ));
    switch.wait_for(|line| line.contains("reloaded").then_some(()));
    runtime.block_on(async {
        let deadline = tokio::time::Instant::now() + LIMIT;
        while ask(&connection, 2).await != "b!" {
            assert!(tokio::time::Instant::now() < deadline, "b never joined");
        }
    });
    let complaints = switch.messages();
    let complaints = complaints.iter().filter(|line| line.contains("remain"));
    assert_eq!(complaints.count(), 1);
}

#[test]
fn a_switch_that_is_killed_and_restarted_makes_ends_report() {
    let runtime = Runtime::new().unwrap();
    let member = start_member(&runtime, "a").to_string();
    let second = start_member(&runtime, "b").to_string();
    let free = own_address().to_string();
    // The second is called by its address.
    let first = format!("a={member}");
    let arguments = [
        "switch",
        "--json",
        "--listen",
        &free,
        "--policy",
        "round-robin",
        "--member",
        &first,
        "--member",
        &second,
    ];
    let mut switch = Manyflow::start(manyflow(&arguments));
    let address = listen_address(&mut switch);
    let connection = runtime.block_on(open(address));
    assert_eq!(runtime.block_on(ask(&connection, 0)).len(), 2);
    switch.kill();
    let mut again = Manyflow::start(manyflow(&arguments));
    assert_eq!(listen_address(&mut again), address);
    runtime.block_on(async {
        // The send may still succeed: the frame waits in the buffer.
        let _ = connection.send_frame(1, "!".into()).await;
        let error = timeout(LIMIT, connection.recv_frame())
            .await
            .unwrap()
            .unwrap_err();
        assert!(error.to_string().contains("restarted"), "{error}");
        let fresh = open(address).await;
        assert_eq!(ask(&fresh, 0).await.len(), 2);
    });
}

#[test]
fn the_pages_show_members_and_counters() {
    let runtime = Runtime::new().unwrap();
    let member = format!("a={}", start_member(&runtime, "a"));
    let mut command = manyflow(&["switch", "--listen", ANY, "--member", &member]);
    command.args(["--metrics", ANY, "--json"]);
    let mut switch = Manyflow::start(command);
    let address = listen_address(&mut switch);
    let connection = runtime.block_on(open(address));
    assert_eq!(runtime.block_on(ask(&connection, 0)), "a!");
    let url = switch.wait_for(|line| {
        let started: Value = serde_json::from_str(line).unwrap();
        started["metrics"].as_str().map(str::to_owned)
    });
    let deadline = std::time::Instant::now() + LIMIT;
    loop {
        let (_, metrics) = get(&format!("http://{url}/metrics"));
        let line = "manyflow_switch_member_frames_to_total{member=\"a\"} 1";
        if metrics.contains(line) {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{metrics}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let (_, status) = get(&format!("http://{url}/status.json"));
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["connections"], 1);
    assert_eq!(status["counters"]["opened"], 1);
    assert_eq!(status["members"][0]["is_up"], true);
}

#[test]
fn an_address_that_is_taken_is_an_error_of_one_line() {
    let taken = std::net::UdpSocket::bind(ANY).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = common::run(&["switch", "--listen", &address, "--member", "a=127.0.0.1:1"]);
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert_eq!(ended.stderr.trim_end().lines().count(), 1, "{ended:?}");
    assert!(ended.stderr.contains(&address), "{ended:?}");
}

#[test]
fn a_member_that_is_silent_is_named_and_so_is_its_return() {
    let runtime = Runtime::new().unwrap();
    let at = own_address();
    let member = format!("a={at}");
    let mut switch = Manyflow::start(manyflow(&["switch", "--listen", ANY, "--member", &member]));
    switch.wait_for_message(&format!("the member a at {at} has not been reachable for"));
    let _guard = runtime.enter();
    let member = serve(at, Options::default()).unwrap();
    switch.wait_for_message(&format!("the member a at {at} is back after"));
    drop(member);
}
