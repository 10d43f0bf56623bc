//! Senders with a list: progress, failures, silence, and the number of reports.

use super::*;
use manyflow_object::needs::Needs;

fn receiving(bytes: u64) -> Transfer {
    Transfer {
        bytes,
        total_bytes: 1000,
        rate: Rate::from_bits_per_s(8000),
    }
}

/// A receiver that reports its progress.
fn progressing(identity: Identity, window: Duration, number: u64) -> Reporter {
    let (key, seed) = (key(false), seed(number));
    Reporter::new(key, identity, window, true, Time::ZERO, seed)
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("lab-{n}")).collect()
}

#[test]
fn a_thousand_receivers_report_twenty_times_per_second() {
    // One list has all receivers. The other has few, so the sender's answers set the window.
    for count in [1000, 20] {
        let names = names(1000);
        let list: Vec<_> = names[..count]
            .iter()
            .map(|name| (&name[..], None))
            .collect();
        let mut tally = listed(&list);
        let window = tally.audience().window();
        let mut reporters: Vec<_> = (0..1000)
            .map(|n| progressing(named(&names[n]), window, n as u64))
            .collect();
        let sent = run_until(at(600), &mut reporters, &mut tally, 0.0, 1);
        let counts = tally.table().counts();
        assert_eq!(counts.unexpected as usize, 1000 - count);
        let late = sent.iter().filter(|(time, _, _)| *time >= at(300)).count();
        // 300 s with a report of each receiver in 50 s.
        assert!((5_500..=6_500).contains(&late), "{count} listed: {late}");
        let busiest = (0..600).map(|second| {
            let range = at(second)..at(second + 1);
            sent.iter()
                .filter(|(time, _, _)| range.contains(time))
                .count()
        });
        let busiest = busiest.max().unwrap();
        // Those outside a short list do not know how many they are before the first answer.
        let limit = if count == 20 { 1_100 } else { 80 };
        assert!(busiest < limit, "{count} listed: {busiest}");
    }
}

#[test]
fn the_table_follows_a_receiver_from_its_first_report_to_the_last() {
    let mut tally = listed(&[("a", None), ("b", None)]);
    let state = |tally: &Tally, row: usize| tally.table().receivers()[row].state;
    assert_eq!(state(&tally, 0), ReceiverState::NeverHeard);
    let mut reporters = [progressing(named("a"), Duration::from_secs(2), 1)];
    reporters[0].set_transfer(receiving(250));
    run_until(at(3), &mut reporters, &mut tally, 0.0, 1);
    let row = &tally.table().receivers()[0];
    assert_eq!(
        (row.state, row.transfer),
        (ReceiverState::Receiving, receiving(250))
    );
    assert_eq!(row.address, Some(address(0)));

    // The process is killed, and started again.
    tally.handle_timeout(at(8));
    assert_eq!(state(&tally, 0), ReceiverState::Receiving);
    tally.handle_timeout(at(10));
    assert_eq!(state(&tally, 0), ReceiverState::Silent);
    assert!(report(
        &mut tally,
        at(11),
        address(0),
        &named("a"),
        ReceiverStatus::Receiving
    ));
    assert_eq!(state(&tally, 0), ReceiverState::Receiving);
    let full = ReceiverStatus::Failed(Failure::DiskFull);
    assert!(report(&mut tally, at(12), address(0), &named("a"), full));
    assert_eq!(state(&tally, 0), ReceiverState::Failed(Failure::DiskFull));
    assert!(report(
        &mut tally,
        at(13),
        address(0),
        &named("a"),
        ReceiverStatus::Left
    ));
    assert_eq!(state(&tally, 0), ReceiverState::Left);
    assert!(report(
        &mut tally,
        at(14),
        address(0),
        &named("a"),
        ReceiverStatus::Done
    ));
    assert_eq!(tally.table().receivers()[0].done_at, Some(at(14)));
    // It has the files, whatever it reports later, and a second report does not change the time.
    for status in [ReceiverStatus::Done, ReceiverStatus::Receiving, full] {
        assert!(report(&mut tally, at(15), address(0), &named("a"), status));
    }
    tally.handle_timeout(at(1000));
    let row = &tally.table().receivers()[0];
    assert_eq!(
        (row.state, row.done_at),
        (ReceiverState::Done, Some(at(14)))
    );
    let missing: Vec<_> = tally
        .table()
        .missing()
        .map(|row| row.name.as_str())
        .collect();
    assert_eq!(missing, ["b"]);
    let counts: Vec<_> = tally.table().counts().by_name().collect();
    assert_eq!(counts[0], ("never-heard", 1));
    assert_eq!(counts[3], ("done", 1));
    assert_eq!(counts.iter().map(|(_, count)| count).sum::<u32>(), 2);
}

#[test]
fn a_receiver_that_fails_or_leaves_reports_it_at_once_and_ends_soon() {
    for loss in [0.0, 1.0] {
        for status in [
            ReceiverStatus::Failed(Failure::Silent),
            ReceiverStatus::Left,
        ] {
            let mut tally = listed(&[("a", None)]);
            let mut reporters = [progressing(named("a"), Duration::from_secs(1000), 1)];
            reporters[0].end(at(5), status);
            let sent = run(&mut reporters, &mut tally, loss, 1);
            let end = at(7);
            assert!(
                sent.iter().all(|time| (at(5)..end).contains(time)),
                "{sent:?}"
            );
            let (state, expected) = match loss {
                0.0 => (ReporterState::Taken, 2),
                _ => (ReporterState::Unanswered, 3),
            };
            assert_eq!((reporters[0].state(), sent.len()), (state, expected));
        }
    }
}

