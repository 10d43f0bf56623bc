//! Tests of relays without sockets, in simulated time.

mod liars;
mod rejoin;
mod tree;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use manyflow_core::{Rate, Time};
use manyflow_layered::hop::{Direction, HopConfig, HopKey, HopMessage, HopRate, is_hop_message};
use manyflow_layered::relay::{
    Datagrams, RelayConfig, RelayError, ReportingEnd, SessionInfo, StreamRelay, Where,
};
use manyflow_layered::{Data, Experiment, Feedback};
use proptest::prelude::*;
use tree::*;

const SESSIONS: [SessionInfo; 2] = [
    SessionInfo {
        session: 7,
        groups: 4,
    },
    SessionInfo {
        session: 8,
        groups: 0,
    },
];

fn config() -> RelayConfig {
    RelayConfig {
        id: 42,
        hop: HopConfig {
            rate: HopRate::Given(Rate::from_bits_per_s(8_000_000)),
            ..HopConfig::default()
        },
        ..RelayConfig::default()
    }
}

fn relay(config: RelayConfig) -> StreamRelay {
    StreamRelay::new(config, &SESSIONS, [3; 32], Time::ZERO).expect("valid in these tests")
}

fn request(group: u8, request: u16) -> Data {
    Data {
        group,
        sequence: 0,
        request,
        is_for_group: false,
        rate: 100_000,
        rtt_us: 50_000,
        next_rate: 0,
        is_pair: false,
    }
}

fn report(session: u32, group: u8, request: u16, congested: bool, rate: u32) -> Feedback {
    Feedback {
        source: 99,
        session,
        group,
        more: false,
        request,
        reports: 1,
        congested: congested.into(),
        minimum: rate,
        maximum: rate,
        population: 1,
        hold_us: 0,
        rtt_us: 0,
    }
}

/// Returns a report of a relay, which states times: there are hops below it.
fn report_of_relay(feedback: Feedback) -> Feedback {
    Feedback {
        hold_us: 1,
        ..feedback
    }
}

/// Children of a relay that have heard a sounding.
struct Family {
    now: Time,
    relay: StreamRelay,
    children: BTreeMap<SocketAddr, ReportingEnd>,
}

impl Family {
    fn new(config: RelayConfig, children: u16) -> Family {
        let key = config.key.clone();
        let mut family = Family {
            now: Time::ZERO,
            relay: relay(config),
            children: BTreeMap::new(),
        };
        for number in 1..=children {
            let top = Some(1);
            let (relay, at) = (&mut family.relay, address(number));
            relay
                .set_top(Time::ZERO, at, LOCAL, 0, top)
                .expect("valid in these tests");
            let end = ReportingEnd::new(key.clone(), number.into());
            family.children.insert(at, end);
        }
        family.exchange();
        family
    }

    /// Delivers everything that is due, in both directions. Returns the messages to the parent.
    fn exchange(&mut self) -> Vec<Vec<u8>> {
        let mut up = Vec::new();
        let mut out = Vec::new();
        while let Some(Datagrams { place, .. }) = self.relay.poll_transmit(self.now, &mut out) {
            match place {
                Where::Parent => up.push(out.clone()),
                Where::Child { to, .. } => {
                    if let Some(child) = self.children.get_mut(&to) {
                        child.handle_datagram(&out).expect("valid in these tests");
                    }
                }
            }
        }
        for (at, child) in &mut self.children {
            while child.poll_transmit(&mut out) {
                self.relay
                    .handle_datagram(self.now, *at, LOCAL, &out)
                    .expect("valid in these tests");
            }
        }
        up
    }

    fn report(&mut self, number: u16, feedback: Feedback) -> Result<(), RelayError> {
        let at = address(number);
        let child = self.children.get_mut(&at).expect("valid in these tests");
        child.report(&[feedback]);
        let mut out = Vec::new();
        assert!(child.poll_transmit(&mut out));
        self.relay.handle_datagram(self.now, at, LOCAL, &out)
    }
}

