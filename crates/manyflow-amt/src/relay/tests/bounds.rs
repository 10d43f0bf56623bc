//! The bounds on what gateways and forged requests can take from a relay.

use super::*;

#[test]
fn one_address_and_one_gateway_get_no_more_than_their_share() {
    let config = RelayConfig {
        gateways_per_address_max: 2,
        joins_per_gateway_max: 3,
        ..RelayConfig::default()
    };
    let mut relay = relay(config);
    for port in 1..=5 {
        join(&mut relay, at(0), &format!("198.51.100.7:{port}"), 0);
    }
    assert_eq!(
        (relay.gateways(), relay.counters().gateways_refused),
        (2, 3)
    );
    join(&mut relay, at(0), OTHER, 0);
    for group in 0..4 {
        join(&mut relay, at(0), OTHER, group);
    }
    assert_eq!((relay.joins(), relay.counters().joins_refused), (2 + 3, 1));
}

#[test]
fn a_silent_gateway_gives_way_to_a_new_one_of_its_address() {
    let mut relay = relay(RelayConfig {
        gateways_max: 3,
        gateways_per_address_max: 2,
        ..RelayConfig::default()
    });
    join(&mut relay, at(0), "198.51.100.7:1", 0);
    join(&mut relay, at(0), "198.51.100.7:2", 1);
    join(&mut relay, at(0), OTHER, 0);
    // The second gateway is heard again, the first is not.
    join(&mut relay, at(10), "198.51.100.7:2", 2);
    join(&mut relay, at(14), "198.51.100.7:3", 3);
    assert_eq!(relay.counters().gateways_refused, 1);
    join(&mut relay, at(15), "198.51.100.7:3", 3);
    assert_eq!(
        (relay.gateways(), relay.counters().gateways_refused),
        (3, 1)
    );
    assert!(relay.is_joined(1) && relay.is_joined(2) && relay.is_joined(3));
    join(&mut relay, at(16), "198.51.100.7:4", 3);
    assert_eq!(relay.counters().gateways_refused, 2);
    // The relay is full, and no gateway of this address can give way.
    join(&mut relay, at(20), "203.0.113.9:1", 3);
    assert_eq!(relay.counters().gateways_refused, 3);
}

#[test]
fn a_gateway_gets_its_rate_and_what_exceeds_it_is_dropped_and_counted() {
    let mut relay = relay(RelayConfig {
        gateway_rate_max: Rate::from_bits_per_s(1_000_000),
        ..RelayConfig::default()
    });
    join(&mut relay, at(0), GATEWAY, 0);
    let mut sent_bytes = 0;
    for step in 0..10_000u64 {
        let now = Time::ZERO + Duration::from_millis(step);
        relay
            .forward(now, 0, [&[0; 970][..]], |_, _, message, _| {
                sent_bytes += message.len()
            })
            .unwrap();
    }
    // 10 s at 1 Mbit/s are 1.25 MB, plus a burst of 250 ms.
    assert!(
        (1_250_000..1_285_000).contains(&sent_bytes),
        "{sent_bytes} bytes"
    );
    let RelayCounters {
        forwarded,
        over_rate,
        ..
    } = relay.counters();
    assert_eq!(forwarded + over_rate, 10_000);
}

#[test]
fn the_relay_gets_its_rate_whatever_its_gateways_join() {
    let mut relay = relay(RelayConfig {
        rate_max: Rate::from_bits_per_s(2_000_000),
        ..RelayConfig::default()
    });
    for host in 1..=64 {
        join(&mut relay, at(0), &format!("198.51.{host}.1:7"), 0);
    }
    assert_eq!(relay.gateways(), 64);
    let mut sent_bytes = 0;
    for step in 0..1_000u64 {
        let now = Time::ZERO + Duration::from_millis(step * 10);
        relay
            .forward(now, 0, [&[0; 970][..]], |_, _, message, _| {
                sent_bytes += message.len()
            })
            .unwrap();
    }
    // 10 s at 2 Mbit/s are 2.5 MB, plus a burst of 250 ms.
    assert!(
        (2_490_000..2_570_000).contains(&sent_bytes),
        "{sent_bytes} bytes"
    );
    let counters = relay.counters();
    assert_eq!(counters.over_rate, 0);
    assert_eq!(counters.forwarded + counters.over_relay_rate, 64 * 1_000);
}

