//! Selection by measured rate (second edition): a receiver joins groups that its path carries, and
//! leaves at once those that it does not carry.

use core::time::Duration;

use super::config::ReceiverConfig;
use super::path::Path;
use super::places::HEADROOM;
use crate::{Data, Reason};
use manyflow_core::time::Time;

/// The multiple of the measured rate above which an announced rate is a reason to leave at once.
const EXCEEDS_AT_ONCE: f64 = 1.15;

/// The multiple of the measured rate above which an average announced rate is a reason to leave,
/// and the rate of a group that has just moved.
pub(super) const EXCEEDS: f64 = 1.03;

/// The growth of the top group's rate in one step from which the group has moved: other steps are
/// smaller, or end at what paths carry.
const MOVED: f64 = 1.07;

/// The number of rounds in a row with overloaded windows after which a receiver leaves its top
/// group, although the group below carries less than arrives. In the meantime the sender can lower
/// the rate, which it does once in a round.
const OVERLOADED_ROUNDS: u32 = 3;

/// The number of selection intervals in which a receiver that has lost packets is cautious, and for
/// which it knows of other traffic on its path.
const CAUTIOUS_INTERVALS: u32 = 10;

/// The ratio of the highest to the lowest rate of pairs below which a path's rate does not vary.
const STABLE: f64 = 1.05;

/// The change of a rate in one step after which its average begins again.
const NEWS: f64 = 0.1;

/// The share of its rate that a group needs to carry something worth keeping.
const WORTH: f64 = 0.9;

/// The share of the rate of pairs below which marks are due to other traffic. Closer to it, the
/// session's own bursts and a change of its rates can fill the queue.
const OTHERS: f64 = 0.9;

/// The share of its rate that the group below a group has if the group adds next to nothing.
const THIN: f64 = 0.95;

/// The round-trip times in which the queue of a group that was left drains.
const DRAIN_RTTS: u32 = 4;

/// The part of a selection interval after which a receiver that has just joined a group may join
/// the next one.
const CLIMB: u32 = 4;

/// The average of the rates that packets announce.
#[derive(Copy, Clone, Debug, Default)]
struct Average {
    sum: f64,
    count: u32,
}

impl Average {
    fn add(&mut self, rate: f64) {
        (self.sum, self.count) = (self.sum + rate, self.count + 1);
    }

    fn take(&mut self) -> Option<f64> {
        let Average { sum, count } = core::mem::take(self);
        (count > 0).then(|| sum / f64::from(count))
    }
}

/// The share of the lowest group's rate below which a path carries so little that the sender has to
/// know at once, and the share of its rate below which a group has fallen far.
pub(crate) const EARLY: f64 = 0.8;

/// The measurements of a receiver, and what follows from them.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    path: Path,
    /// The rates of the top group and of the next one in the selection interval.
    top: Average,
    next: Average,
    /// The last rate of the top group, 0 before the first, and that of the next group.
    top_rate: f64,
    next_rate: f64,
    /// The last mark.
    marked: Option<Time>,
    /// The last mark of the top group that is due to other traffic, and whether it is recent.
    marked_by_others: Option<Time>,
    is_shared: bool,
    /// The last time at which the session itself could have filled a queue.
    filled: Time,
    /// Whether the top group was joined in the present selection interval.
    pub(super) is_trial: bool,
    /// Whether the present interval is a short one.
    is_climbing: bool,
    /// The number of rounds in a row with overloaded windows in which the rate did not fall, and
    /// the rate in the last window.
    overloaded_rounds: u32,
    window_rate: f64,
    /// Whether such a window has ended in the present round.
    is_counted: bool,
    /// The number of selection intervals in which the lowest rate of pairs counts instead of the
    /// highest: the receiver has left a group because of its losses.
    caution: u32,
    /// The rate that the path carries, if the last packet has shown that it is overloaded.
    shown: Option<f64>,
    /// Whether an early report was sent in the present round.
    is_early: bool,
    /// Whether a packet of the top group has arrived.
    is_top_heard: bool,
    /// Whether the receiver has reported since it entered the session.
    pub(super) has_reported: bool,
}

impl Measured {
    pub(super) fn new(config: &ReceiverConfig) -> Measured {
        Measured {
            path: Path::new(config.loss_max),
            top: Average::default(),
            next: Average::default(),
            top_rate: 0.0,
            next_rate: 0.0,
            marked: None,
            marked_by_others: None,
            is_shared: false,
            filled: Time::ZERO,
            is_trial: false,
            is_climbing: true,
            overloaded_rounds: 0,
            window_rate: 0.0,
            is_counted: false,
            caution: 0,
            shown: None,
            is_early: false,
            is_top_heard: false,
            has_reported: false,
        }
    }

    /// Returns the duration of the present selection interval, of which `whole` is the normal one.
    pub(super) fn interval(&self, whole: Duration) -> Duration {
        match self.is_climbing {
            true => whole / CLIMB,
            false => whole,
        }
    }

