//! The status of daemons: their links, and the members that read too slowly.

use std::time::Duration;

use manyflow_messages::{
    Client, ClientOptions, DaemonConfig, DaemonHandle, DaemonStatus, SlowVerdict, start,
};
use manyflow_overlay::{OverlayConfig, SlowPolicy};
use manyflow_testing::LIMIT;
use tokio::time::timeout;

use crate::overlay::stage::{Nats, config, line, link, wait_for_path};

/// Waits until the status of a daemon has a property, and returns that status: a later one may no
/// longer have it.
async fn wait_for(
    daemon: &DaemonHandle,
    what: &str,
    holds: impl Fn(&DaemonStatus) -> bool,
) -> DaemonStatus {
    let mut status = daemon.status();
    match timeout(LIMIT, status.wait_for(&holds)).await {
        Ok(found) => found.unwrap().clone(),
        Err(_) => panic!("{what}: {:?}", daemon.status().borrow().clone()),
    }
}

#[tokio::test]
async fn a_link_has_a_round_trip_time_and_counts_what_it_carries() {
    let daemons = line(2).await;
    let mut member = Nats::connect(&daemons[1]).await;
    let mut sender = Nats::connect(&daemons[0]).await;
    member.send_and_wait("SUB n 1\r\n").await;
    wait_for_path(&mut sender, &mut member, "n").await;
    for _ in 0..100 {
        sender.send("PUB n 4\r\ndata\r\n").await;
        assert_eq!(member.message().await.1, b"data");
    }
    let sends = |status: &DaemonStatus| status.links[0].sent_messages >= 100;
    wait_for(&daemons[0], "the sender's link counts", sends).await;
    let receives = |status: &DaemonStatus| status.links[0].received_messages >= 100;
    wait_for(&daemons[1], "the member's link counts", receives).await;
    for daemon in &daemons {
        let link = daemon.status().borrow().links[0].clone();
        println!("{link:?}");
        assert!(link.sent_bytes > 0 && link.received_bytes > 0);
        if cfg!(target_os = "linux") {
            assert!(link.rtt_ms.is_some_and(|rtt| rtt > 0.0), "{link:?}");
            assert!(link.retransmissions.is_some(), "{link:?}");
        }
    }
}

/// Starts a daemon with a policy for slow members.
async fn daemon_with(slow: SlowPolicy) -> DaemonHandle {
    let overlay = OverlayConfig {
        slow,
        ..OverlayConfig::default()
    };
    let config = DaemonConfig {
        overlay,
        ..config("a")
    };
    start(config).await.unwrap()
}

/// Publishes messages that a member does not read until the daemon lists that member with a
/// verdict.
async fn publish_until_slow(daemon: &DaemonHandle, verdict: SlowVerdict) -> Nats {
    let options = r#"{"verbose":false,"name":"display 7"}"#;
    let mut member = Nats::connect_with(daemon, options).await;
    member.send_and_wait("SUB prices.> 1\r\n").await;
    let mut sender = Nats::connect(daemon).await;
    let payload = "x".repeat(100_000);
    let message = format!("PUB prices.oil {}\r\n{payload}\r\n", payload.len());
    let publish = async {
        loop {
            sender.send(&message).await;
        }
    };
    let slow = |status: &DaemonStatus| {
        let mut members = status.first_slow_members.iter();
        members.any(|member| member.verdict == verdict)
    };
    let status = tokio::select! {
        status = wait_for(daemon, "the member is slow", slow) => status,
        () = publish => unreachable!("publishing does not end"),
    };
    let listed = &status.first_slow_members[0];
    assert_eq!(status.slow_members, 1);
    assert_eq!(listed.pattern, "prices.>");
    assert_eq!(listed.name.as_deref(), Some("display 7"));
    assert_eq!(listed.client, Some(1));
    assert!(listed.address.is_some());
    assert_eq!(listed.missed_messages > 0, verdict == SlowVerdict::Misses);
    member
}

#[tokio::test]
async fn a_member_that_blocks_its_group_is_listed_until_it_reads() {
    let daemon = daemon_with(SlowPolicy::Block).await;
    let mut member = publish_until_slow(&daemon, SlowVerdict::Blocks).await;
    let read = async {
        loop {
            member.message().await;
        }
    };
    let none = |status: &DaemonStatus| status.slow_members == 0;
    tokio::select! {
        () = read => {}
        _ = wait_for(&daemon, "the member has caught up", none) => {}
    }
}

#[tokio::test]
async fn a_member_that_misses_messages_is_listed_until_it_disconnects() {
    let daemon = daemon_with(SlowPolicy::Drop).await;
    let member = publish_until_slow(&daemon, SlowVerdict::Misses).await;
    drop(member);
    let none = |status: &DaemonStatus| status.slow_members == 0;
    wait_for(&daemon, "the member is gone", none).await;
}

#[tokio::test]
async fn an_evicted_member_remains_listed() {
    let daemon = daemon_with(SlowPolicy::Evict(Duration::from_millis(100))).await;
    let _member = publish_until_slow(&daemon, SlowVerdict::Evicted).await;
}

