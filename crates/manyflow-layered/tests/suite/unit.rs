//! Units over lossy groups: properties of the cutter and the assembler together.

use core::time::Duration;

use manyflow_core::Time;
use manyflow_core::time::seconds;
use manyflow_layered::unit::{
    Assembler, AssemblerConfig, AssemblerEvent, Cutter, Latency, Piece, Unit,
};
use proptest::collection::vec;
use proptest::prelude::*;

const INTERVAL: Duration = Duration::from_millis(100);
const LATENCY: Latency = Latency::Fixed(Duration::from_millis(300));

/// A packet: the unit's place in the sequence, and the payload.
type Packet = (usize, Vec<u8>);

/// The bytes of a unit: different in each unit and at each place.
fn unit_bytes(index: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + index * 13) as u8).collect()
}

fn time_us(index: usize) -> u32 {
    (index as u32).wrapping_mul(100_000).wrapping_sub(500_000)
}

/// Cuts units of these lengths for three groups that can carry all, beginning at `first`.
fn packets(first: u32, lengths: &[usize]) -> Vec<Packet> {
    let mut cutter = Cutter::new(3, seconds(10.0)).starting_at(first);
    let mut packets = Vec::new();
    for (index, length) in lengths.iter().enumerate() {
        let rates = [1_000.0, 2_000.0, 20_000.0];
        cutter.push_unit(
            time_us(index),
            unit_bytes(index, *length).into(),
            INTERVAL,
            &rates,
        );
        for group in 0..3 {
            let mut payload = Vec::new();
            while cutter.next_payload(group, 16 + 64, &mut payload) {
                packets.push((index, std::mem::take(&mut payload)));
            }
        }
    }
    packets
}

fn assembler(latency: Latency) -> Assembler {
    Assembler::new(AssemblerConfig {
        latency,
        ..AssemblerConfig::default()
    })
}

/// Delivers packets at the times of their units, and returns all units and missing numbers.
fn deliver(packets: &[&Packet]) -> (Vec<Unit>, Vec<u32>) {
    let mut assembler = assembler(LATENCY);
    let (mut units, mut missing) = (Vec::new(), Vec::new());
    for (index, payload) in packets {
        let now = Time::from_secs_f64(1.0 + *index as f64 * 0.1);
        let (piece, bytes, _) = Piece::decode(payload).expect("a piece");
        assembler.handle_piece(now, piece, bytes);
        units.extend(core::iter::from_fn(|| assembler.poll_unit(now)));
    }
    while let Some(due) = assembler.poll_timeout() {
        units.extend(core::iter::from_fn(|| assembler.poll_unit(due)));
    }
    while let Some(AssemblerEvent::Missing { first, count }) = assembler.poll_event() {
        missing.extend((0..count).map(|more| first.wrapping_add(more)));
    }
    assert_eq!(assembler.bytes(), 0);
    (units, missing)
}

/// The bytes before the first byte of a unit that no packet brings.
fn prefix_of(packets: &[&Packet], index: usize, length: usize) -> usize {
    let mut arrived = vec![false; length + 1];
    for (_, payload) in packets.iter().filter(|packet| packet.0 == index) {
        let (piece, bytes, _) = Piece::decode(payload).expect("a piece");
        arrived[piece.offset as usize..][..bytes.len()].fill(true);
    }
    arrived.iter().take_while(|arrived| **arrived).count()
}

