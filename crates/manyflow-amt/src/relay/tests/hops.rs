//! A relay between other relays: its joins upstream, its links, and older gateways.

use super::*;
use crate::ip::{data_ecn, decode_udp, encode_data};
use manyflow_core::Ecn;

fn events(relay: &mut Relay) -> Vec<RelayEvent> {
    std::iter::from_fn(|| relay.poll_event()).collect()
}

#[test]
fn the_first_join_and_the_last_leave_of_a_flow_are_events() {
    use RelayEvent::{Joined, Left};
    let mut relay = relay(RelayConfig::default());
    assert_eq!(events(&mut relay), []);
    join(&mut relay, at(0), GATEWAY, 2);
    assert_eq!(events(&mut relay), [Joined(2)]);
    join(&mut relay, at(0), OTHER, 2);
    join(&mut relay, at(0), OTHER, 1);
    assert_eq!(events(&mut relay), [Joined(1)]);
    leave(&mut relay, at(1), GATEWAY, 2);
    assert_eq!(events(&mut relay), []);
    leave(&mut relay, at(1), OTHER, 2);
    assert_eq!(events(&mut relay), [Left(2, LeaveReason::Left)]);
    relay.handle_timeout(at(1_000));
    let expired = [Left(1, LeaveReason::Expired)];
    assert_eq!(events(&mut relay), expired, "an expired join is a leave");
}

#[test]
fn a_flow_that_is_left_and_joined_again_before_anyone_looks_is_no_event() {
    let mut relay = relay(RelayConfig::default());
    join(&mut relay, at(0), GATEWAY, 2);
    events(&mut relay);
    leave(&mut relay, at(1), GATEWAY, 2);
    join(&mut relay, at(1), OTHER, 2);
    assert_eq!(events(&mut relay), []);
}

#[test]
fn a_teardown_and_a_gateway_that_gives_way_are_leaves() {
    let mut relay = relay(RelayConfig {
        gateways_per_address_max: 1,
        ..RelayConfig::default()
    });
    join(&mut relay, at(0), GATEWAY, 0);
    join(&mut relay, at(20), "198.51.100.7:4999", 1);
    let seen = events(&mut relay);
    assert_eq!(seen, [RelayEvent::Joined(1)], "the first gateway gave way");
    join(&mut relay, at(20), OTHER, 2);
    events(&mut relay);
    let newer = format!("{}:4000", address(OTHER).ip());
    join(&mut relay, at(40), &newer, 1);
    let left = RelayEvent::Left(2, LeaveReason::GaveWay);
    assert_eq!(events(&mut relay), [left], "another one has flow 1");
    leave(&mut relay, at(40), &newer, 1);
    let mac = granted(&mut relay, at(40), "198.51.100.7:4999");
    let teardown = Message::Teardown {
        mac,
        nonce: 1,
        gateway: address("198.51.100.7:4999").into(),
    };
    exchange(&mut relay, at(40), "198.51.100.7:4999", &teardown);
    let left = RelayEvent::Left(1, LeaveReason::Left);
    assert_eq!(events(&mut relay), [left]);
}

