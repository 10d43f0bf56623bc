//! Core messages between sites: no loops, no repetitions, requests and answers.

use std::collections::BTreeMap;

use futures_util::StreamExt as _;
use manyflow_bridge::{BridgeState, start};

use crate::stage::{Site, next, sites, start_active, wait_for, wait_for_path, within};

const MESSAGES: usize = 50;

/// Reads messages up to the last ones of all sites, and returns how often each has come.
async fn count(subscriber: &mut async_nats::Subscriber, last: &[&str]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    while last.iter().any(|last| !counts.contains_key(*last)) {
        *counts.entry(next(subscriber).await).or_default() += 1;
    }
    counts
}

async fn publish_numbered(site: &Site, round: usize) {
    for number in 0..MESSAGES {
        let text = format!("{} {round} {number}", site.name);
        site.nats.publish("news.a", text.into()).await.unwrap();
    }
    site.nats.flush().await.unwrap();
}

#[tokio::test]
async fn messages_cross_once_in_both_directions_also_with_two_bridges_at_a_site() {
    let Some(sites) = sites(&["a", "b", "c"]).await else {
        return;
    };
    let mut bridges = Vec::new();
    for site in &sites {
        let mut config = site.config();
        config.subjects = vec!["news.*".to_owned()];
        bridges.push(start_active(config).await);
    }
    let mut config = sites[0].config();
    config.subjects = vec!["news.*".to_owned()];
    let second = start(config).unwrap();
    wait_for(&second, |state| *state == BridgeState::Standby).await;

    let overlay = sites[1].client().await;
    let mut in_overlay = overlay.join("news.*").await.unwrap();
    let mut subscribers = Vec::new();
    for place in 0..3 {
        let mut subscriber = sites[place].subscribe("news.*").await;
        wait_for_path(&sites[(place + 1) % 3], &mut subscriber, "news.probe").await;
        wait_for_path(&sites[(place + 2) % 3], &mut subscriber, "news.probe").await;
        subscribers.push(subscriber);
    }
    // Messages in a loop would come again in the second round.
    for round in 0..2 {
        let last: Vec<_> = sites
            .iter()
            .map(|site| format!("{} {round} {}", site.name, MESSAGES - 1))
            .collect();
        let last: Vec<_> = last.iter().map(String::as_str).collect();
        for site in &sites {
            publish_numbered(site, round).await;
        }
        for subscriber in &mut subscribers {
            let mut counts = count(subscriber, &last).await;
            counts.retain(|text, _| text != "probe" && text != "end");
            assert!(counts.values().all(|count| *count == 1), "{counts:?}");
            assert_eq!(counts.len(), 3 * MESSAGES);
        }
    }
    let mut left = 3 * 2 * MESSAGES;
    while left > 0 {
        let message = within(in_overlay.next()).await.unwrap().unwrap();
        left -= usize::from(message.subject() == "news.a");
    }
    overlay.publish("news.a", "overlay").await.unwrap();
    for subscriber in &mut subscribers {
        assert_eq!(next(subscriber).await, "overlay");
    }
}

#[tokio::test]
async fn requests_are_answered_by_other_sites_and_by_clients_of_the_overlay() {
    let Some(sites) = sites(&["a", "b"]).await else {
        return;
    };
    let mut bridges = Vec::new();
    for site in &sites {
        let mut config = site.config();
        config.subjects = vec!["ask.*".to_owned()];
        bridges.push(start_active(config).await);
    }
    // A service that copies the headers of requests, as some do.
    let mut requests = sites[1].subscribe("ask.b").await;
    let nats = sites[1].nats.clone();
    tokio::spawn(async move {
        while let Some(request) = requests.next().await {
            let (reply, headers) = (request.reply.unwrap(), request.headers.unwrap_or_default());
            let answer = [b"re: ", &request.payload[..]].concat().into();
            nats.publish_with_headers(reply, headers, answer)
                .await
                .unwrap();
        }
    });
    let mut control = sites[0].subscribe("ask.probe").await;
    wait_for_path(&sites[1], &mut control, "ask.probe").await;
    let answer = within(sites[0].nats.request("ask.b", "1".into()))
        .await
        .unwrap();
    assert_eq!(&answer.payload[..], b"re: 1");

    let overlay = sites[0].client().await;
    let answer = overlay.request("ask.b", "2").await.unwrap();
    assert_eq!(&answer.payload()[..], b"re: 2");

    let mut asked = overlay.join("ask.overlay").await.unwrap();
    let asking = sites[1].nats.request("ask.overlay", "3".into());
    let answering = async {
        let request = asked.next().await.unwrap().unwrap();
        overlay
            .publish(request.reply().unwrap(), "yes")
            .await
            .unwrap();
    };
    let (answer, ()) = within(async { tokio::join!(asking, answering) }).await;
    assert_eq!(&answer.unwrap().payload[..], b"yes");
}

#[tokio::test]
async fn two_active_bridges_at_one_nats_server_make_no_loop() {
    let Some(sites) = sites(&["a", "b"]).await else {
        return;
    };
    let mut bridges = Vec::new();
    // Under two names, the bridges do not find each other.
    for (site, name) in [(&sites[0], "a"), (&sites[0], "other"), (&sites[1], "b")] {
        let mut config = site.config();
        config.site = name.to_owned();
        config.subjects = vec!["news.*".to_owned()];
        bridges.push(start_active(config).await);
    }
    let mut at_a = sites[0].subscribe("news.*").await;
    let mut at_b = sites[1].subscribe("news.*").await;
    wait_for_path(&sites[1], &mut at_a, "news.probe").await;
    wait_for_path(&sites[0], &mut at_b, "news.probe").await;
    publish_numbered(&sites[1], 0).await;
    let last = format!("b 0 {}", MESSAGES - 1);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    // The last message comes to the first site by both bridges, and what these send back is before
    // the end that they send then.
    while counts.get(&last) != Some(&2) {
        *counts.entry(next(&mut at_a).await).or_default() += 1;
    }
    sites[0]
        .nats
        .publish("news.a", "done".into())
        .await
        .unwrap();
    let mut counts = BTreeMap::new();
    while counts.get("done") != Some(&2) {
        *counts.entry(next(&mut at_b).await).or_insert(0) += 1;
    }
    counts.retain(|text, _| text.starts_with("b "));
    assert_eq!(counts.len(), MESSAGES);
    assert!(counts.values().all(|count| *count == 1), "{counts:?}");
}
