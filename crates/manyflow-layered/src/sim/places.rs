//! The places of groups (second edition): the menu is the best one for the paths that the sender
//! knows.
//!
//! ```text
//!   C_0 = 1   C_1 = 3   C_2 = 4   C_3 = 5   C_4 = 6      paths: 1, 2, 3, 5, 6
//!                       without receivers: moves to 2
//!   C_0 = 1   C_1 = 2   C_2 = 3   C_3 = 5   C_4 = 6
//! ```
//!
//! Nobody reports how many receivers of a group could get more. The sender hopes for as many as
//! there can be ([`Census::hoped`]), and so tries each menu that could be better. Once receivers
//! have joined and left what the menu lets them, their numbers in the groups show whether it is,
//! and the next menu is the best one by what is known then. So menus that were not worth it are
//! taken back, and each of them has to be tried once only. Groups that a menu does not need divide
//! the ranges of which least is known.

use super::census::{Census, Span, is_same};
use crate::GROUPS_MAX;
use crate::optimum::best_rates;

/// The number of rounds in which receivers have not changed their groups, and after which they have
/// done so for the present menu: more than a selection interval.
const STEADY_ROUNDS: u32 = 12;

/// The number of rounds after which a menu is judged in any case: receivers still change their
/// groups, or some wait for an interval without congestion before they join a group.
const JOINING_ROUNDS: u32 = 40;

/// The number of rounds after which a receiver whose path carries the next group has joined it: two
/// selection intervals, and the silence after a change of groups.
const WAITED_ROUNDS: u32 = 24;

/// The number of rounds in a row with fewer reports after which receivers have left. Receivers that
/// have changed their groups are silent for two.
const MISSING_ROUNDS: u32 = 8;

/// The share of receivers, one of this number, that can change their groups in a round of a large
/// session whose menu has settled.
const RESTLESS: u32 = 32;

/// The number of rounds after its last congestion from which reports of a group say what its paths
/// carry. Before, they state the group's rate.
const CALM_ROUNDS: u32 = 11;

/// The share of the rate that paths carry which a group gets in its new place.
pub(super) const HEADROOM: f64 = 0.97;

/// The share of what its paths carry from which a group has grown to its place.
const GROWN: f64 = 0.9;

/// The share of a rate of a menu from which a group that the same paths carry has this rate.
const NEAR: f64 = 0.95;

/// The smallest gain for which a menu changes, in receivers' shares of their paths: this share of
/// all of them.
const GAIN_MIN: f64 = 0.005;

/// The number of rates that are remembered because nobody has joined a group there, although
/// reports said that paths carry it.
const REFUSED: usize = 8;

/// The number of rounds after which everything is tried again.
const MEMORY_ROUNDS: u32 = 2_000;

/// The number of menus in this time from which the wait for the next doubles.
const FREE_MENUS: u32 = 12;

/// The number of rounds for which the lowest group keeps its rate for receivers that have left the
/// session: they may come back.
const KEPT_ROUNDS: u32 = 250;

/// The reports of a round about one group.
#[derive(Copy, Clone, Debug)]
pub(super) struct Shown {
    /// The number of reports.
    pub(super) receivers: u32,
    pub(super) is_congested: bool,
    /// The lowest and the highest rate that paths carry.
    pub(super) carried: [f64; 2],
}

/// The reports about one group since receivers last changed their groups.
#[derive(Copy, Clone, Debug)]
struct Seen {
    receivers: u32,
    /// The highest of the lowest rates that paths carry, in rounds without congestion, and the
    /// lowest of the highest.
    lowest: Option<f64>,
    highest: Option<f64>,
    /// The number of rounds since the group was congested.
    calm_rounds: u32,
    /// The number of rounds with this menu since receivers last joined or left the group.
    steady_rounds: u32,
}

/// The rate of the lowest group when it last had receivers.
#[derive(Copy, Clone, Debug)]
struct Kept {
    rate: f64,
    /// The number of receivers in the session.
    all: u32,
    rounds: u32,
}

