//! Messages in layers, over a wide and a thin link between daemons.

use std::time::Duration;

use manyflow_core::units::Rate;
use manyflow_messages::client::{Client, ClientOptions, Message};
use manyflow_messages::{ControllerConfig, DaemonConfig, LayerSize, start};
use manyflow_net::thin_link::{ThinLink, ThinLinkConfig};
use manyflow_overlay::cost_benefit::{Benefits, Law};

use crate::overlay::stage::{
    Nats, config, line, link, wait_for_daemons, wait_for_path, wait_until,
};

const MESSAGES: usize = 100;
const PURSE: Duration = Duration::from_millis(20);
/// The lengths of the layers: 40,000 bytes in all, 16 Mbit/s at 50 messages a second.
const LAYERS: [u16; 6] = [500, 500, 1000, 6000, 12_000, 20_000];

/// Returns the configuration of a daemon under the live law.
fn priced(name: &str) -> DaemonConfig {
    DaemonConfig {
        controller: ControllerConfig::CostBenefit(Law::Live, Benefits::default()),
        ..config(name)
    }
}

/// Returns the payload of a message: its number, and bytes that depend on it.
fn payload(number: usize) -> Vec<u8> {
    let bytes: usize = LAYERS.iter().map(|bytes| usize::from(*bytes)).sum();
    (0..bytes).map(|place| (number * 7 + place) as u8).collect()
}

/// Reads the next message: its payload, and the number of bytes that were published.
async fn next(member: &mut Nats) -> (Vec<u8>, usize) {
    let (line, content) = member.message().await;
    let headers: usize = line.rsplit(' ').nth(1).unwrap().parse().unwrap();
    let (headers, payload) = content.split_at(headers);
    let headers = String::from_utf8(headers.to_vec()).unwrap();
    let whole = headers
        .lines()
        .find_map(|line| line.strip_prefix("Manyflow-Whole: "));
    (payload.to_vec(), whole.unwrap().parse().unwrap())
}

#[tokio::test]
async fn each_site_gets_the_prefix_that_its_link_carries_and_no_site_waits_for_another() {
    let a = start(priced("a")).await.unwrap();
    let b = DaemonConfig {
        links: vec![link("a", a.addresses().daemons.unwrap())],
        ..priced("b")
    };
    let b = start(b).await.unwrap();
    let wire = ThinLinkConfig {
        rate: Rate::from_bits_per_s(4_000_000),
        delay: Duration::from_millis(1),
        queue_packets: 20,
    };
    let wire = ThinLink::start(b.addresses().daemons.unwrap(), wire)
        .await
        .unwrap();
    let c = DaemonConfig {
        links: vec![link("b", wire.address())],
        ..priced("c")
    };
    let c = start(c).await.unwrap();
    for daemon in [&a, &b, &c] {
        wait_for_daemons(daemon, 3).await;
    }
    let mut near = Nats::connect(&b).await;
    let mut far = Nats::connect(&c).await;
    let mut probe = Nats::connect(&a).await;
    for member in [&mut near, &mut far] {
        member.send_and_wait("SUB cam.* 1\r\n").await;
    }
    wait_until(&a, |status| status.groups >= 1).await;
    wait_for_path(&mut probe, &mut far, "cam.probe").await;
    while near.message().await.1 != b"end" {}

    let address = a.addresses().clients.unwrap().to_string();
    let options = ClientOptions::default();
    let client = Client::connect(&address, &options).await.unwrap();
    let layers = LAYERS.map(|bytes| LayerSize { bytes, dollars: 10 });
    for number in 0..MESSAGES {
        let message = Message::new("cam.1", payload(number)).unwrap();
        let message = message.in_layers(PURSE, &layers).unwrap();
        client.publish_message(&message).await.unwrap();
    }
    let mut cut = 0;
    for number in 0..MESSAGES {
        let sent = payload(number);
        let (whole, length) = next(&mut near).await;
        assert_eq!(length, sent.len());
        assert!(whole == sent, "message {number} has {} bytes", whole.len());
    }
    for number in 0..MESSAGES {
        let sent = payload(number);
        let (prefix, length) = next(&mut far).await;
        assert_eq!(length, sent.len());
        assert!(sent.starts_with(&prefix), "message {number}");
        let mut ends = LAYERS.iter().scan(0, |end, bytes| {
            *end += usize::from(*bytes);
            Some(*end)
        });
        let is_cut_point = prefix.is_empty() || ends.any(|end| end == prefix.len());
        assert!(is_cut_point, "message {number} ends at {}", prefix.len());
        cut += usize::from(prefix.len() < sent.len());
    }
    assert!(cut > 0, "the thin link has carried four times its rate");
}

#[tokio::test]
async fn layers_that_do_not_describe_a_payload_are_refused_with_a_reason() {
    let daemons = line(1).await;
    let mut client = Nats::connect(&daemons[0]).await;
    client.send_and_wait("SUB cam 1\r\n").await;
    let headers = "NATS/1.0\r\nManyflow-Layers: 20ms 3:1\r\n\r\n";
    let (one, two) = (headers.len(), headers.len() + 4);
    client
        .send(&format!("HPUB cam {one} {two}\r\n{headers}four\r\n"))
        .await;
    let error = client.line().await;
    assert!(
        error.contains("the layers have 3 bytes, and the payload 4"),
        "{error}"
    );
}
