//! Intra-group transmission adjustment: the cumulative rate of each group follows the reports of
//! the receivers whose top group it is (section III-B).

use core::time::Duration;

mod second;

use self::second::Second;
use super::menu::Menu;
use super::{Edition, SenderConfig};
use crate::RateReason;

/// The number of rounds in a row without reports after which a group counts as idle.
const IDLE_ROUNDS: u32 = 5;

/// The share of a group's rate below which reports count even in the round after a decrease.
const SHORTFALL: f64 = 0.8;

/// The multiple of the rate of its last congestion from which a group without congestion starts
/// again: its path has become faster, or the receivers that were congested have left.
const RESTART: f64 = 1.25;

/// The number of rounds in a row without congestion after which the maximum step of a group grows:
/// by half of the first in each further round, up to this share of the rate.
const CALM_ROUNDS: u32 = 4;
const STEP_CALM_MAX: f64 = 0.2;

/// The share of a rate that receivers get in a round in which they lose little.
const NEARLY_ALL: f64 = 0.9;

/// The smallest factor of a decrease with `tcp_fair`: TCP's.
const TCP_DECREASE: f64 = 0.5;

/// The largest expected number of marks in a round. With more, nearly every round is congested, and
/// says nothing about the rate.
const MARKS_MAX: f64 = 3.0;

/// The multiple of the rate that is used up to which a rate grows by a factor (RFC 7661 section 4.3
/// has the same for TCP). A rate that grows by steps is at most a step above what is used.
const USED_AT_START: f64 = 2.0;

/// The share of its rate that a group uses whose driver has enough to send, headers and the ends of
/// units included.
const ALL_USED: f64 = 0.9;

/// The reports about one group in a round.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub(super) struct Reports {
    /// Whether a packet of the group or of one below it has carried the request of the round.
    pub(super) is_asked: bool,
    /// The number of reports.
    pub(super) all: u32,
    /// The number of reports that say "congested".
    pub(super) congested: u32,
    /// The lowest and the highest received rate, in bytes per second.
    pub(super) received: [f64; 2],
    /// The longest round-trip time to the receivers that report.
    pub(super) rtt: Duration,
    /// The rate that the group and those below it have used lately, in bytes per second; `None` if
    /// that is not known.
    pub(super) used: Option<f64>,
}

impl Reports {
    /// Returns whether all of a rate is used, so that the reports say whether the paths carry it.
    fn is_used(&self, rate: f64) -> bool {
        self.used.is_none_or(|used| used >= ALL_USED * rate)
    }

    /// Returns the rate to which a rate may grow by a step or by a factor, of which 1 is none, and
    /// which of them is the reason.
    fn grown(&self, rate: f64, step: f64, factor: f64) -> (f64, RateReason) {
        let used = self.used.unwrap_or(f64::INFINITY);
        let by_step = (rate + step).min(used / ALL_USED + step);
        let by_factor = (rate * factor).min(USED_AT_START * used);
        let reason = match by_factor > by_step {
            true => RateReason::Starting,
            false => RateReason::Calm,
        };
        (by_step.max(by_factor).max(rate), reason)
    }
}

/// The number of rounds in a row in which a report contradicts itself, and after which it no longer
/// counts.
const DOUBT_ROUNDS: u32 = 3;

/// The doubts about the lowest rate that is reported about a group. A receiver that gets far less
/// than the group's rate is behind a full queue, and packets to it are marked. One that states such
/// a rate in rounds in which nobody is congested lies, or its path loses packets for other reasons.
#[derive(Copy, Clone, Debug, Default)]
struct Doubts {
    /// The rates of the group in the last two rounds, which reports are about.
    rates: [f64; 2],
    /// The number of rounds in a row.
    rounds: u32,
}

impl Doubts {
    /// Adds the report of a round, in which the group has this rate.
    fn add(&mut self, rate: f64, lowest: f64, is_congested: bool) {
        let [last, before] = self.rates;
        let is_low = lowest < SHORTFALL * rate.min(last).min(before);
        self.rates = [rate, last];
        self.rounds = match (is_low, is_congested) {
            (true, false) => self.rounds.saturating_add(1),
            (true, true) => self.rounds,
            (false, _) => 0,
        };
    }

