mod bounds;
mod hops;

use super::*;
use crate::Subscription;

const GATEWAY: &str = "198.51.100.7:4001";
const OTHER: &str = "198.51.100.8:4002";
const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Flows of one source to `count` groups: 232.1.1.0, 232.1.1.1, ...
fn flows(count: u8) -> Vec<Flow> {
    let source = address("192.0.2.1:40000");
    (0..count)
        .map(|n| Flow {
            source,
            group: SocketAddr::from(([232, 1, 1, n], 5000)),
        })
        .collect()
}

fn relay(config: RelayConfig) -> Relay {
    Relay::new(Time::ZERO, config, flows(4), [7; 32])
}

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

/// The relay's answer to one message.
fn exchange(relay: &mut Relay, now: Time, from: &str, message: &Message) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    relay.handle_datagram(now, address(from), LOCAL, &bytes);
    relay.poll_transmit().map(|transmit| {
        assert_eq!(
            transmit.destination,
            address(from),
            "a reply goes to whoever asked"
        );
        transmit.contents
    })
}

/// The MAC that a relay gives to a gateway for nonce 1.
fn granted(relay: &mut Relay, now: Time, from: &str) -> ResponseMac {
    let reply = exchange(
        relay,
        now,
        from,
        &Message::Request {
            nonce: 1,
            family: Family::V4,
        },
    )
    .unwrap();
    match Message::decode(&reply) {
        Ok(Message::MembershipQuery { mac, nonce: 1, .. }) => mac,
        other => panic!("no query: {other:?}"),
    }
}

fn update(relay: &mut Relay, now: Time, from: &str, mac: ResponseMac, records: Vec<GroupRecord>) {
    let mut report = Vec::new();
    Report {
        family: Family::V4,
        records,
    }
    .encode(&mut report);
    let reply = exchange(
        relay,
        now,
        from,
        &Message::MembershipUpdate {
            mac,
            nonce: 1,
            report: &report,
        },
    );
    assert_eq!(reply, None);
}

fn record(kind: RecordType, group: u8) -> GroupRecord {
    GroupRecord {
        kind,
        group: IpAddr::from([232, 1, 1, group]),
        sources: vec![LOCAL],
    }
}

fn join(relay: &mut Relay, now: Time, from: &str, group: u8) {
    report(relay, now, from, RecordType::Allow, group);
}

fn leave(relay: &mut Relay, now: Time, from: &str, group: u8) {
    report(relay, now, from, RecordType::Block, group);
}

fn report(relay: &mut Relay, now: Time, from: &str, kind: RecordType, group: u8) {
    let mac = granted(relay, now, from);
    update(relay, now, from, mac, vec![record(kind, group)]);
}

/// The gateways that a packet of a flow is sent to.
fn receivers(relay: &mut Relay, now: Time, flow: usize) -> Vec<SocketAddr> {
    let mut to = Vec::new();
    relay
        .forward(now, flow, [&b"data"[..]], |address, _, _, _| {
            to.push(address)
        })
        .unwrap();
    to
}

#[test]
fn a_discovery_is_answered_with_the_address_it_came_to() {
    let reply = exchange(
        &mut relay(RelayConfig::default()),
        at(0),
        GATEWAY,
        &Message::RelayDiscovery { nonce: 9 },
    )
    .unwrap();
    assert_eq!(
        Message::decode(&reply),
        Ok(Message::RelayAdvertisement {
            nonce: 9,
            relay: LOCAL
        })
    );
}

#[test]
fn a_request_is_answered_by_a_query_and_leaves_no_state() {
    let mut relay = relay(RelayConfig::default());
    for (family, size) in [(Family::V4, 12 + 36 + 18), (Family::V6, 12 + 76 + 18)] {
        let reply = exchange(
            &mut relay,
            at(0),
            GATEWAY,
            &Message::Request { nonce: 5, family },
        )
        .unwrap();
        assert_eq!(
            reply.len(),
            size,
            "a reply is the RFC's query and no byte more"
        );
        let Ok(Message::MembershipQuery {
            limit: false,
            nonce: 5,
            query,
            gateway,
            ..
        }) = Message::decode(&reply)
        else {
            panic!("no query: {reply:?}");
        };
        assert_eq!(gateway, Some(address(GATEWAY).into()));
        let expected = GeneralQuery {
            family,
            robustness: 2,
            query_interval: Duration::from_secs(30),
        };
        assert_eq!(GeneralQuery::decode(query), Ok(expected));
    }
    assert_eq!((relay.gateways(), relay.joins()), (0, 0));
}

#[test]
fn without_the_right_mac_there_is_no_state_and_no_data() {
    let mut relay = relay(RelayConfig::default());
    let mac = granted(&mut relay, at(0), GATEWAY);
    let mut wrong = mac;
    wrong[5] ^= 1;
    update(
        &mut relay,
        at(0),
        GATEWAY,
        wrong,
        vec![record(RecordType::Allow, 0)],
    );
    update(
        &mut relay,
        at(0),
        OTHER,
        mac,
        vec![record(RecordType::Allow, 0)],
    );
    update(
        &mut relay,
        at(0),
        "198.51.100.7:4009",
        mac,
        vec![record(RecordType::Allow, 0)],
    );
    assert_eq!(
        (relay.gateways(), receivers(&mut relay, at(0), 0)),
        (0, vec![])
    );
    assert_eq!(relay.counters().unauthenticated, 3);
}

