use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::time::SystemTime;

use manyflow_core::Time;
use manyflow_core::units::Rate;
use manyflow_net::keys::SigningKey;
use proptest::prelude::*;
use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

use super::message::{Answer, AnswerKind, MESSAGE_BYTES_MAX, decode_report, encode_report};
use super::reporter::ReporterState;
use super::*;

mod attacks;
mod lists;
mod progress;

fn key(is_secret: bool) -> CompletionKey {
    CompletionKey {
        key: hmac::Key::new(hmac::HMAC_SHA256, &[7; 32]),
        tsi: 9,
        content_id: [1; 32],
        is_secret,
    }
}

fn tally(is_secret: bool, number: u32) -> Tally {
    Tally::new(key(is_secret), Audience::Number(number), [3; 32])
}

/// A tally with a list of these names and keys.
fn listed(receivers: &[(&str, Option<&SigningKey>)]) -> Tally {
    let receivers = receivers.iter().map(|(name, key)| Expected {
        name: name.parse().unwrap(),
        key: key.map(SigningKey::public),
    });
    let audience = Audience::Listed {
        receivers: receivers.collect(),
        ends_after: None,
    };
    Tally::new(key(false), audience, [3; 32])
}

/// The receiver of an output folder with this number, on the host `host`.
fn unnamed(number: u64) -> Identity {
    let mut identity = Identity::named("host".parse().unwrap());
    identity.number = number;
    identity
}

fn named(name: &str) -> Identity {
    Identity::named(name.parse().unwrap())
}

fn signing_key() -> SigningKey {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    SigningKey::generate(&path).unwrap();
    SigningKey::read(&path).unwrap()
}

fn seed(number: u64) -> [u8; 32] {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&number.to_be_bytes());
    seed
}

/// A receiver that has all files at once.
fn reporter(number: u64, window: Duration) -> Reporter {
    let identity = unnamed(number);
    let mut reporter = Reporter::new(key(true), identity, window, false, Time::ZERO, seed(number));
    reporter.end(Time::ZERO, ReceiverStatus::Done);
    reporter
}

/// The address of a receiver.
fn address(receiver: usize) -> SocketAddr {
    let [_, a, b, c] = (receiver as u32).to_be_bytes();
    ([10, a, b, c], 4000).into()
}

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

/// Runs reporters against a tally until a time, over a path that loses this share of all datagrams.
/// Returns the times of the reports, with the datagrams.
fn run_until(
    end: Time,
    reporters: &mut [Reporter],
    tally: &mut Tally,
    loss: f64,
    seed: u64,
) -> Vec<(Time, usize, Vec<u8>)> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut lost = || (random.next_u32() as f64) < loss * f64::from(u32::MAX);
    let mut sent = Vec::new();
    let timeout =
        |reporter: &Reporter, index: usize| reporter.poll_timeout().map(|at| Reverse((at, index)));
    let mut timers: BinaryHeap<_> = (0..reporters.len())
        .filter_map(|index| timeout(&reporters[index], index))
        .collect();
    while let Some(Reverse((now, index))) = timers.pop()
        && now < end
    {
        let reporter = &mut reporters[index];
        reporter.handle_timeout(now);
        while let Some(report) = reporter.poll_transmit() {
            sent.push((now, index, report.clone()));
            let answer = Some(report)
                .filter(|_| !lost())
                .and_then(|report| tally.handle(now, address(index), &report));
            if let Some(answer) = answer.filter(|_| !lost()) {
                reporter.handle(&answer);
            }
        }
        timers.extend(timeout(reporter, index));
    }
    sent
}

fn run(reporters: &mut [Reporter], tally: &mut Tally, loss: f64, seed: u64) -> Vec<Time> {
    let sent = run_until(Time::MAX, reporters, tally, loss, seed);
    sent.into_iter().map(|(at, _, _)| at).collect()
}

