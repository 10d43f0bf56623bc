use manyflow_core::{Action, Packet, Time};
use proptest::prelude::*;

use super::*;

const INTERVAL: Duration = Duration::from_millis(100);

fn piece(cutter: &mut Cutter, group: u8, payload_max: usize) -> Option<(Piece, Vec<u8>)> {
    let mut payload = vec![0xff];
    let announced = cutter.payload_bytes(group, payload_max);
    let written = cutter.next_payload(group, payload_max, &mut payload);
    assert_eq!(payload.len(), 1 + announced);
    written.then(|| {
        let (piece, bytes, rest) = Piece::decode(&payload[1..]).unwrap();
        assert!(payload.len() <= 1 + payload_max && rest.is_empty());
        (piece, bytes.to_vec())
    })
}

/// The numbers of the units in the next packet of group 0.
fn units(cutter: &mut Cutter, payload_max: usize) -> Vec<u32> {
    let (mut payload, announced) = (Vec::new(), cutter.payload_bytes(0, payload_max));
    cutter.next_payload(0, payload_max, &mut payload);
    assert_eq!(payload.len(), announced);
    let pieces = Piece::decode_all(&payload);
    pieces.map(|piece| piece.unwrap().0.unit).collect()
}

fn cutter(groups: u8) -> Cutter {
    Cutter::new(groups, Duration::from_secs(1)).starting_at(u32::MAX)
}

#[test]
fn short_packets_of_a_group_take_no_longer_than_units_come() {
    let full = 1.0 - 70.0 / 1400.0;
    assert_eq!(unit_share(1400.0, 1400, 70), full);
    assert_eq!(unit_share(1e6, 1400, 70), full);
    for bytes in [140.0, 200.0, 625.0, 1399.0] {
        let share = unit_share(bytes, 1400, 70);
        assert!((0.0..=full).contains(&share), "{bytes}: {share}");
        assert!(share * bytes + 70.0 < bytes, "{bytes}: {share}");
    }
    assert_eq!(unit_share(100.0, 1400, 70), full, "units share packets");
}

#[test]
fn each_group_gets_the_bytes_behind_the_group_below() {
    let mut cutter = cutter(3);
    let unit: Vec<u8> = (0..100).collect();
    let number = cutter.push_unit(5, unit.into(), INTERVAL, &[200.0, 0.0, 300.0]);
    assert_eq!(number, u32::MAX);
    let (base, bytes) = piece(&mut cutter, 0, 1_000).unwrap();
    assert_eq!((base.unit, base.time_us, base.length), (u32::MAX, 5, 100));
    assert_eq!(bytes, (0..20).collect::<Vec<u8>>());
    assert_eq!(piece(&mut cutter, 1, 1_000), None);
    let (top, bytes) = piece(&mut cutter, 2, 1_000).unwrap();
    assert_eq!(top.offset, 20);
    assert_eq!(bytes, (20..50).collect::<Vec<u8>>());
    assert_eq!(cutter.stats().bytes_cut, 50);
    let next = cutter.push_unit(6, Bytes::new(), INTERVAL, &[]);
    assert_eq!(next, 0, "numbers wrap around");
}

#[test]
fn a_group_sends_its_backlog_before_it_takes_more() {
    let mut cutter = cutter(1);
    let unit = Bytes::from(vec![0; 1_000]);
    cutter.push_unit(0, unit.clone(), INTERVAL, &[1_000.0]);
    assert_eq!(piece(&mut cutter, 0, 46).unwrap().1.len(), 30);
    cutter.push_unit(1, unit, INTERVAL, &[1_000.0]);
    assert_eq!(cutter.waiting_bytes(0), 100);
    let lengths = [
        piece(&mut cutter, 0, 500).unwrap(),
        piece(&mut cutter, 0, 500).unwrap(),
    ];
    let lengths = lengths.map(|(piece, bytes)| (piece.time_us, piece.offset, bytes.len()));
    assert_eq!(lengths, [(0, 30, 70), (1, 0, 30)]);
    assert_eq!(piece(&mut cutter, 0, 500), None);
}

#[test]
fn shares_are_whole_pieces_and_the_rest_is_carried() {
    let mut cutter = cutter(1).in_pieces_of(30);
    let shares: Vec<usize> = (0..4)
        .map(|_| {
            cutter.push_unit(0, vec![0; 1_000].into(), INTERVAL, &[800.0]);
            std::iter::from_fn(|| piece(&mut cutter, 0, 46))
                .map(|(_, bytes)| bytes.len())
                .sum()
        })
        .collect();
    assert_eq!(shares, [60, 90, 90, 60], "on average 80 bytes");
}

