use super::own::{OUTBID_MAX, OUTBID_MIN};
use super::*;
use crate::message::Summary;
use manyflow_core::Length;
use proptest::prelude::*;

const HERE: DaemonId = DaemonId(1);
const NEAR: DaemonId = DaemonId(2);
const FAR: DaemonId = DaemonId(3);

fn database() -> Database<Length> {
    let config = OverlayConfig {
        daemons_max: 4,
        neighbours_max: 2,
        ..OverlayConfig::default()
    };
    Database::living(HERE, &config, 7)
}

fn link(to: DaemonId, since: u32) -> Item {
    let since = ChangeSeq(since);
    let weight = 1;
    Item::Link { to, weight, since }
}

fn part(change: u32, index: u32, item: Item) -> Part {
    let change = ChangeSeq(change);
    Part {
        change,
        index,
        item,
    }
}

fn first(count: u32, incarnation: u32) -> Item {
    Item::Count { count, incarnation }
}

/// Lets a neighbour offer and send a daemon's state, in which it has one link.
fn learn(database: &mut Database<Length>, from: DaemonId, origin: DaemonId, to: DaemonId) -> bool {
    let summary = Summary {
        incarnation: 1,
        change: ChangeSeq(1),
    };
    let heard = database.handle_summary(Time::ZERO, from, origin, &summary);
    let mut is_new = false;
    for (index, item) in [(1, link(to, 1)), (0, first(1, 1))] {
        let part = part(1, index, item);
        let received = database.handle_part(Time::ZERO, from, origin, &part, Length(0));
        is_new |= matches!(received, Some(Received::New { .. }));
    }
    database.next_to_ask(Time::ZERO, origin);
    heard == Heard::Ask && is_new
}

#[test]
fn a_link_counts_only_if_both_ends_list_it() {
    let mut database = database();
    database.change(Time::ZERO, link(NEAR, 1), Length(0));
    assert_eq!(database.topology().unwrap().len(), 1);
    assert!(learn(&mut database, NEAR, NEAR, HERE));
    let topology = database.topology().unwrap();
    assert_eq!(topology.daemons(), [HERE, NEAR]);
    assert_eq!(topology.incarnation(NEAR), Some(1));
    assert!(learn(&mut database, NEAR, FAR, NEAR));
    assert_eq!(database.topology().unwrap().len(), 2, "nobody links to it");
}

#[test]
fn versions_differ_when_a_link_comes_up_again() {
    let mut database = database();
    database.change(Time::ZERO, link(NEAR, 1), Length(0));
    learn(&mut database, NEAR, NEAR, HERE);
    let before = database.topology().unwrap();
    let down = Item::Link {
        to: NEAR,
        weight: 0,
        since: ChangeSeq(2),
    };
    database.change(Time::ZERO, down, Length(0));
    database.change(Time::ZERO, link(NEAR, 3), Length(0));
    let after = database.topology().unwrap();
    assert_eq!(before.daemons(), after.daemons());
    assert_ne!(before.version(), after.version());
}

#[test]
fn a_state_is_applied_only_when_all_its_parts_have_arrived() {
    let mut database = database();
    let summary = Summary {
        incarnation: 1,
        change: ChangeSeq(9),
    };
    database.handle_summary(Time::ZERO, NEAR, FAR, &summary);
    let mut send = |from, part: Part| {
        let received = database.handle_part(Time::ZERO, from, FAR, &part, Length(0));
        received.is_some()
    };
    assert!(!send(NEAR, part(9, 0, first(2, 1))));
    assert!(!send(NEAR, part(9, 1, link(NEAR, 1))));
    assert!(!send(HERE, part(9, 2, Item::Alive)), "it was not asked");
    assert!(!send(NEAR, part(9, 1, link(NEAR, 1))), "it has come before");
    assert!(send(NEAR, part(9, 2, Item::Alive)));
}

#[test]
fn known_daemons_and_links_are_bounded() {
    let mut database = database();
    for number in 10..100 {
        learn(&mut database, NEAR, DaemonId(number), NEAR);
    }
    assert_eq!(database.records.len(), 4);
    assert!(database.wanted.is_empty());
    for number in 10..100 {
        let item = link(DaemonId(number), 1);
        database.change(Time::ZERO, item, Length(0));
    }
    assert_eq!(database.records[&HERE].state.links.len(), 2);
}

