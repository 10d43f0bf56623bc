//! Reports that are forged, repeated, or made in the name of another receiver.

use super::*;

/// The states, times and addresses of all receivers.
fn snapshot(tally: &Tally) -> String {
    format!("{:?}", tally.table().receivers())
}

#[test]
fn a_report_without_the_cookie_of_its_address_counts_nothing() {
    let mut tally = tally(true, 10);
    let report = |cookie| {
        let status = ReceiverStatus::Done;
        encode_report(
            &key(true),
            &unnamed(5),
            cookie,
            status,
            &Transfer::default(),
            None,
        )
    };
    let mut answer = |from, cookie| {
        let answer = tally.handle(at(0), from, &report(cookie)).unwrap();
        (Answer::decode(&answer, &key(true)).unwrap(), done(&tally))
    };
    let (challenge, _) = answer(address(1), 0);
    let cookie = challenge.next_cookie;
    // The cookie of another address, of another port, and a guess.
    let port = SocketAddr::new(address(1).ip(), 4001);
    for (from, cookie) in [
        (address(2), cookie),
        (port, cookie),
        (address(1), cookie ^ 2),
    ] {
        let (answer, done) = answer(from, cookie);
        assert_eq!((answer.kind, done), (AnswerKind::Challenge, 0));
    }
    let (accepted, done) = answer(address(1), cookie);
    assert_eq!((accepted.kind, done), (AnswerKind::Accepted, 1));
    // A cookie is good for one report.
    let (again, done) = answer(address(1), cookie);
    assert_eq!((again.kind, done), (AnswerKind::Challenge, 1));
    let (next, done) = answer(address(1), accepted.next_cookie);
    assert_eq!((next.kind, done), (AnswerKind::Accepted, 1));
}

#[test]
fn repeated_reports_change_nothing() {
    let signing = signing_key();
    let mut tally = listed(&[("a", None), ("b", Some(&signing)), ("c", None)]);
    let identities = [
        named("a"),
        Identity::keyed("b".parse().unwrap(), signing),
        named("stranger"),
    ];
    let window = Duration::from_secs(2);
    let mut reporters: Vec<_> = identities
        .into_iter()
        .zip(0..)
        .map(|(identity, n)| Reporter::new(key(false), identity, window, true, at(0), seed(n)))
        .collect();
    let mut sent = run_until(at(20), &mut reporters, &mut tally, 0.1, 1);
    reporters[0].end(at(20), ReceiverStatus::Failed(Failure::DiskFull));
    reporters[1].end(at(20), ReceiverStatus::Done);
    sent.extend(run_until(at(60), &mut reporters[..2], &mut tally, 0.0, 2));
    let before = snapshot(&tally);
    assert_eq!(done(&tally), 1, "{before}");
    assert!(sent.len() > 20);
    for (_, index, datagram) in &sent {
        // From the receiver's own address, and from that of the attacker.
        for from in [address(*index), address(77)] {
            let answer = tally.handle(at(100), from, datagram);
            let answer = answer.and_then(|answer| Answer::decode(&answer, &key(false)));
            assert_eq!(answer.unwrap().kind, AnswerKind::Challenge);
        }
    }
    assert_eq!(snapshot(&tally), before);
}