    /// Handles the path's interruption.
    pub(super) fn on_interruption(&mut self) {
        self.path.reset();
        self.is_trial = false;
    }

    /// Handles a new number of groups, more or fewer of them.
    pub(super) fn on_change(&mut self, now: Time, rtt: Duration, is_up: bool) {
        let settling = if is_up { rtt } else { DRAIN_RTTS * rtt };
        self.path.on_change(now, settling);
        self.filled = now;
        (self.top, self.next) = (Average::default(), Average::default());
        (self.is_trial, self.is_climbing) = (is_up, is_up);
        (self.overloaded_rounds, self.window_rate) = (0, 0.0);
        (self.is_top_heard, self.top_rate) = (false, 0.0);
    }

    /// Ends a selection interval in which nothing has changed.
    pub(super) fn on_interval(&mut self) {
        self.caution = self.caution.saturating_sub(1);
        (self.is_trial, self.is_climbing) = (false, false);
    }

    /// Begins a round.
    pub(super) fn on_round(&mut self) {
        (self.is_counted, self.is_early) = (false, false);
    }

    /// Notes a marked packet.
    pub(super) fn on_mark(&mut self, now: Time) {
        self.marked = Some(now);
    }

    /// Handles a packet of a joined group. Returns the number of groups to keep, and the reason, if
    /// some have to be left at once.
    pub(super) fn on_packet(
        &mut self,
        now: Time,
        data: &Data,
        bytes: u32,
        lost: u32,
        groups: u8,
        interval: Duration,
    ) -> Option<(u8, Reason)> {
        if data.group + 1 == groups {
            self.is_top_heard = true;
            self.note_others(now, data, interval);
            self.top.add(data.rate.into());
            let next = f64::from(data.next_rate);
            if (next - self.next_rate).abs() > NEWS * next.max(self.next_rate) {
                // The group has moved: only its new rate counts.
                self.next = Average::default();
            }
            self.next_rate = next;
            self.next.add(next);
        }
        let top = if self.is_top_heard { groups } else { 0 };
        let has_ended = self.path.on_packet(now, data, bytes, lost, top, interval);
        let before = self.note_rate(now, data, groups);
        let is_shown = has_ended && self.path.is_excessive();
        self.shown = self.overloaded(groups).filter(|_| is_shown);
        if groups == 1 {
            return None;
        }
        if self.is_too_fast(groups, before) {
            let limit = self.path.highest().unwrap_or(f64::INFINITY);
            return Some((self.fitting(groups, limit), Reason::RateExceeds));
        }
        if has_ended {
            return self.on_window(groups);
        }
        None
    }

    /// Notes whether a packet of the top group is marked because of other traffic: pairs show a
    /// link that carries far more than the group's rate, and no queue is left from before.
    fn note_others(&mut self, now: Time, data: &Data, interval: Duration) {
        let Some(lowest) = self.path.lowest() else {
            return;
        };
        let rate = f64::from(data.rate);
        if rate > HEADROOM * lowest {
            self.filled = now;
        }
        let is_own = rate >= OTHERS * lowest || now - self.filled < interval;
        if self.marked == Some(now) && !is_own {
            self.marked_by_others = Some(now);
        }
        let memory = CAUTIOUS_INTERVALS * interval;
        let is_recent = |marked: Time| now - marked < memory;
        self.is_shared = self.marked_by_others.is_some_and(is_recent);
    }

    /// Returns the rate that an overloaded path carries, in bytes per second. If its slowest link
    /// has less than the announced rate, that of the link: a part of what arrives can still be
    /// packets of groups that were left.
    fn overloaded(&self, groups: u8) -> Option<f64> {
        let received = self.path.overloaded()?;
        let announced = self.path.announced(groups);
        let link = self.path.lowest().filter(|lowest| *lowest < announced);
        Some(link.map_or(received, |link| link.max(received)))
    }

    /// Returns the rate to report before the round ends, if there is one: the last packet has shown
    /// that the path carries far less than the rate of the lowest group, and the receiver keeps no
    /// other. Once in a round.
    pub(super) fn take_early(&mut self, keep: u8) -> Option<f64> {
        let least = EARLY * self.path.announced(1);
        let early = self.shown.take().filter(|rate| *rate < least);
        let early = early.filter(|_| keep == 1 && !self.is_early);
        self.is_early |= early.is_some();
        early
    }

    /// Notes the announced rate of the top group. Returns the one before. After a far fall,
    /// arrivals say nothing while the queue of the former rate drains, as if a group had been left.
    fn note_rate(&mut self, now: Time, data: &Data, groups: u8) -> f64 {
        let rate = self.path.announced(groups);
        let before = core::mem::replace(&mut self.top_rate, rate);
        if rate < EARLY * before {
            let rtt = Duration::from_micros(data.rtt_us.into());
            self.path.on_change(now, DRAIN_RTTS * rtt);
        }
        before
    }

