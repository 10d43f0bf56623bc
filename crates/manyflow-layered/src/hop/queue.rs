//! The queue of a hop: marks the packets of top groups, and drops from the top when it is full.

use core::time::Duration;
use std::collections::VecDeque;

use manyflow_core::Rate;
use manyflow_core::link::{
    Arrival, Carried, Dropped, Marking, Notice, Overload, Red, RedConfig, TopGroups, Verdict,
};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::config::HopConfig;
use crate::GROUPS_MAX;

/// A packet that waits.
#[derive(Clone, Debug)]
struct Waiting<T> {
    item: T,
    bytes: u32,
    /// The rank of the packet's group; `None` outside layered sessions.
    rank: Option<u8>,
}

/// The fate of packets that were pushed.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fates {
    pub(super) pushed: u64,
    pub(super) marked: u64,
    /// Packets that were dropped as they arrived.
    pub(super) dropped: u64,
    /// Packets that gave way to one of a lower rank.
    pub(super) displaced: u64,
    /// Packets that were pushed to be sent again.
    pub(super) repairs: u64,
}

/// A queue of packets of several sessions.
#[derive(Debug)]
pub(super) struct Queue<T> {
    items: VecDeque<Waiting<T>>,
    /// The number of packets at the front that are sent again, the lowest rank first.
    repairs: usize,
    bytes: u64,
    /// The number of waiting packets of each rank.
    ranks: [u32; GROUPS_MAX as usize],
    red: Red,
    tops: TopGroups,
    random: Pcg64Mcg,
    packets_max: usize,
    packet_bytes: u64,
    wait_max: Duration,
    red_slot: Duration,
    pub(super) fates: Fates,
}

impl<T: Carried> Queue<T> {
    pub(super) fn new(config: &HopConfig, seed: u64) -> Queue<T> {
        let red = RedConfig {
            ecn: true,
            marking: Marking::TopGroup,
            overload: Overload::Mark,
            ..config.red
        };
        Queue {
            items: VecDeque::new(),
            repairs: 0,
            bytes: 0,
            ranks: [0; GROUPS_MAX as usize],
            red: Red::new(red),
            tops: TopGroups::default(),
            random: Pcg64Mcg::seed_from_u64(seed),
            packets_max: config.queue_packets as usize,
            packet_bytes: config.packet_bytes.max(1).into(),
            wait_max: config.queue,
            red_slot: config.red_slot,
            fates: Fates::default(),
        }
    }

    pub(super) fn set_top(&mut self, session: u32, top: Option<u8>) {
        self.tops.set(session, top);
    }

    /// Queues a packet that arrives after `idle`, or while a packet is sent. `may_mark` says
    /// whether a queue at this rate is a sign of congestion. Returns whether the packet was marked.
    pub(super) fn push(
        &mut self,
        item: T,
        bytes: u32,
        idle: Option<Duration>,
        rate: Rate,
        may_mark: bool,
    ) -> Result<bool, Dropped> {
        self.fates.pushed += 1;
        let rank = item.group().map(|(_, rank)| rank.min(GROUPS_MAX - 1));
        let arrival = Arrival {
            bytes,
            waiting: self.waiting(rate),
            idle,
            rate: Some(rate),
        };
        if !self.has_room(bytes, rate) && !self.displace(rank) {
            self.red.refuse(arrival);
            self.fates.dropped += 1;
            return Err(Dropped::Full);
        }
        let mut item = item;
        let notice = match may_mark {
            true => self.notice(&item),
            false => Notice::Spare,
        };
        let verdict = self.red.judge(arrival, notice, &mut self.random);
        let is_marked = verdict == Verdict::Mark;
        match verdict {
            Verdict::Accept => {}
            Verdict::Mark => {
                item.mark();
                self.fates.marked += 1;
            }
            Verdict::Drop => {
                self.fates.dropped += 1;
                return Err(Dropped::Early);
            }
        }
        self.append(item, bytes, rank);
        Ok(is_marked)
    }

