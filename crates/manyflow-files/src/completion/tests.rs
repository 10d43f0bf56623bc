use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;

use manyflow_core::Time;
use proptest::prelude::*;
use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

use super::message::{Kind, MESSAGE_BYTES, Message};
use super::reporter::ReporterState;
use super::*;

fn key(is_secret: bool) -> CompletionKey {
    CompletionKey {
        key: hmac::Key::new(hmac::HMAC_SHA256, &[7; 32]),
        tsi: 9,
        is_secret,
    }
}

fn tally(is_secret: bool, expected: u32) -> Tally {
    Tally::new(key(is_secret), expected, [3; 32])
}

fn reporter(number: u64, window: Duration) -> Reporter {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&number.to_be_bytes());
    Reporter::new(key(true), window, Time::ZERO, seed)
}

/// The address of a receiver.
fn address(receiver: usize) -> SocketAddr {
    let [_, a, b, c] = (receiver as u32).to_be_bytes();
    ([10, a, b, c], 4000).into()
}

/// Runs reporters against a tally over a path that loses this share of all datagrams. Returns the
/// times of the reports.
fn run(reporters: &mut [Reporter], tally: &mut Tally, loss: f64, seed: u64) -> Vec<Time> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut lost = || (random.next_u32() as f64) < loss * f64::from(u32::MAX);
    let mut sent = Vec::new();
    let timeout =
        |reporter: &Reporter, index: usize| reporter.poll_timeout().map(|at| Reverse((at, index)));
    let mut timers: BinaryHeap<_> = (0..reporters.len())
        .filter_map(|index| timeout(&reporters[index], index))
        .collect();
    while let Some(Reverse((now, index))) = timers.pop() {
        let reporter = &mut reporters[index];
        reporter.handle_timeout(now);
        while let Some(report) = reporter.poll_transmit() {
            sent.push(now);
            let arrives = |datagram| (!lost()).then_some(datagram);
            let answer = Some(report)
                .and_then(arrives)
                .and_then(|report| tally.handle(address(index), &report));
            if let Some(answer) = answer.filter(|_| !lost()) {
                reporter.handle(&answer);
            }
        }
        timers.extend(timeout(reporter, index));
    }
    sent
}

#[test]
fn two_hundred_receivers_are_counted_within_one_window_at_one_datagram_per_second() {
    let window = window(200);
    let mut reporters: Vec<_> = (0..200).map(|n| reporter(n, window)).collect();
    let mut tally = tally(true, 200);
    let sent = run(&mut reporters, &mut tally, 0.0, 1);
    assert_eq!(tally.count(), 200);
    assert!(
        reporters
            .iter()
            .all(|r| r.state() == ReporterState::Counted)
    );
    assert_eq!(sent.len(), 400);
    assert!(sent.iter().all(|at| *at < Time::ZERO + window));
    // The times are random, so a minute has 60 reports only on average.
    for minute in 0..6 {
        let start = Time::ZERO + Duration::from_secs(60 * minute);
        let end = start + Duration::from_secs(60);
        let count = sent.iter().filter(|at| (start..end).contains(at)).count();
        assert!((30..100).contains(&count), "minute {minute}: {count}");
    }
}

#[test]
fn reports_are_repeated_on_a_path_with_loss() {
    let mut counted = 0;
    for seed in 0..20 {
        let window = window(50);
        let mut reporters: Vec<_> = (0..50).map(|n| reporter(n + 50 * seed, window)).collect();
        let mut tally = tally(true, 50);
        let sent = run(&mut reporters, &mut tally, 0.2, seed);
        assert!(sent.iter().all(|at| *at < Time::ZERO + window * 3));
        counted += tally.count();
    }
    // An attempt succeeds with 0.8^3, as far as the tally is concerned: three fail with 0.12.
    assert!((830..930).contains(&counted), "{counted} of 1000");
}

#[test]
fn a_reporter_without_answers_gives_up() {
    let mut reporters = [reporter(1, Duration::from_secs(10))];
    let sent = run(&mut reporters, &mut tally(true, 1), 1.0, 1);
    assert_eq!(sent.len(), 3);
    assert_eq!(reporters[0].state(), ReporterState::Unanswered);
}

#[test]
fn a_report_without_the_cookie_of_its_address_counts_nothing() {
    let mut tally = tally(true, 10);
    let report = |cookie| {
        let message = Message {
            kind: Kind::Report,
            receiver: 5,
            cookie,
        };
        message.encode(&key(true))
    };
    let challenge = tally.handle(address(1), &report(0)).unwrap();
    let cookie = Message::decode(&challenge, &key(true)).unwrap().cookie;
    // The cookie of another address, and a guess.
    for (from, cookie) in [(address(2), cookie), (address(1), cookie ^ 2)] {
        let answer = tally.handle(from, &report(cookie)).unwrap();
        let answer = Message::decode(&answer, &key(true)).unwrap();
        assert_eq!(answer.kind, Kind::Challenge);
    }
    assert_eq!(tally.count(), 0);
    // Repeated as often as anyone likes, it counts once.
    for _ in 0..3 {
        let answer = tally.handle(address(1), &report(cookie)).unwrap();
        assert_eq!(
            Message::decode(&answer, &key(true)).unwrap().kind,
            Kind::Counted
        );
        assert_eq!(tally.count(), 1);
    }
}

/// Reports of 100 receivers at one address.
fn counted_at_one_address(is_secret: bool) -> u32 {
    let mut tally = tally(is_secret, 100);
    for receiver in 1..=100 {
        let mut cookie = 0;
        for _ in 0..2 {
            let report = Message {
                kind: Kind::Report,
                receiver,
                cookie,
            };
            let answer = tally.handle(address(1), &report.encode(&key(is_secret)));
            let answer = answer.and_then(|answer| Message::decode(&answer, &key(is_secret)));
            cookie = answer.map_or(0, |answer| answer.cookie);
        }
    }
    tally.count()
}

#[test]
fn an_address_reports_for_few_receivers_without_a_group_key() {
    assert_eq!(counted_at_one_address(false), RECEIVERS_PER_CLIENT_MAX);
    assert_eq!(counted_at_one_address(true), 100);
}

proptest! {
    #[test]
    fn a_message_is_read_back_and_no_other_is(receiver: u64, cookie: u64, flipped in 0..MESSAGE_BYTES * 8) {
        for kind in [Kind::Report, Kind::Challenge, Kind::Counted] {
            let message = Message { kind, receiver, cookie };
            let mut bytes = message.encode(&key(true));
            prop_assert_eq!(Message::decode(&bytes, &key(true)), Some(message));
            let other = CompletionKey { tsi: 8, ..key(true) };
            prop_assert_eq!(Message::decode(&bytes, &other), None);
            bytes[flipped / 8] ^= 1 << (flipped % 8);
            prop_assert_eq!(Message::decode(&bytes, &key(true)), None);
        }
    }

    #[test]
    fn any_bytes_are_handled(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        prop_assert_eq!(tally(true, 1).handle(address(1), &bytes), None);
        reporter(1, Duration::from_secs(1)).handle(&bytes);
    }
}