    fn are_grave(&self) -> bool {
        self.rounds >= DOUBT_ROUNDS
    }
}

/// How a rate changes in a round.
#[derive(Copy, Clone, Debug)]
struct Adjustment {
    /// The additive increase, in bytes per second.
    step: f64,
    /// The factor that remains of the rate after a decrease.
    decrease: f64,
}

/// C_0 to C_(n_g - 1), in bytes per second. Each exceeds the previous one by at least the minimum
/// rate.
#[derive(Clone, Debug)]
pub(super) struct Rates {
    cumulative: Vec<f64>,
    /// The reason for the last change of each rate that was not taken.
    reasons: Vec<Option<RateReason>>,
    /// The number of rounds in a row without reports about each group.
    idle: Vec<u32>,
    /// Groups that were decreased in the last round: the present reports are from before the
    /// decrease took effect.
    held: Vec<bool>,
    /// The number of rounds in a row without congestion of each group.
    calm: Vec<u32>,
    /// Groups that have not been congested yet: their rates grow by a factor.
    starting: Vec<bool>,
    /// The rate at which each group was congested for the last time; infinite before that.
    limit: Vec<f64>,
    /// Whether the lowest rate that is reported about each group can be believed.
    doubts: Vec<Doubts>,
    /// Whether groups can start again. It needs rates that fall to what receivers get, and no TCP
    /// to be fair to.
    can_start_again: bool,
    packet_bytes: f64,
    /// The rate of each group by itself at the start.
    initial: f64,
    increase: f64,
    tcp_fair: bool,
    group_rounds: bool,
    start_factor: f64,
    first_factor: f64,
    minimum: f64,
    maximum: f64,
    step_max: f64,
    decrease: f64,
    decrease_min: f64,
    pub(super) menu: Menu,
    /// The records of the second edition; `None` with the paper's rules.
    second: Option<Box<Second>>,
}

impl Rates {
    pub(super) fn new(config: &SenderConfig) -> Rates {
        let bytes_per_s = |rate: manyflow_core::units::Rate| rate.bits_per_s() as f64 / 8.0;
        let initial = bytes_per_s(config.initial_rate);
        Rates {
            cumulative: (1..=config.groups)
                .map(|groups| f64::from(groups) * initial)
                .collect(),
            reasons: vec![None; config.groups.into()],
            idle: vec![0; config.groups.into()],
            held: vec![false; config.groups.into()],
            calm: vec![0; config.groups.into()],
            starting: vec![true; config.groups.into()],
            limit: vec![f64::INFINITY; config.groups.into()],
            doubts: vec![Doubts::default(); config.groups.into()],
            can_start_again: !config.tcp_fair && config.decrease_min < config.decrease,
            packet_bytes: config.packet_bytes.into(),
            initial,
            increase: config.increase,
            tcp_fair: config.tcp_fair,
            group_rounds: config.group_rounds,
            start_factor: config.start_factor,
            first_factor: config.first_factor.max(config.start_factor),
            minimum: bytes_per_s(config.minimum_rate),
            maximum: bytes_per_s(config.maximum_rate),
            step_max: config.step_max,
            decrease: config.decrease,
            decrease_min: config.decrease_min.min(config.decrease),
            menu: Menu::new(config.groups),
            second: (config.edition == Edition::Second)
                .then(|| Box::new(Second::new(config.groups))),
        }
    }

    /// Sets the first cumulative rates, and ends the start of their groups.
    pub(super) fn begin_with(&mut self, cumulative: &[manyflow_core::units::Rate]) {
        for (group, rate) in cumulative.iter().enumerate().take(self.cumulative.len()) {
            self.cumulative[group] = rate.bits_per_s() as f64 / 8.0;
            self.starting[group] = false;
        }
        self.keep_order();
    }

    /// Returns C_g of a group, in bytes per second.
    pub(super) fn cumulative(&self, group: usize) -> f64 {
        self.cumulative[group]
    }

