//! The cutter: gives each group a contiguous share of each unit, by the group's present rate.
//!
//! # Rule
//!
//! A unit has the time until the next unit, its *interval*, to be sent. Group `g` could send
//! `rate_g · interval` bytes in this time. It first has to send its backlog: its bytes of earlier
//! units. So its share of the unit is
//!
//! ```text
//!   share_g = max(0, rate_g · interval - backlog_g)
//! ```
//!
//! A packet that is not full costs its headers. So a share that is not the end of its unit is a
//! whole number of full packets ([`Cutter::in_pieces_of`]). The remainder is carried to the next
//! unit, and one piece may wait, because it can be due just after the unit comes. The end of a unit
//! takes its own length only: the next unit fills the packet. So units that are much shorter than a
//! packet are charged by what they carry, and share packets if the rate does not permit one each.
//!
//! The shares follow each other in the unit, that of group 0 first. A group with an empty share
//! leaves its place to the next group. Bytes behind the last share are cut off.
//!
//! After each unit, the backlog of a group is at most `rate_g · interval`, so no group accumulates
//! delay. The same rule absorbs everything that makes a group slower than its rate: the headers of
//! pieces, packets that are not full, and a driver that is late.
//!
//! A unit of which group 0 could send no whole piece would be missed by receivers of group 0 alone.
//! So group 0 takes a part of a piece of each unit that is longer than a packet, if that is at
//! least 128 bytes. Shorter units are taken whole, or not at all.
//!
//! When a rate decreases sharply, a backlog remains that the group would send too late. Beyond
//! `backlog_max` at the new rate, the cutter drops the remains of the oldest units.

use core::time::Duration;
use std::collections::VecDeque;

use bytes::{Buf, Bytes};

use super::{PIECE_BYTES, Piece, UNIT_BYTES_MAX};
use crate::{GROUPS_MAX, Offer};

/// The maximum number of units of which bytes wait in one group: those of some seconds, at a
/// thousand per second.
const SHARES_MAX: usize = 4_096;
/// The maximum length of these units together, unless there is only one. A waiting byte keeps its
/// whole unit in memory.
const KEPT_BYTES_MAX: usize = 4 * UNIT_BYTES_MAX;

/// The least share of group 0, in bytes, of a unit that is longer than a packet.
const BASE_BYTES: usize = 128;

/// Cuts units into the shares of groups, and the shares into pieces.
#[derive(Debug)]
pub struct Cutter {
    groups: Vec<Group>,
    backlog_max: Duration,
    piece_bytes: usize,
    next_number: u32,
    stats: CutterStats,
}

/// Counts of a [`Cutter`] since its creation.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct CutterStats {
    /// Units given to [`Cutter::push_unit`].
    pub units: u64,
    /// Bytes of these units.
    pub bytes: u64,
    /// Bytes that became no group's share, because the rates did not suffice.
    pub bytes_cut: u64,
    /// Bytes of shares that were dropped, because they waited too long.
    pub bytes_dropped: u64,
    /// Units of which group 0 has no byte, so that a receiver of group 0 alone misses them.
    pub units_without_base: u64,
}

#[derive(Debug, Default)]
struct Group {
    shares: VecDeque<Share>,
    /// The bytes of all shares.
    backlog: usize,
    /// The length of the units of all shares.
    kept: usize,
    /// The bytes that the rate has permitted and no share has used: fewer than a piece.
    carried: f64,
}

/// The bytes of one unit that a group has not sent yet, and their place.
#[derive(Debug)]
struct Share {
    piece: Piece,
    bytes: Bytes,
}

/// The share of a group's bytes that its short packets may take, headers included. The rest lets a
/// backlog drain. Without a rest, units were late by as much as they had ever been.
const SHORT_USE: f64 = 0.95;

/// Returns the share of a group's bytes on a link that is left for units. The group has `bytes` in
/// the time of a unit. A full packet has `packet_bytes`, and each packet `header_bytes` of headers.
///
/// A unit with less than a full packet in this group still needs all headers of a packet. If they
/// did not count, its packet would take longer than the time of a unit, and each unit would be
/// later than the one before. With fewer bytes than two packets' headers, several units share a
/// packet, which is then a full one.
pub fn unit_share(bytes: f64, packet_bytes: u32, header_bytes: u32) -> f64 {
    let (packet, headers) = (f64::from(packet_bytes), f64::from(header_bytes));
    let full = 1.0 - headers / packet;
    if bytes >= packet || bytes < 2.0 * headers {
        return full;
    }
    full.min(SHORT_USE - headers / bytes)
}