#[test]
fn a_sender_that_only_counts_gets_no_other_reports() {
    let mut tally = tally(false, 10);
    let (key, window) = (key(false), Duration::from_secs(2));
    let mut reporter = Reporter::new(key, named("a"), window, false, Time::ZERO, [0; 32]);
    assert_eq!(reporter.poll_timeout(), None);
    reporter.end(at(1), ReceiverStatus::Left);
    assert_eq!(reporter.poll_timeout(), None);
    assert_eq!(reporter.state(), ReporterState::NotAsked);
    let left = ReceiverStatus::Left;
    assert!(!report(&mut tally, at(1), address(1), &named("a"), left));
    assert!(tally.table().receivers().is_empty());
}

#[test]
fn a_machine_that_was_suspended_does_not_catch_up_on_reports() {
    let mut tally = listed(&[("a", None)]);
    let mut reporter = progressing(named("a"), Duration::from_secs(2), 1);
    let mut sent = 0;
    for second in [0, 1, 2, 3, 4, 1000, 1001, 1002, 1003, 1004] {
        reporter.handle_timeout(at(second));
        while let Some(report) = reporter.poll_transmit() {
            sent += 1;
            if let Some(answer) = tally.handle(at(second), address(0), &report) {
                reporter.handle(&answer);
            }
        }
    }
    assert!(sent <= 7, "{sent}");
}

#[test]
fn a_session_ends_after_a_number_of_listed_receivers() {
    let receivers = ["a", "b", "c"].map(|name| Expected {
        name: name.parse().unwrap(),
        key: None,
    });
    let audience = Audience::Listed {
        receivers: receivers.into(),
        ends_after: Some(2),
    };
    let mut tally = Tally::new(key(false), audience, [0; 32]);
    for (name, is_complete) in [("x", false), ("a", false), ("a", false), ("c", true)] {
        report(
            &mut tally,
            at(0),
            address(1),
            &named(name),
            ReceiverStatus::Done,
        );
        assert_eq!(tally.is_complete(), is_complete, "{name}");
    }
    assert_eq!(tally.table().counts().unexpected, 1);
}

#[test]
fn unexpected_receivers_take_bounded_memory() {
    let mut tally = listed(&[("a", None)]);
    for number in 0..2 * u64::from(UNEXPECTED_MAX) {
        // 16 for each address.
        let from = address(number as usize / 16);
        assert!(report(
            &mut tally,
            at(0),
            from,
            &unnamed(number),
            ReceiverStatus::Done
        ));
    }
    assert_eq!(tally.table().counts().unexpected, UNEXPECTED_MAX);
    assert_eq!(tally.table().receivers().len(), UNEXPECTED_MAX as usize + 1);
    assert!(report(
        &mut tally,
        at(0),
        address(0),
        &named("a"),
        ReceiverStatus::Done
    ));
    assert_eq!(done(&tally), 1);
}

#[test]
fn what_receivers_need_is_known_when_all_have_said_it() {
    let mut tally = listed(&[("a", None), ("b", None)]);
    let window = Duration::from_secs(2);
    let mut reporters = ["a", "b", "c"].map(|name| progressing(named(name), window, 1));
    let [a, b, other] = &mut reporters;
    a.set_transfer(receiving(900));
    a.set_needs(at(0), Some(vec![1, 0, 1, 9]));
    let first = a.poll_timeout().unwrap();
    assert!(first < at(0) + window / 8, "the sender hears it soon");
    b.set_transfer(receiving(900));
    other.set_transfer(receiving(0));
    let run = |reporters: &mut [Reporter], tally: &mut Tally, from, until| {
        for second in from..=until {
            run_until(at(second), reporters, tally, 0.0, second);
        }
        tally.wanted()
    };
    let needs = |symbols: &[u8]| {
        let needs = symbols.iter().map(|symbols| match symbols {
            0 => Needs::default(),
            symbols => Needs::decode(&[1, 0, 1, *symbols]).unwrap(),
        });
        needs.collect::<Vec<_>>()
    };
    let wanted = |symbols: &[u8], is_complete| {
        let needs = needs(symbols);
        Some(Wanted { needs, is_complete })
    };
    // One has not been heard.
    assert_eq!(
        run(&mut reporters[..1], &mut tally, 1, 3),
        wanted(&[9], false)
    );
    // One that does not say what it needs may need everything.
    assert_eq!(run(&mut reporters[..2], &mut tally, 4, 7), None);
    reporters[1].set_needs(at(7), Some(Vec::new()));
    assert_eq!(
        run(&mut reporters[..2], &mut tally, 8, 11),
        wanted(&[9, 0], true)
    );
    // One that is not listed does not know the files yet.
    reporters[2].set_transfer(Transfer::default());
    assert_eq!(
        run(&mut reporters, &mut tally, 12, 15),
        wanted(&[9, 0], false)
    );
    reporters[2].set_transfer(receiving(0));
    assert_eq!(run(&mut reporters, &mut tally, 16, 19), None);
    reporters[2].end(at(19), ReceiverStatus::Left);
    assert_eq!(
        run(&mut reporters, &mut tally, 20, 22),
        wanted(&[9, 0], true)
    );
    // Nobody needs anything, or nobody is left.
    reporters[0].set_needs(at(22), Some(Vec::new()));
    assert_eq!(run(&mut reporters[..2], &mut tally, 23, 26), None);
}