proptest! {
    #[test]
    fn a_lost_packet_shortens_the_prefix_of_its_unit_and_nothing_else(
        first in prop_oneof![Just(u32::MAX - 2), any::<u32>()],
        lengths in vec(1usize..1_500, 1..8),
        losses in vec(0u8..100, 1..40),
        loss_percent in 0u8..60,
    ) {
        let sent = packets(first, &lengths);
        let lost = losses.iter().cycle().map(|loss| *loss < loss_percent);
        let arrived: Vec<&Packet> = sent.iter().zip(lost).filter(|(_, lost)| !lost).map(|(packet, _)| packet).collect();
        let (units, missing) = deliver(&arrived);
        let mut units = units.into_iter();
        let heard = |index: &usize| arrived.iter().any(|packet| packet.0 == *index);
        let first_heard = (0..lengths.len()).find(heard);
        let last_heard = (0..lengths.len()).rev().find(heard);
        for (index, length) in lengths.iter().enumerate() {
            let number = first.wrapping_add(index as u32);
            let prefix = prefix_of(&arrived, index, *length);
            if prefix == 0 {
                let between = first_heard <= Some(index) && Some(index) <= last_heard;
                prop_assert_eq!(missing.contains(&number), between);
                continue;
            }
            let unit = units.next().unwrap();
            prop_assert_eq!((unit.number, unit.time_us), (number, time_us(index)));
            prop_assert_eq!(&unit.prefix[..], &unit_bytes(index, *length)[..prefix]);
            prop_assert_eq!(unit.complete, prefix == *length);
        }
        prop_assert_eq!(units.next(), None);
    }

    #[test]
    fn reordering_and_duplication_change_nothing(
        first in any::<u32>(),
        lengths in vec(1usize..1_500, 1..6),
        keys in vec(any::<u16>(), 200),
        copies in vec(1usize..4, 200),
    ) {
        let sent = packets(first, &lengths);
        let (units, missing) = deliver(&sent.iter().collect::<Vec<_>>());
        prop_assert!(missing.is_empty());
        // Within a unit, in any order, and each packet up to three times.
        let mut shuffled: Vec<(usize, u16, &Packet)> = Vec::new();
        for (at, packet) in sent.iter().enumerate() {
            for copy in 0..copies[at % 200] {
                shuffled.push((packet.0, keys[(at + 67 * copy) % 200], packet));
            }
        }
        shuffled.sort_by_key(|(index, key, _)| (*index, *key));
        let shuffled: Vec<&Packet> = shuffled.into_iter().map(|(_, _, packet)| packet).collect();
        let (again, missing) = deliver(&shuffled);
        prop_assert_eq!((units, missing), (again, Vec::new()));
    }

    #[test]
    fn hostile_pieces_never_take_more_than_the_configured_memory(
        pieces in vec((any::<u32>(), any::<u32>(), 0u32..5_000, any::<u32>(), 0usize..300, any::<bool>(), 0u64..2_000), 1..300),
    ) {
        let config = AssemblerConfig { unit_bytes_max: 1_000, units_max: 4, bytes_max: 2_500, ..AssemblerConfig::default() };
        let mut assembler = Assembler::new(config);
        let mut now = Time::ZERO;
        for (unit, time_us, offset, length, count, near, wait_ms) in pieces {
            now += Duration::from_millis(wait_ms);
            let (unit, time_us) = if near { (unit % 8, time_us % 1_000_000) } else { (unit, time_us) };
            let piece = Piece { unit, time_us, offset, length };
            assembler.handle_piece(now, piece, &vec![1; count]);
            prop_assert!(assembler.bytes() <= 2_500);
            if wait_ms % 3 == 0 {
                while let Some(unit) = assembler.poll_unit(now) {
                    prop_assert!(!unit.prefix.is_empty() && unit.prefix.len() <= 1_000);
                }
            }
        }
        while assembler.poll_unit(Time::MAX).is_some() {}
        prop_assert_eq!((assembler.bytes(), assembler.poll_timeout()), (0, None));
    }

    #[test]
    fn shares_are_contiguous_and_groups_never_exceed_their_rates(
        units in vec((0usize..3_000, vec(1.0f64..20_000.0, 3), 0usize..20), 1..40),
    ) {
        // No backlog is too old.
        let mut cutter = Cutter::new(3, seconds(1e6));
        // For each group: the bytes that its rates have allowed, and its ranges of units.
        let mut allowed = [0.0; 3];
        let mut ranges: [Vec<Range>; 3] = Default::default();
        let mut accepted = 0;
        for (index, (length, rates, packets)) in units.iter().enumerate() {
            let cut = cutter.stats().bytes_cut;
            cutter.push_unit(0, unit_bytes(index, *length).into(), INTERVAL, rates);
            accepted += *length as u64 - (cutter.stats().bytes_cut - cut);
            for group in 0..3 {
                allowed[group] += rates[group] * 0.1;
                send(&mut cutter, group, *packets, &mut ranges[group]);
                let sent: usize = ranges[group].iter().map(|range| range.2 - range.1).sum();
                let total = sent + cutter.waiting_bytes(group as u8);
                prop_assert!(total as f64 <= allowed[group], "group {} got {}", group, total);
            }
        }
        for (group, ranges) in ranges.iter_mut().enumerate() {
            send(&mut cutter, group, usize::MAX, ranges);
        }
        let mut all = ranges.concat();
        all.sort_by_key(|range| range.0);
        for pair in all.windows(2) {
            let follows = if pair[1].0 == pair[0].0 { pair[0].2 } else { 0 };
            prop_assert_eq!(pair[1].1, follows, "{:?}", pair);
        }
        let sent: u64 = all.iter().map(|range| (range.2 - range.1) as u64).sum();
        prop_assert_eq!((accepted, 0), (sent, cutter.stats().bytes_dropped));
    }
}

/// A piece: its unit, and its first and last place, exclusive.
type Range = (u32, usize, usize);

