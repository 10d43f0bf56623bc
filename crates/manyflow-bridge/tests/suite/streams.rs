//! Streams of JetStream between sites.

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::{self, stream::Stream};
use futures_util::StreamExt as _;
use manyflow_bridge::BridgeConfig;
use manyflow_messages::Message;

use crate::stage::{Site, from, sites, start_active, to, within};

/// Publishes numbered messages to a stream of a site.
pub(crate) async fn publish(site: &Site, range: std::ops::Range<u32>) {
    let context = jetstream::new(site.nats.clone());
    for number in range {
        let subject = format!("orders.{}", number % 3);
        // A program that lies about the place of its messages.
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("manyflow-place", "1-1");
        let payload = number.to_string().into();
        let sent = context
            .publish_with_headers(subject, headers, payload)
            .await;
        sent.unwrap().await.unwrap();
    }
}

/// Waits until a stream has this number of messages, and returns how often each text is there.
pub(crate) async fn texts(stream: &mut Stream, messages: u64) -> BTreeMap<String, usize> {
    let filled = async {
        while stream.info().await.unwrap().state.messages < messages {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(filled).await;
    let consumer = stream
        .create_consumer(pull::Config {
            ack_policy: AckPolicy::None,
            ..pull::Config::default()
        })
        .await
        .unwrap();
    let mut texts = BTreeMap::new();
    let mut batch = consumer
        .fetch()
        .max_messages(messages as usize + 100)
        .messages()
        .await
        .unwrap();
    while let Some(message) = within(batch.next()).await {
        let message = message.unwrap();
        let text = String::from_utf8(message.payload.to_vec()).unwrap();
        *texts.entry(text).or_default() += 1;
    }
    texts
}

/// Makes the bridge's consumer as an operator may: it delivers again after a second.
pub(crate) async fn make_hasty_consumer(stream: &Stream) {
    let config = pull::Config {
        durable_name: Some("manyflow-bridge".to_owned()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: Duration::from_secs(1),
        ..pull::Config::default()
    };
    stream.create_consumer(config).await.unwrap();
}

pub(crate) async fn wait_until_acknowledged(stream: &mut Stream) {
    let done = async {
        loop {
            let info = stream.consumer_info("manyflow-bridge").await.unwrap();
            if info.num_pending == 0 && info.num_ack_pending == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(done).await;
}

pub(crate) fn config(site: &Site, streams: Vec<manyflow_bridge::StreamConfig>) -> BridgeConfig {
    BridgeConfig {
        streams,
        ..site.config()
    }
}

#[tokio::test]
async fn each_message_reaches_all_destinations_once_and_waits_for_one_that_is_away() {
    // Half of them are nearly twice as many as may be on the way at once.
    const MESSAGES: u32 = 900;
    let Some(sites) = sites(&["a", "b", "c"]).await else {
        return;
    };
    let [a, b, c] = &sites[..] else {
        unreachable!("there are three");
    };
    let mut of_a = a.make_stream("ORDERS", "orders.*").await;
    let (mut of_b, mut of_c) = (
        b.make_stream("ORDERS", "orders.*").await,
        c.make_stream("ORDERS", "orders.*").await,
    );
    make_hasty_consumer(&of_a).await;
    // The way back exists, too, and must not carry messages that have come over it.
    let both_ways = vec![to("ORDERS", &["a"]), from("ORDERS", "a")];
    let _b = start_active(config(b, both_ways)).await;
    let leaving = vec![to("ORDERS", &["b", "c"]), from("ORDERS", "b")];
    let bridge = start_active(config(a, leaving)).await;
    publish(a, 0..MESSAGES / 2).await;
    publish(b, 1000..1020).await;
    // The destination c has no bridge: b has all, and nothing is done.
    let mut status = bridge.status();
    let waits = |status: &manyflow_bridge::BridgeStatus| {
        let stream = &status.streams[0];
        let waiting: BTreeMap<_, _> = stream.waiting.iter().cloned().collect();
        waiting["b"] == 0 && waiting["c"] == MESSAGES as usize / 2
    };
    within(status.wait_for(waits)).await.unwrap();
    let info = of_a.consumer_info("manyflow-bridge").await.unwrap();
    assert_eq!(info.ack_floor.stream_sequence, 0);

    let _c = start_active(config(c, vec![from("ORDERS", "a")])).await;
    publish(a, MESSAGES / 2..MESSAGES).await;
    wait_until_acknowledged(&mut of_a).await;
    for (stream, expected) in [(&mut of_b, MESSAGES + 20), (&mut of_c, MESSAGES)] {
        let texts = texts(stream, expected.into()).await;
        assert_eq!(texts.len(), expected as usize);
        assert!(texts.values().all(|count| *count == 1), "{texts:?}");
    }
    wait_until_acknowledged(&mut of_b).await;
    let texts = texts(&mut of_a, u64::from(MESSAGES) + 20).await;
    assert!(texts.values().all(|count| *count == 1), "{texts:?}");
}

#[tokio::test]
async fn another_site_stores_nothing_outside_the_subjects_of_the_stream() {
    let Some(sites) = sites(&["b"]).await else {
        return;
    };
    let [b] = &sites[..] else {
        unreachable!("there is one");
    };
    let mut orders = b.make_stream("ORDERS", "orders.*").await;
    let mut other = b.make_stream("OTHER", "other.*").await;
    let _b = start_active(config(b, vec![from("ORDERS", "a")])).await;
    let overlay = b.client().await;
    let send = async |subject: &str, number: u32| {
        let message = Message::new("_MF.stream.a.ORDERS", number.to_string()).unwrap();
        let place = format!("1-{number}");
        let headers = [
            ("Manyflow-Site", "a"),
            ("Manyflow-Subject", subject),
            ("Manyflow-Place", &place),
            // JetStream would refuse the message, if the bridge passed this on.
            ("Nats-Expected-Last-Sequence", "1000"),
        ];
        let with_header = |message: Message, (name, value)| message.with_header(name, value);
        let message = headers.into_iter().try_fold(message, with_header).unwrap();
        overlay.publish_message(&message).await.unwrap();
    };
    for (number, subject) in [
        "other.x",
        "orders.>",
        "$JS.API.STREAM.DELETE.OTHER",
        "orders.x",
    ]
    .into_iter()
    .enumerate()
    {
        send(subject, number as u32).await;
    }
    let texts = texts(&mut orders, 1).await;
    assert_eq!(texts.keys().collect::<Vec<_>>(), ["3"]);
    assert_eq!(other.info().await.unwrap().state.messages, 0);
}