#[test]
fn an_old_unreachable_record_is_dropped_at_the_next_refresh() {
    let mut database = database();
    learn(&mut database, NEAR, FAR, NEAR);
    database.change(Time::ZERO, Item::Alive, Length(0));
    let mut now = Time::ZERO + REFRESH;
    assert_eq!(database.refresh(now), Some(vec![]));
    assert_eq!(database.refresh(now), None, "it has just been refreshed");
    database.change(now, Item::Alive, Length(0));
    now += LIFETIME;
    assert_eq!(database.refresh(now), Some(vec![FAR]));
    assert!(database.summary(FAR).is_none());
}

#[test]
fn a_later_state_of_this_daemon_is_outbid_once_in_a_while() {
    let mut database = database();
    let mut hear = |now, incarnation| {
        let summary = Summary {
            incarnation,
            change: ChangeSeq(1),
        };
        database.handle_summary(now, NEAR, HERE, &summary);
        database.outbid(now)
    };
    assert_eq!(hear(Time::ZERO, 6), None, "it is older");
    assert_eq!(hear(Time::ZERO, 20), Some(21));
    assert_eq!(
        hear(Time::ZERO, 30),
        None,
        "another daemon may have its number"
    );
    assert_eq!(hear(Time::ZERO + OUTBID_MIN, 40), Some(41));
    let later = Time::ZERO + OUTBID_MIN + OUTBID_MAX;
    assert_eq!(hear(later, 50), Some(51), "the last one was long ago");
    assert_eq!(hear(later + OUTBID_MAX, u32::MAX), None, "nobody has it");
}

/// Returns the change by which a daemon gains its first member of a group.
fn members(change: u32, group: u32) -> Change {
    let item = Item::Members {
        group: GroupId(group),
        members: 1,
        since: ChangeSeq(change),
    };
    Change {
        incarnation: 1,
        change: ChangeSeq(change),
        item,
    }
}

#[test]
fn groups_beyond_the_limit_of_bytes_do_not_count() {
    let config = OverlayConfig {
        state_bytes: 40_000,
        ..OverlayConfig::default()
    };
    let mut database = Database::<Length>::living(HERE, &config, 7);
    assert!(learn(&mut database, NEAR, NEAR, HERE));
    assert!(learn(&mut database, NEAR, FAR, NEAR));
    let mut counted = 0;
    for change in 2..100 {
        let origin = if change % 2 == 0 { NEAR } else { FAR };
        let change = members(1 + change / 2, change);
        database.insert(Time::ZERO, NEAR, origin, &change, Length(100));
        let popped = database.pop_change(Time::ZERO, origin).unwrap();
        counted += usize::from(popped.counts);
    }
    assert_eq!(counted, 2 * (10_000 / 612), "each daemon has a quarter");
    assert!(database.has_room(), "for groups of this daemon's clients");
    // A member that leaves makes room.
    for (change, group) in (51..).zip([2, 4, 6, 8, 10]) {
        let mut change = members(change, group);
        if let Item::Members { members, .. } = &mut change.item {
            *members = 0;
        }
        database.insert(Time::ZERO, NEAR, NEAR, &change, Length(0));
        assert!(database.pop_change(Time::ZERO, NEAR).unwrap().counts);
    }
    let change = members(56, 1000);
    database.insert(Time::ZERO, NEAR, NEAR, &change, Length(100));
    assert!(database.pop_change(Time::ZERO, NEAR).unwrap().counts);
}

