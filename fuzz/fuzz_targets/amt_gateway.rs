//! No sequence of datagrams, forged or from the relay, makes a gateway flood, stop its timers or
//! deliver channels that were not joined.
#![cfg_attr(fuzzing, no_main)]

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use arbitrary::Arbitrary;
use manyflow_amt::ip::encode_udp;
use manyflow_amt::membership::GeneralQuery;
use manyflow_amt::wire::{GatewayAddress, Message};
use manyflow_amt::{Family, Flow, Gateway, GatewayConfig, RelayAddress, Subscription};
use manyflow_core::Time;

#[derive(Arbitrary, Debug)]
enum Step<'a> {
    Datagram {
        from_relay: bool,
        bytes: &'a [u8],
    },
    /// A relay's answer to the last question.
    Answer {
        limit: bool,
        robustness: u8,
        interval_s: u16,
        gateway_port: Option<u16>,
    },
    Data {
        group: u8,
        source: u8,
    },
    Join {
        group: u8,
        source: Option<u8>,
    },
    Leave {
        group: u8,
        source: Option<u8>,
    },
    Unreachable,
    Wait {
        milliseconds: u16,
    },
    Close,
}

manyflow_fuzz::target!(|input: (bool, Vec<Step>)| {
    let (discovery, steps) = input;
    let relay = relay_address();
    let relay = if discovery {
        RelayAddress::Discovery(relay)
    } else {
        RelayAddress::Unicast(relay)
    };
    let mut now = Time::ZERO;
    let mut gateway = Gateway::new(now, GatewayConfig::new(relay, Family::V4), [1; 32]);
    let mut question: Option<Vec<u8>> = None;
    for step in steps {
        match step {
            Step::Datagram { from_relay, bytes } => {
                let from = if from_relay {
                    gateway.relay()
                } else {
                    ([203, 0, 113, 1], 1).into()
                };
                let data = gateway.handle_datagram(now, from, bytes);
                assert!(
                    from_relay || data.is_none(),
                    "only the relay is listened to"
                );
            }
            Step::Answer {
                limit,
                robustness,
                interval_s,
                gateway_port,
            } => {
                if let Some(question) = &question {
                    let bytes = answer(question, limit, robustness, interval_s, gateway_port);
                    gateway.handle_datagram(now, gateway.relay(), &bytes);
                }
            }
            Step::Data { group, source } => receive(&mut gateway, now, group, source),
            Step::Join { group, source } => gateway
                .join(now, subscription(group, source))
                .expect("it is sound"),
            Step::Leave { group, source } => gateway.leave(now, subscription(group, source)),
            Step::Unreachable => gateway.handle_unreachable(now),
            Step::Wait { milliseconds } => {
                now += Duration::from_millis(milliseconds.into());
                gateway.handle_timeout(now);
            }
            Step::Close => gateway.close(now),
        }
        question = drain(&mut gateway).or(question);
        assert_eq!(
            gateway.poll_timeout().is_none(),
            gateway.is_closed(),
            "an open gateway has a timer"
        );
    }
});

fn relay_address() -> SocketAddr {
    ([192, 0, 2, 1], 2268).into()
}

fn subscription(group: u8, source: Option<u8>) -> Subscription {
    let source = source.map(|source| IpAddr::from([192, 0, 2, source % 4]));
    Subscription {
        group: IpAddr::from([232, 0, 0, group % 64]),
        source,
    }
}

/// Takes everything that the gateway sends, and returns the last question among it.
fn drain(gateway: &mut Gateway) -> Option<Vec<u8>> {
    let (mut question, mut sent) = (None, 0);
    while let Some(transmit) = gateway.poll_transmit() {
        sent += 1;
        assert!(sent <= 32, "one step sends a few datagrams");
        match Message::decode(&transmit.contents).expect("a gateway sends what can be read") {
            Message::RelayDiscovery { .. } | Message::Request { .. } => {
                question = Some(transmit.contents)
            }
            _ => {}
        }
    }
    while gateway.poll_event().is_some() {}
    question
}

fn answer(
    question: &[u8],
    limit: bool,
    robustness: u8,
    interval_s: u16,
    gateway_port: Option<u16>,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    match Message::decode(question) {
        Ok(Message::RelayDiscovery { nonce }) => {
            Message::RelayAdvertisement {
                nonce,
                relay: relay_address().ip(),
            }
            .encode(&mut bytes);
        }
        Ok(Message::Request { nonce, family }) => {
            let mut query = Vec::new();
            let query_interval = Duration::from_secs(interval_s.into());
            GeneralQuery {
                family,
                robustness,
                query_interval,
            }
            .encode(&mut query);
            let gateway = gateway_port
                .map(|port| GatewayAddress::from(SocketAddr::from(([198, 51, 100, 1], port))));
            Message::MembershipQuery {
                limit,
                mac: [1; 6],
                nonce,
                query: &query,
                gateway,
            }
            .encode(&mut bytes);
        }
        other => panic!("no question: {other:?}"),
    }
    bytes
}

fn receive(gateway: &mut Gateway, now: Time, group: u8, source: u8) {
    let flow = Flow {
        source: ([192, 0, 2, source % 4], 4000).into(),
        group: ([232, 0, 0, group % 64], 5000).into(),
    };
    let mut datagram = Vec::new();
    encode_udp(&flow, b"data", &mut datagram).expect("the flow is sound");
    let mut bytes = Vec::new();
    Message::MulticastData {
        datagram: &datagram,
    }
    .encode(&mut bytes);
    if let Some((received, payload)) = gateway.handle_datagram(now, gateway.relay(), &bytes) {
        assert_eq!((received, payload), (flow, b"data".as_slice()));
    }
}