/// Sends at most `packets` packets of a group.
fn send(cutter: &mut Cutter, group: usize, packets: usize, ranges: &mut Vec<Range>) {
    let mut payload = Vec::new();
    let mut sent = 0;
    while sent < packets && cutter.next_payload(group as u8, 116, &mut payload) {
        for decoded in Piece::decode_all(&payload) {
            let (piece, bytes) = decoded.expect("a piece");
            let start = piece.offset as usize;
            ranges.push((piece.unit, start, start + bytes.len()));
        }
        payload.clear();
        sent += 1;
    }
}

/// Feeds whole units of one piece, and returns the numbers that are delivered at once.
fn feed(assembler: &mut Assembler, numbers: impl Iterator<Item = u32>, since_s: f64) -> Vec<u32> {
    let mut delivered = Vec::new();
    for (index, unit) in numbers.enumerate() {
        let now = Time::from_secs_f64(since_s + index as f64 * 0.1);
        let piece = Piece {
            unit,
            time_us: index as u32 * 100_000,
            offset: 0,
            length: 3,
        };
        assembler.handle_piece(now, piece, &[1, 2, 3]);
        while let Some(unit) = assembler.poll_unit(now) {
            delivered.push(unit.number);
        }
    }
    delivered
}

#[test]
fn complete_units_do_not_wait_once_their_predecessor_was_delivered() {
    let mut assembler = assembler(LATENCY);
    assert_eq!(feed(&mut assembler, 0..3, 1.0), Vec::<u32>::new());
    let due = Time::from_secs_f64(1.3);
    assert_eq!(assembler.poll_timeout(), Some(due));
    let units: Vec<Unit> = core::iter::from_fn(|| assembler.poll_unit(due)).collect();
    assert!(units.iter().all(|unit| unit.complete));
    let numbers: Vec<u32> = units.iter().map(|unit| unit.number).collect();
    assert_eq!(numbers, [0, 1, 2]);
}

#[test]
fn a_sender_that_restarts_begins_a_new_sequence() {
    let mut assembler = assembler(LATENCY);
    feed(&mut assembler, 500_000..500_010, 1.0);
    let delivered = feed(&mut assembler, 7..30, 60.0);
    assert_eq!(assembler.stats().restarts, 1);
    // The first four are strays, and the fourth begins the new sequence.
    assert_eq!(delivered, (10..30).collect::<Vec<u32>>());
    let events: Vec<_> = core::iter::from_fn(|| assembler.poll_event()).collect();
    assert_eq!(events, [AssemblerEvent::Restarted { number: 10 }]);
}

#[test]
fn a_few_strays_do_not_disturb_the_sequence() {
    let mut assembler = assembler(LATENCY);
    let numbers = (0..20).map(|index| if index % 4 == 3 { 9_000_000 } else { index });
    let delivered = feed(&mut assembler, numbers, 1.0);
    assert_eq!(assembler.stats().pieces_stray, 5);
    assert_eq!(assembler.stats().restarts, 0);
    assert!(delivered.windows(2).all(|pair| pair[0] < pair[1]));
}

/// Group 1's pieces arrive 250 ms after those of group 0, from unit `joined` on.
fn prefixes_with_a_slow_group(joined: u32) -> Vec<usize> {
    let (min, max) = (seconds(0.02), seconds(1.0));
    let mut assembler = assembler(Latency::Adaptive { min, max });
    let mut prefixes = Vec::new();
    for tick in 0..2_000u32 {
        let now = Time::from_secs_f64(1.0 + f64::from(tick) * 0.01);
        let piece = |unit: u32, offset| Piece {
            unit,
            time_us: unit * 100_000,
            offset,
            length: 300,
        };
        if tick % 10 == 0 {
            assembler.handle_piece(now, piece(tick / 10, 0), &[0; 100]);
        }
        if tick % 10 == 5 && tick >= 25 && tick / 10 - 2 >= joined {
            assembler.handle_piece(now, piece(tick / 10 - 2, 100), &[1; 100]);
        }
        prefixes
            .extend(core::iter::from_fn(|| assembler.poll_unit(now)).map(|unit| unit.prefix.len()));
    }
    prefixes
}

#[test]
fn an_adaptive_receiver_waits_for_the_group_that_it_joins() {
    let prefixes = prefixes_with_a_slow_group(100);
    assert!(prefixes[..98].iter().all(|prefix| *prefix == 100));
    // The first pieces of group 1 come too late, and raise the latency for the next units.
    let short = prefixes[100..]
        .iter()
        .filter(|prefix| **prefix < 200)
        .count();
    assert!(short <= 3, "{short} units without the pieces of group 1");
}