#[test]
fn nobody_takes_a_name_that_is_listed_with_a_key() {
    let (owner, thief) = (signing_key(), signing_key());
    let public = owner.public();
    let mut tally = listed(&[("a", Some(&owner))]);
    let name = || "a".parse::<ReceiverName>().unwrap();
    // Without a key, with another key, and with the owner's public key but not its private one.
    let with_other = Identity::keyed(name(), thief);
    for identity in [&named("a"), &with_other] {
        assert!(report(
            &mut tally,
            at(1),
            address(1),
            identity,
            ReceiverStatus::Done
        ));
    }
    let mut cookie = 0;
    for kind in [Some(AnswerKind::Challenge), None] {
        let status = ReceiverStatus::Done;
        let report = encode_report(
            &key(false),
            &with_other,
            cookie,
            status,
            &Transfer::default(),
            None,
        );
        let false_report = with_key(&report, public.to_bytes());
        let answer = tally.handle(at(2), address(1), &false_report);
        let answer = answer.and_then(|answer| Answer::decode(&answer, &key(false)));
        assert_eq!(answer.map(|answer| answer.kind), kind);
        cookie = answer.map_or(0, |answer| answer.next_cookie);
    }
    let rows = tally.table().receivers();
    assert_eq!(rows[0].state, ReceiverState::NeverHeard);
    assert_eq!(rows.len(), 3);
    for row in &rows[1..] {
        assert!(!row.is_expected && row.lacks_key, "{row:?}");
    }
    assert!(!tally.is_complete() && done(&tally) == 0);

    // The owner, under whatever name.
    let identity = Identity::keyed("other".parse().unwrap(), owner);
    assert!(report(
        &mut tally,
        at(3),
        address(2),
        &identity,
        ReceiverStatus::Done
    ));
    assert_eq!(done(&tally), 1);
    assert_eq!(tally.table().receivers()[0].name, name());
}

/// Returns the report with another public key, and the MAC that every holder of the description can
/// make.
fn with_key(report: &[u8], public: [u8; 32]) -> Vec<u8> {
    let mut bytes = report[..report.len() - 16].to_vec();
    let start = bytes.len() - 96;
    bytes[start..start + 32].copy_from_slice(&public);
    let mac = hmac::sign(&key(false).key, &bytes);
    bytes.extend(&mac.as_ref()[..16]);
    bytes
}

#[test]
fn a_signature_of_another_session_is_refused() {
    let signing = signing_key();
    let mut tally = listed(&[("a", Some(&signing))]);
    let identity = Identity::keyed("a".parse().unwrap(), signing);
    // The sender of another session with the same TSI and key makes the receiver sign its cookie.
    let other = CompletionKey {
        content_id: [2; 32],
        ..key(false)
    };
    let status = ReceiverStatus::Done;
    let first = encode_report(&other, &identity, 0, status, &Transfer::default(), None);
    let challenge = tally.handle(at(0), address(1), &first).unwrap();
    let cookie = Answer::decode(&challenge, &other).unwrap().next_cookie;
    let second = encode_report(
        &other,
        &identity,
        cookie,
        status,
        &Transfer::default(),
        None,
    );
    assert_eq!(tally.handle(at(0), address(1), &second), None);
    let own = encode_report(
        &key(false),
        &identity,
        cookie,
        status,
        &Transfer::default(),
        None,
    );
    assert!(tally.handle(at(0), address(1), &own).is_some());
    assert_eq!(done(&tally), 1);
}

#[test]
fn answers_that_a_receiver_did_not_ask_for_are_ignored() {
    let mut reporter = reporter(1, Duration::from_secs(2));
    let answer = |kind, answered_cookie, window| {
        let answer = Answer {
            kind,
            number: 1,
            answered_cookie,
            next_cookie: 5,
            window: Duration::from_secs(window),
        };
        answer.encode(&key(true))
    };
    reporter.handle(&answer(AnswerKind::Challenge, 0, 2));
    assert_eq!(reporter.poll_transmit(), None);
    reporter.handle_timeout(at(2));
    assert!(reporter.poll_transmit().is_some());
    reporter.handle(&answer(AnswerKind::Accepted, 9, 2));
    assert_eq!(reporter.state(), ReporterState::Reporting);
    // A sender that challenges without an end gets an answer to some.
    let mut cookie = 0;
    for challenge in 0..10 {
        reporter.handle(&answer(AnswerKind::Challenge, cookie, 2));
        assert_eq!(reporter.poll_transmit().is_some(), challenge < 4);
        cookie = 5;
    }
}

fn status() -> impl Strategy<Value = ReceiverStatus> {
    (0..4u8, 1..=9u8).prop_map(|(kind, code)| match kind {
        0 => ReceiverStatus::Receiving,
        1 => ReceiverStatus::Done,
        2 => super::super::status::decode([3, code]).unwrap(),
        _ => ReceiverStatus::Left,
    })
}

