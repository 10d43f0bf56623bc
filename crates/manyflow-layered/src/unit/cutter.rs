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
//! A sender that paces whole packets would waste the rest of the last packet of each share. So a
//! share is a whole number of pieces ([`Cutter::in_pieces_of`]). The remainder is carried to the
//! next unit, and one piece may wait, because it can be due just after the unit comes.
//!
//! The shares follow each other in the unit, that of group 0 first. A group with an empty share
//! leaves its place to the next group. Bytes behind the last share are cut off.
//!
//! After each unit, the backlog of a group is at most `rate_g · interval`, so no group accumulates
//! delay. The same rule absorbs everything that makes a group slower than its rate: the headers of
//! pieces, packets that are not full, and a driver that is late.
//!
//! When a rate decreases sharply, a backlog remains that the group would send too late. Beyond
//! `backlog_max` at the new rate, the cutter drops the remains of the oldest units.

use core::time::Duration;
use std::collections::VecDeque;

use bytes::{Buf, Bytes};

use super::{PIECE_BYTES, Piece, UNIT_BYTES_MAX};
use crate::GROUPS_MAX;

/// The maximum number of units of which bytes wait in one group. It bounds the memory, because a
/// waiting byte keeps its whole unit in memory.
const SHARES_MAX: usize = 64;

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
    /// The bytes that the rate has permitted and no share has used: fewer than a piece.
    carried: usize,
}

/// The bytes of one unit that a group has not sent yet, and their place.
#[derive(Debug)]
struct Share {
    piece: Piece,
    bytes: Bytes,
}

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
            let share = group.take_share(bytes_at(rate, interval), self.piece_bytes);
            let end = cut + share.min(length - cut);
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

    /// Appends the next piece of a group to `payload`: header and bytes together at most
    /// `payload_max` bytes, from the oldest unit. Returns false, and appends nothing, if no byte of
    /// the group waits, or if `payload_max` leaves no room for a byte.
    pub fn next_piece(&mut self, group: u8, payload_max: usize, payload: &mut Vec<u8>) -> bool {
        let room = payload_max.saturating_sub(PIECE_BYTES);
        match self.groups.get_mut(usize::from(group)) {
            Some(group) if room > 0 => group.write_piece(room, payload),
            _ => false,
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
        while self.backlog > bytes_max || self.shares.len() >= SHARES_MAX {
            let Some(share) = self.shares.pop_front() else {
                break;
            };
            self.backlog -= share.bytes.len();
        }
        (before - self.backlog) as u64
    }

    /// Returns the share of a unit whose interval permits `budget` bytes.
    fn take_share(&mut self, budget: usize, piece_bytes: usize) -> usize {
        let excess = self.backlog.saturating_sub(piece_bytes - 1);
        let open = (self.carried + budget).saturating_sub(excess);
        self.carried = open % piece_bytes;
        open - self.carried
    }

    fn push(&mut self, piece: Piece, bytes: Bytes) {
        if !bytes.is_empty() {
            self.backlog += bytes.len();
            self.shares.push_back(Share { piece, bytes });
        }
        debug_assert!(self.shares.len() <= SHARES_MAX, "the shares are bounded");
        debug_assert_eq!((self.backlog == 0), self.shares.is_empty());
    }

    fn write_piece(&mut self, room: usize, payload: &mut Vec<u8>) -> bool {
        let Some(share) = self.shares.front_mut() else {
            return false;
        };
        let taken = room.min(share.bytes.len());
        payload.extend_from_slice(&share.piece.encode());
        payload.extend_from_slice(&share.bytes[..taken]);
        share.bytes.advance(taken);
        share.piece.offset += taken as u32;
        self.backlog -= taken;
        if share.bytes.is_empty() {
            self.shares.pop_front();
        }
        true
    }
}

/// The whole bytes that a rate gives in a time.
fn bytes_at(rate: f64, time: Duration) -> usize {
    // The cast saturates; negative values and NaN give 0.
    (rate * time.as_secs_f64()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(100);

    fn piece(cutter: &mut Cutter, group: u8, payload_max: usize) -> Option<(Piece, Vec<u8>)> {
        let mut payload = vec![0xff];
        let written = cutter.next_piece(group, payload_max, &mut payload);
        written.then(|| {
            let (piece, bytes) = Piece::decode(&payload[1..]).unwrap();
            assert!(payload.len() <= 1 + payload_max);
            (piece, bytes.to_vec())
        })
    }

    fn cutter(groups: u8) -> Cutter {
        Cutter::new(groups, Duration::from_secs(1)).starting_at(u32::MAX)
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