#[test]
fn data_goes_to_those_who_joined_its_flow_and_to_nobody_else() {
    let mut relay = relay(RelayConfig::default());
    join(&mut relay, at(0), GATEWAY, 0);
    join(&mut relay, at(0), GATEWAY, 1);
    join(&mut relay, at(0), OTHER, 1);
    assert_eq!(receivers(&mut relay, at(0), 0), [address(GATEWAY)]);
    assert_eq!(
        receivers(&mut relay, at(0), 1),
        [address(GATEWAY), address(OTHER)]
    );
    assert_eq!(receivers(&mut relay, at(0), 2), []);
}

#[test]
fn a_forwarded_packet_is_the_whole_datagram() {
    let mut relay = relay(RelayConfig::default());
    join(&mut relay, at(0), GATEWAY, 2);
    let mut sent = Vec::new();
    relay
        .forward(at(0), 2, [&b"data"[..]], |_, _, message, _| {
            sent.push(message.to_vec())
        })
        .unwrap();
    let Ok(Message::MulticastData { datagram }) = Message::decode(&sent[0]) else {
        panic!("no data: {sent:?}")
    };
    assert_eq!(
        crate::ip::decode_udp(datagram),
        Ok((flows(4)[2], b"data".as_slice()))
    );
}

#[test]
fn a_join_of_another_source_or_group_is_refused() {
    let mut relay = relay(RelayConfig::default());
    let mac = granted(&mut relay, at(0), GATEWAY);
    let stranger = GroupRecord {
        sources: vec![IpAddr::from([10, 0, 0, 1])],
        ..record(RecordType::Allow, 0)
    };
    update(
        &mut relay,
        at(0),
        GATEWAY,
        mac,
        vec![stranger, record(RecordType::Allow, 99)],
    );
    assert_eq!((relay.gateways(), relay.counters().joins_refused), (0, 2));
}

#[test]
fn every_record_type_has_the_effect_of_rfc_3376() {
    use RecordType::*;
    let any = |kind| GroupRecord {
        sources: vec![],
        ..record(kind, 0)
    };
    let listed = |kind| record(kind, 0);
    let cases = [
        (vec![listed(Allow)], true),
        (vec![listed(IsInclude)], true),
        (vec![listed(ToInclude)], true),
        (vec![any(IsExclude)], true),
        (vec![any(ToExclude)], true),
        (vec![listed(IsExclude)], false),
        (vec![any(ToExclude), listed(Block)], false),
        (vec![listed(Allow), any(ToInclude)], false),
        (vec![listed(Allow), listed(ToExclude)], false),
        (vec![listed(Allow), any(IsInclude)], true),
        (vec![listed(Allow), any(Block)], true),
    ];
    for (records, joined) in cases {
        let mut relay = relay(RelayConfig::default());
        let mac = granted(&mut relay, at(0), GATEWAY);
        update(&mut relay, at(0), GATEWAY, mac, records.clone());
        assert_eq!(
            receivers(&mut relay, at(0), 0).len(),
            usize::from(joined),
            "{records:?}"
        );
        assert_eq!(
            relay.gateways(),
            usize::from(joined),
            "a gateway without joins is forgotten: {records:?}"
        );
    }
}

#[test]
fn a_join_lapses_when_it_is_not_refreshed_and_lives_when_it_is() {
    let mut relay = relay(RelayConfig::default());
    join(&mut relay, at(0), GATEWAY, 0);
    join(&mut relay, at(0), GATEWAY, 1);
    join(&mut relay, at(0), OTHER, 0);
    assert_eq!(
        relay.poll_timeout(),
        at(70),
        "twice the query interval and the response interval"
    );
    let mac = granted(&mut relay, at(60), GATEWAY);
    update(
        &mut relay,
        at(60),
        GATEWAY,
        mac,
        vec![record(RecordType::IsInclude, 0)],
    );
    relay.handle_timeout(at(69));
    assert_eq!(relay.joins(), 3);
    relay.handle_timeout(at(70));
    assert_eq!((relay.gateways(), relay.joins()), (1, 1));
    assert_eq!(receivers(&mut relay, at(70), 0), [address(GATEWAY)]);
    assert_eq!(relay.poll_timeout(), at(130));
    relay.handle_timeout(at(130));
    assert_eq!(relay.gateways(), 0);
}

