//! Clients whose messages wait to enter the overlay, because a member of their group does not read.

use manyflow_messages::{DaemonConfig, DaemonHandle, SlowVerdict, start};
use manyflow_overlay::{OverlayConfig, SlowPolicy};

use crate::overlay::stage::{Nats, config, wait_until, within};

const PAYLOAD_BYTES: usize = 100_000;

/// Starts a daemon at which senders wait for slow members without a limit.
async fn start_blocking() -> DaemonHandle {
    let config = DaemonConfig {
        overlay: OverlayConfig {
            slow: SlowPolicy::Block,
            ..OverlayConfig::default()
        },
        ..config("a")
    };
    start(config).await.unwrap()
}

fn is_blocked(status: &manyflow_messages::DaemonStatus) -> bool {
    let mut members = status.first_slow_members.iter();
    members.any(|member| member.verdict == SlowVerdict::Blocks)
}

/// Publishes messages to `slow` until one waits for a member, and ten behind it. Returns their
/// number. One PONG is still to come.
async fn publish_until_blocked(daemon: &DaemonHandle, sender: &mut Nats) -> usize {
    let payload = "x".repeat(PAYLOAD_BYTES);
    let message = format!("PUB slow {PAYLOAD_BYTES}\r\n{payload}\r\n");
    let mut sent = 0;
    loop {
        within(sender.send(&format!("{message}PING\r\n"))).await;
        sent += 1;
        tokio::select! {
            line = sender.line() => assert_eq!(line, "PONG"),
            () = wait_until(daemon, is_blocked) => break,
        }
    }
    // The daemon takes these, and holds them.
    for _ in 0..10 {
        within(sender.send(&message)).await;
    }
    sent + 10
}

/// Returns a client whose messages wait for a member, that member, and the number of messages.
async fn blocked(daemon: &DaemonHandle) -> (Nats, Nats, usize) {
    let mut member = Nats::connect(daemon).await;
    member.send_and_wait("SUB slow 1\r\n").await;
    let mut sender = Nats::connect(daemon).await;
    let sent = publish_until_blocked(daemon, &mut sender).await;
    (sender, member, sent)
}

#[tokio::test]
async fn a_client_whose_message_waits_joins_other_groups_and_is_alive() {
    let daemon = start_blocking().await;
    let (mut sender, mut member, sent) = blocked(&daemon).await;
    // Behind messages that wait, SUB acts at once.
    let groups = daemon.status().borrow().groups;
    sender.send("SUB news 7\r\nPING\r\n").await;
    wait_until(&daemon, |status| status.groups == groups + 1).await;
    let mut other = Nats::connect(&daemon).await;
    other.send_and_wait("PUB news 4\r\ndata\r\n").await;
    assert_eq!(sender.line().await, "MSG news 7 4");
    assert_eq!(sender.line().await, "data");
    // PONGs come although the messages before both PINGs wait still.
    assert_eq!(sender.line().await, "PONG");
    assert_eq!(sender.line().await, "PONG");
    assert!(is_blocked(&daemon.status().borrow()));
    sender.send("UNSUB 7\r\n").await;
    wait_until(&daemon, |status| status.groups == groups).await;
    for _ in 0..sent {
        assert_eq!(member.message().await.1.len(), PAYLOAD_BYTES);
    }
    // Nothing waits now.
    sender.send_and_wait("").await;
}

#[tokio::test]
async fn messages_of_a_client_that_has_left_enter_when_there_is_room() {
    let daemon = start_blocking().await;
    let (sender, mut member, sent) = blocked(&daemon).await;
    drop(sender);
    for _ in 0..sent {
        assert_eq!(member.message().await.1.len(), PAYLOAD_BYTES);
    }
    wait_until(&daemon, |status| status.clients == 1).await;
}
