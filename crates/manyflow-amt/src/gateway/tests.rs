mod world;

use rand_pcg::Pcg32;

use self::world::{DATA_INTERVAL, DELAY, World, at, first, flows, relay_address};
use super::*;
use crate::membership::RecordType;
use crate::{Relay, RelayConfig};

#[test]
fn a_flow_joined_before_the_handshake_arrives_after_it_and_no_other() {
    for family in [Family::V4, Family::V6] {
        let config = GatewayConfig::new(RelayAddress::Unicast(relay_address()), family);
        let mut world = World::with(RelayConfig::default(), config, 1);
        world.join(1);
        world.run_until(at(1));
        assert_eq!(
            world.events,
            [(Time::ZERO + 2 * DELAY, GatewayEvent::Ready)]
        );
        assert_eq!(world.received(at(0), at(1)), [world.flows[1]]);
    }
}

#[test]
fn the_handshake_survives_the_loss_of_any_message() {
    let kinds: [fn(&Message) -> bool; 5] = [
        |message| matches!(message, Message::RelayDiscovery { .. }),
        |message| matches!(message, Message::RelayAdvertisement { .. }),
        |message| matches!(message, Message::Request { .. }),
        |message| matches!(message, Message::MembershipQuery { .. }),
        |message| matches!(message, Message::MembershipUpdate { .. }),
    ];
    for (seed, kind) in (0..20).flat_map(|seed| kinds.iter().map(move |kind| (seed, *kind))) {
        let config = GatewayConfig::new(RelayAddress::Discovery(relay_address()), Family::V4);
        let mut world = World::with(RelayConfig::default(), config, seed).losing(first(1, kind));
        world.join(0);
        world.run_until(at(3));
        assert_eq!(world.events(), [GatewayEvent::Ready], "seed {seed}");
        assert_eq!(
            world.received(at(2), at(3)),
            [world.flows[0]],
            "seed {seed}"
        );
    }
}

#[test]
fn a_join_and_a_leave_survive_the_loss_of_their_first_report() {
    for seed in 0..20 {
        let mut world = World::new(seed);
        world.run_until(at(1));
        world.lose = Box::new(first(1, |message| {
            matches!(message, Message::MembershipUpdate { .. })
        }));
        world.join(0);
        world.run_until(at(3));
        assert_eq!(
            world.received(at(2), at(3)),
            [world.flows[0]],
            "seed {seed}"
        );
        world.lose = Box::new(first(1, |message| {
            matches!(message, Message::MembershipUpdate { .. })
        }));
        world.leave(0);
        world.run_until(at(5));
        assert_eq!(
            (world.relay.joins(), world.received(at(5), at(6)).len()),
            (0, 0),
            "seed {seed}"
        );
    }
}

#[test]
fn joins_and_leaves_come_right_under_heavy_random_loss() {
    for seed in 0..20 {
        let mut rng = Pcg32::seed_from_u64(seed);
        let mut world = World::new(seed as u8).losing(move |_, _| rng.random_bool(0.2));
        world.join(0);
        world.join(1);
        world.run_until(at(5));
        world.leave(0);
        world.join(2);
        world.run_until(at(200));
        assert_eq!(
            world.received(at(170), at(200)),
            world.flows[1..],
            "seed {seed}"
        );
        assert_eq!(world.relay.joins(), 2, "seed {seed}");
    }
}

#[test]
fn a_join_and_a_leave_travel_at_once() {
    let mut world = World::new(1);
    world.run_until(at(1));
    world.join(0);
    assert_eq!(
        world
            .in_flight
            .back()
            .map(|(at, to_relay, _)| (*at, *to_relay)),
        Some((world.now + DELAY, true))
    );
    world.run_until(at(2));
    let (first, _) = world.received[0];
    assert!(
        first <= at(1) + DELAY + DATA_INTERVAL + DELAY,
        "first packet at {first:?}"
    );
    world.leave(0);
    world.run_until(at(3));
    assert_eq!(
        world.received(at(2) + 2 * DELAY, at(3)),
        [],
        "only what was on its way"
    );
}

