//! The state that most links of a large network never need: waiting packets, randomness, and the
//! counters of their effects.

use core::time::Duration;
use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::faults::Losses;
use super::red::{Arrival, Red, TopGroups, Verdict};
use super::{Carried, LinkConfig, LossModel, make_room};
use crate::time::Time;
use crate::units::Rate;
use crate::xcp::Controller;

#[derive(Debug)]
pub(super) struct Extras {
    pub(super) random: Pcg64Mcg,
    losses: Losses,
    red: Option<Red>,
    /// Boxed separately: many links have faults, few are XCP routers.
    xcp: Option<Box<Controller>>,
    /// The top groups, kept only if RED marks by groups.
    pub(super) tops: TopGroups,
    /// The packets that wait for the transmitter: the time at which each transmission begins, and
    /// its bytes.
    waiting: VecDeque<(Time, u32)>,
    waiting_bytes: u64,
    /// The sum of the times for which packets wait, also of those that still wait, in nanoseconds.
    waits: u64,
    pub(super) dropped: u64,
    pub(super) marked: u64,
    pub(super) lost: u64,
    pub(super) duplicated: u64,
}

impl Extras {
    pub(super) fn new(config: &LinkConfig, seed: u64) -> Extras {
        Extras {
            random: Pcg64Mcg::seed_from_u64(seed),
            losses: Losses::default(),
            red: config.red.map(Red::new),
            xcp: router(config),
            tops: TopGroups::default(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            waits: 0,
            dropped: 0,
            marked: 0,
            lost: 0,
            duplicated: 0,
        }
    }

    pub(super) fn set_red(&mut self, config: &LinkConfig) {
        self.red = config.red.map(Red::new);
        if !config.marks_by_group() {
            self.tops = TopGroups::default();
        }
    }

    pub(super) fn set_xcp(&mut self, config: &LinkConfig) {
        self.xcp = router(config);
    }

    #[inline]
    pub(super) fn wait(&mut self, now: Time, begins: Time, bytes: u32) {
        self.waits += begins.as_nanos() - now.as_nanos();
        make_room(&mut self.waiting);
        self.waiting.push_back((begins, bytes));
        self.waiting_bytes += u64::from(bytes);
    }

    /// Returns the sum of the times for which packets have waited until `now`.
    pub(super) fn waited(&self, now: Time) -> Duration {
        Duration::from_nanos(self.waits - self.remaining_waits(now))
    }

    fn remaining_waits(&self, now: Time) -> u64 {
        let waits = self.waiting.iter();
        waits
            .map(|(begins, _)| begins.as_nanos() - now.as_nanos())
            .sum()
    }

    /// Removes packets from the queue whose transmission has begun.
    #[inline]
    pub(super) fn retire(&mut self, now: Time) {
        while let Some(&(begins, bytes)) = self.waiting.front() {
            if begins > now {
                break;
            }
            self.waiting.pop_front();
            self.waiting_bytes -= u64::from(bytes);
        }
    }

    /// Returns the number of waiting packets and their bytes.
    pub(super) fn queued(&self) -> (usize, u64) {
        (self.waiting.len(), self.waiting_bytes)
    }

    /// Removes all packets from the queue at `now`. Returns when the first transmission was to
    /// begin, and the number of packets.
    pub(super) fn take_waiting(&mut self, now: Time) -> Option<(Time, usize)> {
        let &(begins, _) = self.waiting.front()?;
        self.waits -= self.remaining_waits(now);
        let packets = self.waiting.len();
        self.waiting.clear();
        self.waiting_bytes = 0;
        Some((begins, packets))
    }

    /// Asks RED about a packet that the queue has room for. Without RED every packet is accepted.
    pub(super) fn judge(&mut self, item: &impl Carried, arrival: Arrival) -> Verdict {
        self.red.as_mut().map_or(Verdict::Accept, |red| {
            let notice = red.notice(item, &self.tops);
            red.judge(arrival, notice, &mut self.random)
        })
    }

    /// Notes in RED's state a packet that the queue has no room for.
    pub(super) fn refuse(&mut self, arrival: Arrival) {
        if let Some(red) = &mut self.red {
            red.refuse(arrival);
        }
    }

    /// Counts a packet in XCP's router, which sets the window change of a packet that is let in.
    /// `queued` has the bytes that wait before it, and whether it is let in.
    pub(super) fn steer(
        &mut self,
        now: Time,
        item: &mut impl Carried,
        bytes: u32,
        rate: Rate,
        (queued_bytes, is_let_in): (u64, bool),
    ) {
        let Some(xcp) = &mut self.xcp else { return };
        let capacity = rate.bits_per_s().max(1) as f64 / 8.0;
        let congestion = item.congestion();
        let queued = queued_bytes as f64;
        xcp.on_arrival(now, capacity, queued, bytes, congestion.as_deref());
        if let Some(congestion) = congestion.filter(|_| is_let_in) {
            xcp.on_departure(bytes, congestion);
        }
    }

    #[inline]
    pub(super) fn loses_next(&mut self, model: &LossModel) -> bool {
        let is_lost = self.losses.loses_next(model, &mut self.random);
        self.lost += u64::from(is_lost);
        is_lost
    }

    #[inline]
    pub(super) fn duplicates_next(&mut self, probability: f64) -> bool {
        let is_doubled = probability > 0.0 && self.random.random::<f64>() < probability;
        self.duplicated += u64::from(is_doubled);
        is_doubled
    }
}

fn router(config: &LinkConfig) -> Option<Box<Controller>> {
    config.xcp.map(|xcp| Box::new(Controller::new(xcp)))
}