#[test]
fn a_summary_waits_for_all_children_from_the_first_round_on() {
    let mut family = Family::new(config(), 3);
    family.relay.observe_data(family.now, 0, &request(0, 1));
    let congested = report_of_relay(report(7, 1, 1, true, 100));
    family.report(1, congested).unwrap();
    family.report(2, report(7, 1, 1, false, 300)).unwrap();
    assert_eq!(family.relay.poll_feedback(), None);
    family.report(3, report(7, 1, 1, false, 200)).unwrap();
    let summary = family.relay.poll_feedback().unwrap();
    assert_eq!(
        (summary.source, summary.reports, summary.congested),
        (42, 3, 1)
    );
    assert_eq!((summary.minimum, summary.maximum), (100, 300));
    assert_eq!(family.relay.poll_feedback(), None);
}

#[test]
fn summaries_pass_through_two_relays_and_a_restart_of_the_upper_one() {
    let key = Some(HopKey::new([5; 16]));
    let lower = RelayConfig {
        has_parent: true,
        key: key.clone(),
        ..config()
    };
    let upper = RelayConfig {
        key,
        id: 1,
        ..config()
    };
    let mut family = Family::new(lower, 2);
    let at = address(500);
    for restart in 0..2 {
        let seed = [restart; 32];
        let mut above = StreamRelay::new(upper.clone(), &SESSIONS, seed, Time::ZERO).unwrap();
        above.set_top(Time::ZERO, at, LOCAL, 0, Some(1)).unwrap();
        let mut out = Vec::new();
        assert!(above.poll_transmit(Time::ZERO, &mut out).is_some());
        family
            .relay
            .handle_parent_datagram(Time::ZERO, &out)
            .unwrap();
        let round = u16::from(restart) + 1;
        above.observe_data(Time::ZERO, 0, &request(0, round));
        family.relay.observe_data(Time::ZERO, 0, &request(0, round));
        family.now += ms(1);
        for child in 1..=2 {
            let feedback = report(7, 1, round, child == 1, 100 * u32::from(child));
            family.report(child, report_of_relay(feedback)).unwrap();
        }
        // The echo, and the summary. After a restart, another summary is for the relay before.
        let up = family.exchange();
        assert_eq!(up.len(), 2 + usize::from(restart));
        let mut taken = |message: &Vec<u8>| {
            let handled = above.handle_datagram(Time::ZERO, at, LOCAL, message);
            handled.is_ok()
        };
        assert_eq!(up.iter().filter(|message| taken(message)).count(), 2);
        let summary = above.poll_feedback().unwrap();
        assert_eq!(
            (summary.source, summary.reports, summary.congested),
            (1, 2, 1)
        );
        assert_eq!((summary.minimum, summary.maximum), (100, 200));
        assert_eq!(above.hop(at).unwrap().counters.echoes, 1);
    }
}

#[test]
fn a_request_that_only_a_higher_group_carried_is_answered() {
    let mut family = Family::new(config(), 1);
    family.relay.observe_data(family.now, 0, &request(3, 1));
    family.report(1, report(7, 1, 1, false, 100)).unwrap();
    assert_eq!(family.relay.poll_feedback().unwrap().request, 1);
    // A child cannot begin a round that the sender has not begun.
    let ahead = family.report(1, report(7, 1, 2, false, 100));
    assert_eq!(ahead, Err(RelayError::Stale));
}

#[test]
fn a_silent_child_delays_a_summary_but_does_not_prevent_it() {
    let mut family = Family::new(config(), 2);
    for round in 1..=8 {
        family.relay.observe_data(family.now, 0, &request(0, round));
        family.report(1, report(7, 1, round, false, 100)).unwrap();
        let at_once = family.relay.poll_feedback().is_some();
        // After four rounds the silent child is no longer awaited.
        assert_eq!(at_once, round > 4, "{round}");
        family.now += ms(200);
        family.relay.handle_timeout(family.now);
        assert_eq!(family.relay.poll_feedback().is_some(), !at_once);
    }
}

#[test]
fn a_new_child_begins_with_the_rate_of_its_groups_until_it_was_silent() {
    let config = RelayConfig {
        hop: HopConfig::default(),
        ..config()
    };
    let mut relay = relay(config);
    let data = Data {
        rate: 250_000,
        ..request(2, 1)
    };
    relay.observe_data(Time::ZERO, 0, &data);
    let message: Arc<[u8]> = data_message(2, 1000, 2).into();
    let rates = [(1, Some(2)), (2, Some(0))].map(|(number, top)| {
        let at = address(number);
        relay.set_top(Time::ZERO, at, LOCAL, 0, top).unwrap();
        relay.push(Time::ZERO, at, LOCAL, 0, top, &message).unwrap();
        relay.hop(at).unwrap().rate.bits_per_s()
    });
    assert_eq!(rates, [2_000_000, 200_000], "group 0 has no rate yet");
    let (mut now, mut out) = (Time::ZERO, Vec::new());
    for _ in 0..20 {
        while relay.poll_transmit(now, &mut out).is_some() {}
        now += ms(100);
        relay.handle_timeout(now);
        let _ = relay.push(now, address(1), LOCAL, 0, Some(2), &message);
    }
    let after = relay.hop(address(1)).unwrap().rate.bits_per_s();
    assert!(after < 1_000_001, "{after}");
}

