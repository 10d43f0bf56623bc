//! The second edition's rates: each group follows the slowest of its consistent receivers.

use core::time::Duration;

use super::{Adjustment, Rates, Reports, SHORTFALL};
use crate::RateReason;
use crate::sim::places::{HEADROOM, Places, Shown};

/// The number of rounds over which reports of congestion are compared.
const ROUNDS: usize = 16;

/// The number of rounds without congestion after which a rate grows by a factor, up to what the
/// paths carry.
const CALM_ROUNDS: u32 = 50;

/// The number of rounds in a row in which a report contradicts itself, and after which it no longer
/// counts.
const DOUBT_ROUNDS: u32 = 3;

/// The share of what paths carry to which the rate of a congested group falls, so that the queue
/// drains.
const DRAIN: f64 = 0.8;

/// The share of a group's rate below which its receivers' paths do not carry more.
const HELD: f64 = 0.99;

/// The share of a group's rate from which its receivers get it.
const GETS: f64 = 0.9;

/// The recent reports about one group.
#[derive(Copy, Clone, Debug)]
struct Record {
    /// The numbers of reports of congestion in the last rounds.
    congested: [u32; ROUNDS],
    place: usize,
    calm_rounds: u32,
    /// The number of rounds in a row with a lowest rate below the group's, although nobody is
    /// congested.
    doubts: u32,
}

impl Record {
    /// A group whose rate has never been too high.
    const NEW: Record = Record {
        congested: [0; ROUNDS],
        place: 0,
        calm_rounds: u32::MAX,
        doubts: 0,
    };

    /// Records the reports of congestion in a round. Returns how many of them count: receivers that
    /// report congestion in each round, whatever the rate, do not, as long as they are a minority.
    fn add_congested(&mut self, reports: Reports) -> u32 {
        self.congested[self.place] = reports.congested;
        self.place = (self.place + 1) % ROUNDS;
        let always = self.congested.iter().min().copied().unwrap_or(0);
        match 2 * u64::from(always) < u64::from(reports.all) {
            true => reports.congested - always,
            false => reports.congested,
        }
    }

    /// Returns the lowest rate that a path of the group carries, unless the report of it is not
    /// consistent: nobody is congested, or the receiver could have left the group, whose next lower
    /// one has the rate `below`.
    fn consistent(
        &mut self,
        reports: Reports,
        rate: f64,
        below: f64,
        is_congested: bool,
    ) -> Option<f64> {
        let [lowest, _] = reports.received;
        let is_doubtful = lowest < GETS * rate && !is_congested;
        self.doubts = match (is_doubtful, lowest < GETS * rate) {
            (true, _) => self.doubts.saturating_add(1),
            (false, false) => 0,
            (false, true) => self.doubts,
        };
        (self.doubts < DOUBT_ROUNDS && lowest >= GETS * below).then_some(lowest)
    }
}

/// The state of the second edition's rates.
#[derive(Clone, Debug)]
pub(in crate::sim) struct Second {
    records: Vec<Record>,
    places: Places,
}

impl Second {
    pub(super) fn new(groups: u8) -> Second {
        Second {
            records: vec![Record::NEW; groups.into()],
            places: Places::new(),
        }
    }

    /// Handles an early report of the rate that a path of the lowest group carries. Returns the
    /// rate to which the group falls, unless its reports contradict themselves.
    pub(super) fn on_early(&mut self, lowest: f64) -> Option<f64> {
        let record = &mut self.records[0];
        if record.doubts >= DOUBT_ROUNDS {
            return None;
        }
        record.calm_rounds = 0;
        Some(DRAIN * lowest)
    }
}

impl Rates {
    /// Adjusts the rates after a round by the rules of the second edition.
    pub(super) fn follow(&mut self, second: &mut Second, reports: &[Reports], rtt: Duration) {
        let mut shown = Vec::with_capacity(reports.len());
        for (group, reports) in reports.iter().enumerate().take(self.cumulative.len()) {
            let limit = second.places.limit(group, self.cumulative[group]);
            let record = &mut second.records[group];
            let is_congested =
                reports.all > 0 && self.follow_group(group, record, *reports, rtt, limit);
            shown.push(Shown {
                receivers: reports.all,
                is_congested,
                carried: reports.received,
            });
        }
        // A menu is in order.
        self.keep_order();
        second.places.on_round(&shown);
        if let Some(menu) = second.places.poll_menu(&self.cumulative) {
            self.take_menu(second, menu);
        }
        self.keep_order();
    }

    /// Adjusts the rate of a group with reports, which grows up to `limit`. Returns whether it is
    /// congested.
    fn follow_group(
        &mut self,
        group: usize,
        record: &mut Record,
        reports: Reports,
        rtt: Duration,
        limit: f64,
    ) -> bool {
        let rate = self.cumulative[group];
        let below = rate - self.own(group);
        let is_congested = record.add_congested(reports) > 0;
        let lowest = record.consistent(reports, rate, below, is_congested);
        let is_held = core::mem::take(&mut self.held[group]);
        let is_short = lowest.is_some_and(|lowest| lowest < SHORTFALL * rate);
        if is_held && !(is_congested && is_short) {
            return is_congested;
        }
        self.held[group] = is_congested;
        let Adjustment { step, decrease } = self.adjustment(group, reports.rtt, rtt);
        if is_congested {
            record.calm_rounds = 0;
            let short = lowest.filter(|lowest| *lowest < GETS * rate);
            let share = short.map_or(decrease, |lowest| DRAIN * lowest / rate);
            let share = share.clamp(self.decrease_min.min(decrease), decrease);
            self.set(group, rate * share, RateReason::Congested);
            return true;
        }
        record.calm_rounds = record.calm_rounds.saturating_add(1);
        let factor = match record.calm_rounds > CALM_ROUNDS {
            true => self.start_factor,
            false => 1.0,
        };
        // Without a consistent report of the lowest rate, the highest one is the bound.
        let (next, reason) = match lowest.or(Some(reports.received[1])) {
            Some(lowest) if lowest > rate => {
                let (grown, reason) = reports.grown(rate, step, factor);
                (grown.min(HEADROOM * lowest).max(rate), reason)
            }
            Some(lowest) if lowest < HELD * rate => (rate, RateReason::Calm),
            _ => reports.grown(rate, step, 1.0),
        };
        self.set(group, next.min(limit), reason);
        false
    }

