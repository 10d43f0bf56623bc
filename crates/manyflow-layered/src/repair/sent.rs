//! The parent's side of repair: the last packets that were sent to a child.

use core::time::Duration;
use std::collections::VecDeque;

use manyflow_core::Time;

use super::request::{GAP_GROUPS_MAX, GroupGaps, HORIZON, Known};

/// The maximum number and bytes of the packets that are kept for a child.
const PACKETS_MAX: usize = 1024;
const BYTES_MAX: u64 = 2 << 20;
/// The age after which no receiver waits for a packet: the maximum latency of a live receiver.
const AGE_MAX: Duration = Duration::from_secs(2);
/// The share of the bytes sent for the first time that repairs can take: 1 / 4.
const SHARE_DIVISOR: u64 = 4;
/// The maximum number of bytes of repairs in a burst.
const BURST_BYTES: u64 = 32 << 10;

/// The place of a packet in its group.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of the session.
    pub session: u32,
    /// The rank of the group.
    pub rank: u8,
    /// The number of the packet in the group.
    pub sequence: u32,
}

/// A packet that was sent.
#[derive(Clone, Debug)]
struct Sent<T> {
    place: Place,
    item: T,
    bytes: u32,
    /// When it was sent for the first time.
    at: Time,
    /// The number of the last sounding that was sent before it.
    sounded: u32,
    /// Whether it was sent again, or after a later packet of its group: the arrival of that packet
    /// says nothing about this one.
    is_late: bool,
    /// Whether it waits in the queue of the hop again.
    is_waiting: bool,
}

/// The last packets that were sent to a child. `T` is a handle: its copies share their bytes.
#[derive(Debug)]
pub struct SentPackets<T> {
    sent: VecDeque<Sent<T>>,
    bytes: u64,
    /// The last packet of each group, in the order of numbers.
    last: Vec<Place>,
    /// The bytes that repairs may take now.
    credit: u64,
}

impl<T> Default for SentPackets<T> {
    fn default() -> SentPackets<T> {
        SentPackets {
            sent: VecDeque::new(),
            bytes: 0,
            last: Vec::new(),
            credit: BURST_BYTES,
        }
    }
}

impl<T: Clone> SentPackets<T> {
    /// Notes a packet of `bytes` that is sent at `now`, after the sounding with the number
    /// `sounded`.
    pub fn note(&mut self, now: Time, place: Place, item: &T, bytes: u32, sounded: u32) {
        let earned = u64::from(bytes) / SHARE_DIVISOR;
        self.credit = (self.credit + earned).min(BURST_BYTES);
        self.bytes += u64::from(bytes);
        let is_late = self.is_late(place);
        self.sent.push_back(Sent {
            place,
            item: item.clone(),
            bytes,
            at: now,
            sounded,
            is_late,
            is_waiting: false,
        });
        while self.sent.front().is_some_and(|first| {
            let is_old = now - first.at > AGE_MAX;
            is_old || self.sent.len() > PACKETS_MAX || self.bytes > BYTES_MAX
        }) {
            self.bytes -= self.sent.pop_front().map_or(0, |sent| sent.bytes.into());
        }
        debug_assert!(self.sent.len() <= PACKETS_MAX && self.bytes <= BYTES_MAX);
    }

    /// Notes a packet as the last of its group, unless a later one was sent before. Returns whether
    /// one was.
    fn is_late(&mut self, place: Place) -> bool {
        let is_of_group =
            |last: &&mut Place| last.rank == place.rank && last.session == place.session;
        let Some(last) = self.last.iter_mut().find(is_of_group) else {
            if self.last.len() < GAP_GROUPS_MAX {
                self.last.push(place);
            }
            return false;
        };
        let behind = last.sequence.wrapping_sub(place.sequence);
        if behind <= HORIZON {
            return true;
        }
        *last = place;
        false
    }

    /// Notes that a packet was sent again, after the sounding with the number `sounded`.
    pub fn note_repair(&mut self, place: Place, sounded: u32) {
        let mut sent = self.sent.iter_mut().rev();
        if let Some(again) = sent.find(|sent| sent.place == place) {
            (again.sounded, again.is_late, again.is_waiting) = (sounded, true, false);
        }
    }