/// The places of a session's groups.
#[derive(Clone, Debug)]
pub(super) struct Places {
    census: Census,
    seen: [Seen; GROUPS_MAX as usize],
    /// The number of receivers in the session.
    all: u32,
    /// The number of rounds in a row with fewer reports.
    missing_rounds: u32,
    /// The number of rounds since receivers last changed their groups, and since the menu was last
    /// judged.
    steady_rounds: u32,
    rounds: u32,
    /// Whether the menu has changed since it was judged.
    is_new: bool,
    kept: Option<Kept>,
    refused: [f64; REFUSED],
    next_refused: usize,
    /// The number of new menus, and the rounds until it and `refused` are forgotten.
    menus: u32,
    memory_rounds: u32,
}

impl Places {
    pub(super) fn new() -> Places {
        let none = Seen {
            receivers: 0,
            lowest: None,
            highest: None,
            calm_rounds: CALM_ROUNDS,
            steady_rounds: 0,
        };
        Places {
            census: Census::default(),
            seen: [none; GROUPS_MAX as usize],
            all: 0,
            missing_rounds: 0,
            steady_rounds: 0,
            rounds: 0,
            is_new: false,
            kept: None,
            refused: [0.0; REFUSED],
            next_refused: 0,
            menus: 0,
            memory_rounds: MEMORY_ROUNDS,
        }
    }

    /// Records the reports of a round about each group.
    pub(super) fn on_round(&mut self, shown: &[Shown]) {
        self.rounds += 1;
        self.pass_memory();
        let all: u32 = shown.iter().map(|group| group.receivers).sum();
        for (seen, group) in self.seen.iter_mut().zip(shown) {
            seen.calm_rounds = match group.is_congested {
                true => 0,
                false => seen.calm_rounds.saturating_add(1),
            };
        }
        if all + all / RESTLESS < self.all && self.missing_rounds < MISSING_ROUNDS {
            // Some are silent, because they have changed their groups.
            self.missing_rounds += 1;
            return;
        }
        self.missing_rounds = 0;
        let groups = self.seen.iter().zip(shown);
        let changed: u32 = groups
            .map(|(seen, group)| seen.receivers.abs_diff(group.receivers))
            .sum();
        if changed > all / RESTLESS {
            self.all = all;
            self.begin_again();
        }
        self.steady_rounds += 1;
        for (seen, group) in self.seen.iter_mut().zip(shown) {
            seen.steady_rounds = match seen.receivers.abs_diff(group.receivers) > all / RESTLESS {
                true => 0,
                false => seen.steady_rounds.saturating_add(1),
            };
            seen.receivers = group.receivers;
            if group.receivers == 0 {
                continue;
            }
            let [lowest, highest] = group.carried;
            seen.highest = Some(seen.highest.map_or(highest, |seen| seen.min(highest)));
            if seen.calm_rounds >= CALM_ROUNDS {
                seen.lowest = Some(seen.lowest.map_or(lowest, |seen| seen.max(lowest)));
            }
        }
    }

    fn begin_again(&mut self) {
        self.steady_rounds = 0;
        for seen in &mut self.seen {
            (seen.lowest, seen.highest) = (None, None);
        }
    }