#[test]
fn daemons_that_fill_their_shares_leave_room_for_another() {
    let config = OverlayConfig {
        state_bytes: 400_000,
        ..OverlayConfig::default()
    };
    let mut database = Database::<Length>::living(HERE, &config, 7);
    let mut group = 0;
    let mut fill = |origin, most: u32| {
        assert!(learn(&mut database, NEAR, origin, NEAR));
        let mut counted = 0;
        for change in 2..most + 2 {
            group += 1;
            let change = members(change, group);
            database.insert(Time::ZERO, NEAR, origin, &change, Length(100));
            let popped = database.pop_change(Time::ZERO, origin).unwrap();
            counted += usize::from(popped.counts);
        }
        counted
    };
    let counted: Vec<_> = (10..16).map(|id| fill(DaemonId(id), 1000)).collect();
    assert_eq!(counted[0], 100_000 / 612);
    assert!(counted.is_sorted_by(|a, b| a >= b), "{counted:?}");
    assert_eq!(fill(FAR, 5), 5, "{counted:?}");
}

#[test]
fn parts_of_a_state_that_exceed_the_limit_are_dropped() {
    let config = OverlayConfig {
        state_bytes: 10_000,
        ..OverlayConfig::default()
    };
    let mut database = Database::<Length>::living(HERE, &config, 7);
    let summary = Summary {
        incarnation: 1,
        change: ChangeSeq(1000),
    };
    database.handle_summary(Time::ZERO, NEAR, NEAR, &summary);
    for index in 1..=1000 {
        let part = part(1000, index, members(1, index).item);
        database.handle_part(Time::ZERO, NEAR, NEAR, &part, Length(100));
        assert!(database.bytes() <= 30_000, "{}", database.bytes());
    }
    let part = part(1000, 0, first(1000, 1));
    database.handle_part(Time::ZERO, NEAR, NEAR, &part, Length(0));
    assert!(database.bytes() <= 30_000, "{}", database.bytes());
}

#[test]
fn a_daemon_is_learnt_even_if_groups_fill_the_memory() {
    let config = OverlayConfig {
        state_bytes: 1,
        ..OverlayConfig::default()
    };
    let mut database = Database::<Length>::living(HERE, &config, 7);
    database.change(Time::ZERO, link(NEAR, 1), Length(0));
    let summary = Summary {
        incarnation: 1,
        change: ChangeSeq(9),
    };
    database.handle_summary(Time::ZERO, NEAR, NEAR, &summary);
    for (index, item) in [
        (0, first(3, 1)),
        (3, members(1, 7).item),
        (2, members(1, 8).item),
    ] {
        let part = part(9, index, item);
        assert!(
            database
                .handle_part(Time::ZERO, NEAR, NEAR, &part, Length(9))
                .is_none()
        );
    }
    let last = part(9, 1, link(HERE, 2));
    let received = database.handle_part(Time::ZERO, NEAR, NEAR, &last, Length(0));
    assert!(matches!(received, Some(Received::New { .. })));
    assert_eq!(database.topology().unwrap().len(), 2);
}

#[test]
fn a_summary_without_changes_is_no_offer() {
    let mut database = database();
    assert!(learn(&mut database, NEAR, NEAR, HERE));
    // The neighbour has dropped the state of a later incarnation, and asks for it.
    for incarnation in [0, 1, 6] {
        let summary = Summary {
            incarnation,
            change: ChangeSeq(0),
        };
        let heard = database.handle_summary(Time::ZERO, NEAR, FAR, &summary);
        assert_eq!(heard, Heard::Nothing, "{incarnation}");
        assert!(database.wanted.is_empty());
    }
}

fn summary(incarnation: u32) -> Summary {
    let change = ChangeSeq(1);
    Summary {
        incarnation,
        change,
    }
}

#[test]
fn offers_of_a_neighbour_take_only_its_own_places_and_end_with_its_link() {
    const LIAR: DaemonId = DaemonId(9);
    let mut database = database();
    let offer = |database: &mut Database<Length>, from, origin: u16| {
        database.handle_summary(Time::ZERO, from, DaemonId(origin), &summary(1))
    };
    let asked = (10..100).filter(|origin| offer(&mut database, LIAR, *origin) == Heard::Ask);
    assert_eq!(asked.count(), 4, "as many as there may be daemons");
    for from in [NEAR, FAR] {
        let first = 100 * from.0;
        let asked =
            (first..first + 99).filter(|origin| offer(&mut database, from, *origin) == Heard::Ask);
        assert_eq!(asked.count(), 4);
    }
    assert!(database.forget_neighbour(Time::ZERO, LIAR).is_empty());
    assert_eq!(database.wanted.len(), 8);
    assert_eq!(offer(&mut database, NEAR, 299), Heard::Nothing);
    database.forget_neighbour(Time::ZERO, NEAR);
    assert_eq!(offer(&mut database, NEAR, 299), Heard::Ask);
}