#[tokio::test]
async fn a_client_that_is_removed_from_a_group_has_an_error_behind_the_last_message() {
    let daemon = daemon_with(SlowPolicy::EvictStalled(Duration::from_millis(100))).await;
    let address = daemon.addresses().clients.unwrap().to_string();
    let client = Client::connect(&address, &ClientOptions::default()).await;
    let client = client.unwrap();
    let mut messages = client.join("prices.*").await.unwrap();
    let mut others = client.join("news").await.unwrap();
    let mut sender = Nats::connect(&daemon).await;
    let message = format!("PUB prices.oil 100000\r\n{}\r\n", "x".repeat(100_000));
    let publish = async {
        loop {
            sender.send(&message).await;
        }
    };
    let evicted = |status: &DaemonStatus| {
        let mut members = status.first_slow_members.iter();
        members.any(|member| member.verdict == SlowVerdict::Evicted)
    };
    tokio::select! {
        _ = wait_for(&daemon, "the member is evicted", evicted) => {}
        () = publish => unreachable!("publishing does not end"),
    }
    let error = loop {
        match timeout(LIMIT, messages.next()).await.unwrap() {
            Some(Ok(message)) => assert_eq!(message.payload().len(), 100_000),
            Some(Err(error)) => break error,
            None => panic!("the stream ends without an error"),
        }
    };
    let reason = "Subscription to \"prices.*\": slow consumer, removed from the group";
    assert!(error.to_string().contains(reason), "{error}");
    assert!(messages.next().await.is_none());
    // The client remains a member of its other groups.
    let mut sender = Nats::connect(&daemon).await;
    sender.send("PUB news 4\r\ndata\r\n").await;
    let news = timeout(LIMIT, others.next()).await.unwrap();
    assert_eq!(&news.unwrap().unwrap().payload()[..], b"data");
}

#[tokio::test]
async fn a_configured_link_is_listed_as_down_for_as_long_as_it_is() {
    let b = start(config("b")).await.unwrap();
    let address = b.addresses().daemons.unwrap();
    let own = DaemonConfig {
        links: vec![link("b", address), link("never", "127.0.0.1:1")],
        hold: Duration::from_millis(500),
        ..config("a")
    };
    let a = start(own).await.unwrap();
    let state = |status: &DaemonStatus, name: &str| {
        let mut links = status.links.iter();
        links.find(|link| link.name == name).map(|link| link.is_up)
    };
    let is_up =
        |status: &DaemonStatus| state(status, "b") == Some(true) && status.daemons.len() == 2;
    let status = wait_for(&a, "the link is up", is_up).await;
    assert_eq!(state(&status, "never"), Some(false));
    b.stop().await;
    // The daemon forgets the link itself after the hold time, and its members with it.
    let is_alone = |status: &DaemonStatus| status.daemons.len() == 1;
    let status = wait_for(&a, "b is forgotten", is_alone).await;
    assert_eq!(status.links.len(), 2);
    assert_eq!(state(&status, "b"), Some(false));
}

/// Publishes to `work` until the status lists a slow member, and returns what it lists.
async fn publish_until_evicted(daemon: &DaemonHandle) -> DaemonStatus {
    let mut sender = Nats::connect(daemon).await;
    let message = format!("PUB work 100000\r\n{}\r\n", "x".repeat(100_000));
    let publish = async {
        loop {
            sender.send(&message).await;
        }
    };
    let is_evicted = |status: &DaemonStatus| {
        let mut members = status.first_slow_members.iter();
        members.any(|member| member.verdict == SlowVerdict::Evicted)
    };
    tokio::select! {
        status = wait_for(daemon, "the workers are evicted", is_evicted) => status,
        () = publish => unreachable!("publishing does not end"),
    }
}

#[tokio::test]
async fn workers_that_are_removed_from_a_queue_group_have_an_error_and_can_join_again() {
    let daemon = daemon_with(SlowPolicy::EvictStalled(Duration::from_millis(100))).await;
    let mut workers = [Nats::connect(&daemon).await, Nats::connect(&daemon).await];
    for worker in &mut workers {
        worker
            .send_and_wait("SUB work q 7\r\nSUB other 8\r\n")
            .await;
    }
    let status = publish_until_evicted(&daemon).await;
    let listed = &status.first_slow_members[0];
    let queue = (listed.pattern.as_str(), listed.queue.as_deref());
    assert_eq!(queue, ("work", Some("q")));
    assert_eq!((status.slow_members, listed.client), (1, None));

    let error = "-ERR 'Permissions Violation for Subscription to \"work\" using queue \"q\": \
                 slow consumer, removed from the group'";
    for worker in &mut workers {
        let mut line = worker.line().await;
        while line.starts_with("MSG work 7 ") {
            worker.payload_of(line).await;
            line = worker.line().await;
        }
        assert_eq!(line, error);
    }
    // The other subscriptions go on.
    let [first, second] = &mut workers;
    first.send("PUB other 2\r\nhi\r\n").await;
    for worker in [&mut *first, &mut *second] {
        assert_eq!(worker.message().await.0, "MSG other 8 2");
    }
    let mut sender = Nats::connect(&daemon).await;
    sender.send_and_wait("PUB work 4\r\nlost\r\n").await;
    first.send_and_wait("SUB work q 9\r\n").await;
    sender.send_and_wait("PUB work 4\r\nback\r\n").await;
    let (line, payload) = first.message().await;
    assert_eq!(
        (line.as_str(), &payload[..]),
        ("MSG work 9 4", &b"back"[..])
    );
    second.send_and_wait("").await;
}
