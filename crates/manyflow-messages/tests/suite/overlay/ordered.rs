//! Ordered groups among the clients of several daemons.

use manyflow_messages::DaemonHandle;
use serde_json::Value;

use crate::overlay::stage::{Nats, line};

/// A member of the ordered group `g`, with its views and messages.
struct Member {
    nats: Nats,
    /// The names of the members in the last view.
    members: Vec<String>,
    views: Vec<Value>,
    /// Subjects and payloads.
    messages: Vec<(String, Vec<u8>)>,
}

impl Member {
    async fn join(daemon: &DaemonHandle) -> Member {
        let options = r#"{"verbose":false,"headers":false}"#;
        let mut nats = Nats::connect_with(daemon, options).await;
        nats.send("SUB $MF.order.g 1\r\n").await;
        Member {
            nats,
            members: Vec::new(),
            views: Vec::new(),
            messages: Vec::new(),
        }
    }

    /// Reads a message or a view.
    async fn read(&mut self) {
        let (line, payload) = self.nats.message().await;
        let subject = line.split(' ').nth(1).unwrap().to_owned();
        if subject != "$MF.views.g" {
            self.messages.push((subject, payload));
            return;
        }
        let view: Value = serde_json::from_slice(&payload).unwrap();
        if let Some(members) = view["members"].as_array() {
            let names = members.iter().map(|name| name.as_str().unwrap().to_owned());
            self.members = names.collect();
        }
        self.views.push(view);
    }

    async fn read_until_members(&mut self, count: usize) {
        while self.members.len() != count {
            self.read().await;
        }
    }

    async fn read_until_messages(&mut self, count: usize) {
        while self.messages.len() < count {
            self.read().await;
        }
    }
}

async fn members_of(daemons: &[DaemonHandle]) -> Vec<Member> {
    let mut members = Vec::new();
    for daemon in daemons {
        members.push(Member::join(daemon).await);
    }
    for member in &mut members {
        member.read_until_members(daemons.len()).await;
    }
    members
}

#[tokio::test]
async fn members_at_all_daemons_read_agreed_and_safe_messages_in_one_order() {
    let daemons = line(3).await;
    let mut members = members_of(&daemons).await;
    for round in 0..100 {
        for (place, member) in members.iter_mut().enumerate() {
            let service = ["agreed", "safe", "causal"][round % 3];
            let text = format!("{place}-{round}");
            let message = format!("PUB $MF.{service}.g {}\r\n{text}\r\n", text.len());
            member.nats.send(&message).await;
        }
    }
    // Many at once, of which each enters when the one before it has.
    let many: String = (0..20_000)
        .map(|_| "PUB $MF.fifo.none 2\r\nhi\r\n")
        .collect();
    members[0].nats.send(&many).await;
    // Longer than a message of the overlay can be.
    let long = "x".repeat(200_000);
    members[1]
        .nats
        .send(&format!("PUB $MF.safe.g {}\r\n{long}\r\n", long.len()))
        .await;
    for member in &mut members {
        member.read_until_messages(301).await;
    }
    assert_eq!(members[0].messages, members[1].messages);
    assert_eq!(members[0].messages, members[2].messages);
    assert_eq!(members[0].members, members[2].members);
    let safe = &members[0].messages.iter().find(|(_, text)| text == b"2-1");
    assert_eq!(safe.unwrap().0, "$MF.safe.g");
    // A daemon that stops: the others see the signal, and a view by the network or by its client's
    // end.
    let mut daemons = daemons.into_iter();
    let [first, second, third] = core::array::from_fn(|_| daemons.next().unwrap());
    third.stop().await;
    for member in &mut members[..2] {
        member.read_until_members(2).await;
        member.nats.send("PUB $MF.safe.g 3\r\nend\r\n").await;
    }
    for member in &mut members[..2] {
        member.read_until_messages(303).await;
    }
    assert_eq!(members[0].messages, members[1].messages);
    let [last, other] = [0, 1].map(|place: usize| members[place].views.last().unwrap());
    assert_eq!(last["view"], other["view"]);
    assert_eq!(last["members"], other["members"]);
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn a_client_that_leaves_or_asks_for_what_there_is_not_is_told() {
    let daemons = line(1).await;
    let mut members = members_of(&daemons).await;
    let mut other = Member::join(&daemons[0]).await;
    other.read_until_members(2).await;
    members[0].read_until_members(2).await;
    assert_eq!(members[0].views.last().unwrap()["cause"], "join");
    other.nats.send("UNSUB 1\r\n").await;
    members[0].read_until_members(1).await;
    assert_eq!(members[0].views.last().unwrap()["cause"], "leave");
    // A sender need not be a member.
    other.nats.send("PUB $MF.fifo.g 2\r\nhi\r\n").await;
    members[0].read_until_messages(1).await;
    assert_eq!(members[0].messages[0].0, "$MF.fifo.g");
    for (operation, error) in [
        ("PUB $MF.views.g 0\r\n\r\n", "invalid subject"),
        ("PUB $MF.agreed.g reply 0\r\n\r\n", "subject for replies"),
        ("SUB $MF.safe.g 3\r\n", "invalid subject"),
        ("SUB $MF.agreed.* 3\r\n", "invalid subject"),
        ("SUB $MF.agreed.g queue 3\r\n", "invalid subject"),
    ] {
        other.nats.send(operation).await;
        let line = other.nats.line().await;
        assert!(line.starts_with("-ERR 'Permissions Violation"), "{line}");
        assert!(line.contains(error), "{operation}: {line}");
    }
}

#[tokio::test]
async fn further_subjects_name_ordered_groups_with_the_same_service() {
    let daemons = line(1).await;
    let mut nats = Nats::connect(&daemons[0]).await;
    nats.send("SUB $MF.order.g 1\r\nSUB $MF.order.h 2\r\nSUB $MF.agreed.h 3\r\n")
        .await;
    for _ in ["g", "h"] {
        nats.message().await;
    }
    let publish = |subject: &str, header: &str| {
        let headers = format!("NATS/1.0\r\n{header}\r\n\r\n");
        let (head, all) = (headers.len(), headers.len() + 2);
        format!("HPUB {subject} {head} {all}\r\n{headers}hi\r\n")
    };
    for (subject, header, error) in [
        (
            "$MF.agreed.g",
            "Manyflow-Also: $MF.safe.h",
            "the same service",
        ),
        ("$MF.agreed.g", "Manyflow-Also: h", "invalid subject"),
        ("g", "Manyflow-Also: $MF.agreed.h", "invalid subject"),
        ("$MF.agreed.g", "Trace: 17", "neither headers"),
    ] {
        nats.send(&publish(subject, header)).await;
        let line = nats.line().await;
        assert!(line.contains(error), "{subject} {header}: {line}");
    }
    // Once by the subscriptions to the order, and once by the one to messages.
    let both = publish("$MF.agreed.g", "Manyflow-Also: $MF.agreed.h");
    nats.send(&both).await;
    let lines = [nats.message().await.0, nats.message().await.0];
    assert!(lines[0].starts_with("HMSG $MF.agreed.g 1 "), "{lines:?}");
    assert!(lines[1].starts_with("HMSG $MF.agreed.h 3 "), "{lines:?}");
    nats.send_and_wait("").await;
}