/// Counts the offers of a neighbour by looking at all wanted states.
fn count_offers(database: &Database<Length>, neighbour: DaemonId) -> usize {
    let wanted = database.wanted.values();
    let offerers = wanted.flat_map(Wanted::offerers);
    offerers.filter(|from| *from == neighbour).count()
}

proptest! {
    /// Offers begin with a summary, and end with a state, a refusal, or the neighbour's link.
    #[test]
    fn the_count_of_a_neighbours_offers_is_kept(
        steps in proptest::collection::vec((0..6, 2..6_u16, 10..22_u16, 1..4_u32), 1..300),
    ) {
        let mut database = database();
        for (step, from, origin, incarnation) in steps {
            let (from, origin) = (DaemonId(from), DaemonId(origin));
            let now = Time::ZERO;
            match step {
                0..3 => {
                    database.handle_summary(now, from, origin, &summary(incarnation));
                }
                3 => {
                    for (index, item) in [(1, link(HERE, 1)), (0, first(1, incarnation))] {
                        let part = part(1, index, item);
                        database.handle_part(now, from, origin, &part, Length(0));
                    }
                    database.next_to_ask(now, origin);
                }
                4 => {
                    database.withdraw_offer(from, origin);
                    database.next_to_ask(now, origin);
                }
                _ => drop(database.forget_neighbour(now, from)),
            }
            for neighbour in (2..6).map(DaemonId) {
                let counted = count_offers(&database, neighbour);
                prop_assert_eq!(database.offer_counts.of(neighbour), counted);
            }
        }
    }
}

#[test]
fn an_offer_drops_no_record_before_its_state_has_arrived() {
    let mut database = database();
    for origin in 10..13 {
        assert!(learn(&mut database, NEAR, DaemonId(origin), NEAR));
    }
    assert_eq!(database.records.len(), 4);
    for origin in 20..30 {
        database.handle_summary(Time::ZERO, FAR, DaemonId(origin), &summary(1));
    }
    let kept = (10..13).filter(|origin| database.summary(DaemonId(*origin)).is_some());
    assert_eq!(kept.count(), 3);
    assert!(learn(&mut database, NEAR, DaemonId(40), NEAR));
    assert_eq!(database.records.len(), 4);
}

/// The sums that are kept are those of all records.
#[test]
fn the_sums_over_a_thousand_daemons_are_kept() {
    let config = OverlayConfig::default();
    let mut database = Database::<Length>::living(HERE, &config, 7);
    let daemons = 1000;
    for origin in 10..10 + daemons {
        assert!(learn(&mut database, NEAR, DaemonId(origin), NEAR));
    }
    let sums = |database: &Database<Length>| {
        let records = || database.records.values();
        let changes = records().map(Record::held).sum::<usize>();
        let bytes = records().map(|record| record.state.bytes()).sum::<usize>();
        let total = database.records.total();
        assert_eq!((total.changes, total.bytes), (changes, bytes));
        (changes, bytes)
    };
    for change in [3, 4, 6] {
        for origin in 10..10 + daemons {
            let change = members(change, 1);
            database.insert(Time::ZERO, NEAR, DaemonId(origin), &change, Length(8));
        }
    }
    assert_eq!(sums(&database), (3000, 0));
    for origin in 10..10 + daemons {
        let origin = DaemonId(origin);
        database.insert(Time::ZERO, NEAR, origin, &members(2, 2), Length(8));
        while database.pop_change(Time::ZERO, origin).is_some() {}
    }
    let (changes, bytes) = sums(&database);
    assert_eq!(changes, 1000, "the last change waits for the one before");
    assert_eq!(bytes, 2 * 1000 * (record::GROUP_BYTES + 8));
    for origin in 10..510 {
        database.records.remove(DaemonId(origin));
    }
    assert_eq!(sums(&database), (500, bytes / 2));
}