/// Pushes 40 packets of a group to a relay whose hop carries 1 Mbit/s. The sender announces this
/// rate of the lowest group, in bytes per second.
fn overload(group: u8, announced: u32, relay: &mut StreamRelay) -> Vec<Feedback> {
    let now = Time::ZERO;
    let data = Data {
        rate: announced,
        ..request(0, 1)
    };
    relay.observe_data(now, 0, &data);
    let at = address(1);
    relay.set_top(now, at, LOCAL, 0, Some(group)).unwrap();
    let message: Arc<[u8]> = data_message(group, 1000, 2).into();
    let push = |_| relay.push(now, at, LOCAL, 0, Some(group), &message);
    let dropped = (0..40).map(push).filter(Result::is_err);
    assert!(dropped.count() >= 2);
    core::iter::from_fn(|| relay.poll_feedback()).collect()
}

#[test]
fn a_relay_reports_at_once_that_a_hop_drops_the_lowest_group() {
    let slow = RelayConfig {
        hop: HopConfig {
            rate: HopRate::Given(Rate::from_bits_per_s(1_000_000)),
            ..HopConfig::default()
        },
        ..config()
    };
    let early = |group, announced| overload(group, announced, &mut relay(slow.clone()));
    let found = early(0, 250_000);
    assert_eq!(found.len(), 1, "once in a round");
    let is_whole = (found[0].source, found[0].group, found[0].request) == (42, 0, 1);
    assert!(is_whole && found[0].is_early(), "{:?}", found[0]);
    assert_eq!(found[0].minimum, 125_000);
    assert_eq!(early(1, 250_000), [], "another group");
    assert_eq!(early(0, 130_000), [], "the end of the round is soon enough");
    let starting = RelayConfig {
        hop: HopConfig::default(),
        ..config()
    };
    let found = overload(0, 250_000, &mut relay(starting));
    assert_eq!(found, [], "the hop may still find a higher rate");
}

#[test]
fn a_restarted_sender_is_followed() {
    let mut family = Family::new(config(), 1);
    family.relay.observe_data(family.now, 0, &request(0, 5000));
    for _ in 0..40 {
        family.relay.observe_data(family.now, 0, &request(0, 1));
    }
    family.report(1, report(7, 1, 1, false, 100)).unwrap();
    assert_eq!(family.relay.poll_feedback().unwrap().request, 1);
}

#[test]
fn replayed_and_foreign_reports_are_refused() {
    for key in [None, Some(HopKey::new([5; 16]))] {
        let config = RelayConfig {
            key: key.clone(),
            ..config()
        };
        let mut family = Family::new(config, 2);
        family.relay.observe_data(family.now, 0, &request(0, 1));
        let (first, second) = (address(1), address(2));
        let mut old = Vec::new();
        let child = family.children.get_mut(&first).unwrap();
        child.report(&[report(7, 1, 1, true, 100)]);
        child.poll_transmit(&mut old);
        let now = family.now;
        let mut give = |from, bytes: &[u8]| family.relay.handle_datagram(now, from, LOCAL, bytes);
        assert_eq!(give(second, &old), Err(RelayError::Stale), "of another hop");
        assert_eq!(give(first, &old), Ok(()));
        assert_eq!(give(first, &old), Err(RelayError::Stale), "a replay");
        let stranger = address(77);
        let mut forged = Vec::new();
        let mut other = ReportingEnd::new(Some(HopKey::new([6; 16])), 1);
        other.report(&[report(7, 1, 1, true, 100)]);
        other.poll_transmit(&mut forged);
        assert!(matches!(give(stranger, &forged), Err(RelayError::Wire(_))));
        // A receiver of IP multicast has heard no sounding, and reports directly.
        let mut direct = ReportingEnd::new(key, 1);
        direct.report(&[report(7, 1, 1, true, 100)]);
        direct.poll_transmit(&mut forged);
        assert_eq!(give(stranger, &forged), Ok(()));
    }
}

