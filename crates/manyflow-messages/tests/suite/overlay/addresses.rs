//! The addresses of all daemons, which clients get and connect to when theirs stops.

use std::collections::BTreeSet;
use std::time::Duration;

use manyflow_messages::{DaemonConfig, DaemonHandle, start};
use manyflow_testing::LIMIT;
use serde_json::Value;

use crate::overlay::stage::{Nats, config, line, link, wait_until, within};

const OPTIONS: &str = r#"{"verbose":false,"protocol":1}"#;

fn addresses(daemons: &[DaemonHandle]) -> BTreeSet<String> {
    let addresses = daemons.iter().map(|daemon| daemon.addresses().clients);
    addresses.map(|at| at.unwrap().to_string()).collect()
}

/// Reads INFO until it has these addresses of daemons.
async fn wait_for_addresses(client: &mut Nats, wanted: &BTreeSet<String>) -> Value {
    loop {
        let line = client.line().await;
        let info = line
            .strip_prefix("INFO ")
            .unwrap_or_else(|| panic!("{line:?}"));
        let info: Value = serde_json::from_str(info).unwrap();
        let urls = info["connect_urls"].as_array().into_iter().flatten();
        let urls: BTreeSet<_> = urls.map(|url| url.as_str().unwrap().to_owned()).collect();
        if urls == *wanted {
            return info;
        }
    }
}

#[tokio::test]
async fn clients_learn_the_addresses_of_daemons_that_come_and_stop() {
    let first = start(config("a")).await.unwrap();
    // The daemon has no others when this client connects.
    let mut client = Nats::connect_with(&first, OPTIONS).await;
    let mut old = Nats::connect(&first).await;
    let next = DaemonConfig {
        links: vec![link("a", first.addresses().daemons.unwrap())],
        ..config("b")
    };
    let second = start(next).await.unwrap();
    let last = DaemonConfig {
        links: vec![link("b", second.addresses().daemons.unwrap())],
        advertise: Some("c.example.net:4222".to_owned()),
        ..config("c")
    };
    let last = start(last).await.unwrap();
    let mut daemons = vec![first, second];
    let two = addresses(&daemons);
    let mut all = two.clone();
    all.insert("c.example.net:4222".to_owned());
    wait_for_addresses(&mut client, &all).await;
    // The groups by which daemons announce addresses do not count.
    wait_until(&daemons[0], |status| {
        status.daemons.len() == 3 && status.groups == 0
    })
    .await;
    within(last.stop_after(Duration::ZERO)).await;
    wait_for_addresses(&mut client, &two).await;
    // A client of version 0 of the protocol gets INFO once.
    old.send_and_wait("").await;
    let stopping = tokio::spawn(daemons.remove(0).stop_after(Duration::from_secs(600)));
    let info = within(async {
        loop {
            let info = wait_for_addresses(&mut client, &addresses(&daemons)).await;
            if info["ldm"] == true {
                return info;
            }
        }
    });
    assert_eq!(info.await["server_name"], "a");
    drop((client, old));
    within(stopping).await.unwrap();
}

#[tokio::test]
async fn async_nats_connects_to_another_daemon_when_its_own_stops() {
    let mut daemons = line(3).await;
    let options = async_nats::ConnectOptions::new().connection_timeout(LIMIT);
    let own = daemons[0].addresses().clients.unwrap().to_string();
    let client = options.connect(own).await.unwrap();
    let mut messages = client.subscribe("news").await.unwrap();
    let knows_all = async {
        while client.server_info().connect_urls.len() < 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within(knows_all).await;
    within(daemons.remove(0).stop_after(Duration::ZERO)).await;
    let mut sender = Nats::connect(&daemons[1]).await;
    let arrived = async {
        loop {
            sender.send_and_wait("PUB news 4\r\ndata\r\n").await;
            let next = std::future::poll_fn(|context| {
                futures_core::Stream::poll_next(std::pin::Pin::new(&mut messages), context)
            });
            let next = tokio::time::timeout(Duration::from_millis(50), next).await;
            if let Ok(message) = next {
                return message.unwrap();
            }
        }
    };
    assert_eq!(within(arrived).await.payload, "data".as_bytes());
    let name = client.server_info().server_name;
    assert!(["b", "c"].contains(&name.as_str()), "{name}");
}