#[test]
fn a_leave_whose_reports_are_all_lost_ends_with_the_join_lapsing() {
    let mut world = World::new(1);
    world.join(0);
    world.join(1);
    world.run_until(at(1));
    world.lose = Box::new(first(2, |message| {
        matches!(message, Message::MembershipUpdate { .. })
    }));
    world.leave(0);
    world.run_until(at(20));
    assert_eq!(world.relay.joins(), 2);
    assert_eq!(
        world.received(at(10), at(20)),
        [world.flows[1]],
        "the gateway drops what it has left"
    );
    world.run_until(at(80));
    assert_eq!(world.relay.joins(), 1);
}

#[test]
fn a_restarted_relay_gets_all_joins_within_a_query_interval() {
    let mut world = World::new(1);
    world.join(0);
    world.join(2);
    world.run_until(at(40));
    world.relay = Relay::new(
        world.now,
        RelayConfig::default(),
        world.flows.clone(),
        [99; 32],
    );
    world.run_until(at(80));
    assert_eq!(world.received(at(41), at(59)), []);
    assert_eq!(
        world.received(at(62), at(80)),
        [world.flows[0], world.flows[2]]
    );
}

#[test]
fn a_dead_relay_is_noticed_in_bounded_time_and_found_again() {
    for (seed, discovery) in (0..10).flat_map(|seed| [(seed, false), (seed, true)]) {
        let relay = if discovery {
            RelayAddress::Discovery
        } else {
            RelayAddress::Unicast
        }(relay_address());
        let config = GatewayConfig {
            maximum_timeout: Duration::from_secs(20),
            ..GatewayConfig::new(relay, Family::V4)
        };
        let mut world = World::with(RelayConfig::default(), config, seed);
        world.join(0);
        world.run_until(at(40));
        world.lose = Box::new(|now, _| now < at(150));
        world.run_until(at(200));
        let lost = GatewayEvent::RelayLost(LossReason::Silent);
        assert_eq!(
            world.events(),
            [GatewayEvent::Ready, lost, GatewayEvent::Ready],
            "seed {seed}"
        );
        // The refresh is due at 60 s, and four attempts take at most 15 s together.
        assert!(
            world.events[1].0 <= at(76),
            "seed {seed}: lost at {:?}",
            world.events[1].0
        );
        assert_eq!(
            world.received(at(180), at(200)),
            [world.flows[0]],
            "seed {seed}"
        );
    }
}

#[test]
fn an_undeliverable_message_makes_the_gateway_ask_at_once() {
    let mut world = World::new(1);
    world.join(0);
    world.run_until(at(5));
    world.relay = Relay::new(
        world.now,
        RelayConfig::default(),
        world.flows.clone(),
        [99; 32],
    );
    world.gateway.handle_unreachable(world.now);
    world.collect();
    world.run_until(at(6));
    assert_eq!(world.relay.joins(), 1);
}

#[test]
fn a_full_relay_is_reported_and_asked_again_later() {
    let config = GatewayConfig {
        maximum_timeout: Duration::from_secs(5),
        ..GatewayConfig::new(RelayAddress::Unicast(relay_address()), Family::V4)
    };
    let mut world = World::with(
        RelayConfig {
            gateways_max: 0,
            ..RelayConfig::default()
        },
        config,
        1,
    );
    world.join(0);
    world.run_until(at(3));
    assert_eq!(world.events(), [GatewayEvent::RelayLost(LossReason::Full)]);
    world.relay = Relay::new(
        world.now,
        RelayConfig::default(),
        world.flows.clone(),
        [1; 32],
    );
    world.run_until(at(15));
    assert_eq!(world.events().last(), Some(&GatewayEvent::Ready));
    assert_eq!(world.relay.joins(), 1);
}