/// Makes one report from this address, with the cookie of a challenge. Returns whether the sender
/// has accepted it.
fn report(
    tally: &mut Tally,
    now: Time,
    from: SocketAddr,
    identity: &Identity,
    status: ReceiverStatus,
) -> bool {
    let mut cookie = 0;
    for _ in 0..2 {
        let report = encode_report(
            &key(false),
            identity,
            cookie,
            status,
            &Transfer::default(),
            None,
        );
        let answer = tally.handle(now, from, &report);
        let Some(answer) = answer.and_then(|answer| Answer::decode(&answer, &key(false))) else {
            return false;
        };
        if answer.kind == AnswerKind::Accepted {
            return true;
        }
        cookie = answer.next_cookie;
    }
    false
}

fn done(tally: &Tally) -> u32 {
    tally.table().counts().done()
}

#[test]
fn two_hundred_receivers_are_counted_within_one_window_at_one_datagram_per_second() {
    let window = window(200);
    let mut reporters: Vec<_> = (0..200).map(|n| reporter(n, window)).collect();
    let mut tally = tally(true, 200);
    let sent = run(&mut reporters, &mut tally, 0.0, 1);
    assert_eq!(done(&tally), 200);
    assert!(tally.is_complete());
    assert!(reporters.iter().all(|r| r.state() == ReporterState::Taken));
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
        counted += done(&tally);
    }
    // An attempt succeeds with 0.8^3, as far as the tally is concerned, and with 0.8 once there is
    // a cookie. After three attempts, 0.047 have no cookie and 0.031 were not lucky with it.
    assert!((890..950).contains(&counted), "{counted} of 1000");
}

#[test]
fn a_reporter_without_answers_gives_up() {
    let mut reporters = [reporter(1, Duration::from_secs(10))];
    let sent = run(&mut reporters, &mut tally(true, 1), 1.0, 1);
    assert_eq!(sent.len(), 3);
    assert_eq!(reporters[0].state(), ReporterState::Unanswered);
}

#[test]
fn a_receiver_that_is_started_again_is_counted_once() {
    let mut tally = tally(false, 10);
    let folder = tempfile::tempdir().unwrap();
    for round in 0..3 {
        // Another process of the same folder, with another port.
        let identity = Identity::of_folder(folder.path(), &[1; 32]);
        let from = SocketAddr::new([10, 0, 0, 1].into(), 4000 + round);
        assert!(report(
            &mut tally,
            at(0),
            from,
            &identity,
            ReceiverStatus::Done
        ));
        assert_eq!(done(&tally), 1);
    }
    // Another session in the folder, another folder, and a name of its own.
    let identity = Identity::of_folder(folder.path(), &[2; 32]);
    report(
        &mut tally,
        at(0),
        address(1),
        &identity,
        ReceiverStatus::Done,
    );
    let other = tempfile::tempdir().unwrap();
    let identity = Identity::of_folder(other.path(), &[1; 32]);
    report(
        &mut tally,
        at(0),
        address(1),
        &identity,
        ReceiverStatus::Done,
    );
    assert_eq!(done(&tally), 3);
    for from in 1..4 {
        report(
            &mut tally,
            at(0),
            address(from),
            &named("a"),
            ReceiverStatus::Done,
        );
    }
    assert_eq!(done(&tally), 4);
}

#[test]
fn receivers_beyond_the_number_get_an_answer_and_no_memory() {
    let mut tally = tally(true, 2);
    for number in 0..5 {
        let identity = unnamed(number);
        let from = address(number as usize);
        assert!(report(
            &mut tally,
            at(0),
            from,
            &identity,
            ReceiverStatus::Done
        ));
    }
    assert_eq!((done(&tally), tally.table().receivers().len()), (2, 2));
}

/// Reports of 100 receivers at one address.
fn counted_at_one_address(is_secret: bool) -> u32 {
    let mut tally = tally(is_secret, 100);
    for number in 1..=100 {
        report(
            &mut tally,
            at(0),
            address(1),
            &unnamed(number),
            ReceiverStatus::Done,
        );
    }
    done(&tally)
}

#[test]
fn an_address_reports_for_few_receivers_without_a_group_key() {
    assert_eq!(counted_at_one_address(false), RECEIVERS_PER_CLIENT_MAX);
    assert_eq!(counted_at_one_address(true), 100);
}