    /// Returns the reason for the changes of a group's rate since the last call. If there were
    /// several, that of the last one counts.
    pub(super) fn take_reason(&mut self, group: usize) -> Option<RateReason> {
        self.reasons[group].take()
    }

    /// Sets the rate of a group for a reason.
    fn set(&mut self, group: usize, rate: f64, reason: RateReason) {
        if rate != self.cumulative[group] {
            self.cumulative[group] = rate;
            self.reasons[group] = Some(reason);
        }
    }

    /// Returns the rate of the group by itself, in bytes per second.
    pub(super) fn own(&self, group: usize) -> f64 {
        let below = group
            .checked_sub(1)
            .map_or(0.0, |below| self.cumulative[below]);
        self.cumulative[group] - below
    }

    /// Returns how a group is adjusted in a round, which lasts two round-trip times `round_rtt`: of
    /// the session, or of the group if it has rounds of its own. `rtt` is the longest round-trip
    /// time to the receivers of the group, or zero if it is unknown.
    fn adjustment(&self, group: usize, rtt: Duration, round_rtt: Duration) -> Adjustment {
        let rate = self.cumulative[group];
        if self.tcp_fair && !rtt.is_zero() {
            return self.tcp_adjustment(group, rtt.as_secs_f64(), round_rtt.as_secs_f64());
        }
        let step = 2.0 * self.increase * self.packet_bytes / round_rtt.as_secs_f64();
        Adjustment {
            step: step.min(self.step_max(group) * rate),
            decrease: self.decrease,
        }
    }

    /// Returns the maximum step of a group as a share of its rate. It grows with the rounds without
    /// congestion if these are the group's own: a path that has become faster has let them pass.
    fn step_max(&self, group: usize) -> f64 {
        let most = self.step_max.max(STEP_CALM_MAX);
        let calm = f64::from(self.calm[group].saturating_sub(CALM_ROUNDS)) / 2.0;
        match self.group_rounds {
            true if self.starting[group] => self.step_max,
            true => (self.step_max * calm.max(1.0)).min(most),
            false => self.step_max,
        }
    }

    /// Returns the adjustment that gives a group TCP's rate on the path of its receivers.
    ///
    /// A round has 2 `round_rtt` / `rtt` round-trip times of the path, with w packets of the
    /// group and those below it in each. TCP adds one packet in each of them, which makes the rate
    /// grow by a share x in the round. If w is TCP's window, a packet is marked with the
    /// probability p = 3 / (2 w^2), so that the round has 3/2 x marks on average. Only packets of
    /// the top group are marked. A round without a mark then has the probability e^-marks, and the
    /// decrease is that with which the rate stays the same on average. If that were below TCP's,
    /// the step is smaller.
    fn tcp_adjustment(&self, group: usize, rtt_s: f64, round_rtt_s: f64) -> Adjustment {
        let rate = self.cumulative[group];
        let window = rate * rtt_s / self.packet_bytes;
        let growth = 2.0 * round_rtt_s / rtt_s / window;
        let marks = (1.5 * growth * self.own(group) / rate).min(MARKS_MAX);
        // The ratio of the probabilities of congested rounds and others.
        let odds = libm::expm1(marks);
        let step_of_deepest = libm::expm1(-libm::log(TCP_DECREASE) * odds);
        let step = (self.increase * growth)
            .min(self.step_max)
            .min(step_of_deepest);
        Adjustment {
            step: step * rate,
            decrease: libm::exp(-libm::log1p(step) / odds),
        }
    }

