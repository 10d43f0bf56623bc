//! Intra-group transmission adjustment: the cumulative rate of each group follows the reports of
//! the receivers whose top group it is (section III-B).

use core::time::Duration;

use super::SenderConfig;
use super::menu::Menu;

/// The number of rounds in a row without reports after which a group counts as idle.
const IDLE_ROUNDS: u32 = 5;

/// The share of a group's rate below which reports count even in the round after a decrease.
const SHORTFALL: f64 = 0.8;

/// The smallest factor of a decrease with `tcp_fair`: TCP's.
const TCP_DECREASE: f64 = 0.5;

/// The largest expected number of marks in a round. With more, nearly every round is congested, and
/// says nothing about the rate.
const MARKS_MAX: f64 = 3.0;

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
    /// The number of rounds in a row without reports about each group.
    idle: Vec<u32>,
    /// Groups that were decreased in the last round: the present reports are from before the
    /// decrease took effect.
    held: Vec<bool>,
    /// Groups that have not been congested yet: their rates grow by a factor.
    starting: Vec<bool>,
    packet_bytes: f64,
    /// The rate of each group by itself at the start.
    initial: f64,
    increase: f64,
    tcp_fair: bool,
    start_factor: f64,
    minimum: f64,
    maximum: f64,
    step_max: f64,
    decrease: f64,
    decrease_min: f64,
    pub(super) menu: Menu,
}

impl Rates {
    pub(super) fn new(config: &SenderConfig) -> Rates {
        let bytes_per_s = |rate: manyflow_core::units::Rate| rate.bits_per_s() as f64 / 8.0;
        let initial = bytes_per_s(config.initial_rate);
        Rates {
            cumulative: (1..=config.groups)
                .map(|groups| f64::from(groups) * initial)
                .collect(),
            idle: vec![0; config.groups.into()],
            held: vec![false; config.groups.into()],
            starting: vec![true; config.groups.into()],
            packet_bytes: config.packet_bytes.into(),
            initial,
            increase: config.increase,
            tcp_fair: config.tcp_fair,
            start_factor: config.start_factor,
            minimum: bytes_per_s(config.minimum_rate),
            maximum: bytes_per_s(config.maximum_rate),
            step_max: config.step_max,
            decrease: config.decrease,
            decrease_min: config.decrease_min.min(config.decrease),
            menu: Menu::new(config.groups),
        }
    }

    /// Returns C_g of a group, in bytes per second.
    pub(super) fn cumulative(&self, group: usize) -> f64 {
        self.cumulative[group]
    }

    /// Returns the rate of the group by itself, in bytes per second.
    pub(super) fn own(&self, group: usize) -> f64 {
        let below = group
            .checked_sub(1)
            .map_or(0.0, |below| self.cumulative[below]);
        self.cumulative[group] - below
    }

    /// Returns how a group is adjusted in a round, which lasts two round-trip times of the session.
    /// `rtt` is the longest round-trip time to the receivers of the group, or zero if it is
    /// unknown.
    fn adjustment(&self, group: usize, rtt: Duration, session_rtt: Duration) -> Adjustment {
        let rate = self.cumulative[group];
        if self.tcp_fair && !rtt.is_zero() {
            return self.tcp_adjustment(group, rtt.as_secs_f64(), session_rtt.as_secs_f64());
        }
        let step = 2.0 * self.increase * self.packet_bytes / session_rtt.as_secs_f64();
        Adjustment {
            step: step.min(self.step_max * rate),
            decrease: self.decrease,
        }
    }

