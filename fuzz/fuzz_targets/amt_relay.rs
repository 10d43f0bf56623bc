//! No sequence of datagrams, forged or with the right MAC, exceeds a relay's limits, makes it
//! answer with more than a query, or makes it join upstream what no gateway wants.
#![cfg_attr(fuzzing, no_main)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use arbitrary::Arbitrary;
use etherparse::checksum::Sum16BitWords;
use etherparse::{IpNumber, Ipv4Header};
use manyflow_amt::ip::pass_hop;
use manyflow_amt::membership::{GroupRecord, RecordType, Report};
use manyflow_amt::wire::Message;
use manyflow_amt::{
    DownstreamLink, Family, Flow, FlowMessages, Prefix, Relay, RelayConfig, RelayEvent,
};
use manyflow_core::Time;
use manyflow_core::units::Rate;

const FLOWS: u8 = 4;

#[derive(Arbitrary, Debug)]
enum Step<'a> {
    Datagram {
        from: u8,
        bytes: &'a [u8],
    },
    /// A complete handshake with any report.
    Handshake {
        from: u8,
        nonce: u32,
        records: Vec<(u8, u8, Vec<u8>)>,
    },
    /// A report of any bytes with the right MAC.
    RawReport {
        from: u8,
        report: &'a [u8],
    },
    /// An IGMPv2 message with the right MAC.
    Older {
        from: u8,
        kind: u8,
        group: u8,
    },
    Forward {
        flow: u8,
    },
    /// A message of a relay upstream, with any bytes.
    ForwardMessage {
        flow: u8,
        message: &'a [u8],
    },
    Wait {
        seconds: u16,
    },
}

manyflow_fuzz::target!(|steps: Vec<Step>| {
    let config = RelayConfig {
        gateways_max: 5,
        gateways_per_address_max: 2,
        joins_per_gateway_max: 3,
        ..Default::default()
    };
    let mut now = Time::ZERO;
    let link = DownstreamLink {
        gateways: Prefix {
            address: [198, 51, 100, 0].into(),
            length: 30,
        },
        rate: Rate::from_bits_per_s(1_000),
        queue_bytes: 500,
    };
    let mut relay = Relay::new(now, config, flows(), [1; 32]).with_links(&[link]);
    let mut joined = [false; FLOWS as usize];
    for step in steps {
        match step {
            Step::Datagram { from, bytes } => drop(exchange(&mut relay, now, gateway(from), bytes)),
            Step::Handshake {
                from,
                nonce,
                records,
            } => update(&mut relay, now, from, nonce, &report(records)),
            Step::RawReport { from, report } => update(&mut relay, now, from, 1, report),
            Step::Forward { flow } => {
                let mut sent = 0;
                relay
                    .forward(now, (flow % FLOWS).into(), [&b"data"[..]], |_, _, _, _| {
                        sent += 1
                    })
                    .expect("the flows are sound");
                assert!(sent <= relay.gateways());
            }
            Step::Older { from, kind, group } => {
                update(&mut relay, now, from, 1, &older(kind, group));
            }
            Step::ForwardMessage { flow, message } => {
                let mut message = message.to_vec();
                if pass_hop(&mut message).is_ok() {
                    let batch = [FlowMessages {
                        flow: (flow % FLOWS).into(),
                        messages: &message,
                        length: message.len(),
                    }];
                    relay.forward_messages(now, &batch, |_, _, _, _| {});
                }
            }
            Step::Wait { seconds } => {
                now += Duration::from_secs(seconds.into());
                relay.handle_timeout(now);
                relay.poll_links(now, |_, _, messages, length| {
                    assert!(!messages.is_empty() && length <= messages.len());
                });
                assert!(relay.poll_timeout() > now);
            }
        }
        while let Some(event) = relay.poll_event() {
            let (flow, is_joined) = match event {
                RelayEvent::Joined(flow) => (flow, true),
                RelayEvent::Left(flow, _) => (flow, false),
            };
            assert_ne!(std::mem::replace(&mut joined[flow], is_joined), is_joined);
        }
        for (flow, joined) in joined.iter().enumerate() {
            assert_eq!(*joined, relay.is_joined(flow));
        }
        assert!(relay.gateways() <= 5 && relay.joins() <= relay.gateways() * 3);
        assert!(
            relay.gateways() <= relay.joins(),
            "a gateway without joins is forgotten"
        );
    }
});

/// The flows of two sources to two groups.
fn flows() -> Vec<Flow> {
    let flow = |n: u8| Flow {
        source: ([192, 0, 2, n % 2], 4000).into(),
        group: ([232, 0, 0, n / 2], 5000).into(),
    };
    (0..FLOWS).map(flow).collect()
}

fn gateway(from: u8) -> SocketAddr {
    ([198, 51, 100, from % 8], u16::from(from / 8)).into()
}

fn exchange(relay: &mut Relay, now: Time, from: SocketAddr, bytes: &[u8]) -> Option<Vec<u8>> {
    relay.handle_datagram(now, from, IpAddr::V4(Ipv4Addr::LOCALHOST), bytes);
    let reply = relay.poll_transmit()?;
    assert_eq!(reply.destination, from);
    assert!(
        reply.contents.len() <= 12 + 76 + 18,
        "no reply is larger than an MLDv2 query"
    );
    Some(reply.contents)
}

fn update(relay: &mut Relay, now: Time, from: u8, nonce: u32, report: &[u8]) {
    let mut bytes = Vec::new();
    Message::Request {
        nonce,
        family: Family::V4,
    }
    .encode(&mut bytes);
    let query = exchange(relay, now, gateway(from), &bytes).expect("a request is answered");
    let Ok(Message::MembershipQuery { mac, .. }) = Message::decode(&query) else {
        panic!("with a query")
    };
    bytes.clear();
    Message::MembershipUpdate { mac, nonce, report }.encode(&mut bytes);
    assert_eq!(exchange(relay, now, gateway(from), &bytes), None);
}

/// The IP datagram with an IGMPv2 report or leave.
fn older(kind: u8, group: u8) -> Vec<u8> {
    let mut message = vec![0x16 + kind % 2, 0, 0, 0, 232, 0, 0, group % 3];
    let sum = Sum16BitWords::new().add_slice(&message);
    message[2..4].copy_from_slice(&sum.ones_complement().to_ne_bytes());
    let mut header =
        Ipv4Header::new(0, 1, IpNumber::IGMP, [0; 4], [224, 0, 0, 2]).expect("a short payload");
    header.options = [0x94, 4, 0, 0].into();
    header
        .set_payload_len(message.len())
        .expect("a short payload");
    header.header_checksum = header.calc_header_checksum();
    [&header.to_bytes()[..], &message].concat()
}

fn report(records: Vec<(u8, u8, Vec<u8>)>) -> Vec<u8> {
    use RecordType::*;
    let kinds = [IsInclude, IsExclude, ToInclude, ToExclude, Allow, Block];
    let record = |(kind, group, sources): (u8, u8, Vec<u8>)| GroupRecord {
        kind: kinds[usize::from(kind) % kinds.len()],
        group: IpAddr::from([232, 0, 0, group % 3]),
        sources: sources
            .into_iter()
            .take(64)
            .map(|source| IpAddr::from([192, 0, 2, source % 3]))
            .collect(),
    };
    let mut bytes = Vec::new();
    Report {
        family: Family::V4,
        records: records.into_iter().take(64).map(record).collect(),
    }
    .encode(&mut bytes);
    bytes
}