    /// Adjusts the rates of the groups from `first` on after a round, which has lasted two
    /// round-trip times `round_rtt`. `reports` holds the reports about each of them.
    pub(super) fn on_round(&mut self, first: usize, reports: &[Reports], round_rtt: Duration) {
        debug_assert!(first + reports.len() <= self.cumulative.len());
        if let Some(mut second) = self.second.take() {
            self.follow(&mut second, reports, round_rtt);
            self.second = Some(second);
            return;
        }
        for (group, reports) in (first..).zip(reports) {
            let rate = self.cumulative[group];
            if reports.all == 0 {
                if reports.is_asked {
                    self.on_idle_round(group);
                }
                continue;
            }
            self.idle[group] = 0;
            let is_congested = self.is_congested(group, *reports);
            self.doubts[group].add(rate, reports.received[0], is_congested);
            let is_held = core::mem::take(&mut self.held[group]);
            if is_held && !self.falls_short(group, *reports) {
                self.lift_from_minimum(group);
                continue;
            }
            self.held[group] = is_congested;
            self.starting[group] &= !self.held[group];
            self.calm[group] = match self.held[group] {
                true => 0,
                false => self.calm[group].saturating_add(reports.is_used(rate).into()),
            };
            if self.held[group] {
                self.note_congested_rate(group);
            }
            let factor = match self.is_starting(group, *reports) {
                true => self.growth(),
                false => 1.0,
            };
            let Adjustment { step, decrease } = self.adjustment(group, reports.rtt, round_rtt);
            if self.held[group] {
                let remainder = self.remainder(group, *reports, decrease);
                self.set(group, rate * remainder, RateReason::Congested);
            } else {
                let (wanted, reason) = reports.grown(rate, step, factor);
                let within = self.within_menu(group, wanted, step);
                let is_bound = within < wanted;
                let reason = if is_bound { RateReason::Menu } else { reason };
                self.set(group, within, reason);
            }
        }
        let top = self.cumulative.len() - 1;
        let of_top = reports.get(top - first).filter(|reports| reports.all > 0);
        if top > 0 && of_top.is_some_and(|reports| self.is_congested(top, *reports)) {
            self.menu.activate();
        }
        self.keep_order();
    }

    /// Handles an early report of the rate that a path of the lowest group carries. One receiver is
    /// enough to make this group congested, so the first report of a round decides; the others are
    /// from before the decrease took effect. Returns whether the rate changes.
    pub(super) fn on_early(&mut self, lowest: f64) -> bool {
        let rate = self.cumulative[0];
        if self.held[0] || lowest >= SHORTFALL * rate {
            return false;
        }
        let wanted = match &mut self.second {
            Some(second) => second.on_early(lowest),
            None => Some(lowest),
        };
        let Some(wanted) = wanted else { return false };
        (self.held[0], self.starting[0], self.calm[0]) = (true, false, 0);
        self.note_congested_rate(0);
        let share = (wanted / rate).clamp(self.decrease_min, self.decrease);
        self.set(0, rate * share, RateReason::Congested);
        self.keep_order();
        true
    }

    /// Decreases all rates, after several rounds without reports.
    pub(super) fn on_silence(&mut self) {
        for group in 0..self.cumulative.len() {
            self.lower_unused(group, RateReason::Silent);
        }
        self.keep_order();
    }

    /// Decreases the rate of a group that has no receivers, to the initial rate at the lowest. The
    /// group is as at the start of the session: its next receivers start it again.
    fn lower_unused(&mut self, group: usize, reason: RateReason) {
        self.starting[group] = true;
        self.limit[group] = f64::INFINITY;
        self.held[group] = false;
        let initial = (group as f64 + 1.0) * self.initial;
        let rate = self.cumulative[group];
        self.set(group, (rate * self.decrease).max(rate.min(initial)), reason);
    }

    /// Returns whether a group is congested. The lowest group is if any of its receivers is, the
    /// top group if all are; the others if any is, or a majority once the menu is active.
    fn is_congested(&self, group: usize, reports: Reports) -> bool {
        let Reports { all, congested, .. } = reports;
        debug_assert!(
            congested <= all,
            "more reports are congested than there are"
        );
        if group == 0 {
            congested > 0
        } else if group + 1 == self.cumulative.len() {
            congested == all
        } else if self.menu.is_active() {
            2 * u64::from(congested) > u64::from(all)
        } else {
            congested > 0
        }
    }