/// The time before the next unit at which the bytes of a unit have been sent, at most half of the
/// interval: room for packets that are late.
const SLACK: Duration = Duration::from_millis(50);

impl Cutter {
    /// Creates a cutter for a session of `groups` groups. Bytes of a group wait for at most
    /// `backlog_max` at the group's present rate; more than the latency of the receivers is of no
    /// use.
    ///
    /// # Panics
    /// If `groups` is 0 or above [`GROUPS_MAX`].
    pub fn new(groups: u8, backlog_max: Duration) -> Cutter {
        assert!((1..=GROUPS_MAX).contains(&groups), "1 to 32 groups");
        Cutter {
            groups: (0..groups).map(|_| Group::default()).collect(),
            backlog_max,
            piece_bytes: 1,
            next_number: 0,
            stats: CutterStats::default(),
        }
    }

    /// Gives the next unit this number, instead of 0. A random number makes a restart of the sender
    /// visible to its receivers.
    pub fn starting_at(mut self, number: u32) -> Cutter {
        self.next_number = number;
        self
    }

    /// Makes each share a whole number of pieces of this length, at least 1: the bytes of a unit in
    /// a full packet.
    pub fn in_pieces_of(mut self, bytes: usize) -> Cutter {
        self.piece_bytes = bytes.max(1);
        self
    }

    /// Adds a unit with its time on the sender's clock, and returns its number. `interval` is the
    /// time until the next unit. `own_rates` are the rates of the groups in bytes per second, each
    /// without the groups below; a rate that is missing, negative or not a number counts as 0.
    /// Bytes beyond [`UNIT_BYTES_MAX`] are cut off.
    pub fn push_unit(
        &mut self,
        time_us: u32,
        bytes: Bytes,
        interval: Duration,
        own_rates: &[f64],
    ) -> u32 {
        let unit = self.next_number;
        self.next_number = unit.wrapping_add(1);
        let length = bytes.len().min(UNIT_BYTES_MAX);
        let mut cut = 0;
        for (rank, group) in self.groups.iter_mut().enumerate() {
            let rate = own_rates.get(rank).copied().unwrap_or(0.0);
            self.stats.bytes_dropped += group.drop_late(bytes_at(rate, self.backlog_max));
            let budget = rate.max(0.0) * interval.as_secs_f64();
            let base = if rank == 0 { BASE_BYTES } else { usize::MAX };
            let end = cut + group.take_share(budget, self.piece_bytes, length - cut, base);
            let piece = Piece {
                unit,
                time_us,
                offset: cut as u32,
                length: length as u32,
            };
            group.push(piece, bytes.slice(cut..end));
            self.stats.units_without_base += u64::from(rank == 0 && end == 0);
            cut = end;
        }
        debug_assert!(cut <= length, "the shares are parts of the unit");
        self.stats.units += 1;
        self.stats.bytes += bytes.len() as u64;
        self.stats.bytes_cut += (bytes.len() - cut) as u64;
        unit
    }

    /// Appends the pieces of a group's next packet to `payload`: at most `payload_max` bytes with
    /// their headers, from the oldest unit on. Returns false, and appends nothing, if no byte of
    /// the group waits, or if `payload_max` leaves no room for a byte.
    pub fn next_payload(&mut self, group: u8, payload_max: usize, payload: &mut Vec<u8>) -> bool {
        match self.groups.get_mut(usize::from(group)) {
            Some(group) => group.write_payload(payload_max, payload),
            None => false,
        }
    }

    /// Returns the length of what [`next_payload`](Cutter::next_payload) would append: 0 if nothing
    /// waits.
    pub fn payload_bytes(&self, group: u8, payload_max: usize) -> usize {
        let group = self.groups.get(usize::from(group));
        group.map_or(0, |group| {
            let pieces = group.pieces(payload_max);
            pieces.map(|bytes| PIECE_BYTES + bytes).sum()
        })
    }

    /// Lets the sender spread what waits in each group over the time until the next unit, which is
    /// `interval`. Each packet has `header_bytes` of headers.
    pub fn spread(&self, to: &mut (impl Offer + ?Sized), interval: Duration, header_bytes: u32) {
        let time_s = (interval - SLACK.min(interval / 2)).as_secs_f64();
        for (group, own) in (0..).zip(&self.groups) {
            let packets = own.backlog.div_ceil(self.piece_bytes).max(own.shares.len());
            let bytes = own.backlog as f64 + packets as f64 * f64::from(header_bytes);
            // A request waits for no packet of a group in which nothing waits.
            let is_bounded = own.backlog > 0 && time_s > 0.0;
            to.spread(
                group,
                if is_bounded {
                    bytes / time_s
                } else {
                    f64::INFINITY
                },
            );
        }
    }