    /// Returns the adjustment that gives a group TCP's rate on the path of its receivers.
    ///
    /// A round has 2 `session_rtt` / `rtt` round-trip times of the path, with w packets of the
    /// group and those below it in each. TCP adds one packet in each of them, which makes the rate
    /// grow by a share x in the round. If w is TCP's window, a packet is marked with the
    /// probability p = 3 / (2 w^2), so that the round has 3/2 x marks on average. Only packets of
    /// the top group are marked. A round without a mark then has the probability e^-marks, and the
    /// decrease is that with which the rate stays the same on average. If that were below TCP's,
    /// the step is smaller.
    fn tcp_adjustment(&self, group: usize, rtt_s: f64, session_rtt_s: f64) -> Adjustment {
        let rate = self.cumulative[group];
        let window = rate * rtt_s / self.packet_bytes;
        let growth = 2.0 * session_rtt_s / rtt_s / window;
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

    /// Adjusts the rates after a round. `reports` holds the reports about each group, and
    /// `session_rtt` is the longest round-trip time of the session.
    pub(super) fn on_round(&mut self, reports: &[Reports], session_rtt: Duration) {
        for (group, reports) in reports.iter().enumerate().take(self.cumulative.len()) {
            let rate = self.cumulative[group];
            if reports.all == 0 {
                if reports.is_asked {
                    self.on_idle_round(group);
                }
                continue;
            }
            self.idle[group] = 0;
            let is_held = core::mem::take(&mut self.held[group]);
            if is_held && !self.falls_short(group, *reports) {
                self.lift_from_minimum(group);
                continue;
            }
            self.held[group] = self.is_congested(group, *reports);
            self.starting[group] &= !self.held[group];
            let factor = if self.starting[group] {
                self.start_factor
            } else {
                1.0
            };
            let Adjustment { step, decrease } = self.adjustment(group, reports.rtt, session_rtt);
            self.cumulative[group] = match self.held[group] {
                true => rate * self.remainder(group, *reports, decrease),
                false => self.within_menu(group, (rate + step).max(rate * factor), step),
            };
        }
        let top = self.cumulative.len() - 1;
        if top > 0 && reports[top].all > 0 && self.is_congested(top, reports[top]) {
            self.menu.activate();
        }
        self.keep_order();
    }

    /// Decreases all rates, after several rounds without reports.
    pub(super) fn on_silence(&mut self) {
        for group in 0..self.cumulative.len() {
            self.lower_unused(group);
        }
        self.keep_order();
    }

    /// Decreases the rate of a group that has no receivers, to the initial rate at the lowest. The
    /// group is as at the start of the session: its next receivers start it again.
    fn lower_unused(&mut self, group: usize) {
        self.starting[group] = true;
        self.held[group] = false;
        let initial = (group as f64 + 1.0) * self.initial;
        let rate = self.cumulative[group];
        self.cumulative[group] = (rate * self.decrease).max(rate.min(initial));
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
            self.lower_unused(group);
        }
    }