    /// Handles a round without reports about a group, whose receivers were asked for them. The rate
    /// of an idle group falls, and its next receivers start it again.
    fn on_idle_round(&mut self, group: usize) {
        self.idle[group] = self.idle[group].saturating_add(1);
        if self.idle[group] >= IDLE_ROUNDS {
            self.lower_unused(group, RateReason::Idle);
        }
    }

    /// Raises the rate of a held group from its minimum, so that the next decrease is visible: its
    /// receivers learn by it that a higher group has capacity.
    fn lift_from_minimum(&mut self, group: usize) {
        let least = self.cumulative[group] - self.own(group) + self.minimum;
        if self.own(group) < self.minimum * 1.001 {
            self.set(group, least / self.decrease, RateReason::Raised);
        }
    }

    /// Notes the rate of a congested group. While several decreases follow each other, the first
    /// rate counts.
    fn note_congested_rate(&mut self, group: usize) {
        let (rate, limit) = (self.cumulative[group], &mut self.limit[group]);
        *limit = match limit.is_finite() {
            true => rate.max(self.decrease * *limit),
            false => rate,
        };
    }

    /// Returns whether a group that is not congested grows by the factor of a start: until its
    /// first congestion, as long as its fastest receiver gets the rate, and far above the rate of
    /// its last congestion, as long as the slowest does. Receivers that get less can be without
    /// marks, if others behind the same link have joined higher groups.
    fn is_starting(&self, group: usize, reports: Reports) -> bool {
        let rate = self.cumulative[group];
        let [slowest, fastest] = reports.received;
        // Reports are up to two rounds old.
        let growth = self.growth();
        let expected = NEARLY_ALL * rate / (growth * growth);
        let is_far_above = self.can_start_again && rate > RESTART * self.limit[group];
        (self.starting[group] && fastest >= expected) || (is_far_above && slowest >= expected)
    }

    /// Returns the factor by which a starting group grows in a round: as long as no group has been
    /// congested, nothing is known of the paths, and the start of the session is fast.
    fn growth(&self) -> f64 {
        match self.limit.iter().any(|limit| limit.is_finite()) {
            true => self.start_factor,
            false => self.first_factor,
        }
    }

    /// Returns whether the receivers of a congested group get far less than its rate. Then the last
    /// decrease was not enough, although the reports are from before it took effect.
    fn falls_short(&self, group: usize, reports: Reports) -> bool {
        self.is_congested(group, reports) && self.remainder(group, reports, 1.0) < SHORTFALL
    }

    /// Returns the factor of a decrease: the share of the group's rate that receivers get, between
    /// the smallest factor and `decrease`. The slowest receiver counts if one report makes the
    /// group congested, and otherwise the fastest.
    fn remainder(&self, group: usize, reports: Reports, decrease: f64) -> f64 {
        let is_top = group + 1 == self.cumulative.len();
        let any = group == 0 || (!is_top && !self.menu.is_active());
        let [slowest, fastest] = reports.received;
        let is_believed = any && !self.doubts[group].are_grave();
        let received = if is_believed { slowest } else { fastest };
        (received / self.cumulative[group]).clamp(self.decrease_min.min(decrease), decrease)
    }

    /// Limits a rate to its bound in the menu. A rate above the bound falls to one step below it:
    /// its receivers see the decrease, and learn that a higher group has capacity.
    fn within_menu(&self, group: usize, rate: f64, step: f64) -> f64 {
        match self.menu.bound(group) {
            Some(bound) if rate > bound => bound - step,
            _ => rate,
        }
    }

    fn keep_order(&mut self) {
        let groups = self.cumulative.len();
        let mut below = 0.0;
        for group in 0..groups {
            let above = (groups - 1 - group) as f64;
            let rate = self.cumulative[group]
                .min(self.maximum - above * self.minimum)
                .max(below + self.minimum);
            debug_assert!(rate > below, "cumulative rates increase with the rank");
            // A group that has just changed keeps the reason for that.
            let reason = self.reasons[group].unwrap_or(RateReason::Order);
            self.set(group, rate, reason);
            below = rate;
        }
    }
}

#[cfg(test)]
#[path = "tests_rates.rs"]
mod tests;
