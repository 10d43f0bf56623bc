//! Tests of SIM's receiver and aggregator, packet by packet. The simulator's scenarios test the
//! whole protocol over routers.

use std::time::Duration;

use manyflow_core::units::Rate;
use manyflow_core::{Action, Channel, Destination, Ecn, Endpoint, EndpointId, Packet, Time};
use manyflow_layered::sim::{Aggregator, Edition, Receiver, ReceiverConfig, Sender, SenderConfig};
use manyflow_layered::{Data, Feedback, Membership, Message, Offer};
use proptest::prelude::*;

mod own_rounds;

const SESSION: u32 = 7;
const PARENT: EndpointId = EndpointId(99);
const RTT: Duration = Duration::from_millis(40);

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

fn data(group: u8, request: u16, rate: u32, ecn: Ecn) -> Packet<Message> {
    Packet::new(
        Destination::Channel(Channel {
            session: SESSION,
            number: group.into(),
        }),
        Message::Data(Data {
            group,
            sequence: 0,
            request,
            is_for_group: false,
            rate,
            rtt_us: RTT.as_micros() as u32,
            next_rate: 0,
            is_pair: false,
        }),
        952,
    )
    .with_ecn(ecn)
}

fn report(source: u32, group: u8, request: u16, congested: bool, rate: u32) -> Feedback {
    Feedback {
        source,
        session: SESSION,
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

fn packet(feedback: Feedback) -> Packet<Message> {
    Packet::new(
        Destination::Endpoint(EndpointId(1)),
        Message::Feedback(feedback),
        0,
    )
}

/// Returns the feedback that an endpoint sends, without joins and leaves.
fn feedback(endpoint: &mut impl Endpoint<Tx = Message>, now: Time) -> Vec<Feedback> {
    let actions = std::iter::from_fn(|| endpoint.poll_action(now));
    let sent = actions.filter_map(|action| match action {
        Action::Send(Packet {
            header: Message::Feedback(feedback),
            destination,
            ..
        }) => {
            assert_eq!(destination, Destination::Endpoint(PARENT));
            Some(feedback)
        }
        _ => None,
    });
    sent.collect()
}

/// Returns an aggregator that knows these children by their answers to request 1.
fn aggregator(children: &[u32]) -> Aggregator {
    let mut aggregator = Aggregator::new(SESSION, 1000, PARENT);
    for source in children {
        aggregator.handle_packet(at(0), &packet(report(*source, 0, 1, false, 1)));
    }
    feedback(&mut aggregator, at(0));
    aggregator
}

#[test]
fn an_aggregator_answers_when_all_its_children_have_answered() {
    let mut aggregator = aggregator(&[1, 2]);
    aggregator.handle_packet(at(100), &data(0, 2, 1, Ecn::Capable));
    aggregator.handle_packet(at(120), &packet(report(1, 0, 2, true, 100)));
    assert_eq!(feedback(&mut aggregator, at(120)), []);
    aggregator.handle_packet(at(130), &packet(report(2, 0, 2, false, 300)));
    let expected = Feedback {
        reports: 2,
        congested: 1,
        minimum: 100,
        maximum: 300,
        population: 2,
        hold_us: 30_000,
        rtt_us: 30_000,
        ..report(1000, 0, 2, false, 0)
    };
    assert_eq!(feedback(&mut aggregator, at(130)), [expected]);
}

#[test]
fn an_aggregator_passes_on_the_first_early_report_of_a_round_at_once() {
    let mut aggregator = aggregator(&[1, 2]);
    for request in [2, 3] {
        let now = 100 * u64::from(request);
        aggregator.handle_packet(at(now), &data(0, request, 1, Ecn::Capable));
        let early = |source| Feedback {
            reports: 0,
            ..report(source, 0, request, false, 50)
        };
        aggregator.handle_packet(at(now + 10), &packet(early(1)));
        assert_eq!(feedback(&mut aggregator, at(now + 10)), [early(1000)]);
        aggregator.handle_packet(at(now + 11), &packet(early(2)));
        assert_eq!(feedback(&mut aggregator, at(now + 11)), [], "the second");
        for source in [1, 2] {
            let answer = report(source, 0, request, true, 50);
            aggregator.handle_packet(at(now + 20), &packet(answer));
        }
        let answers = feedback(&mut aggregator, at(now + 20));
        assert_eq!((answers.len(), answers[0].reports), (1, 2));
    }
}

#[test]
fn an_aggregator_answers_for_each_group_and_marks_the_last_answer() {
    let mut aggregator = aggregator(&[1, 2]);
    aggregator.handle_packet(at(100), &data(0, 2, 1, Ecn::Capable));
    aggregator.handle_packet(at(110), &packet(report(1, 3, 2, true, 100)));
    aggregator.handle_packet(at(110), &packet(report(2, 1, 2, false, 300)));
    let answers = feedback(&mut aggregator, at(110));
    let groups: Vec<_> = answers.iter().map(|f| (f.group, f.more)).collect();
    assert_eq!(groups, [(1, true), (3, false)]);
}

#[test]
fn an_aggregator_states_the_round_trip_time_of_each_group_and_first_the_longest() {
    let mut aggregator = aggregator(&[1, 2, 3]);
    aggregator.handle_packet(at(100), &data(0, 2, 1, Ecn::Capable));
    for (now, source, group) in [(110, 1, 3), (120, 2, 1), (150, 3, 2)] {
        let one = report(source, group, 2, false, 100);
        aggregator.handle_packet(at(now), &packet(one));
    }
    let answers = feedback(&mut aggregator, at(150));
    let rtts: Vec<_> = answers.iter().map(|f| (f.group, f.rtt_us)).collect();
    assert_eq!(rtts, [(1, 50_000), (2, 50_000), (3, 10_000)]);
}

#[test]
fn an_aggregator_waits_two_round_trips_for_a_silent_child() {
    let mut aggregator = aggregator(&[1, 2]);
    // In this round, the aggregator learns that its farthest child is 30 ms away.
    aggregator.handle_packet(at(100), &data(0, 2, 1, Ecn::Capable));
    aggregator.handle_packet(at(110), &packet(report(1, 0, 2, false, 1)));
    aggregator.handle_packet(at(130), &packet(report(2, 0, 2, false, 1)));
    feedback(&mut aggregator, at(130));
    aggregator.handle_packet(at(200), &data(0, 3, 1, Ecn::Capable));
    aggregator.handle_packet(at(210), &packet(report(1, 0, 3, false, 1)));
    assert_eq!(aggregator.poll_timeout(), Some(at(260)));
    aggregator.handle_timeout(at(260));
    let answers = feedback(&mut aggregator, at(260));
    assert_eq!((answers.len(), answers[0].population), (1, 1));
}

#[test]
fn a_child_that_missed_four_rounds_is_no_longer_awaited() {
    let mut aggregator = aggregator(&[1, 2]);
    for request in 2..8 {
        let now = 100 * u64::from(request);
        aggregator.handle_packet(at(now), &data(0, request, 1, Ecn::Capable));
        aggregator.handle_packet(at(now + 10), &packet(report(1, 0, request, false, 1)));
        let is_answered = !feedback(&mut aggregator, at(now + 10)).is_empty();
        assert_eq!(is_answered, request > 5, "request {request}");
        aggregator.handle_timeout(at(now + 99));
        feedback(&mut aggregator, at(now + 99));
    }
}

proptest! {
    /// Neither the identities of receivers nor the order of their reports reach the sender: any
    /// permutation of the receivers of a subtree gives the same answer.
    #[test]
    fn summaries_are_the_same_under_any_permutation_of_receivers(
        reports in prop::collection::vec((0u8..5, any::<bool>(), 1u32..1_000_000), 1..40),
        order in prop::collection::vec(any::<u32>(), 40),
        names in prop::collection::vec(any::<u32>(), 40),
    ) {
        let answers = |sources: &[u32], places: &[usize]| {
            let mut aggregator = aggregator(sources);
            aggregator.handle_packet(at(100), &data(0, 2, 1, Ecn::Capable));
            for (turn, place) in places.iter().enumerate() {
                let (group, congested, rate) = reports[*place];
                let one = report(sources[turn], group, 2, congested, rate);
                aggregator.handle_packet(at(120), &packet(one));
            }
            feedback(&mut aggregator, at(120))
        };
        let count = reports.len();
        let plain: Vec<usize> = (0..count).collect();
        let mut shuffled = plain.clone();
        shuffled.sort_by_key(|place| order[*place]);
        let sources: Vec<u32> = (0..count as u32).collect();
        // Other numbers for the same receivers, all different.
        let renamed: Vec<u32> = (0..count).map(|i| names[i].wrapping_mul(64).wrapping_add(i as u32)).collect();
        prop_assert_eq!(answers(&sources, &plain), answers(&renamed, &shuffled));
    }
}

/// A receiver of five groups that gets a packet of each of its groups in each round.
struct Watched {
    receiver: Receiver,
    round: u16,
}

impl Watched {
    fn new(config: ReceiverConfig) -> Watched {
        let mut receiver = Receiver::new(config, Membership::new(SESSION, 5), 3, PARENT)
            .expect("the parameters are valid");
        receiver.handle_timeout(at(0));
        Watched { receiver, round: 0 }
    }

    /// Runs up to the next change of the subscription, but at most the settling rounds and one
    /// selection interval, while the rate of the top group alternates between `rates`. Returns the
    /// number of subscribed groups.
    fn rounds(&mut self, rates: [u32; 2], ecn: Ecn) -> u8 {
        let before = self.receiver.subscribed();
        for _ in 0..16 {
            if self.receiver.subscribed() != before {
                break;
            }
            self.round += 1;
            let now = at(80 * u64::from(self.round));
            let rate = rates[usize::from(self.round % 2)];
            for group in 0..self.receiver.subscribed() {
                self.receiver
                    .handle_packet(now, &data(group, self.round, rate, ecn));
            }
            feedback(&mut self.receiver, now);
        }
        self.receiver.subscribed()
    }
}

#[test]
fn a_receiver_reports_once_for_each_request_after_the_first() {
    let config = ReceiverConfig::default();
    let mut receiver = Receiver::new(config, Membership::new(SESSION, 5), 3, PARENT)
        .expect("the defaults are valid");
    receiver.handle_timeout(at(0));
    let base = Channel {
        session: SESSION,
        number: 0,
    };
    assert_eq!(receiver.poll_action(at(0)), Some(Action::Join(base)));
    let mut sent = Vec::new();
    // A packet arrives every 20 ms; the one at 300 ms is marked.
    for now in (0..480).step_by(20) {
        let ecn = if now == 300 {
            Ecn::Marked
        } else {
            Ecn::Capable
        };
        let request = 1 + (now / 80) as u16;
        receiver.handle_packet(at(now), &data(0, request, 1, ecn));
        sent.extend(feedback(&mut receiver, at(now)));
    }
    let seen: Vec<_> = sent.iter().map(|f| (f.request, f.congested)).collect();
    assert_eq!(seen, [(2, 0), (3, 0), (4, 0), (5, 1), (6, 0)]);
    // The rate is 1000 bytes every 20 ms.
    assert!(
        sent.iter()
            .all(|f| f.minimum == 50_000 && f.maximum == 50_000)
    );
}

#[test]
fn a_receiver_adds_a_group_if_it_is_not_congested_and_the_rate_falls() {
    let mut watched = Watched::new(ReceiverConfig::default());
    assert_eq!(watched.rounds([100, 100], Ecn::Capable), 1, "no rate fell");
    assert_eq!(watched.rounds([100, 90], Ecn::Capable), 2);
    assert_eq!(watched.rounds([100, 90], Ecn::Marked), 1, "congested");
}

#[test]
fn a_receiver_adds_a_group_despite_marks_in_its_calm_share_of_rounds() {
    let groups_after = |calm_share, marked: u16| {
        let config = ReceiverConfig {
            calm_share,
            ..ReceiverConfig::default()
        };
        let mut watched = Watched::new(config);
        for round in 1..=15 {
            // The rate falls late, when the last mark is no longer its likely cause.
            let rate = if round < 11 { 100 } else { 90 };
            let ecn = if (2..2 + marked).contains(&round) {
                Ecn::Marked
            } else {
                Ecn::Capable
            };
            let now = at(80 * u64::from(round));
            watched
                .receiver
                .handle_packet(now, &data(0, round, rate, ecn));
        }
        watched.receiver.subscribed()
    };
    assert_eq!(groups_after(0.0, 0), 2);
    assert_eq!(groups_after(0.0, 1), 1);
    assert_eq!(groups_after(0.35, 3), 2);
    assert_eq!(groups_after(0.35, 6), 1);
}

#[test]
fn a_receiver_drops_its_top_group_if_it_remains_congested_and_the_rate_rises() {
    let mut watched = Watched::new(ReceiverConfig::default());
    assert_eq!(watched.rounds([100, 90], Ecn::Capable), 2);
    assert_eq!(watched.rounds([100, 100], Ecn::Capable), 2);
    assert_eq!(watched.rounds([100, 100], Ecn::Marked), 2, "no rate rose");
    assert_eq!(watched.rounds([100, 110], Ecn::Marked), 1);
    assert_eq!(
        watched.rounds([100, 110], Ecn::Marked),
        1,
        "one group remains"
    );
}

/// Returns the number of groups after rounds with these rates of the top group and marks, each with
/// ten packets of each group, of which `lost` do not arrive.
fn groups_after(loss_max: f64, lost: u32, rounds: &[(u32, Ecn)]) -> u8 {
    let mut watched = Watched::new(ReceiverConfig {
        loss_max,
        ..ReceiverConfig::default()
    });
    assert_eq!(watched.rounds([100, 90], Ecn::Capable), 2);
    let first = watched.round + 1;
    for (number, (rate, ecn)) in (first..).zip(rounds) {
        let now = at(80 * u64::from(number));
        for group in 0..watched.receiver.subscribed() {
            for place in 0..10 - lost {
                let mut packet = data(group, number, *rate, *ecn);
                if let Message::Data(data) = &mut packet.header {
                    data.sequence = 10 * u32::from(number) + place;
                }
                watched.receiver.handle_packet(now, &packet);
            }
        }
        feedback(&mut watched.receiver, now);
    }
    watched.receiver.subscribed()
}

#[test]
fn a_receiver_that_looks_at_losses_keeps_a_congested_group_that_loses_little() {
    let rising: Vec<_> = (100..130).map(|rate| (rate, Ecn::Marked)).collect();
    assert_eq!(groups_after(0.04, 0, &rising), 2);
    assert_eq!(groups_after(0.04, 1, &rising), 1, "a tenth is lost");
    assert_eq!(groups_after(1.0, 0, &rising), 1, "the paper's rule");
}

#[test]
fn a_receiver_that_has_just_joined_takes_the_first_decrease_for_that_of_others() {
    let mut watched = Watched::new(ReceiverConfig::default());
    for round in 1..=13 {
        // The rate falls once, in the round after the first report.
        let rate = if round < 3 { 100 } else { 90 };
        let packet = data(0, round, rate, Ecn::Capable);
        watched
            .receiver
            .handle_packet(at(80 * u64::from(round)), &packet);
    }
    assert_eq!(watched.receiver.subscribed(), 2);
}

/// The second early report comes after all answers of the round, which are from before the first.
#[test]
fn early_reports_lower_the_lowest_group_once_in_a_round() {
    let mut sender = Sender::new(SenderConfig::default(), SESSION, at(0), None).unwrap();
    sender.handle_timeout(at(0));
    let early = |rate| Feedback {
        reports: 0,
        ..report(1, 0, 1, false, rate)
    };
    let mut rates = vec![sender.rate(0)];
    for reported in [early(8_000), report(1, 0, 1, false, 12_500), early(4_000)] {
        sender.handle_packet(at(40), &packet(reported));
        rates.push(sender.rate(0));
    }
    assert!(rates[1] < rates[0], "{rates:?}");
    assert_eq!(rates[2..], [rates[1]; 2], "one decrease");
    sender.handle_timeout(at(400));
    sender.handle_packet(at(401), &packet(early(4_000)));
    assert!(sender.rate(0) < rates[1], "another round");
}

#[test]
fn a_report_that_is_too_late_to_count_makes_the_rounds_longer() {
    const RTT: u64 = 3000;
    let mut sender =
        Sender::new(SenderConfig::default(), SESSION, at(0), None).expect("the defaults are valid");
    let (mut now, mut last) = (0, 0);
    let mut reports = std::collections::VecDeque::new();
    while now < 60_000 {
        now += 1;
        while let Some((_, request)) = reports.pop_front_if(|(due, _)| *due <= now) {
            let report = report(3, 0, request, false, 10_000);
            sender.handle_packet(at(now), &packet(report));
        }
        sender.handle_timeout(at(now));
        while let Some(action) = sender.poll_action(at(now)) {
            if let Action::Send(packet) = action
                && let Message::Data(data) = packet.header
                && data.request != last
            {
                last = data.request;
                reports.push_back((now + RTT, data.request));
            }
        }
        // Another receiver is near, so that the sender has reports in each round.
        sender.handle_packet(at(now), &packet(report(4, 0, last, false, 10_000)));
    }
    let rtt_ms = sender.rtt().as_millis();
    assert!((2900..3200).contains(&rtt_ms), "{rtt_ms} ms");
}

#[test]
fn a_receiver_leaves_all_groups_when_it_stops() {
    let config = ReceiverConfig::default();
    let membership = Membership {
        stop: Some(at(5000)),
        ..Membership::new(SESSION, 5)
    };
    let receiver = Receiver::new(config, membership, 3, PARENT).expect("the defaults are valid");
    let mut watched = Watched { receiver, round: 0 };
    watched.receiver.handle_timeout(at(0));
    watched.rounds([100, 90], Ecn::Capable);
    assert_eq!(watched.receiver.poll_timeout(), membership.stop);
    watched.receiver.handle_timeout(at(5000));
    let actions = std::iter::from_fn(|| watched.receiver.poll_action(at(5000)));
    let left = actions.filter(|action| matches!(action, Action::Leave(_)));
    assert_eq!(left.count(), 2);
    assert_eq!(watched.receiver.poll_timeout(), None);
}

#[test]
fn a_group_that_was_idle_sends_one_packet_at_once_and_the_next_at_its_rate() {
    let config = SenderConfig {
        groups: 2,
        ..SenderConfig::default()
    };
    let mut sender = Sender::new(config, SESSION, at(0), None).expect("valid in this test");
    let sent_in_top = |sender: &mut Sender, now, waiting| {
        (0..2).for_each(|group| sender.offer(group, waiting));
        sender.handle_timeout(now);
        let actions = std::iter::from_fn(|| sender.poll_action(now));
        let is_top = |action: &Action<Message>| {
            matches!(action, Action::Send(packet)
                if matches!(packet.header, Message::Data(data) if data.group == 1))
        };
        actions.filter(is_top).count()
    };
    let mut now = at(0);
    while now < at(1000) {
        assert_eq!(sent_in_top(&mut sender, now, 0), 0, "nothing waits");
        now = sender.poll_timeout().expect("it has no end");
    }
    assert_eq!(sent_in_top(&mut sender, now, 1000), 1, "at once");
    assert_eq!(sent_in_top(&mut sender, now, 1000), 0, "not two");
    let next = sender.poll_timeout().expect("it has no end");
    assert!(next > now, "no call before something is due");
}

#[test]
fn the_second_edition_has_no_rounds_of_each_group() {
    let config = SenderConfig {
        group_rounds: true,
        ..SenderConfig::of(Edition::Second)
    };
    let refused = Sender::new(config, SESSION, at(0), None).expect_err("it has one cycle");
    assert_eq!(
        refused.to_string(),
        "the rounds of each group must be off with the second edition"
    );
}

/// The second edition moves a group without receivers from 8 Mbit/s to the rate of the faster of
/// two paths. The group above it, which was just above 8 Mbit/s, sends 4.2 Mbit/s by itself then.
#[test]
fn a_group_whose_rate_rises_sends_its_next_packet_at_the_new_rate() {
    let config = SenderConfig {
        groups: 3,
        initial_rtt: RTT,
        ..SenderConfig::of(Edition::Second)
    };
    let mut sender = Sender::new(config, SESSION, at(0), None).expect("valid in this test");
    sender.begin_with(&[1_000_000, 8_000_000, 8_040_000].map(Rate::from_bits_per_s));
    let (mut now, mut asked, mut moved) = (at(0), 0, None);
    while now < at(10_000) {
        sender.handle_timeout(now);
        let mut request = asked;
        while let Some(Action::Send(packet)) = sender.poll_action(now) {
            let Message::Data(data) = packet.header else {
                panic!("a sender sends data");
            };
            request = data.request;
            if let Some(moved) = moved.filter(|_| data.group == 2) {
                // A packet takes 2 ms at 4.2 Mbit/s, and 200 ms at the rate before.
                assert!(now - moved < Duration::from_millis(4), "{:?}", now - moved);
                return;
            }
        }
        if request != asked {
            asked = request;
            for (source, carried) in [(3, 129_000), (4, 500_000)] {
                sender.handle_packet(now, &packet(report(source, 0, asked, false, carried)));
            }
        }
        if moved.is_none() && sender.rate(1).bits_per_s() < 4_000_000 {
            moved = Some(now);
        }
        now = sender.poll_timeout().expect("it has no end");
    }
    panic!("the group did not move: {}", sender.rate(1));
}
