//! Messages to several groups, of which links between daemons carry one copy.

use std::time::Duration;

use manyflow_messages::client::{Client, ClientOptions, Message};
use manyflow_messages::{DaemonHandle, LinkStatus};

use crate::overlay::stage::{Nats, line, two_with_delay, wait_for_path, wait_until};

/// The link from a daemon to another.
async fn link_when(daemon: &DaemonHandle, is_reached: impl Fn(&LinkStatus) -> bool) -> LinkStatus {
    let mut found = None;
    wait_until(daemon, |status| {
        found = status.links.first().cloned();
        found.as_ref().is_some_and(&is_reached)
    })
    .await;
    found.unwrap()
}

#[tokio::test]
async fn a_link_carries_one_copy_for_all_patterns_that_match_a_subject() {
    let daemons = line(3).await;
    let mut member = Nats::connect(&daemons[2]).await;
    let mut sender = Nats::connect(&daemons[0]).await;
    for (sid, pattern) in ["a.b", "a.*", "a.>", ">"].into_iter().enumerate() {
        member
            .send_and_wait(&format!("SUB {pattern} {sid}\r\n"))
            .await;
    }
    wait_until(&daemons[0], |status| status.groups >= 4).await;
    sender.send("PUB a.b 3\r\nend\r\n").await;
    let mut ends = 0;
    while ends < 4 {
        ends += u32::from(member.message().await.1 == b"end");
    }
    let before = link_when(&daemons[0], |link| link.is_up).await;
    let payload = "x".repeat(20_000);
    for _ in 0..10 {
        let message = format!("PUB a.b {}\r\n{payload}\r\n", payload.len());
        sender.send(&message).await;
    }
    let mut subscriptions = [0; 4];
    for _ in 0..40 {
        let (line, arrived) = member.message().await;
        assert!(arrived == payload.as_bytes());
        let sid: usize = line.split(' ').nth(2).unwrap().parse().unwrap();
        subscriptions[sid] += 1;
    }
    assert_eq!(subscriptions, [10; 4]);
    let after = link_when(&daemons[0], |link| {
        link.sent_messages >= before.sent_messages + 40
    })
    .await;
    let sent = after.sent_bytes - before.sent_bytes;
    assert!((200_000..260_000).contains(&sent), "{sent} bytes");
}

#[tokio::test]
async fn a_header_sends_a_message_to_the_groups_of_several_subjects() {
    let daemons = line(2).await;
    let mut first = Nats::connect(&daemons[1]).await;
    let mut second = Nats::connect(&daemons[1]).await;
    let mut sender = Nats::connect(&daemons[0]).await;
    first.send_and_wait("SUB a 1\r\n").await;
    second.send_and_wait("SUB b.* 2\r\n").await;
    wait_for_path(&mut sender, &mut first, "a").await;
    wait_for_path(&mut sender, &mut second, "b.c").await;
    let address = daemons[0].addresses().clients.unwrap().to_string();
    let client = Client::connect(&address, &ClientOptions::default())
        .await
        .unwrap();
    let message = Message::new("a", "hi").unwrap().also_to("b.d").unwrap();
    client.publish_message(&message).await.unwrap();
    // Each member sees the subject that its pattern matches.
    for (member, expected) in [(&mut first, "HMSG a 1 "), (&mut second, "HMSG b.d 2 ")] {
        let (line, content) = member.message().await;
        assert!(line.starts_with(expected), "{line}");
        assert!(content.ends_with(b"Manyflow-Also: b.d\r\n\r\nhi"));
    }
    // A subject that nobody may publish to refuses the whole message.
    let headers = "NATS/1.0\r\nManyflow-Also: b..d\r\n\r\n";
    let (one, two) = (headers.len(), headers.len() + 2);
    sender
        .send(&format!("HPUB a {one} {two}\r\n{headers}no\r\n"))
        .await;
    let error = sender.line().await;
    assert!(
        error.contains("Publish to \"b..d\": invalid subject"),
        "{error}"
    );
    sender.send("PUB a 4\r\nlast\r\n").await;
    assert_eq!(first.message().await.1, b"last");
}

/// Reads messages until `count` numbers have come by the subscriptions of a client. Each number
/// comes for the first time after all lower ones, by whichever subscription.
async fn read_in_order(member: &mut Nats, count: usize) {
    let (mut next, mut by) = (0, std::collections::BTreeSet::new());
    while next < count {
        let (line, payload) = member.message().await;
        let text = String::from_utf8(payload).unwrap();
        // Others have shown that the member has joined.
        let Ok(number) = text.parse::<usize>() else {
            continue;
        };
        assert!(number <= next, "{number} instead of {next}: {line}");
        next = next.max(number + 1);
        by.insert(line.split(' ').nth(2).unwrap().to_owned());
    }
    assert!(by.len() > 1, "by several subscriptions");
}

#[tokio::test]
async fn over_intact_links_of_streams_a_senders_order_holds_over_all_subscriptions() {
    const COUNT: usize = 2000;
    let daemons = line(3).await;
    let mut sender = Nats::connect(&daemons[0]).await;
    let mut member = Nats::connect(&daemons[2]).await;
    let subscriptions = "SUB a 1\r\nSUB b.* 2\r\nSUB b.c 3\r\nSUB d 4\r\n";
    member.send_and_wait(subscriptions).await;
    wait_until(&daemons[0], |status| status.groups >= 4).await;
    for subject in ["a", "b.c", "d"] {
        wait_for_path(&mut sender, &mut member, subject).await;
    }
    let subjects = ["a", "b.c", "d", "b.e"];
    let messages: String = (0..COUNT)
        .map(|number| {
            let (subject, text) = (subjects[number % 4], number.to_string());
            format!("PUB {subject} {}\r\n{text}\r\n", text.len())
        })
        .collect();
    sender.send(&messages).await;
    read_in_order(&mut member, COUNT).await;
}

#[tokio::test]
async fn one_order_holds_over_all_ordered_groups_of_a_client() {
    const COUNT: usize = 300;
    let (daemons, _wire) = two_with_delay(Duration::from_millis(200)).await;
    let mut sender = Nats::connect(&daemons[0]).await;
    let mut member = Nats::connect_with(&daemons[1], r#"{"verbose":false}"#).await;
    let subscriptions = "SUB $MF.agreed.g 1\r\nSUB $MF.agreed.h 2\r\nSUB $MF.agreed.i 3\r\n";
    member.send_and_wait(subscriptions).await;
    // The member's own message arrives when it has joined all groups, and while the sender's
    // daemon does not know of a member: messages would go to nobody.
    member.send("PUB $MF.agreed.i 4\r\nmine\r\n").await;
    assert_eq!(member.message().await.1, b"mine");
    wait_for_path(&mut sender, &mut member, "$MF.agreed.i").await;
    let messages: String = (0..COUNT)
        .map(|number| {
            let (group, text) = (["g", "h", "i"][number % 3], number.to_string());
            format!("PUB $MF.agreed.{group} {}\r\n{text}\r\n", text.len())
        })
        .collect();
    sender.send(&messages).await;
    read_in_order(&mut member, COUNT).await;
}
