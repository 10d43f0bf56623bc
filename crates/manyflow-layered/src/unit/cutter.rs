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
//! When a rate decreases, a group can no longer send all of its share before the next unit. The
//! end of the share then goes to the group above ([`Cutter::rebalance`]), so that a unit's prefix
//! has no gap for receivers with more groups. A backlog of earlier units may remain that the group
//! would send too late. Beyond `backlog_max` at the new rate, the cutter drops the remains of the
//! oldest units.

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

    /// Gives the group above what a group can no longer send before the next unit, which comes in
    /// `left`, because its rate has decreased. Without this, receivers with more groups have a gap
    /// amid the unit, and nothing behind a gap is of use. The highest group drops the end of the
    /// unit. `own_rates` are as in [`push_unit`](Cutter::push_unit).
    pub fn rebalance(&mut self, left: Duration, own_rates: &[f64]) {
        let unit = self.next_number.wrapping_sub(1);
        let rate = |rank: usize| own_rates.get(rank).copied().unwrap_or(0.0);
        for rank in 0..self.groups.len() {
            let bytes_max = bytes_at(rate(rank), left);
            let moved = self.groups[rank].take_excess(unit, bytes_max, self.piece_bytes);
            let Some(share) = moved else { continue };
            match self.groups.get_mut(rank + 1) {
                Some(above) if rate(rank + 1) > 0.0 && above.shares.len() < SHARES_MAX => {
                    above.insert(share);
                }
                _ => self.stats.bytes_dropped += share.bytes.len() as u64,
            }
        }
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

    /// Takes the end of this unit that makes the backlog longer than `bytes_max`, in whole pieces.
    fn take_excess(&mut self, unit: u32, bytes_max: usize, piece_bytes: usize) -> Option<Share> {
        let excess = self.backlog.saturating_sub(bytes_max);
        let excess = excess - excess % piece_bytes;
        let share = self
            .shares
            .back_mut()
            .filter(|share| share.piece.unit == unit)?;
        // Receivers of group 0 alone would miss a unit whose first piece is not there.
        let first = if share.piece.offset == 0 {
            piece_bytes
        } else {
            0
        };
        let moved = excess.min(share.bytes.len().saturating_sub(first));
        if moved == 0 {
            return None;
        }
        let kept = share.bytes.len() - moved;
        let bytes = share.bytes.split_off(kept);
        let mut piece = share.piece;
        piece.offset += kept as u32;
        self.backlog -= moved;
        if kept == 0 {
            self.kept -= share.piece.length as usize;
            self.shares.pop_back();
        }
        Some(Share { piece, bytes })
    }

    /// Adds a share before those of the same unit, which lie behind it.
    fn insert(&mut self, share: Share) {
        let unit = share.piece.unit;
        let place = self
            .shares
            .iter()
            .position(|other| other.piece.unit == unit);
        self.backlog += share.bytes.len();
        self.kept += share.piece.length as usize;
        let place = place.unwrap_or(self.shares.len());
        self.shares.insert(place, share);
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
mod tests;