#[test]
fn small_units_take_what_they_carry_and_share_packets() {
    let mut cutter = cutter(1).in_pieces_of(1_336).starting_at(0);
    let line = Bytes::from(vec![7; 40]);
    let interval = Duration::from_millis(1);
    // The rate of these lines without headers: each is taken as it comes.
    for number in 0..1_000 {
        cutter.push_unit(number, line.clone(), interval, &[40_000.0]);
        assert_eq!(units(&mut cutter, 1_352), [number]);
    }
    // A packet that is due only now and then takes all that have come, whole.
    for _ in 0..20 {
        cutter.push_unit(0, line.clone(), interval, &[40_000.0]);
    }
    assert_eq!(units(&mut cutter, 200), [1_000, 1_001, 1_002]);
    let rest: usize = core::iter::repeat_with(|| units(&mut cutter, 1_352).len())
        .take(2)
        .sum();
    assert_eq!((rest, cutter.waiting_bytes(0)), (17, 0));
    assert_eq!(cutter.stats().bytes_cut, 0);
    // A quarter of the rate carries a quarter of the lines.
    let mut carried = 0;
    for _ in 0..1_000 {
        cutter.push_unit(0, line.clone(), interval, &[10_000.0]);
        carried += units(&mut cutter, 1_352).len();
    }
    assert!((250..=284).contains(&carried), "{carried}");
}

#[test]
fn the_end_of_a_unit_and_the_next_one_share_a_packet() {
    let mut cutter = cutter(1).in_pieces_of(1_000).starting_at(0);
    for number in 0..2 {
        cutter.push_unit(number, vec![7; 1_500].into(), INTERVAL, &[30_000.0]);
    }
    let packets: Vec<_> = (0..4).map(|_| units(&mut cutter, 1_016)).collect();
    assert_eq!(packets, [vec![0], vec![0, 1], vec![1], vec![1]]);
}

#[test]
fn each_unit_has_a_first_byte_even_if_group_0_is_slower_than_a_packet_for_each() {
    let mut cutter = cutter(1).in_pieces_of(1_336);
    let mut sent = 0;
    for _ in 0..100 {
        cutter.push_unit(0, vec![7; 15_000].into(), INTERVAL, &[2_000.0]);
        let mut payload = Vec::new();
        while cutter.next_payload(0, 1_352, &mut payload) {
            sent += payload.len() - PIECE_BYTES;
            payload.clear();
        }
    }
    assert_eq!(cutter.stats().units_without_base, 0);
    assert!((19_900..=20_000 + 1_336).contains(&sent), "{sent} bytes");
    // A rate of a twentieth of that pays for few first bytes.
    for _ in 0..100 {
        cutter.push_unit(0, vec![7; 15_000].into(), INTERVAL, &[100.0]);
    }
    let without = cutter.stats().units_without_base;
    assert!((70..100).contains(&without), "{without}");
}

/// Notes the bounds of the groups.
#[derive(Default)]
struct Bounds(Vec<f64>);

impl manyflow_core::Endpoint for Bounds {
    type Rx = crate::Message;
    type Tx = crate::Message;
    type Event = crate::Event;

    fn handle_packet(&mut self, _: Time, _: &Packet<crate::Message>) {}
    fn handle_timeout(&mut self, _: Time) {}
    fn poll_action(&mut self, _: Time) -> Option<Action<crate::Message>> {
        None
    }
    fn poll_timeout(&self) -> Option<Time> {
        None
    }
    fn poll_event(&mut self) -> Option<crate::Event> {
        None
    }
}

impl Offer for Bounds {
    fn offer(&mut self, _: u8, _: u32) {}
    fn spread(&mut self, group: u8, bytes_per_s: f64) {
        assert_eq!(usize::from(group), self.0.len());
        self.0.push(bytes_per_s);
    }
}

#[test]
fn units_are_spread_over_their_interval() {
    let rates = |interval_ms: u64| {
        let mut cutter = cutter(3).in_pieces_of(100);
        let (interval, mut bounds) = (Duration::from_millis(interval_ms), Bounds::default());
        let own = [1_000.0, 500.0, 0.0].map(|bytes| bytes / interval.as_secs_f64());
        cutter.push_unit(0, vec![0; 1_500].into(), interval, &own);
        cutter.spread(&mut bounds, interval, 10);
        bounds.0
    };
    let none = f64::INFINITY;
    assert_eq!(rates(1_050), [1_100.0, 550.0, none], "with headers");
    assert_eq!(rates(20), [110_000.0, 55_000.0, none], "in half of it");
    let mut bounds = Bounds::default();
    cutter(1).spread(&mut bounds, Duration::ZERO, 10);
    assert_eq!(bounds.0, [f64::INFINITY], "the first unit");
}

