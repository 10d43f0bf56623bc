//! Messages between clients of one daemon and of several.

use std::time::Instant;

use manyflow_testing::LIMIT;

use crate::overlay::stage::{Nats, line, wait_for_path, within};

#[tokio::test]
async fn messages_pass_through_three_daemons_in_order() {
    let daemons = line(3).await;
    let mut member = Nats::connect(&daemons[2]).await;
    let mut sender = Nats::connect(&daemons[0]).await;
    member.send_and_wait("SUB news.* 1\r\n").await;
    wait_for_path(&mut sender, &mut member, "news.b").await;
    for number in 0..1000 {
        let text = number.to_string();
        sender
            .send(&format!("PUB news.a {}\r\n{text}\r\n", text.len()))
            .await;
    }
    for number in 0..1000 {
        let (line, payload) = member.message().await;
        let text = number.to_string();
        assert_eq!(line, format!("MSG news.a 1 {}", text.len()));
        assert_eq!(payload, text.as_bytes());
    }
}

#[tokio::test]
async fn messages_larger_than_the_overlays_arrive_whole() {
    let daemons = line(2).await;
    let mut member = Nats::connect(&daemons[1]).await;
    let mut sender = Nats::connect(&daemons[0]).await;
    member.send_and_wait("SUB big 1\r\n").await;
    wait_for_path(&mut sender, &mut member, "big").await;
    let payload = "0123456789abcdef".repeat(1 << 16);
    sender
        .send(&format!("PUB big {}\r\n{payload}\r\n", payload.len()))
        .await;
    let (line, arrived) = member.message().await;
    assert_eq!(line, format!("MSG big 1 {}", payload.len()));
    assert!(arrived == payload.as_bytes());
}