    /// Sets the cumulative rates to those of a new menu, in ascending order. A rate of the present
    /// one keeps its records.
    fn take_menu(&mut self, second: &mut Second, menu: Vec<f64>) {
        let moved = Record {
            calm_rounds: 0,
            ..Record::NEW
        };
        let place = |rate: &f64| self.cumulative.iter().position(|own| own == rate);
        let places: Vec<Option<usize>> = menu.iter().map(place).collect();
        let record = |place: &Option<usize>| place.map_or(moved, |place| second.records[place]);
        second.records = places.iter().map(record).collect();
        let held = |place: &Option<usize>| place.is_some_and(|place| self.held[place]);
        self.held = places.iter().map(held).collect();
        for (group, place) in places.iter().enumerate() {
            if *place != Some(group) {
                self.reasons[group] = Some(RateReason::Moved);
            }
        }
        self.cumulative = menu;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reports(all: u32, congested: u32, lowest: f64) -> Reports {
        Reports {
            is_asked: true,
            all,
            congested,
            received: [lowest, lowest.max(1.0)],
            ..Reports::default()
        }
    }

    #[test]
    fn a_minority_that_is_congested_in_each_round_does_not_count() {
        let mut record = Record::NEW;
        for _ in 1..ROUNDS {
            assert_eq!(record.add_congested(reports(4, 1, 1.0)), 1);
        }
        assert_eq!(record.add_congested(reports(4, 1, 1.0)), 0);
        assert_eq!(record.add_congested(reports(4, 2, 1.0)), 1, "another one");
        assert_eq!(record.add_congested(reports(4, 0, 1.0)), 0);
        assert_eq!(record.add_congested(reports(4, 1, 1.0)), 1);
    }

    #[test]
    fn a_majority_counts_however_long_it_is_congested() {
        let mut record = Record::NEW;
        let counts = (0..2 * ROUNDS).map(|_| record.add_congested(reports(4, 2, 1.0)));
        assert!(counts.min() == Some(2));
    }

    #[test]
    fn all_groups_that_get_another_place_have_moved() {
        let config = crate::sim::SenderConfig {
            groups: 4,
            edition: crate::sim::Edition::Second,
            ..crate::sim::SenderConfig::default()
        };
        let mut rates = Rates::new(&config);
        rates.cumulative = vec![1e5, 2e5, 4e5, 8e5];
        let mut second = Second::new(4);
        rates.take_menu(&mut second, vec![2e5, 3e5, 4e5, 8e5]);
        assert_eq!(rates.cumulative, [2e5, 3e5, 4e5, 8e5]);
        let reasons: Vec<_> = (0..4).map(|group| rates.take_reason(group)).collect();
        let moved = Some(RateReason::Moved);
        assert_eq!(reasons, [moved, moved, None, None]);
    }

    #[test]
    fn a_low_rate_without_congestion_or_of_a_lower_group_is_not_consistent() {
        let (low, mut record) = (reports(4, 0, 0.1), Record::NEW);
        let mut lowest = |is_congested, below| record.consistent(low, 1.0, below, is_congested);
        assert_eq!(lowest(true, 0.0), Some(0.1));
        assert_eq!(lowest(true, 0.5), None, "it could leave the group");
        let found: Vec<_> = (0..DOUBT_ROUNDS).map(|_| lowest(false, 0.0)).collect();
        assert_eq!(found.last(), Some(&None));
        assert_eq!(lowest(true, 0.0), None, "it has contradicted itself");
    }

    /// Returns rates of 1, 2 and 4 Mbit/s.
    fn rates() -> Rates {
        let config = crate::sim::SenderConfig {
            groups: 3,
            edition: crate::sim::Edition::Second,
            ..crate::sim::SenderConfig::default()
        };
        let mut rates = Rates::new(&config);
        rates.cumulative = vec![125e3, 250e3, 500e3];
        rates
    }

    #[test]
    fn an_early_report_lowers_the_lowest_group_once() {
        let mut rates = rates();
        assert!(
            !rates.on_early(110e3),
            "the end of the round is soon enough"
        );
        assert!(rates.on_early(50e3));
        assert_eq!(rates.cumulative, [DRAIN * 50e3, 250e3, 500e3]);
        assert!(!rates.on_early(10e3), "from before the decrease");
        assert_eq!(rates.take_reason(0), Some(RateReason::Congested));
    }

    #[test]
    fn an_early_report_of_one_who_contradicts_itself_does_not_count() {
        let mut rates = rates();
        let low = [reports(4, 0, 12e3), reports(0, 0, 0.0), reports(0, 0, 0.0)];
        let mut second = Second::new(3);
        for _ in 0..DOUBT_ROUNDS {
            rates.follow(&mut second, &low, Duration::from_millis(40));
        }
        rates.second = Some(Box::new(second));
        assert!(!rates.on_early(12e3));
    }
}