#[test]
fn the_end_of_a_share_moves_to_the_group_above_when_the_rate_decreases() {
    let mut cutter = cutter(3).in_pieces_of(10);
    let unit: Vec<u8> = (0..200).collect();
    cutter.push_unit(0, unit.into(), INTERVAL, &[500.0, 500.0, 1_000.0]);
    assert_eq!(
        piece(&mut cutter, 1, 20 + PIECE_BYTES).unwrap().0.offset,
        50
    );
    // In the rest of the time, the groups send 25, 30 and 50 bytes.
    cutter.rebalance(INTERVAL / 2, &[500.0, 600.0, 1_000.0]);
    assert_eq!(
        piece(&mut cutter, 0, 500).unwrap().1,
        (0..30).collect::<Vec<u8>>()
    );
    let moved = piece(&mut cutter, 1, 500).unwrap();
    assert_eq!((moved.0.offset, moved.1), (30, (30..50).collect()));
    let rest = piece(&mut cutter, 1, 500).unwrap();
    assert_eq!((rest.0.offset, rest.1.len()), (70, 10));
    let above = piece(&mut cutter, 2, 500).unwrap();
    assert_eq!((above.0.offset, above.1.len()), (80, 20));
    let top = piece(&mut cutter, 2, 500).unwrap();
    assert_eq!((top.0.offset, top.1.len()), (100, 30));
    assert_eq!(piece(&mut cutter, 2, 500), None);
    assert_eq!(cutter.stats().bytes_dropped, 70);
    // Receivers of group 0 alone need a part of each unit.
    cutter.push_unit(0, vec![0; 50].into(), INTERVAL, &[500.0]);
    cutter.rebalance(INTERVAL, &[0.0, 500.0]);
    assert_eq!(piece(&mut cutter, 0, 500).unwrap().1.len(), 10);
    assert_eq!(piece(&mut cutter, 1, 500).unwrap().0.offset, 10);
}

proptest! {
    #[test]
    fn whatever_the_rates_become_each_byte_is_sent_once_or_counted_as_left_out(
        length in 1_usize..5_000,
        piece_bytes in 1_usize..100,
        steps in prop::collection::vec((0_u8..4, 1_u64..100, prop::array::uniform4(0.0..20_000.0_f64)), 1..20),
    ) {
        let mut cutter = cutter(4).in_pieces_of(piece_bytes);
        let unit: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        // A group without a rate has none above it that has one.
        let own = |rates: [f64; 4]| rates.map(|rate| rate + 1.0);
        cutter.push_unit(0, unit.clone().into(), INTERVAL, &own(steps[0].2));
        let mut sent = vec![false; length];
        let mut note = |(piece, bytes): (Piece, Vec<u8>)| {
            let start = piece.offset as usize;
            assert_eq!(bytes, unit[start..start + bytes.len()]);
            for byte in &mut sent[start..start + bytes.len()] {
                assert!(!std::mem::replace(byte, true), "twice");
            }
        };
        for (group, left_ms, rates) in steps {
            cutter.rebalance(Duration::from_millis(left_ms), &own(rates));
            piece(&mut cutter, group, piece_bytes + PIECE_BYTES).map(&mut note);
        }
        for group in 0..4 {
            while let Some(sent) = piece(&mut cutter, group, 2_000) {
                note(sent);
            }
            prop_assert_eq!(cutter.waiting_bytes(group), 0);
        }
        let (stats, sent) = (cutter.stats(), sent.iter().filter(|sent| **sent).count());
        let left_out = stats.bytes_cut + stats.bytes_dropped;
        prop_assert_eq!(sent as u64 + left_out, length as u64);
    }
}

#[test]
fn a_backlog_that_would_be_late_at_the_new_rate_is_dropped() {
    let mut cutter = cutter(1);
    let unit = Bytes::from(vec![0; 1_000]);
    cutter.push_unit(0, unit.clone(), INTERVAL, &[5_000.0]);
    cutter.push_unit(1, unit, INTERVAL, &[100.0]);
    assert_eq!(cutter.stats().bytes_dropped, 500);
    assert_eq!(piece(&mut cutter, 0, 500).unwrap().0.time_us, 1);
}

#[test]
fn a_unit_without_base_is_counted_and_a_payload_without_room_gets_no_piece() {
    let mut cutter = cutter(2);
    cutter.push_unit(0, vec![0; 100].into(), INTERVAL, &[f64::NAN, 500.0]);
    assert_eq!(cutter.stats().units_without_base, 1);
    assert_eq!(piece(&mut cutter, 1, PIECE_BYTES), None);
    assert_eq!(piece(&mut cutter, 1, PIECE_BYTES + 1).unwrap().0.offset, 0);
    assert_eq!(piece(&mut cutter, 9, 500), None);
}