    fn pass_memory(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.rounds += 1;
        }
        self.memory_rounds -= 1;
        if self.memory_rounds == 0 {
            self.memory_rounds = MEMORY_ROUNDS;
            (self.refused, self.menus) = ([0.0; REFUSED], 0);
            self.census.clear();
        }
    }

    /// Returns the rate up to which a group may grow by itself, at present `rate`. While receivers
    /// may still join other groups of a new menu, groups keep their rates: one with some of its
    /// receivers would grow past the paths of the others. The wait for the next menu can be longer,
    /// and does not keep them from growing. The lowest group keeps its rate for
    /// receivers that have left the session.
    pub(super) fn limit(&self, group: usize, rate: f64) -> f64 {
        match self.kept() {
            _ if self.is_new && self.rounds < JOINING_ROUNDS => rate,
            Some(kept) if group == 0 => kept.max(rate),
            _ => f64::INFINITY,
        }
    }

    /// Returns the rate of the lowest group that is kept for receivers that have left the session.
    fn kept(&self) -> Option<f64> {
        let is_kept = |kept: &Kept| kept.rounds < KEPT_ROUNDS && kept.all > self.all;
        self.kept.filter(is_kept).map(|kept| kept.rate)
    }

    /// Returns a new menu, given the cumulative rates of the present one: as many rates, in
    /// ascending order.
    pub(super) fn poll_menu(&mut self, rates: &[f64]) -> Option<Vec<f64>> {
        let wait = match self.menus.checked_sub(FREE_MENUS) {
            Some(beyond) => (STEADY_ROUNDS << beyond.min(8)).min(MEMORY_ROUNDS),
            None => 0,
        };
        if self.all == 0 || self.rounds < wait || !self.is_settled(rates) {
            return None;
        }
        let places = self.places(rates);
        let spans = self.spans(rates);
        self.begin_again();
        self.rounds = 0;
        self.seen.iter_mut().for_each(|seen| seen.steady_rounds = 0);
        self.census.add(spans.into_iter());
        let menu = self.best_menu(rates, &places);
        self.is_new = menu.is_some();
        self.menus += u32::from(self.is_new);
        menu
    }

    /// Returns whether receivers have joined and left what this menu lets them.
    fn is_settled(&self, rates: &[f64]) -> bool {
        if self.rounds >= JOINING_ROUNDS {
            return true;
        }
        let mut groups = self.seen.iter().zip(rates).enumerate();
        let is_ready = |(group, (seen, rate)): (usize, (&Seen, &f64))| {
            if seen.receivers == 0 {
                return true;
            }
            let (Some(lowest), Some(highest)) = (seen.lowest, seen.highest) else {
                return false;
            };
            let is_grown = *rate >= GROWN * HEADROOM * lowest;
            let next = rates.get(group + 1).copied().unwrap_or(f64::INFINITY);
            let is_joining = highest > next && !self.is_refused(next);
            (is_grown || self.is_new) && !is_joining
        };
        self.steady_rounds >= STEADY_ROUNDS && groups.all(is_ready)
    }

    fn is_refused(&self, rate: f64) -> bool {
        self.refused.iter().any(|refused| is_same(*refused, rate))
    }

    /// Returns the lowest and the highest rate that the paths of a group with receivers carry. They
    /// carry the group's rate, and that is all that is known while it is congested.
    fn carried(&self, group: usize, rates: &[f64]) -> [f64; 2] {
        let (seen, least) = (self.seen[group], rates[group] / HEADROOM);
        let highest = seen.highest.unwrap_or(least).max(least);
        let lowest = seen.lowest.unwrap_or(least).max(least).min(highest);
        match rates.get(group + 1) {
            // None has joined the next group although all report that they could.
            Some(next) if lowest > *next => [least, highest],
            _ => [lowest, highest],
        }
    }

    /// Returns the rate to which each group grows by itself.
    fn places(&self, rates: &[f64]) -> Vec<f64> {
        let place = |group: usize| match self.seen[group].receivers {
            0 => rates[group],
            _ => HEADROOM * self.carried(group, rates)[0],
        };
        (0..rates.len()).map(place).collect()
    }

    /// Returns what the menu shows about the paths. Remembers rates at which nobody has joined a
    /// group, although reports say that paths carry it, if receivers have had the time.
    fn spans(&mut self, rates: &[f64]) -> Vec<Span> {
        let mut spans = Vec::with_capacity(rates.len());
        for group in 0..rates.len() {
            let Seen {
                receivers,
                steady_rounds,
                ..
            } = self.seen[group];
            if receivers == 0 {
                continue;
            }
            let [lowest, highest] = self.carried(group, rates);
            let next = rates.get(group + 1).copied().unwrap_or(f64::INFINITY);
            if steady_rounds >= WAITED_ROUNDS && highest > next && !self.is_refused(next) {
                self.refused[self.next_refused] = next;
                self.next_refused = (self.next_refused + 1) % REFUSED;
            }
            let is_hoped = !self.is_refused(next.min(HEADROOM * highest));
            spans.push(Span {
                lowest,
                highest: match is_hoped {
                    true => highest,
                    false => highest.min(next / HEADROOM),
                },
                receivers,
                is_hoped,
            });
        }
        spans
    }

    /// Returns the best menu for the paths as they are hoped to be, if it is better than the
    /// present one, whose groups grow to `places`. Groups that it does not need show more about the
    /// paths.
    fn best_menu(&mut self, rates: &[f64], places: &[f64]) -> Option<Vec<f64>> {
        let mut paths = self.census.hoped();
        self.keep_lowest(&mut paths, places);
        let (best, sum) = best_rates(&paths, u8::try_from(rates.len()).ok()?)?;
        let present: f64 = paths
            .iter()
            .map(|(path, receivers)| {
                let carried = places.iter().filter(|place| *place <= path);
                receivers * carried.copied().fold(0.0, f64::max) / path
            })
            .sum();
        let least = GAIN_MIN * f64::from(self.all);
        let mut wanted: Vec<f64> = match HEADROOM * sum - present > least {
            true => best.into_iter().map(|path| HEADROOM * path).collect(),
            false => {
                let kept = paths.first().filter(|(_, receivers)| *receivers == 0.0);
                let used = (0..rates.len()).filter(|group| self.seen[*group].receivers > 0);
                let used = used.map(|group| places[group]);
                kept.map(|(path, _)| HEADROOM * path)
                    .into_iter()
                    .chain(used)
                    .collect()
            }
        };
        let spare = rates.len().saturating_sub(wanted.len());
        let dividing = self.census.dividing(spare, least);
        wanted.extend(dividing.into_iter().map(|path| HEADROOM * path));
        self.with_places(rates, places, &wanted)
    }

    /// Adds the rate of the lowest group to the paths if the receivers that it was for have left
    /// the session.
    fn keep_lowest(&mut self, paths: &mut Vec<(f64, f64)>, places: &[f64]) {
        if let Some(kept) = self.kept() {
            let path = kept / HEADROOM;
            if paths.first().is_some_and(|(lowest, _)| path < *lowest) {
                paths.insert(0, (path, 0.0));
            }
        } else if self.seen[0].receivers > 0 {
            self.kept = Some(Kept {
                rate: places[0],
                all: self.all,
                rounds: 0,
            });
        }
    }

    /// Returns the menu in which groups that are at none of the `wanted` rates take the places of
    /// those that no group has: groups without receivers first, then those with the fewest.
    fn with_places(&self, rates: &[f64], places: &[f64], wanted: &[f64]) -> Option<Vec<f64>> {
        let mut is_kept = vec![false; rates.len()];
        let mut missing = Vec::new();
        for rate in wanted {
            let near = |place: f64| (NEAR * rate..=rate / HEADROOM).contains(&place);
            match (0..rates.len()).rfind(|group| !is_kept[*group] && near(places[*group])) {
                Some(group) => is_kept[group] = true,
                None => missing.push(*rate),
            }
        }
        if missing.is_empty() {
            return None;
        }
        let mut free: Vec<usize> = (0..rates.len()).filter(|group| !is_kept[*group]).collect();
        free.sort_by_key(|group| self.seen[*group].receivers);
        let mut menu = rates.to_vec();
        for (group, rate) in free.into_iter().zip(missing) {
            menu[group] = rate;
        }
        menu.sort_by(f64::total_cmp);
        (menu != rates).then_some(menu)
    }
}

#[cfg(test)]
#[path = "tests_places.rs"]
mod tests;