#[test]
fn a_teardown_ends_the_tunnel_only_with_its_mac() {
    let mut relay = relay(RelayConfig::default());
    join(&mut relay, at(0), GATEWAY, 0);
    let mac = granted(&mut relay, at(0), GATEWAY);
    let gateway = GatewayAddress::from(address(GATEWAY));
    exchange(
        &mut relay,
        at(0),
        OTHER,
        &Message::Teardown {
            mac: [0; 6],
            nonce: 1,
            gateway,
        },
    );
    assert_eq!(relay.gateways(), 1);
    // The Teardown may come from another address: the address in the message counts.
    exchange(
        &mut relay,
        at(0),
        OTHER,
        &Message::Teardown {
            mac,
            nonce: 1,
            gateway,
        },
    );
    assert_eq!(
        (relay.gateways(), receivers(&mut relay, at(0), 0)),
        (0, vec![])
    );
}

#[test]
fn an_ipv6_gateway_at_the_loopback_address_can_tear_down() {
    let mut relay = relay(RelayConfig::default());
    let mac = granted(&mut relay, at(0), "[::1]:5");
    update(
        &mut relay,
        at(0),
        "[::1]:5",
        mac,
        vec![record(RecordType::Allow, 0)],
    );
    assert_eq!(relay.gateways(), 1);
    let gateway = GatewayAddress::from(address("[::1]:5"));
    exchange(
        &mut relay,
        at(0),
        "[::1]:5",
        &Message::Teardown {
            mac,
            nonce: 1,
            gateway,
        },
    );
    assert_eq!(relay.gateways(), 0);
}

#[test]
fn the_previous_secret_is_accepted_for_two_query_intervals_after_its_change() {
    let mut relay = relay(RelayConfig::default());
    let old = granted(&mut relay, at(0), GATEWAY);
    assert_eq!(relay.poll_timeout(), at(7200));
    relay.handle_timeout(at(7200));
    let new = granted(&mut relay, at(7200), GATEWAY);
    assert_ne!(old, new);
    update(
        &mut relay,
        at(7201),
        GATEWAY,
        old,
        vec![record(RecordType::Allow, 0)],
    );
    assert_eq!(relay.joins(), 1);
    relay.handle_timeout(at(7260));
    update(
        &mut relay,
        at(7260),
        GATEWAY,
        old,
        vec![record(RecordType::Allow, 1)],
    );
    assert_eq!(relay.joins(), 1);
    update(
        &mut relay,
        at(7260),
        GATEWAY,
        new,
        vec![record(RecordType::Allow, 1)],
    );
    assert_eq!(relay.joins(), 2);
}

#[test]
fn a_full_relay_says_so_and_keeps_serving_those_it_has() {
    let mut relay = relay(RelayConfig {
        gateways_max: 1,
        ..RelayConfig::default()
    });
    join(&mut relay, at(0), GATEWAY, 0);
    let request = Message::Request {
        nonce: 1,
        family: Family::V4,
    };
    let limits = [GATEWAY, OTHER].map(|from| {
        let reply = exchange(&mut relay, at(0), from, &request).unwrap();
        matches!(
            Message::decode(&reply),
            Ok(Message::MembershipQuery { limit: true, .. })
        )
    });
    assert_eq!(limits, [false, true]);
    join(&mut relay, at(0), OTHER, 0);
    join(&mut relay, at(0), GATEWAY, 1);
    assert_eq!(
        (
            relay.gateways(),
            relay.joins(),
            relay.counters().gateways_refused
        ),
        (1, 2, 1)
    );
}

#[test]
fn what_is_no_message_for_a_relay_is_ignored_and_counted() {
    let mut relay = relay(RelayConfig::default());
    for bytes in [&[][..], &[0x13, 0], &[6, 0, 1, 2], &[4, 0, 0, 0]] {
        relay.handle_datagram(at(0), address(GATEWAY), LOCAL, bytes);
    }
    assert_eq!((relay.poll_transmit(), relay.counters().ignored), (None, 4));
}

#[test]
fn an_any_source_join_receives_all_flows_of_its_group() {
    let group = address("239.1.1.1:5000");
    let flows = ["192.0.2.1:1", "192.0.2.2:1"].map(|source| Flow {
        source: address(source),
        group,
    });
    let mut relay = Relay::new(at(0), RelayConfig::default(), flows.to_vec(), [7; 32]);
    let mac = granted(&mut relay, at(0), GATEWAY);
    let Subscription { group, .. } = flows[0].into();
    update(
        &mut relay,
        at(0),
        GATEWAY,
        mac,
        vec![GroupRecord {
            kind: RecordType::ToExclude,
            group,
            sources: vec![],
        }],
    );
    assert_eq!(
        (
            receivers(&mut relay, at(0), 0).len(),
            receivers(&mut relay, at(0), 1).len()
        ),
        (1, 1)
    );
}

#[test]
fn data_leaves_from_the_address_that_the_gateway_asked() {
    let mut relay = relay(RelayConfig::default());
    join(&mut relay, at(0), GATEWAY, 0);
    let mut from = Vec::new();
    relay
        .forward(at(0), 0, [&b"data"[..]], |_, local, _, _| from.push(local))
        .unwrap();
    assert_eq!(from, [LOCAL]);
}
