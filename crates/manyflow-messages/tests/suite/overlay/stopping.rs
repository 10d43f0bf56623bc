//! Daemons that stop: clients learn of it, and get the messages that were accepted.

use std::time::Duration;

use manyflow_messages::{DaemonConfig, DaemonHandle, start};
use manyflow_net::reserved::ReservedAddress;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::overlay::stage::{Nats, config, line, wait_for_path, within};

/// A grace that no test waits for.
const LONG: Duration = Duration::from_secs(600);

async fn lame_duck_info(client: &mut Nats) -> Value {
    let line = client.line().await;
    let info = line.strip_prefix("INFO ").unwrap();
    serde_json::from_str(info).unwrap()
}

fn stop(daemon: DaemonHandle, grace: Duration) -> tokio::task::JoinHandle<()> {
    tokio::spawn(daemon.stop_after(grace))
}

#[tokio::test]
async fn clients_learn_that_the_daemon_stops_before_it_closes_their_connections() {
    // Nobody else listens at the address when the daemon no longer does.
    let reserved = ReservedAddress::new().unwrap();
    let address = reserved.get();
    let daemon = DaemonConfig {
        clients: Some(address.to_string()),
        ..config("a")
    };
    let daemon = start(daemon).await.unwrap();
    let mut client = Nats::connect(&daemon).await;
    let stopped = stop(daemon, LONG);
    let info = lame_duck_info(&mut client).await;
    assert_eq!(info["ldm"], true);
    assert_eq!(info["server_name"], "a");
    assert_eq!(info["headers"], true, "clients replace what they know");
    assert!(TcpStream::connect(address).await.is_err(), "no new clients");
    client.send_and_wait("").await;
    drop(client);
    // No client is left.
    within(stopped).await.unwrap();
}

#[tokio::test]
async fn a_client_that_is_still_connecting_learns_it_too() {
    let daemon = start(config("a")).await.unwrap();
    let mut client = Nats::connect(&daemon).await;
    // This process may not run for longer than the daemon waits for CONNECT.
    let mut late = Nats::open(&daemon).await;
    let stopped = stop(daemon, LONG);
    assert_eq!(lame_duck_info(&mut client).await["ldm"], true);
    let connect = "CONNECT {\"verbose\":false}\r\nPING\r\n";
    if late.try_send(connect).await.is_ok() {
        match late.line().await.as_str() {
            "-ERR 'Authentication Timeout'" | "" => {}
            line => assert!(line.contains("\"ldm\":true"), "{line}"),
        }
    }
    drop((client, late));
    within(stopped).await.unwrap();
}

#[tokio::test]
async fn messages_accepted_before_the_end_reach_members_at_all_daemons() {
    const COUNT: usize = 2_000;
    let [a, b] = line(2).await.try_into().unwrap();
    let mut sender = Nats::connect(&a).await;
    let mut far = Nats::connect(&b).await;
    let mut near = Nats::connect(&a).await;
    for member in [&mut far, &mut near] {
        member.send_and_wait("SUB n 1\r\n").await;
    }
    wait_for_path(&mut sender, &mut far, "n").await;
    let members = [far, near].map(|member| tokio::spawn(count_messages(member)));
    let text = format!("PUB n 1000\r\n{}\r\n", "x".repeat(1_000));
    // The grace may be over before this client runs again.
    sender.send_and_wait(&text).await;
    let stopped = stop(a, Duration::from_millis(100));
    assert_eq!(lame_duck_info(&mut sender).await["ldm"], true);
    let mut accepted = 1;
    for _ in 0..COUNT {
        if sender.try_send(&format!("{text}PING\r\n")).await.is_err() {
            break;
        }
        if sender.line().await != "PONG" {
            break;
        }
        accepted += 1;
    }
    println!("{accepted} of {COUNT} messages were accepted");
    drop(sender);
    within(stopped).await.unwrap();
    b.stop().await;
    for member in members {
        let arrived = member.await.unwrap();
        assert!(arrived >= accepted, "{arrived} of {accepted} messages");
    }
}

/// Counts the messages with long payloads that arrive until the connection ends.
async fn count_messages(mut member: Nats) -> usize {
    let mut messages = 0;
    loop {
        let line = member.line().await;
        match line.as_str() {
            "" => return messages,
            line if line.starts_with("INFO ") => {}
            _ => messages += usize::from(member.payload_of(line).await.1.len() == 1_000),
        }
    }
}