#[test]
fn a_child_cannot_speak_for_many() {
    let mut family = Family::new(config(), 2);
    family.relay.observe_data(family.now, 0, &request(0, 1));
    let mut refused = 0;
    for source in 0..100 {
        let feedback = Feedback {
            source,
            more: true,
            ..report(7, 1, 1, true, 100)
        };
        refused += u32::from(family.report(1, feedback) == Err(RelayError::TooMany));
    }
    assert_eq!(refused, 100 - 32);
    family.report(2, report(7, 1, 1, false, 100)).unwrap();
    family.now += ms(500);
    family.relay.handle_timeout(family.now);
    assert_eq!(family.relay.poll_feedback().unwrap().reports, 33);
}

#[test]
fn there_are_at_most_as_many_children_and_strangers_as_configured() {
    let config = RelayConfig {
        children_max: 2,
        strangers_max: 1,
        ..config()
    };
    let mut family = Family::new(config, 2);
    let message: Arc<[u8]> = data_message(0, 1000, 2).into();
    let third = address(3);
    let pushed = family
        .relay
        .push(family.now, third, LOCAL, 0, Some(0), &message);
    assert_eq!(pushed, Err(RelayError::Full));
    family.relay.remove_child(address(1));
    let pushed = family
        .relay
        .push(family.now, third, LOCAL, 0, Some(0), &message);
    assert_eq!(pushed, Ok(()));
    assert_eq!(family.relay.children().count(), 2);
    family.relay.observe_data(family.now, 0, &request(0, 1));
    for (number, expected) in [(70, Ok(())), (71, Err(RelayError::Full))] {
        let mut end = ReportingEnd::new(None, 1);
        end.report(&[report(7, 1, 1, true, 100)]);
        let mut out = Vec::new();
        end.poll_transmit(&mut out);
        let handled = family
            .relay
            .handle_datagram(family.now, address(number), LOCAL, &out);
        assert_eq!(handled, expected);
    }
}

#[test]
fn experiments_reach_the_other_children_and_the_parent() {
    let config = RelayConfig {
        has_parent: true,
        key: Some(HopKey::new([5; 16])),
        ..config()
    };
    let mut family = Family::new(config, 3);
    family
        .relay
        .set_top(family.now, address(3), LOCAL, 0, None)
        .unwrap();
    let experiment = Experiment {
        session: 7,
        group: 2,
    };
    family
        .children
        .get_mut(&address(1))
        .unwrap()
        .announce(experiment);
    family.exchange();
    let up = family.exchange();
    let heard = family
        .children
        .values_mut()
        .map(ReportingEnd::poll_experiment);
    assert_eq!(heard.collect::<Vec<_>>(), [None, Some(experiment), None]);
    let key = HopKey::new([5; 16]);
    assert_eq!(up.len(), 1);
    let passed = HopMessage::decode(&up[0], Direction::Up, Some(&key)).unwrap();
    assert!(matches!(passed, HopMessage::Experiment(_, found) if found == experiment));
    // A flood is cut off.
    let mut results = Vec::new();
    for _ in 0..20 {
        let child = family.children.get_mut(&address(1)).unwrap();
        child.announce(experiment);
        let mut out = Vec::new();
        child.poll_transmit(&mut out);
        results.push(
            family
                .relay
                .handle_datagram(family.now, address(1), LOCAL, &out),
        );
    }
    let refused = results
        .iter()
        .filter(|result| **result == Err(RelayError::TooMany));
    assert_eq!(refused.count(), 11);
}