    /// Returns the bytes of units that wait in a group, without headers.
    pub fn waiting_bytes(&self, group: u8) -> usize {
        self.groups
            .get(usize::from(group))
            .map_or(0, |group| group.backlog)
    }

    /// Returns the counts since the creation.
    pub fn stats(&self) -> CutterStats {
        self.stats
    }
}

impl Group {
    /// Drops the remains of the oldest units until at most `bytes_max` bytes wait, and one more
    /// share has room. Returns the number of dropped bytes.
    fn drop_late(&mut self, bytes_max: usize) -> u64 {
        let before = self.backlog;
        while self.backlog > bytes_max
            || self.shares.len() >= SHARES_MAX
            || self.kept > KEPT_BYTES_MAX
        {
            let Some(share) = self.shares.pop_front() else {
                break;
            };
            self.backlog -= share.bytes.len();
            self.kept -= share.piece.length as usize;
        }
        (before - self.backlog) as u64
    }

    /// Returns the share of a unit whose interval permits `budget` bytes, and of which `rest` bytes
    /// are no lower group's. The end of a unit is taken if it fits; otherwise, whole pieces are, or
    /// at least `base` bytes.
    fn take_share(&mut self, budget: f64, piece_bytes: usize, rest: usize, base: usize) -> usize {
        let excess = self.backlog.saturating_sub(piece_bytes - 1);
        let open = (self.carried + budget - excess as f64).max(0.0);
        // The cast saturates.
        let bytes = open as usize;
        let share = match rest <= bytes {
            true => rest,
            false if (base..piece_bytes).contains(&bytes) && rest > piece_bytes => bytes,
            false => bytes - bytes % piece_bytes,
        };
        self.carried = (open - share as f64).min(piece_bytes as f64 - 1.0);
        debug_assert!(share <= rest);
        share
    }

    fn push(&mut self, piece: Piece, bytes: Bytes) {
        if !bytes.is_empty() {
            self.backlog += bytes.len();
            self.kept += piece.length as usize;
            self.shares.push_back(Share { piece, bytes });
        }
        debug_assert!(self.shares.len() <= SHARES_MAX, "the shares are bounded");
        debug_assert_eq!((self.backlog == 0), self.shares.is_empty());
    }

    /// Returns the bytes that the next packet takes of each share. Another piece follows one that
    /// ends its unit, unless it would be split and fits into the packet after this one.
    fn pieces(&self, payload_max: usize) -> impl Iterator<Item = usize> {
        let mut room = payload_max;
        let mut may_follow = true;
        self.shares.iter().map_while(move |share| {
            let left = share.bytes.len();
            let space = room.saturating_sub(PIECE_BYTES);
            let fits_next = room < payload_max && left + PIECE_BYTES <= payload_max;
            if !may_follow || space == 0 || (left > space && fits_next) {
                return None;
            }
            let taken = left.min(space);
            may_follow = share.piece.offset as usize + taken == share.piece.length as usize;
            room -= PIECE_BYTES + taken;
            Some(taken)
        })
    }

    fn write_payload(&mut self, payload_max: usize, payload: &mut Vec<u8>) -> bool {
        let count = self.pieces(payload_max).count();
        let end = payload.len() + payload_max;
        for _ in 0..count {
            self.write_piece(end - payload.len() - PIECE_BYTES, payload);
        }
        debug_assert!(count == 0 || payload.len() <= end, "the payload fits");
        count > 0
    }

    fn write_piece(&mut self, room: usize, payload: &mut Vec<u8>) {
        let Some(share) = self.shares.front_mut() else {
            return;
        };
        let taken = room.min(share.bytes.len());
        payload.extend_from_slice(&share.piece.encode());
        payload.extend_from_slice(&share.bytes[..taken]);
        share.bytes.advance(taken);
        share.piece.offset += taken as u32;
        self.backlog -= taken;
        if share.bytes.is_empty() {
            self.kept -= share.piece.length as usize;
            self.shares.pop_front();
        }
    }
}

/// The whole bytes that a rate gives in a time.
fn bytes_at(rate: f64, time: Duration) -> usize {
    // The cast saturates; negative values and NaN give 0.
    (rate * time.as_secs_f64()) as usize
}

#[cfg(test)]
mod tests {
    use manyflow_core::{Action, Packet, Time};

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
}