#[test]
fn closing_tears_the_tunnel_down_even_if_the_first_teardown_is_lost() {
    let mut world = World::new(1);
    world.join(0);
    world.run_until(at(1));
    world.lose = Box::new(first(1, |message| {
        matches!(message, Message::Teardown { .. })
    }));
    world.gateway.close(world.now);
    world.collect();
    world.run_until(at(3));
    assert!(world.gateway.is_closed());
    assert_eq!(
        (world.relay.gateways(), world.gateway.poll_timeout()),
        (0, None)
    );
}

#[test]
fn closing_before_any_answer_sends_nothing_more() {
    let mut gateway = Gateway::new(
        at(0),
        GatewayConfig::new(RelayAddress::Unicast(relay_address()), Family::V4),
        [1; 32],
    );
    while gateway.poll_transmit().is_some() {}
    gateway.close(at(1));
    assert!(gateway.is_closed());
    assert_eq!(gateway.poll_transmit(), None);
}

#[test]
fn a_gateway_whose_address_changes_moves_its_joins_and_ends_the_old_tunnel() {
    let mut world = World::new(1);
    world.join(0);
    world.run_until(at(10));
    world.gateway_address = "203.0.113.9:5005".parse().unwrap();
    world.run_until(at(35));
    assert_eq!((world.relay.gateways(), world.relay.joins()), (1, 1));
    assert_eq!(world.received(at(31), at(35)), [world.flows[0]]);
}

#[test]
fn only_the_relay_is_listened_to_and_only_for_what_is_joined() {
    let mut world = World::new(1);
    world.join(0);
    world.run_until(at(1));
    let data = |flow: &Flow| {
        let mut message = vec![6, 0];
        crate::ip::encode_udp(flow, b"x", &mut message).unwrap();
        message
    };
    let stranger = "192.0.2.66:2268".parse().unwrap();
    let (joined, other) = (data(&world.flows[0]), data(&world.flows[1]));
    assert_eq!(
        world.gateway.handle_datagram(world.now, stranger, &joined),
        None
    );
    assert_eq!(
        world
            .gateway
            .handle_datagram(world.now, relay_address(), &other),
        None
    );
    let accepted = world
        .gateway
        .handle_datagram(world.now, relay_address(), &joined);
    assert_eq!(accepted, Some((world.flows[0], b"x".as_slice())));
}

#[test]
fn what_cannot_be_joined_is_refused_with_its_reason() {
    let mut world = World::new(1);
    let mut join = |group: &str, source: Option<&str>| {
        let subscription = Subscription {
            group: group.parse().unwrap(),
            source: source.map(|source| source.parse().unwrap()),
        };
        world.gateway.join(Time::ZERO, subscription)
    };
    assert_eq!(
        join("192.0.2.9", None),
        Err(JoinError::NotMulticast("192.0.2.9".parse().unwrap()))
    );
    assert_eq!(join("ff3e::1", None), Err(JoinError::Family(Family::V4)));
    assert_eq!(
        join("232.1.1.1", Some("2001:db8::1")),
        Err(JoinError::Family(Family::V4))
    );
    let group = |n: u32| IpAddr::from(std::net::Ipv4Addr::from_bits(0xe801_0000 + n));
    for n in 0..SUBSCRIPTIONS_MAX as u32 {
        world
            .gateway
            .join(
                Time::ZERO,
                Subscription {
                    group: group(n),
                    source: None,
                },
            )
            .unwrap();
    }
    assert_eq!(
        world.gateway.join(
            Time::ZERO,
            Subscription {
                group: group(5000),
                source: None
            }
        ),
        Err(JoinError::TooMany)
    );
}