#[test]
fn equal_messages_that_are_due_leave_together_and_marked() {
    let config = RelayConfig {
        hop: HopConfig {
            rate: HopRate::Given(Rate::from_bits_per_s(1_000_000_000)),
            burst: ms(1),
            ..HopConfig::default()
        },
        ..config()
    };
    let mut family = Family::new(config, 1);
    family.now += ms(20);
    family.exchange();
    let message: Arc<[u8]> = data_message(1, 1000, 2).into();
    for _ in 0..64 {
        let at = address(1);
        family
            .relay
            .push(family.now, at, LOCAL, 0, Some(1), &message)
            .unwrap();
    }
    let mut out = Vec::new();
    let sounding = family.relay.poll_transmit(family.now, &mut out).unwrap();
    assert!(is_hop_message(&out) && sounding.segment_bytes == out.len());
    let sent = family.relay.poll_transmit(family.now, &mut out).unwrap();
    let to = address(1);
    assert_eq!(sent.place, Where::Child { to, local: LOCAL });
    assert_eq!(sent.segment_bytes, message.len());
    assert_eq!(out.len(), 32 * message.len());
    // RED marks the top group while the queue grows, in the IP header of the datagram inside.
    let (mut marked, mut total) = (0, 0);
    loop {
        for message in out.chunks(message.len()) {
            total += 1;
            marked += u32::from(message[3] & 3 == 3);
            assert!(checksum_is_right(&message[2..22]));
        }
        if family.relay.poll_transmit(family.now, &mut out).is_none() {
            break;
        }
    }
    assert!(total >= 60 && marked > 20, "{marked} of {total}");
}

#[test]
fn a_thousand_children_share_the_bytes_of_a_message() {
    let config = RelayConfig {
        children_max: 1000,
        ..config()
    };
    let mut relay = relay(config);
    let message: Arc<[u8]> = data_message(0, 1400, 2).into();
    for number in 0..1000 {
        for _ in 0..15 {
            let at = address(number);
            relay
                .push(Time::ZERO, at, LOCAL, 0, Some(0), &message)
                .unwrap();
        }
    }
    assert_eq!(Arc::strong_count(&message), 15_001);
    let (packets, bytes) = relay.hop(address(999)).unwrap().queued;
    assert_eq!((packets, bytes), (15, 15 * (message.len() as u64 + 28)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]
    /// A parent sees the same bytes whatever the order of the receivers.
    #[test]
    fn reports_do_not_depend_on_the_order_of_the_receivers(
        order in Just((1..=8_u16).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let reports_in = |order: &[u16]| {
            let config = RelayConfig {
                has_parent: true,
                key: Some(HopKey::new([5; 16])),
                ..config()
            };
            let mut family = Family::new(config, 8);
            let mut sent = Vec::new();
            for round in 1..=3 {
                family.relay.observe_data(family.now, 0, &request(0, round));
                family.now += ms(30);
                for (place, number) in order.iter().enumerate() {
                    let place = place as u32;
                    let group = (place % 2) as u8;
                    let feedback = report(7, group, round, place.is_multiple_of(3), 1000 * (place + 1));
                    family.report(*number, feedback).unwrap();
                }
                sent.extend(family.exchange());
                family.now += ms(100);
            }
            sent
        };
        let sorted: Vec<u16> = (1..=8).collect();
        let sent = reports_in(&order);
        // One report per round describes both groups.
        prop_assert_eq!(sent.len(), 3);
        prop_assert_eq!(sent, reports_in(&sorted));
    }
}

#[test]
fn the_lower_group_suits_the_slow_receiver_behind_a_relay() {
    let mut tree = Tree::new(&[600_000, 3_000_000]);
    tree.run_until(60.0);
    let before = tree.received();
    tree.run_until(120.0);
    let after = tree.received();
    let rates: Vec<f64> = (0..2)
        .map(|place| (after[place] - before[place]) as f64 * 8.0 / 60.0)
        .collect();
    let subscribed = tree.subscribed();
    assert!(subscribed[0] < subscribed[1], "{subscribed:?} {rates:?}");
    // The slow receiver gets most of its link, without the fast one's packets in its queue.
    assert!(rates[0] > 0.6 * 600_000.0, "{rates:?}");
    assert!(rates[1] > 0.6 * 3_000_000.0, "{rates:?}");
    assert!(tree.loss(0) < 0.02, "{}", tree.loss(0));
}

#[test]
fn addresses_of_both_families_are_children() {
    let mut relay = relay(config());
    let six: SocketAddr = "[2001:db8::1]:9".parse().unwrap();
    let local: IpAddr = "2001:db8::2".parse().unwrap();
    relay.set_top(Time::ZERO, six, local, 0, Some(0)).unwrap();
    let mut out = Vec::new();
    let sent = relay.poll_transmit(Time::ZERO, &mut out).unwrap();
    assert_eq!(sent.place, Where::Child { to: six, local });
    assert_ne!(local, IpAddr::V4(Ipv4Addr::LOCALHOST));
}
