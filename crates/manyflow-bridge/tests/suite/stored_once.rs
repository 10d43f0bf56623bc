//! Messages that come again after JetStream has forgotten their identifiers.

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, stream::Stream};
use manyflow_bridge::BridgeHandle;

use crate::stage::{Site, from, sites, start_active, to, within};
use crate::streams::{config, make_hasty_consumer, publish, texts, wait_until_acknowledged};

/// Makes the stream of a destination, with the shortest window for duplicates.
async fn make_forgetful_stream(site: &Site) -> Stream {
    let config = jetstream::stream::Config {
        name: "ORDERS".to_owned(),
        subjects: vec!["orders.*".to_owned()],
        duplicate_window: Duration::from_millis(100),
        ..jetstream::stream::Config::default()
    };
    let context = jetstream::new(site.nats.clone());
    context.create_stream(config).await.unwrap()
}

/// Waits until a bridge has sent this number of messages since its start.
async fn wait_until_sent(bridge: &BridgeHandle, messages: u64) {
    let mut status = bridge.status();
    let are_sent = status.wait_for(|status| status.counters.left >= messages);
    within(are_sent).await.unwrap();
}

async fn wait_until_stored(stream: &mut Stream, messages: u64) {
    let are_stored = async {
        while stream.info().await.unwrap().state.messages < messages {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(are_stored).await;
}

/// Stores messages of a program at a site. A bridge reads more than a thousand in several parts.
async fn publish_locally(site: &Site, messages: usize) {
    let context = jetstream::new(site.nats.clone());
    let mut last = None;
    for _ in 0..messages {
        last = Some(
            context
                .publish("orders.local", "local".into())
                .await
                .unwrap(),
        );
    }
    last.unwrap().await.unwrap();
}

/// Waits until a stream has forgotten the identifiers of its messages. Leaves messages in it with
/// the text "probe".
async fn wait_until_forgotten(site: &Site) {
    let context = jetstream::new(site.nats.clone());
    let publish = async || {
        let probe = PublishMessage::build().message_id("probe");
        let sent = context.send_publish("orders.probe", probe.payload("probe".into()));
        sent.await.unwrap().await.unwrap()
    };
    publish().await;
    within(async { while publish().await.duplicate {} }).await;
}

fn assert_once(texts: &BTreeMap<String, usize>, messages: usize) {
    assert_eq!(texts.len(), messages);
    assert!(texts.values().all(|count| *count == 1), "{texts:?}");
}

#[tokio::test]
async fn a_bridge_that_lives_stores_nothing_twice() {
    let Some(sites) = sites(&["a", "b"]).await else {
        return;
    };
    let [a, b] = &sites[..] else {
        unreachable!("there are two");
    };
    let mut of_a = a.make_stream("ORDERS", "orders.*").await;
    let mut of_b = make_forgetful_stream(b).await;
    make_hasty_consumer(&of_a).await;
    let _b = start_active(config(b, vec![from("ORDERS", "a")])).await;
    // A site that does not exist: messages are sent again each second.
    let bridge = start_active(config(a, vec![to("ORDERS", &["b", "nowhere"])])).await;
    publish(a, 0..10).await;
    wait_until_sent(&bridge, 30).await;
    drop(bridge);
    let _a = start_active(config(a, vec![to("ORDERS", &["b"])])).await;
    wait_until_acknowledged(&mut of_a).await;
    assert_once(&texts(&mut of_b, 10).await, 10);
}

#[tokio::test]
async fn a_bridge_that_begins_again_asks_the_stream_what_it_has() {
    let Some(mut sites) = sites(&["a", "b", "c"]).await else {
        return;
    };
    let [a, b, c] = &mut sites[..] else {
        unreachable!("there are three");
    };
    let mut of_a = a.make_stream("ORDERS", "orders.*").await;
    let mut of_c = c.make_stream("ORDERS", "orders.*").await;
    let mut of_b = make_forgetful_stream(b).await;
    make_hasty_consumer(&of_a).await;
    make_hasty_consumer(&of_c).await;
    let arriving = || vec![from("ORDERS", "a"), from("ORDERS", "c")];
    let leaving = || vec![to("ORDERS", &["b", "nowhere"])];
    let of_destination = start_active(config(b, arriving())).await;
    let [of_source, of_other] = [
        start_active(config(a, leaving())).await,
        start_active(config(c, leaving())).await,
    ];
    publish(a, 0..10).await;
    publish(c, 100..110).await;
    wait_until_stored(&mut of_b, 20).await;
    publish_locally(b, 2500).await;
    // Nobody has acknowledged them: they come again, to a bridge that knows nothing.
    drop(of_destination);
    let of_destination = start_active(config(b, arriving())).await;
    wait_until_sent(&of_source, 30).await;
    wait_until_sent(&of_other, 30).await;
    // The same for a nats-server that ends.
    b.server.kill();
    b.server.start_again();
    wait_until_sent(&of_source, 60).await;
    publish(a, 10..20).await;
    drop(of_destination);
    drop([of_source, of_other]);
    let _bridges = [
        start_active(config(b, arriving())).await,
        start_active(config(a, vec![to("ORDERS", &["b"])])).await,
        start_active(config(c, vec![to("ORDERS", &["b"])])).await,
    ];
    wait_until_acknowledged(&mut of_a).await;
    wait_until_acknowledged(&mut of_c).await;
    let mut texts = texts(&mut of_b, 2530).await;
    assert_eq!(texts.remove("local"), Some(2500));
    assert_once(&texts, 30);
}

#[tokio::test]
async fn a_consumer_or_a_stream_that_is_made_again_stores_nothing_twice_and_loses_nothing() {
    let Some(sites) = sites(&["a", "b"]).await else {
        return;
    };
    let [a, b] = &sites[..] else {
        unreachable!("there are two");
    };
    let mut of_a = a.make_stream("ORDERS", "orders.*").await;
    let mut of_b = make_forgetful_stream(b).await;
    let start = async || {
        [
            start_active(config(b, vec![from("ORDERS", "a")])).await,
            start_active(config(a, vec![to("ORDERS", &["b"])])).await,
        ]
    };
    let bridges = start().await;
    publish(a, 0..10).await;
    wait_until_acknowledged(&mut of_a).await;
    drop(bridges);
    wait_until_forgotten(b).await;
    // The new consumer begins with the oldest message.
    of_a.delete_consumer("manyflow-bridge").await.unwrap();
    let bridges = start().await;
    wait_until_acknowledged(&mut of_a).await;
    drop(bridges);
    // The new stream has other messages with the same numbers.
    let context = jetstream::new(a.nats.clone());
    context.delete_stream("ORDERS").await.unwrap();
    let mut of_a = a.make_stream("ORDERS", "orders.*").await;
    let _bridges = start().await;
    publish(a, 10..20).await;
    wait_until_acknowledged(&mut of_a).await;
    let mut texts = texts(&mut of_b, 22).await;
    assert_eq!(texts.remove("probe"), Some(2));
    assert_once(&texts, 20);
}