#[test]
fn the_addresses_of_a_64_bit_prefix_have_one_share() {
    let mut relay = relay(RelayConfig {
        gateways_per_address_max: 2,
        ..RelayConfig::default()
    });
    for host in 1..=5 {
        join(&mut relay, at(0), &format!("[2001:db8:0:1::{host}]:7"), 0);
    }
    join(&mut relay, at(0), "[2001:db8:0:2::1]:7", 0);
    for host in 1..=3 {
        join(&mut relay, at(0), &format!("198.51.100.{host}:7"), 0);
    }
    assert_eq!(
        (relay.gateways(), relay.counters().gateways_refused),
        (2 + 1 + 3, 3)
    );
}

#[test]
fn answers_to_a_forged_prefix_are_few_and_others_are_still_answered() {
    let mut relay = relay(RelayConfig::default());
    join(&mut relay, at(0), "198.51.100.200:7", 0);
    let request = Message::Request {
        nonce: 1,
        family: Family::V4,
    };
    let discovery = Message::RelayDiscovery { nonce: 1 };
    let (mut asked, mut answered) = (0, 0);
    for step in 0..10_000u64 {
        let now = at(1) + Duration::from_millis(step);
        let from = format!("198.51.100.{}:{}", step % 256, 1 + step % 60_000);
        let message = if step % 2 == 0 { &request } else { &discovery };
        asked += 36;
        answered += exchange(&mut relay, now, &from, message).map_or(0, |reply| reply.len() + 28);
    }
    // 10 s at 130 kbit/s, with IPv6 headers, and bursts.
    assert!(answered < 270_000, "{answered} bytes for {asked}");
    assert!(answered < asked, "{answered} bytes for {asked}");
    assert!(relay.counters().unanswered > 5_000);
    let end = at(11);
    assert!(exchange(&mut relay, end, "203.0.113.1:7", &request).is_some());
    assert!(exchange(&mut relay, end, "[2001:db8::1]:7", &request).is_some());
    // A gateway that has proved its address is answered.
    assert!(exchange(&mut relay, end, "198.51.100.200:7", &request).is_some());
}

/// The relay answers the first Discovery and the first Request of a new gateway during floods of
/// forged Requests from other addresses of its prefix, at any rate of the flood.
#[test]
fn a_flood_from_the_neighbours_of_a_gateway_does_not_delay_its_answers() {
    let request = Message::Request {
        nonce: 1,
        family: Family::V4,
    };
    let discovery = Message::RelayDiscovery { nonce: 1 };
    for per_ms in [1, 10, 100] {
        // The shares of an IPv6 /48 are assigned by hash, so only a few others surely differ.
        for (site, end, others, gateway) in [
            ("198.51.100.", "", 151, "198.51.100.7:7"),
            ("[2001:db8:0:1::", "]", 8, "[2001:db8:0:1::7]:7"),
        ] {
            let mut relay = relay(RelayConfig::default());
            for step in 0..2_000 {
                let now = at(1) + Duration::from_millis(step);
                for number in 0..per_ms {
                    let host = 100 + (step * per_ms + number) % others;
                    let from = format!("{site}{host}{end}:{}", 1 + number);
                    exchange(&mut relay, now, &from, &request);
                }
            }
            assert!(relay.counters().unanswered > 500, "{site} {per_ms}");
            for message in [&discovery, &request] {
                let answer = exchange(&mut relay, at(3), gateway, message);
                assert!(answer.is_some(), "{site} {per_ms}: {message:?}");
            }
        }
    }
}