/// The trains that a relay passes on for these messages: address, number of messages, length.
fn passed_on(relay: &mut Relay, batch: &[FlowMessages<'_>]) -> Vec<(SocketAddr, usize, usize)> {
    let mut sent = Vec::new();
    relay.forward_messages(at(0), batch, |to, local, bytes, length| {
        assert_eq!(local, LOCAL);
        assert!(bytes.len() <= 65_507, "one UDP datagram");
        sent.push((to, bytes.len().div_ceil(length), length));
    });
    sent
}

/// The message of a flow with a payload of this length.
fn message(flow: usize, length: usize) -> Vec<u8> {
    message_with(Ecn::NotCapable, flow, length)
}

fn message_with(ecn: Ecn, flow: usize, length: usize) -> Vec<u8> {
    let mut message = Vec::new();
    encode_data(&flows(4)[flow], ecn, &vec![7; length], &mut message).unwrap();
    message
}

#[test]
fn a_train_has_one_ecn_field_and_payloads_get_that_of_the_relay() {
    let mut relay = relay(RelayConfig::default()).with_ecn(Ecn::Capable);
    join(&mut relay, at(0), GATEWAY, 0);
    let fields = [Ecn::Capable, Ecn::Capable, Ecn::Marked, Ecn::Capable];
    let messages = fields.map(|ecn| message_with(ecn, 0, 100));
    let length = messages[0].len();
    let batch = [FlowMessages {
        flow: 0,
        messages: &messages.concat(),
        length,
    }];
    let mut sent = Vec::new();
    relay.forward_messages(at(0), &batch, |_, _, bytes, _| {
        assert!(
            bytes
                .chunks(length)
                .all(|it| data_ecn(it) == data_ecn(bytes))
        );
        sent.push((data_ecn(bytes), bytes.len() / length));
    });
    let expected = [(Ecn::Capable, 2), (Ecn::Marked, 1), (Ecn::Capable, 1)];
    assert_eq!(sent, expected);
    let payloads = [b"payload".as_slice()];
    let mut sent = Vec::new();
    let forwarded = relay.forward(at(0), 0, payloads, |_, _, bytes, _| {
        sent.push(data_ecn(bytes))
    });
    assert_eq!((forwarded, sent), (Ok(()), vec![Ecn::Capable]));
}

#[test]
fn messages_of_another_relay_are_forwarded_as_they_are() {
    let mut relay = relay(RelayConfig::default());
    join(&mut relay, at(0), GATEWAY, 2);
    let (flow, messages) = (2, &*message(2, 4).repeat(2));
    let length = messages.len() / 2;
    let batch = [FlowMessages {
        flow,
        messages,
        length,
    }];
    let mut sent = Vec::new();
    relay.forward_messages(at(0), &batch, |to, local, bytes, length| {
        sent.push((to, local, bytes.to_vec(), length));
    });
    assert_eq!(sent, [(address(GATEWAY), LOCAL, messages.to_vec(), length)]);
}

#[test]
fn messages_of_several_flows_to_one_gateway_leave_together() {
    let mut relay = relay(RelayConfig::default());
    for flow in 0..3 {
        join(&mut relay, at(0), GATEWAY, flow);
    }
    join(&mut relay, at(0), OTHER, 1);
    let messages = [
        message(0, 100),
        message(1, 100),
        message(3, 100),
        message(2, 40),
    ];
    let batch: Vec<_> = [0, 1, 3, 2]
        .into_iter()
        .zip(&messages)
        .map(|(flow, messages)| FlowMessages {
            flow,
            messages,
            length: messages.len(),
        })
        .collect();
    let length = messages[0].len();
    let expected = [(address(GATEWAY), 3, length), (address(OTHER), 1, length)];
    assert_eq!(passed_on(&mut relay, &batch), expected);
}

#[test]
fn a_train_is_split_at_longer_messages_and_at_the_length_of_a_datagram() {
    let mut relay = relay(RelayConfig::default());
    join(&mut relay, at(0), GATEWAY, 0);
    let of_flow = |messages, length| FlowMessages {
        flow: 0,
        messages,
        length,
    };
    let (short, long) = (message(0, 40), message(0, 1_400));
    let (one, many) = (of_flow(&short, short.len()), long.repeat(64));
    let many = of_flow(&many, long.len());
    let passed = passed_on(&mut relay, &[one, many]);
    let to = address(GATEWAY);
    let in_one = 65_487 / long.len();
    let expected = [
        (to, 1, short.len()),
        (to, in_one, long.len()),
        (to, 64 - in_one, long.len()),
    ];
    assert_eq!(passed, expected);
}

/// A relay whose gateways in 198.51.100.0/24 share a link of 8 kbit/s (1 kB/s) with this queue.
fn relay_with_link(queue_bytes: u64) -> Relay {
    let link = DownstreamLink {
        gateways: Prefix {
            address: address(GATEWAY).ip(),
            length: 24,
        },
        rate: Rate::from_bits_per_s(8_000),
        queue_bytes,
    };
    relay(RelayConfig::default()).with_links(&[link])
}

/// Payload of messages that have 500 bytes on the link: with AMT's header, and two pairs of IP and
/// UDP headers.
const HALF_A_SECOND: &[u8] = &[7; 500 - 2 - 28 - 28];

/// The gateways that messages were sent to over links by `now`.
fn arrivals(relay: &mut Relay, now: Time) -> Vec<SocketAddr> {
    let mut to = Vec::new();
    relay.poll_links(now, |address, _, messages, length| {
        for message in messages.chunks(length) {
            let Ok(Message::MulticastData { datagram }) = Message::decode(message) else {
                panic!("no data: {message:?}")
            };
            assert_eq!(decode_udp(datagram).unwrap().1, HALF_A_SECOND);
            to.push(address);
        }
    });
    to
}

#[test]
fn gateways_behind_one_link_share_its_rate() {
    let mut relay = relay_with_link(10_000);
    join(&mut relay, at(0), GATEWAY, 0);
    join(&mut relay, at(0), OTHER, 0);
    join(&mut relay, at(0), "203.0.113.1:9", 0);
    let mut direct = Vec::new();
    let payloads = [HALF_A_SECOND; 2];
    relay
        .forward(at(0), 0, payloads, |to, _, _, _| direct.push(to))
        .unwrap();
    assert_eq!(direct, [address("203.0.113.1:9")], "it is behind no link");
    assert_eq!(relay.poll_timeout(), at(0) + Duration::from_millis(500));
    assert_eq!(arrivals(&mut relay, at(0)), []);
    assert_eq!(arrivals(&mut relay, at(1)), [address(GATEWAY); 2]);
    assert_eq!(arrivals(&mut relay, at(2)), [address(OTHER); 2]);
    assert_eq!(relay.counters().forwarded, 6);
}

#[test]
fn a_full_queue_drops_what_comes_last_and_counts_it() {
    let mut relay = relay_with_link(1_000);
    join(&mut relay, at(0), GATEWAY, 0);
    relay
        .forward(at(0), 0, [HALF_A_SECOND; 5], |_, _, _, _| panic!("a link"))
        .unwrap();
    assert_eq!(
        arrivals(&mut relay, at(60)).len(),
        3,
        "one in transmission, and a queue of two"
    );
    let counters = relay.counters();
    assert_eq!((counters.forwarded, counters.over_link), (3, 2));
}

/// Sends an IGMPv2 message of a gateway.
fn send_igmpv2(relay: &mut Relay, now: Time, from: &str, kind: u8, group: u8) {
    let mac = granted(relay, now, from);
    let report = &crate::membership::tests::igmpv2(kind, [232, 1, 1, group]);
    let message = Message::MembershipUpdate {
        mac,
        nonce: 1,
        report,
    };
    assert_eq!(exchange(relay, now, from, &message), None);
}

#[test]
fn an_igmpv2_gateway_joins_and_leaves_the_flows_of_its_group() {
    let mut relay = relay(RelayConfig::default());
    send_igmpv2(&mut relay, at(0), GATEWAY, 0x16, 1);
    assert_eq!(receivers(&mut relay, at(0), 1), [address(GATEWAY)]);
    assert_eq!(receivers(&mut relay, at(0), 0), []);
    send_igmpv2(&mut relay, at(1), GATEWAY, 0x17, 1);
    assert_eq!((relay.gateways(), relay.counters().ignored), (0, 0));
    send_igmpv2(&mut relay, at(1), GATEWAY, 0x16, 99);
    assert_eq!((relay.gateways(), relay.counters().joins_refused), (0, 1));
}

#[test]
fn the_join_of_an_igmpv2_gateway_expires_without_reports() {
    let mut relay = relay(RelayConfig::default());
    send_igmpv2(&mut relay, at(0), GATEWAY, 0x16, 1);
    relay.handle_timeout(at(69));
    assert_eq!(relay.joins(), 1);
    relay.handle_timeout(at(70));
    assert_eq!(relay.joins(), 0);
}
