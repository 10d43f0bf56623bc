//! A receiver of a stream that states false numbers in its reports.

use std::sync::Arc;

use manyflow_layered::Feedback;

use super::rejoin::live_tree;
use super::tree::{LOCAL, address, data_message, ms};
use super::{Family, config, report, request};

/// The links of the honest receivers, and that of the liar.
const LINKS_BITS: [u64; 4] = [4_000_000, 4_000_000, 1_000_000, 4_000_000];
const LIAR: usize = 3;

/// Returns the share of its link that each honest receiver gets between 60 and 90 s, beside a
/// receiver that changes its reports from the start.
fn shares_beside(lie: fn(&mut Feedback)) -> Vec<f64> {
    let mut tree = live_tree(&LINKS_BITS.map(|rate| (rate, ms(20))));
    tree.let_lie(LIAR, lie);
    tree.run_until(60.0);
    let before = tree.received();
    tree.run_until(90.0);
    let after = tree.received();
    let bits = after
        .iter()
        .zip(before)
        .map(|(after, before)| (after - before) * 8);
    let honest = bits.zip(LINKS_BITS).take(LIAR);
    honest
        .map(|(bits, rate)| bits as f64 / 30.0 / rate as f64)
        .collect()
}

#[test]
fn a_receiver_that_claims_to_be_many_takes_nothing_from_the_others() {
    for (label, lie) in [
        ("none", (|_| ()) as fn(&mut Feedback)),
        ("all congested", |feedback| {
            (feedback.reports, feedback.congested) = (u32::MAX, u32::MAX);
        }),
        ("none congested", |feedback| {
            (feedback.reports, feedback.congested) = (u32::MAX, 0);
        }),
        ("a population", |feedback| feedback.population = u32::MAX),
    ] {
        let shares = shares_beside(lie);
        println!("{label}: {shares:.2?}");
        assert!(
            shares.iter().all(|share| *share > 0.85),
            "{label}: {shares:.2?}"
        );
    }
}

/// With the longest round-trip time that is believed, rounds take 4 s, so that rates are still
/// growing a minute after the start. The bound of a quarter was chosen after 28 % had been seen; if
/// 10 s are believed instead of 2 s, the others get 9 %.
#[test]
fn a_receiver_that_states_a_long_round_trip_time_slows_the_start_of_the_others() {
    let shares = shares_beside(|feedback| feedback.rtt_us = u32::MAX);
    println!("{shares:.2?}");
    assert!(shares.iter().all(|share| *share > 0.25), "{shares:.2?}");
}

#[test]
fn a_receiver_that_states_no_round_trip_time_takes_nothing_from_the_others() {
    let shares = shares_beside(|feedback| feedback.rtt_us = 0);
    assert!(shares.iter().all(|share| *share > 0.85), "{shares:.2?}");
}

/// Each of two receivers reports congestion. The one whose packets were marked before they came
/// here is congested.
#[test]
fn a_receiver_is_congested_if_its_packets_were_marked_whatever_it_says() {
    let mut family = Family::new(config(), 2);
    let push = |family: &mut Family, number, ecn| {
        let message: Arc<[u8]> = data_message(1, 1000, ecn).into();
        let pushed = (family.relay).push(family.now, address(number), LOCAL, 0, Some(1), &message);
        pushed.expect("the queue has room");
    };
    for (round, marked) in [(1, [2, 2]), (2, [2, 3]), (3, [3, 3]), (4, [2, 2])] {
        (1..)
            .zip(marked)
            .for_each(|(n, ecn)| push(&mut family, n, ecn));
        let data = request(1, round);
        family.relay.observe_data(family.now, 0, &data);
        (1..=2).for_each(|number| push(&mut family, number, 2));
        for number in 1..=2 {
            family
                .report(number, report(7, 1, round, true, 100))
                .unwrap();
        }
        let summary = family.relay.poll_feedback().unwrap();
        let expected = marked.iter().filter(|ecn| **ecn == 3).count() as u32;
        assert_eq!(
            (summary.reports, summary.congested),
            (2, expected),
            "{round}"
        );
        family.now += ms(200);
    }
}