    /// Returns whether the announced rate of the top group is a reason to leave it at once: far
    /// above the rate that the path carries, or above it if the group has just moved from the rate
    /// `before`. Packets of the group below announce it, too.
    fn is_too_fast(&self, groups: u8, before: f64) -> bool {
        let rate = self.path.announced(groups);
        let has_moved = before > 0.0 && rate > MOVED * before;
        self.exceeds(rate, if has_moved { EXCEEDS } else { EXCEEDS_AT_ONCE })
    }

    /// Handles the end of a window.
    fn on_window(&mut self, groups: u8) -> Option<(u8, Reason)> {
        let announced = self.path.announced(groups);
        let fell = announced < self.window_rate;
        self.window_rate = announced;
        let excessive = self.path.overloaded().filter(|_| self.path.is_excessive());
        let Some(rate) = excessive else {
            self.overloaded_rounds = 0;
            return None;
        };
        let is_next = !core::mem::replace(&mut self.is_counted, true);
        self.overloaded_rounds = match fell {
            true => 0,
            false => self.overloaded_rounds + u32::from(is_next),
        };
        let is_worthless = rate < self.path.announced(groups - 1);
        let is_over = self.overloaded_rounds >= OVERLOADED_ROUNDS;
        if !(self.is_trial || is_worthless || is_over) {
            return None;
        }
        self.caution = CAUTIOUS_INTERVALS;
        Some((self.fitting(groups, rate), Reason::Lost))
    }

    /// Returns the number of groups, fewer than `groups`, that a path with this rate carries.
    fn fitting(&self, groups: u8, rate: f64) -> u8 {
        let fits = |groups: &u8| WORTH * self.path.announced(*groups) <= rate;
        (1..groups).rev().find(fits).unwrap_or(1)
    }

    fn exceeds(&self, rate: f64, factor: f64) -> bool {
        let highest = self.path.highest();
        highest.is_some_and(|highest| rate > factor * highest)
    }

    /// Returns whether the top group has a rate that the path does not carry, which counts as
    /// congestion.
    pub(super) fn is_exceeding(&self, groups: u8) -> bool {
        self.exceeds(self.path.announced(groups), EXCEEDS) || self.path.overloaded().is_some()
    }

    /// Returns the averages of the top group's rate and of the next one's in the selection
    /// interval, which ends.
    pub(super) fn take_averages(&mut self) -> (Option<f64>, Option<f64>) {
        (self.top.take(), self.next.take())
    }

    /// Returns whether an average rate of the top group is above what the path carries.
    pub(super) fn is_exceeded(&self, average: Option<f64>) -> bool {
        average.is_some_and(|rate| self.exceeds(rate, EXCEEDS))
    }

    /// Returns whether the top group adds next to nothing to the group below, on a path with other
    /// traffic. If routers mark packets of such a group, which are few, its rate cannot fall. In
    /// the group below, the same marks count.
    pub(super) fn is_thin(&self, groups: u8) -> bool {
        let below = self.path.announced(groups.saturating_sub(1));
        self.is_shared && below >= THIN * self.path.announced(groups)
    }

    /// Returns whether the path carries the next group with this average rate; `None` if neither is
    /// known, or if the path has other traffic: pairs show the rate of the whole link.
    pub(super) fn allows(&self, next: Option<f64>) -> Option<bool> {
        let next = next.filter(|rate| *rate > 0.0 && !self.is_shared)?;
        self.path.lowest().map(|lowest| next <= lowest)
    }

    /// Returns whether a rate is known that the receiver can report before its first round ends.
    pub(super) fn is_known(&self) -> bool {
        self.path.highest().is_some()
    }

    /// Returns the rate that the path carries, as the receiver reports it, in bytes per second.
    pub(super) fn carried(&self, now: Time, groups: u8, interval: Duration) -> f64 {
        let announced = self.path.announced(groups);
        if let Some(rate) = self.overloaded(groups) {
            // A queue bridges a small shortfall. Marks are enough if it lasts.
            return match self.path.is_excessive() {
                true => rate,
                false => announced,
            };
        }
        let is_marked = self.marked.is_some_and(|marked| now - marked < interval);
        let Some(highest) = self.path.highest() else {
            return announced;
        };
        let lowest = self.path.lowest().unwrap_or(highest);
        let is_within = HEADROOM * highest >= announced;
        // Marks at a rate below that of the slowest link are due to other traffic, of which pairs
        // show nothing.
        if (is_marked || self.is_shared) && is_within {
            return announced;
        }
        match self.caution {
            0 if !is_within || STABLE * lowest > highest => highest,
            // The path's rate varies. Beyond the lowest one, groups grow by steps.
            0 if HEADROOM * lowest <= announced => announced,
            _ => lowest,
        }
    }
}

#[cfg(test)]
#[path = "tests_measured.rs"]
mod tests;
