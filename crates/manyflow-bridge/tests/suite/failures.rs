//! Bridges whose servers or predecessors end.

use std::time::Duration;

use manyflow_bridge::{BridgeState, start};

use crate::stage::{Site, daemon, from, sites, start_active, to, wait_for, wait_for_path, within};

#[tokio::test]
async fn a_bridge_connects_again_to_a_server_and_a_second_bridge_takes_over() {
    let Some(mut sites) = sites(&["a", "b"]).await else {
        return;
    };
    let mut bridges = Vec::new();
    for site in &sites {
        let mut config = site.config();
        config.subjects = vec!["news".to_owned()];
        bridges.push(start_active(config).await);
    }
    let mut config = sites[0].config();
    config.subjects = vec!["news".to_owned()];
    let second = start(config).unwrap();
    wait_for(&second, |state| *state == BridgeState::Standby).await;
    drop(bridges.remove(0));
    wait_for(&second, |state| *state == BridgeState::Active).await;
    let mut subscriber = sites[1].subscribe("news").await;
    wait_for_path(&sites[0], &mut subscriber, "news").await;

    sites[0].server.kill();
    let names_the_server = sites[0].server.address();
    wait_for(
        &second,
        |state| matches!(state, BridgeState::Failing(reason) if reason.contains(&names_the_server)),
    )
    .await;
    sites[0].server.start_again();
    wait_for(&second, |state| *state == BridgeState::Active).await;
    wait_for_path(&sites[0], &mut subscriber, "news").await;
}

#[tokio::test]
async fn a_bridge_connects_again_to_a_daemon_and_delivers_what_a_stream_has_meanwhile() {
    let Some(sites) = sites(&["a", "b"]).await else {
        return;
    };
    let [a, mut b] = <[Site; 2]>::try_from(sites).ok().unwrap();
    a.make_stream("ORDERS", "orders.*").await;
    let mut of_b = b.make_stream("ORDERS", "orders.*").await;
    let mut config = a.config();
    config.streams = vec![to("ORDERS", &["b"])];
    let _a = start_active(config).await;
    let mut config = b.config();
    config.streams = vec![from("ORDERS", "a")];
    let bridge = start_active(config).await;
    let at = b.daemon_address();
    b.daemon.stop().await;
    wait_for(
        &bridge,
        |state| matches!(state, BridgeState::Failing(reason) if reason.contains(&at)),
    )
    .await;
    b.daemon = daemon("b", &at, Some(&a)).await;
    wait_for(&bridge, |state| *state == BridgeState::Active).await;
    let context = async_nats::jetstream::new(a.nats.clone());
    context.publish("orders.x", "1".into()).await.unwrap();
    let arrived = async {
        while of_b.info().await.unwrap().state.messages < 1 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(arrived).await;
}

#[tokio::test]
async fn a_stream_that_is_missing_or_crosses_twice_is_named() {
    let Some(sites) = sites(&["a"]).await else {
        return;
    };
    let mut config = sites[0].config();
    config.streams = vec![crate::stage::to("ORDERS", &["b"])];
    config.subjects = vec!["orders.*".to_owned()];
    let bridge = start(config).unwrap();
    wait_for(
        &bridge,
        |state| matches!(state, BridgeState::Failing(reason) if reason.contains("stream ORDERS")),
    )
    .await;
    sites[0].make_stream("ORDERS", "orders.>").await;
    wait_for(
        &bridge,
        |state| matches!(state, BridgeState::Failing(reason) if reason.contains("arrive twice")),
    )
    .await;
}