    /// Passes each packet that a request shows to be lost to `repair`, with its length: the groups
    /// in the order of the request, the oldest packet first. `heard` is the last sounding that the
    /// child has heard, and `wait` the age up to which the child can use a packet.
    pub fn answer(
        &mut self,
        now: Time,
        heard: u32,
        wait: Duration,
        groups: impl Iterator<Item = GroupGaps>,
        mut repair: impl FnMut(T, u32),
    ) {
        for group in groups {
            for sent in &mut self.sent {
                let is_of_group =
                    sent.place.rank == group.rank && sent.place.session == group.session;
                if !is_of_group || sent.is_waiting || now - sent.at > wait {
                    continue;
                }
                let is_passed = heard > sent.sounded;
                let is_lost = match group.known(sent.place.sequence) {
                    Known::Missing => is_passed || !sent.is_late,
                    Known::Ahead => is_passed,
                    Known::Settled => false,
                };
                let bytes = u64::from(sent.bytes);
                if is_lost && bytes <= self.credit {
                    self.credit -= bytes;
                    sent.is_waiting = true;
                    repair(sent.item.clone(), sent.bytes);
                }
            }
        }
    }

    /// Returns the number of packets that are kept, and their bytes.
    pub fn kept(&self) -> (usize, u64) {
        (self.sent.len(), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(1);

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn place(sequence: u32) -> Place {
        Place {
            session: 7,
            rank: 1,
            sequence,
        }
    }

    fn gaps(next: u32, missing: u128) -> GroupGaps {
        GroupGaps {
            session: 7,
            rank: 1,
            next,
            missing,
        }
    }

    /// Packets 0 to 9, one in each millisecond, and a sounding after every second one.
    fn sent() -> SentPackets<u32> {
        let mut sent = SentPackets::default();
        for number in 0..10 {
            sent.note(at(number.into()), place(number), &number, 1000, number / 2);
        }
        sent
    }

    fn answer(sent: &mut SentPackets<u32>, heard: u32, group: GroupGaps) -> Vec<u32> {
        let mut repairs = Vec::new();
        let groups = core::iter::once(group);
        sent.answer(at(20), heard, WAIT, groups, |item, _| repairs.push(item));
        repairs
    }

    #[test]
    fn a_missing_packet_is_sent_once_until_a_later_sounding_is_heard() {
        let mut sent = sent();
        assert_eq!(answer(&mut sent, 0, gaps(6, 0b100)), [3]);
        assert_eq!(answer(&mut sent, 2, gaps(6, 0b100)), [0; 0], "it waits");
        sent.note_repair(place(3), 5);
        let group = gaps(10, 0b100_0000);
        assert_eq!(answer(&mut sent, 5, group), [0; 0], "on its way");
        assert_eq!(answer(&mut sent, 6, group), [3]);
    }

    #[test]
    fn a_packet_that_came_late_itself_is_not_lost_because_later_ones_arrived() {
        let mut sent = SentPackets::default();
        for (ms, number) in (0..).zip([0, 1, 3, 4, 2]) {
            sent.note(at(ms), place(number), &number, 1000, 1);
        }
        assert_eq!(answer(&mut sent, 1, gaps(5, 0b100)), [0; 0], "on its way");
        assert_eq!(answer(&mut sent, 2, gaps(5, 0b100)), [2]);
    }

    #[test]
    fn the_last_packets_are_lost_once_a_sounding_after_them_is_heard() {
        assert_eq!(answer(&mut sent(), 3, gaps(3, 0)), [3, 4, 5]);
        assert_eq!(answer(&mut sent(), 1, gaps(3, 0)), [0; 0]);
    }

    #[test]
    fn packets_that_would_be_late_or_exceed_the_credit_are_not_sent() {
        let mut sent = SentPackets::default();
        for number in 0..100 {
            sent.note(at(number.into()), place(number), &number, 1000, 1);
        }
        let mut repairs = 0;
        let all = || core::iter::once(gaps(100, u128::MAX));
        sent.answer(at(100), 1, Duration::from_millis(10), all(), |_, _| {
            repairs += 1
        });
        assert_eq!(repairs, 10);
        sent.answer(at(100), 1, WAIT, all(), |_, _| repairs += 1);
        assert_eq!(repairs, BURST_BYTES / 1000);
    }

    #[test]
    fn the_memory_is_bounded_in_packets_bytes_and_time() {
        let mut sent = SentPackets::default();
        for number in 0..3000 {
            sent.note(at(0), place(number), &number, 1000, 1);
        }
        assert_eq!(sent.kept(), (PACKETS_MAX, 1000 * PACKETS_MAX as u64));
        for number in 0..3000 {
            sent.note(at(0), place(number), &number, 60_000, 1);
        }
        assert!(sent.kept().1 <= BYTES_MAX);
        sent.note(at(5000), place(1), &1, 1000, 1);
        assert_eq!(sent.kept(), (1, 1000));
    }
}