    /// Queues a packet that the path has lost before those that wait, behind repairs of its own
    /// rank and of lower ones. It is not marked, because the queue was judged when it was sent
    /// first.
    pub(super) fn push_repair(&mut self, item: T, bytes: u32, rate: Rate) -> Result<(), Dropped> {
        self.fates.pushed += 1;
        self.fates.repairs += 1;
        let rank = item.group().map(|(_, rank)| rank.min(GROUPS_MAX - 1));
        if !self.has_room(bytes, rate) && !self.displace(rank) {
            self.fates.dropped += 1;
            return Err(Dropped::Full);
        }
        let first = self.items.range(..self.repairs);
        let place = first.filter(|waiting| waiting.rank <= rank).count();
        self.items.insert(place, Waiting { item, bytes, rank });
        self.repairs += 1;
        self.note_appended(bytes, rank);
        Ok(())
    }

    /// Returns the length of the queue for RED: in packets, or in slots or typical packets if these
    /// are fewer. So short packets count by their bytes.
    fn waiting(&self, rate: Rate) -> usize {
        let wait_s = self.bytes as f64 * 8.0 / rate.bits_per_s().max(1) as f64;
        let slots = wait_s / self.red_slot.as_secs_f64().max(1e-9);
        let typical = self.bytes.div_ceil(self.packet_bytes) as usize;
        self.items.len().min(slots as usize).min(typical)
    }

    /// Returns how RED treats a packet. Packets without a group are never marked, nor dropped
    /// before the queue is full.
    fn notice(&self, item: &T) -> Notice {
        match item.group() {
            Some((session, rank)) if self.tops.is_top(session, rank) => {
                if item.is_ecn_capable() {
                    Notice::Mark
                } else {
                    Notice::Drop
                }
            }
            _ => Notice::Spare,
        }
    }

    fn append(&mut self, item: T, bytes: u32, rank: Option<u8>) {
        self.items.push_back(Waiting { item, bytes, rank });
        self.note_appended(bytes, rank);
    }

    fn note_appended(&mut self, bytes: u32, rank: Option<u8>) {
        if let Some(rank) = rank {
            self.ranks[usize::from(rank)] += 1;
        }
        self.bytes += u64::from(bytes);
        self.check_counts();
    }

    fn has_room(&self, bytes: u32, rate: Rate) -> bool {
        let most = rate.bits_per_s() as f64 / 8.0 * self.wait_max.as_secs_f64();
        let bytes = self.bytes + u64::from(bytes);
        self.items.len() < self.packets_max || bytes as f64 <= most
    }

    /// Removes the last packet of the highest rank, if that rank is above `rank`.
    fn displace(&mut self, rank: Option<u8>) -> bool {
        let Some(rank) = rank else { return false };
        let Some(highest) = self.ranks.iter().rposition(|count| *count > 0) else {
            return false;
        };
        if highest <= usize::from(rank) {
            return false;
        }
        let is_highest = |waiting: &Waiting<T>| waiting.rank.map(usize::from) == Some(highest);
        let place = self.items.iter().rposition(is_highest);
        let removed = place.and_then(|place| self.items.remove(place));
        self.repairs -= usize::from(place.is_some_and(|place| place < self.repairs));
        if let Some(removed) = removed {
            self.ranks[highest] -= 1;
            self.bytes -= u64::from(removed.bytes);
            self.fates.displaced += 1;
        }
        self.check_counts();
        true
    }

    /// Returns the length of the next packet.
    pub(super) fn next_bytes(&self) -> Option<u32> {
        self.items.front().map(|waiting| waiting.bytes)
    }

    pub(super) fn pop(&mut self) -> Option<(T, u32)> {
        let waiting = self.items.pop_front()?;
        self.repairs = self.repairs.saturating_sub(1);
        if let Some(rank) = waiting.rank {
            self.ranks[usize::from(rank)] -= 1;
        }
        self.bytes -= u64::from(waiting.bytes);
        Some((waiting.item, waiting.bytes))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn len(&self) -> (usize, u64) {
        (self.items.len(), self.bytes)
    }

    fn check_counts(&self) {
        debug_assert!(self.repairs <= self.items.len());
        debug_assert_eq!(
            self.bytes,
            self.items
                .iter()
                .map(|waiting| u64::from(waiting.bytes))
                .sum::<u64>()
        );
        debug_assert_eq!(
            self.ranks.iter().sum::<u32>() as usize,
            self.items
                .iter()
                .filter(|waiting| waiting.rank.is_some())
                .count()
        );
    }
}