    /// Raises the rate of a held group from its minimum, so that the next decrease is visible: its
    /// receivers learn by it that a higher group has capacity.
    fn lift_from_minimum(&mut self, group: usize) {
        let least = self.cumulative[group] - self.own(group) + self.minimum;
        if self.own(group) < self.minimum * 1.001 {
            self.cumulative[group] = least / self.decrease;
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
        let received = if any { slowest } else { fastest };
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
        for (group, rate) in self.cumulative.iter_mut().enumerate() {
            let above = (groups - 1 - group) as f64;
            *rate = rate
                .min(self.maximum - above * self.minimum)
                .max(below + self.minimum);
            debug_assert!(*rate > below, "cumulative rates increase with the rank");
            below = *rate;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(groups: u8) -> Rates {
        Rates::new(&SenderConfig {
            groups,
            start_factor: 1.0,
            ..SenderConfig::default()
        })
    }

    fn reports(all: u32, congested: u32) -> Reports {
        let received = [1e9; 2];
        Reports {
            is_asked: true,
            all,
            congested,
            received,
            ..Reports::default()
        }
    }

    /// Returns the round-trip time of a session in which an increase adds this number of bytes per
    /// second, as far as the limit of steps permits.
    fn rtt_of_step(step: f64) -> Duration {
        Duration::from_secs_f64(2.0 * 1000.0 / step)
    }

    /// Returns whether a round with these reports about one group lowers its rate.
    fn falls(rates: &Rates, group: usize, all: u32, congested: u32) -> bool {
        let mut rates = rates.clone();
        let mut round = vec![Reports::default(); rates.cumulative.len()];
        round[group] = reports(all, congested);
        let before = rates.cumulative(group);
        rates.on_round(&round, rtt_of_step(10.0));
        rates.cumulative(group) < before
    }

    #[test]
    fn groups_follow_any_report_the_majority_or_all() {
        let mut rates = rates(3);
        assert!(falls(&rates, 0, 9, 1) && falls(&rates, 1, 9, 1));
        assert!(!falls(&rates, 2, 9, 8) && falls(&rates, 2, 9, 9));
        rates.menu.on_reports(1e3, 1e6);
        rates.menu.activate();
        assert!(falls(&rates, 0, 9, 1));
        assert!(!falls(&rates, 1, 8, 4) && falls(&rates, 1, 8, 5));
    }

    #[test]
    fn a_congested_top_group_activates_the_menu() {
        let mut rates = rates(3);
        rates.menu.on_reports(1e3, 1e6);
        rates.on_round(
            &[reports(1, 1), reports(1, 1), reports(2, 1)],
            rtt_of_step(10.0),
        );
        assert!(!rates.menu.is_active());
        rates.on_round(
            &[reports(1, 0), reports(1, 0), reports(2, 2)],
            rtt_of_step(10.0),
        );
        assert!(rates.menu.is_active());
    }

    #[test]
    fn a_group_at_its_bound_falls_back_and_rises_again() {
        let mut rates = rates(3);
        rates.menu.on_reports(1e3, 30e3);
        rates.menu.activate();
        let round = [reports(1, 0), reports(1, 0), reports(1, 0)];
        let mut fell = 0;
        for _ in 0..100 {
            let before = rates.cumulative(1);
            rates.on_round(&round, rtt_of_step(1e3));
            fell += u32::from(rates.cumulative(1) < before);
            // In the end, the lowest group pushes group 1 up.
            if rates.cumulative(0) + rates.minimum >= 29e3 {
                break;
            }
            assert!(rates.cumulative(1) <= 30e3 + 1.0);
        }
        assert!(fell > 0);
    }

    #[test]
    fn a_group_grows_by_a_factor_until_it_is_congested() {
        let mut rates = Rates::new(&SenderConfig::default());
        let round = |all, congested| {
            let mut round = [Reports::default(); 5];
            round[4] = reports(all, congested);
            round
        };
        let mut grown = |round: [Reports; 5]| {
            let before = rates.cumulative(4);
            rates.on_round(&round, rtt_of_step(1.0));
            rates.cumulative(4) / before
        };
        assert!((grown(round(1, 0)) - 1.25).abs() < 1e-9);
        assert!((grown(round(1, 1)) - 0.9375).abs() < 1e-9);
        assert!(
            (grown(round(1, 1)) - 1.0).abs() < 1e-9,
            "it holds for a round"
        );
        assert!(grown(round(1, 0)) < 1.001);
    }

    #[test]
    fn a_step_is_at_most_a_share_of_the_rate() {
        let mut rates = rates(1);
        let before = rates.cumulative(0);
        rates.on_round(&[reports(1, 0)], rtt_of_step(1e9));
        assert!((rates.cumulative(0) / before - 1.0625).abs() < 1e-9);
    }

    #[test]
    fn a_rate_falls_to_the_received_rate_even_after_a_decrease() {
        let mut rates = rates(1);
        rates.cumulative[0] = 1e6;
        let mut factor = |received: f64| {
            let before = rates.cumulative(0);
            let received = [received * before; 2];
            let round = [Reports {
                received,
                ..reports(1, 1)
            }];
            rates.on_round(&round, rtt_of_step(1.0));
            rates.cumulative(0) / before
        };
        assert!((factor(0.9) - 0.9).abs() < 1e-9);
        assert!((factor(0.9) - 1.0).abs() < 1e-9, "it holds for a round");
        assert!((factor(0.5) - 0.5).abs() < 1e-9);
        assert!((factor(0.7) - 0.7).abs() < 1e-9, "it falls short");
    }

    #[test]
    fn the_rate_of_an_idle_group_falls_until_receivers_start_it_again() {
        let mut rates = rates(2);
        rates.start_factor = 1.25;
        rates.cumulative[1] = 1e6;
        rates.starting[1] = false;
        let idle = [reports(1, 1), reports(0, 0)];
        (1..IDLE_ROUNDS).for_each(|_| rates.on_round(&idle, rtt_of_step(1.0)));
        assert!((rates.cumulative(1) - 1e6).abs() < 1.0);
        rates.on_round(&idle, rtt_of_step(1.0));
        assert!((rates.cumulative(1) - 0.9375e6).abs() < 1.0);
        rates.on_round(&[reports(1, 1), reports(1, 0)], rtt_of_step(1.0));
        assert!((rates.cumulative(1) - 1.25 * 0.9375e6).abs() < 1.0);
    }

    #[test]
    fn cumulative_rates_remain_in_order() {
        let mut rates = rates(3);
        for _ in 0..1000 {
            rates.on_round(
                &[reports(1, 0), reports(0, 0), reports(1, 1)],
                rtt_of_step(1e4),
            );
            assert!((0..3).all(|group| rates.own(group) >= rates.minimum - 1e-6));
            assert!(rates.cumulative(2) <= rates.maximum + 1e-6);
        }
    }

    #[test]
    fn silence_lowers_all_rates_to_those_of_the_start() {
        let mut rates = rates(2);
        let initial = rates.cumulative.clone();
        rates.cumulative = vec![1e6, 2e6];
        rates.starting.fill(false);
        rates.on_silence();
        assert!((rates.cumulative(0) - 0.9375e6).abs() < 1.0);
        (0..200).for_each(|_| rates.on_silence());
        assert_eq!(rates.cumulative, initial);
        assert_eq!(rates.starting, [true, true]);
        // A rate that was found too high for all receivers is not raised.
        rates.cumulative[0] = rates.minimum;
        rates.on_silence();
        assert!(rates.cumulative(0) <= rates.minimum);
    }

    #[test]
    fn a_group_is_idle_only_in_rounds_whose_request_it_carries() {
        let mut rates = rates(2);
        rates.cumulative[0] = 1e6;
        let unasked = [Reports::default(), reports(1, 1)];
        (0..100).for_each(|_| rates.on_round(&unasked, rtt_of_step(1.0)));
        assert!((rates.cumulative(0) - 1e6).abs() < 1.0);
        let asked = [reports(0, 0), reports(1, 1)];
        (0..100).for_each(|_| rates.on_round(&asked, rtt_of_step(1.0)));
        assert!(rates.cumulative(0) < 1e5);
    }

    /// The average logarithmic growth of a rate per round, with receivers behind this round-trip
    /// time whose packets are marked with TCP's probability at a window.
    fn drift(rates: &Rates, group: usize, rtt_s: f64, tcp_window: f64) -> f64 {
        const SESSION_RTT_S: f64 = 0.5;
        let Adjustment { step, decrease } = rates.tcp_adjustment(group, rtt_s, SESSION_RTT_S);
        let packets = 2.0 * SESSION_RTT_S * rates.own(group) / rates.packet_bytes;
        let calm = libm::exp(-packets * 1.5 / (tcp_window * tcp_window));
        let growth = libm::log1p(step / rates.cumulative(group));
        calm * growth + (1.0 - calm) * libm::log(decrease)
    }

    #[test]
    fn a_fair_rate_rises_below_the_rate_of_tcp_and_falls_above_it() {
        let mut rates = rates(2);
        for (own, rtt_s) in [(0.5, 0.04), (0.5, 0.5), (0.9, 0.1), (0.1, 0.1)] {
            rates.cumulative = vec![1e6 * (1.0 - own), 1e6];
            let window = 1e6 * rtt_s / 1000.0;
            assert!(
                drift(&rates, 1, rtt_s, window).abs() < 1e-9,
                "{own} {rtt_s}"
            );
            assert!(drift(&rates, 1, rtt_s, 1.2 * window) > 0.0, "{own} {rtt_s}");
            assert!(drift(&rates, 1, rtt_s, 0.8 * window) < 0.0, "{own} {rtt_s}");
        }
    }

    #[test]
    fn a_fair_rate_halves_at_most_and_falls_at_least_a_little() {
        let mut rates = rates(2);
        rates.cumulative = vec![999e3, 1e6];
        let decrease = rates.tcp_adjustment(1, 0.1, 0.1).decrease;
        assert!((decrease - TCP_DECREASE).abs() < 1e-9, "{decrease}");
        rates.cumulative = vec![1e3, 2e3];
        let decrease = rates.tcp_adjustment(1, 0.01, 1.0).decrease;
        assert!((0.99..0.998).contains(&decrease), "{decrease}");
    }

    #[test]
    fn a_fair_rate_grows_by_the_round_trip_time_of_its_receivers() {
        let grown = |rtt_ms, tcp_fair| {
            let mut rates = rates(1);
            (rates.tcp_fair, rates.step_max) = (tcp_fair, 1000.0);
            let rtt = Duration::from_millis(rtt_ms);
            let before = rates.cumulative(0);
            rates.on_round(
                &[Reports {
                    rtt,
                    ..reports(1, 0)
                }],
                Duration::from_secs(1),
            );
            rates.cumulative(0) - before
        };
        assert!(
            (grown(100, true) - 20.0 * 10e3).abs() < 1e-6,
            "20 times 1 packet per 100 ms"
        );
        assert!((grown(1000, true) - 2e3).abs() < 1e-6);
        assert!((grown(100, false) - 2e3).abs() < 1e-6, "the paper's rule");
        assert!(
            (grown(0, true) - 2e3).abs() < 1e-6,
            "an unknown round-trip time"
        );
    }
}