#[tokio::test]
async fn each_message_goes_to_one_member_of_a_queue_group() {
    let daemons = line(2).await;
    let (arrived, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    for (place, daemon) in [0, 0, 1].into_iter().enumerate() {
        let mut member = Nats::connect(&daemons[daemon]).await;
        member.send_and_wait("SUB work workers 7\r\n").await;
        let arrived = arrived.clone();
        tokio::spawn(async move {
            loop {
                let (line, payload) = member.message().await;
                assert_eq!(line, "MSG work 7 6");
                arrived
                    .send((place, String::from_utf8(payload).unwrap()))
                    .unwrap();
            }
        });
    }
    let mut sender = Nats::connect(&daemons[0]).await;
    let (mut all, mut shares) = (Vec::new(), [0; 3]);
    // Until the sender's daemon has learnt of the other, it sends to its own members.
    let (mut sent, start) = (0, Instant::now());
    while sent < 300 || shares[2] == 0 || all.len() < sent {
        if shares[2] == 0 || sent < 300 {
            let is_late = start.elapsed() > LIMIT;
            assert!(!is_late, "the member at the other daemon gets nothing");
            sender.send(&format!("PUB work 6\r\n{sent:06}\r\n")).await;
            sent += 1;
        }
        let (place, text) = within(arrivals.recv()).await.unwrap();
        shares[place] += 1;
        all.push(text);
    }
    all.sort();
    let expected: Vec<_> = (0..sent).map(|number| format!("{number:06}")).collect();
    assert_eq!(all, expected);
    assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
}

#[tokio::test]
async fn requests_are_answered_across_daemons_or_refused_if_nobody_listens() {
    let daemons = line(2).await;
    let mut server = Nats::connect(&daemons[1]).await;
    let mut client = Nats::connect(&daemons[0]).await;
    client.send_and_wait("SUB inbox.1 5\r\n").await;
    client.send("PUB nobody inbox.1 2\r\nhi\r\n").await;
    assert_eq!(client.line().await, "HMSG inbox.1 5 16 16");
    assert_eq!(client.line().await, "NATS/1.0 503");
    assert_eq!(
        (client.line().await, client.line().await),
        Default::default()
    );
    server.send_and_wait("SUB time 1\r\n").await;
    wait_for_path(&mut client, &mut server, "time").await;
    client.send("PUB time inbox.1 4\r\nwhen\r\n").await;
    let (line, payload) = server.message().await;
    assert_eq!(
        (line.as_str(), &payload[..]),
        ("MSG time 1 inbox.1 4", &b"when"[..])
    );
    server.send("PUB inbox.1 4\r\nnoon\r\n").await;
    assert_eq!(client.message().await.1, b"noon");
}

#[tokio::test]
async fn a_subscription_ends_after_its_last_message() {
    let daemons = line(1).await;
    let mut client = Nats::connect(&daemons[0]).await;
    client
        .send_and_wait("SUB a 1\r\nUNSUB 1 2\r\nSUB a 2\r\n")
        .await;
    client
        .send("PUB a 1\r\nx\r\nPUB a 1\r\ny\r\nPUB a 1\r\nz\r\nPING\r\n")
        .await;
    let mut lines = Vec::new();
    loop {
        match client.line().await.as_str() {
            "PONG" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let of = |sid: &str| {
        lines
            .iter()
            .filter(|line| **line == format!("MSG a {sid} 1"))
            .count()
    };
    assert_eq!((of("1"), of("2")), (2, 3));
}

#[tokio::test]
async fn a_client_without_echo_does_not_get_its_own_messages() {
    let daemons = line(1).await;
    let mut own = Nats::connect_with(&daemons[0], r#"{"verbose":false,"echo":false}"#).await;
    let mut other = Nats::connect(&daemons[0]).await;
    own.send_and_wait("SUB a 1\r\n").await;
    own.send_and_wait("PUB a 3\r\nown\r\n").await;
    other.send("PUB a 5\r\nother\r\n").await;
    assert_eq!(own.message().await.1, b"other");
}

#[tokio::test]
async fn a_client_without_echo_does_not_work_on_its_own_messages() {
    let options = r#"{"verbose":false,"echo":false,"headers":true,"no_responders":true}"#;
    let daemons = line(2).await;
    let mut own = Nats::connect_with(&daemons[0], options).await;
    own.send_and_wait("SUB near q 1\r\nSUB far q 2\r\nSUB plain 3\r\nSUB inbox 9\r\n")
        .await;
    // Nobody else works: requests have no responders.
    for subject in ["near", "far", "plain"] {
        own.send(&format!("PUB {subject} inbox 1\r\nx\r\n")).await;
        assert_eq!(own.line().await, "HMSG inbox 9 16 16");
        for rest in ["NATS/1.0 503", "", ""] {
            assert_eq!(own.line().await, rest);
        }
    }
    // Another worker gets all of its messages, and it gets those of others.
    for (subject, daemon) in ["near", "far"].into_iter().zip(&daemons) {
        let mut other = Nats::connect(daemon).await;
        other.send_and_wait(&format!("SUB {subject} q 1\r\n")).await;
        wait_for_path(&mut own, &mut other, subject).await;
        for number in 0..4 {
            own.send(&format!("PUB {subject} 1\r\n{number}\r\n")).await;
            let (_, payload) = other.message().await;
            assert_eq!(payload, number.to_string().into_bytes());
        }
        other.send_and_wait("UNSUB 1\r\n").await;
    }
    let mut third = Nats::connect(&daemons[0]).await;
    third.send("PUB near 5\r\nthird\r\n").await;
    assert_eq!(own.message().await.1, b"third");
}

#[tokio::test]
async fn a_client_can_ask_for_the_members_of_a_group() {
    let daemons = line(2).await;
    let mut member = Nats::connect(&daemons[1]).await;
    let mut client = Nats::connect(&daemons[0]).await;
    member
        .send_and_wait("SUB news.* 1\r\nSUB news.* 2\r\n")
        .await;
    client
        .send_and_wait("SUB inbox 1\r\nSUB news.* 2\r\n")
        .await;
    let mut versions = Vec::new();
    let start = Instant::now();
    let answer = loop {
        client.send("PUB $MF.members.news.* inbox 0\r\n\r\n").await;
        let answer: serde_json::Value = serde_json::from_slice(&client.message().await.1).unwrap();
        versions.push(answer["version"].as_u64().unwrap());
        if answer["members"].as_object().unwrap().len() == 2 {
            break answer;
        }
        assert!(
            start.elapsed() < LIMIT,
            "the other member is never announced: {answer}"
        );
    };
    assert_eq!(answer["members"], serde_json::json!({"a": 1, "b": 1}));
    assert!(versions.is_sorted(), "{versions:?}");
}