proptest! {
    #[test]
    fn a_report_is_read_back_and_no_other_is(
        number: u64, cookie: u64, status in status(), name in "[!-~]{1,64}",
        bytes: u32, more: u32, rate: u64, is_keyed: bool, blocks in proptest::option::of(0..200_u8), at in 0..MESSAGE_BYTES_MAX * 8,
    ) {
        let mut identity = match is_keyed {
            true => Identity::keyed(name.parse().unwrap(), signing_key()),
            false => named(&name),
        };
        identity.number = number;
        let transfer = Transfer {
            bytes: bytes.into(),
            total_bytes: u64::from(bytes) + u64::from(more),
            rate: Rate::from_bits_per_s(rate),
        };
        // One symbol of each second block.
        let needs = blocks.map(|blocks| {
            let others = (1..blocks).flat_map(|_| [0, 1, 1, 1]);
            [1, 0, 1, 1].into_iter().take(usize::from(blocks.min(1)) * 4).chain(others).collect::<Vec<u8>>()
        });
        let mut bytes = encode_report(
            &key(true), &identity, cookie, status, &transfer, needs.as_deref(),
        );
        let report = decode_report(&bytes, &key(true)).unwrap();
        prop_assert_eq!((report.number, report.cookie), (number, cookie));
        prop_assert_eq!((report.status, report.transfer), (status, transfer));
        let read = report.needs.as_ref().map(|needs| needs.encode(usize::MAX).unwrap());
        prop_assert_eq!(&read, &needs);
        prop_assert_eq!(&report.name, &identity.name);
        prop_assert_eq!(message::is_signed(&bytes, &key(true), &report), is_keyed);
        let other = CompletionKey { tsi: 8, ..key(true) };
        prop_assert_eq!(decode_report(&bytes, &other), None);
        prop_assert_eq!(Answer::decode(&bytes, &key(true)), None);
        let at = at % (bytes.len() * 8);
        bytes[at / 8] ^= 1 << (at % 8);
        prop_assert_eq!(decode_report(&bytes, &key(true)), None);
        bytes[at / 8] ^= 1 << (at % 8);
        bytes.pop();
        prop_assert_eq!(decode_report(&bytes, &key(true)), None);
    }

    #[test]
    fn an_answer_is_read_back_and_no_other_is(
        number: u64, answered_cookie: u64, next_cookie: u64, seconds: u32, at in 0..56 * 8usize,
    ) {
        for kind in [AnswerKind::Challenge, AnswerKind::Accepted] {
            let window = Duration::from_secs(seconds.into());
            let answer = Answer { kind, number, answered_cookie, next_cookie, window };
            let mut bytes = answer.encode(&key(true));
            prop_assert_eq!(Answer::decode(&bytes, &key(true)), Some(answer));
            prop_assert_eq!(decode_report(&bytes, &key(true)), None);
            bytes[at / 8] ^= 1 << (at % 8);
            prop_assert_eq!(Answer::decode(&bytes, &key(true)), None);
        }
    }

    #[test]
    fn any_bytes_are_handled(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert_eq!(tally(true, 1).handle(at(0), address(1), &bytes), None);
        reporter(1, Duration::from_secs(1)).handle(&bytes);
        // With a MAC that every holder of the description can make.
        let mac = hmac::sign(&key(true).key, &bytes);
        let bytes = [&bytes, &mac.as_ref()[..16]].concat();
        tally(true, 1).handle(at(0), address(1), &bytes);
        reporter(1, Duration::from_secs(1)).handle(&bytes);
    }

    /// The beginning of a message that a holder of the description makes, and then any bytes.
    #[test]
    fn any_bodies_are_handled(kind in 0..5u8, bytes in proptest::collection::vec(any::<u8>(), 0..210)) {
        let head = [b"mfc", &[kind][..], &9u64.to_be_bytes(), &bytes].concat();
        let mac = hmac::sign(&key(false).key, &head);
        let bytes = [&head, &mac.as_ref()[..16]].concat();
        let mut tally = listed(&[("a", None)]);
        tally.start(SystemTime::UNIX_EPOCH);
        tally.handle(at(0), address(1), &bytes);
        prop_assert_eq!(tally.table().receivers().len(), 1);
        reporter(1, Duration::from_secs(1)).handle(&bytes);
    }
}