#[test]
fn many_joins_are_reported_in_datagrams_that_fit_any_path() {
    let config = GatewayConfig::new(RelayAddress::Unicast(relay_address()), Family::V6);
    let mut world = World::with(RelayConfig::default(), config, 1);
    let source = Some("2001:db8::1".parse().unwrap());
    for n in 0..100u128 {
        let group = IpAddr::V6((0xff3e_u128 << 112 | n).into());
        world
            .gateway
            .join(Time::ZERO, Subscription { group, source })
            .unwrap();
    }
    let sizes = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let seen = sizes.clone();
    world.lose = Box::new(move |_, message| {
        if let Message::MembershipUpdate { report, .. } = message {
            seen.borrow_mut().push((
                12 + report.len(),
                Report::decode(report).unwrap().records.len(),
            ));
        }
        false
    });
    world.run_until(Time::ZERO + 3 * DELAY);
    let sizes = sizes.borrow();
    assert_eq!(sizes.iter().map(|(_, records)| records).sum::<usize>(), 100);
    assert!(
        sizes.iter().all(|(bytes, _)| bytes + 48 <= 1280),
        "{sizes:?}"
    );
}

/// Returns the reports that a gateway sends after some changes, if the relay sends no address
/// fields.
fn reports(change: impl FnOnce(&mut Gateway)) -> Vec<GroupRecord> {
    let mut gateway = Gateway::new(
        at(0),
        GatewayConfig::new(RelayAddress::Unicast(relay_address()), Family::V4),
        [1; 32],
    );
    let request = gateway.poll_transmit().unwrap();
    let Ok(Message::Request { nonce, .. }) = Message::decode(&request.contents) else {
        panic!("no request")
    };
    let mut query = Vec::new();
    GeneralQuery {
        family: Family::V4,
        robustness: 2,
        query_interval: Duration::from_secs(30),
    }
    .encode(&mut query);
    let mut answer = Vec::new();
    Message::MembershipQuery {
        limit: false,
        mac: [1; 6],
        nonce,
        query: &query,
        gateway: None,
    }
    .encode(&mut answer);
    gateway.handle_datagram(at(0), relay_address(), &answer);
    change(&mut gateway);
    let mut records = Vec::new();
    while let Some(Transmit { contents, .. }) = gateway.poll_transmit() {
        match Message::decode(&contents) {
            Ok(Message::MembershipUpdate {
                mac: [1, 1, 1, 1, 1, 1],
                report,
                ..
            }) => records.extend(Report::decode(report).unwrap().records),
            other => panic!("no update: {other:?}"),
        }
    }
    records
}

#[test]
fn changes_between_one_source_and_any_source_are_reported_as_filter_modes() {
    use RecordType::*;
    let group: IpAddr = "232.1.1.1".parse().unwrap();
    let source: IpAddr = "192.0.2.1".parse().unwrap();
    let (of_any, of_source) = (
        Subscription {
            group,
            source: None,
        },
        Subscription {
            group,
            source: Some(source),
        },
    );
    let records = reports(|gateway| {
        gateway.join(at(1), of_any).unwrap();
        gateway.join(at(1), of_source).unwrap();
        gateway.leave(at(1), of_any);
        gateway.leave(at(1), of_source);
    });
    let expected = [
        (ToExclude, vec![]),
        (ToInclude, vec![source]),
        (Block, vec![source]),
    ];
    let expected = expected.map(|(kind, sources)| GroupRecord {
        kind,
        group,
        sources,
    });
    assert_eq!(
        records, expected,
        "the join of one source changes nothing for who receives all"
    );
}

#[test]
fn a_relay_without_teardown_is_told_by_leaves() {
    let subscription = Subscription::from(flows(Family::V4)[0]);
    let records = reports(|gateway| {
        gateway.join(at(1), subscription).unwrap();
        while gateway.poll_transmit().is_some() {}
        gateway.close(at(1));
        gateway.handle_timeout(at(3));
        assert!(gateway.is_closed());
    });
    assert_eq!(
        records.iter().map(|record| record.kind).collect::<Vec<_>>(),
        [RecordType::Block; 2]
    );
}
