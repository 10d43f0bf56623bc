//! The places of groups (second edition): a group without receivers, or the one that is worth
//! least, moves to where receivers could get more.
//!
//! ```text
//!   C_0 = 1   C_1 = 3   C_2 = 4   C_3 = 5   C_4 = 6      paths: 1, 2, 3, 5, 6
//!                       unused: moves to 2, below 3
//!   C_0 = 1   C_1 = 2   C_2 = 3   C_3 = 5   C_4 = 6
//! ```
//!
//! The highest rate that the receivers of a group report shows whether some of them could get more.
//! Nobody reports how many these are. So the sender assumes that it is half of them, counts them
//! after the move, and takes the move back if the receivers whose group was moved have lost more.

use core::cmp::Ordering;

use crate::GROUPS_MAX;

/// The number of rounds after a move before the next move of an unused group.
const SETTLING_ROUNDS: u32 = 20;

/// The number of rounds after a move before a group with receivers is moved.
const SWAP_ROUNDS: u32 = 40;

/// The rounds after a move in which receivers are counted again: they have changed their groups by
/// the first, and those that waited for a calm interval by the second. Some rounds lack reports, so
/// that one round is not enough.
const COUNTS_FROM: [u32; 2] = [8, 28];

/// The smallest ratio of a group's new rate to that of the group whose receivers it is for.
const STEP_MIN: f64 = 1.08;

/// The distance within which two rates are the same.
const SAME: f64 = 0.05;

/// The share of the rate that paths carry which a group gets in its new place.
pub(super) const HEADROOM: f64 = 0.97;

/// The number of moves that are remembered because they were not worth it.
const REMEMBERED: usize = 8;

/// The number of rounds after which moves that were not worth it are tried again.
const REFUSED_ROUNDS: u32 = 2_000;

/// A move: the group that loses its place, and its new rate in bytes per second.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Move {
    pub(super) group: usize,
    pub(super) rate: f64,
}

/// A place for a group: the group whose receivers it is for, its rate, and the sum over receivers
/// of the shares of their paths' rates that they could gain.
#[derive(Copy, Clone, Debug)]
struct Offer {
    home: usize,
    rate: f64,
    gain: f64,
}

/// The reports about one group since the last move.
#[derive(Copy, Clone, Debug)]
struct Seen {
    /// The highest number of reports in a round, since the last of [`COUNTS_FROM`].
    receivers: u32,
    /// The lowest of the highest rates that paths carry, in the rounds with that number.
    highest: f64,
    /// The highest rate that the group had.
    rate: f64,
}

impl Seen {
    const NONE: Seen = Seen {
        receivers: 0,
        highest: f64::INFINITY,
        rate: 0.0,
    };
}

/// A move, to see whether it was worth it.
#[derive(Copy, Clone, Debug)]
struct Trial {
    /// The rank of the moved group in its new place.
    place: usize,
    /// The former rate of the moved group and the number of its receivers, 0 if it was unused.
    from: f64,
    receivers: u32,
    /// The rank of the group whose receivers the new place is for, after the move; `None` if it is
    /// the moved group itself.
    home: Option<usize>,
    /// The rate of that group, and the number of its receivers.
    home_rate: f64,
    home_receivers: u32,
    /// The rate of the new place.
    to: f64,
}

/// The places of a session's groups.
#[derive(Clone, Debug)]
pub(super) struct Places {
    seen: [Seen; GROUPS_MAX as usize],
    rounds: u32,
    trial: Option<Trial>,
    /// The rounds until all moves are worth another trial.
    refused_rounds: u32,
    refused: [f64; REMEMBERED],
    next_refused: usize,
}

fn is_same(a: f64, b: f64) -> bool {
    (a - b).abs() < SAME * a.max(b)
}

impl Places {
    pub(super) fn new() -> Places {
        Places {
            seen: [Seen::NONE; GROUPS_MAX as usize],
            rounds: 0,
            trial: None,
            refused_rounds: 0,
            refused: [0.0; REMEMBERED],
            next_refused: 0,
        }
    }

    /// Records the reports of a round: the rate of each group, the number of reports, the highest
    /// rate that a path carries.
    pub(super) fn on_reports(&mut self, reports: impl Iterator<Item = (f64, u32, f64)>) {
        self.rounds += 1;
        self.refused_rounds = match self.refused_rounds.checked_sub(1) {
            Some(left) => left,
            None => {
                self.refused = [0.0; REMEMBERED];
                REFUSED_ROUNDS
            }
        };
        for (seen, (rate, receivers, highest)) in self.seen.iter_mut().zip(reports) {
            if COUNTS_FROM.contains(&self.rounds) {
                (seen.receivers, seen.highest) = (0, f64::INFINITY);
            }
            if receivers > 0 {
                // Rounds without some of the reports do not count.
                match receivers.cmp(&seen.receivers) {
                    Ordering::Greater => (seen.receivers, seen.highest) = (receivers, highest),
                    Ordering::Equal => seen.highest = seen.highest.min(highest),
                    Ordering::Less => {}
                }
                seen.rate = seen.rate.max(rate);
            }
        }
    }

    /// Returns a move, given the cumulative rates of the groups.
    pub(super) fn poll_move(&mut self, rates: &[f64]) -> Option<Move> {
        let is_swap_due = self.rounds >= SWAP_ROUNDS;
        let wait = match self.trial {
            Some(Trial { receivers: 1.., .. }) => SWAP_ROUNDS,
            _ => SETTLING_ROUNDS,
        };
        if self.rounds < wait {
            return None;
        }
        let back = self.end_trial(rates);
        let best = match back {
            Some(back) => Some(back),
            None => self
                .best(rates)
                .and_then(|best| self.place_for(best, rates, is_swap_due)),
        };
        if best.is_some() || is_swap_due {
            self.clear();
        }
        best
    }

    fn clear(&mut self) {
        (self.seen, self.rounds) = ([Seen::NONE; GROUPS_MAX as usize], 0);
    }

    /// Returns the group whose receivers could gain most, and the rate of a further group for those
    /// of them whose paths carry most.
    fn best(&self, rates: &[f64]) -> Option<Offer> {
        // A group without receivers costs nothing, so it is moved in any case.
        let mut groups = self.seen.iter().take(rates.len());
        let has_unused = groups.any(|seen| seen.receivers == 0);
        let mut best: Option<Offer> = None;
        for (home, (seen, &own)) in self.seen.iter().zip(rates).enumerate() {
            let highest = HEADROOM * seen.highest;
            if seen.receivers == 0 || highest < STEP_MIN * own.max(seen.rate) {
                continue;
            }
            let rate = highest;
            let is_taken = |other: &f64| is_same(*other, rate);
            let is_refused = !has_unused && self.refused.iter().any(is_taken);
            if rates.iter().any(is_taken) || is_refused {
                continue;
            }
            let gain = f64::from(seen.receivers.div_ceil(2)) * (1.0 - own / highest);
            if best.is_none_or(|best| gain > best.gain) {
                best = Some(Offer { home, rate, gain });
            }
        }
        best
    }

    /// Returns the move of the group that is worth least to this new place: one without receivers,
    /// the nearest above the home if there are several, or else the one whose receivers lose least.
    fn place_for(&mut self, offer: Offer, rates: &[f64], is_swap_due: bool) -> Option<Move> {
        let Offer { home, rate, gain } = offer;
        let is_unused = |group: &usize| self.seen[*group].receivers == 0;
        let above = (home + 1..rates.len()).find(is_unused);
        if let Some(group) = above.or_else(|| (0..home).rev().find(is_unused)) {
            return Some(self.begin(offer, group, rates));
        }
        if !is_swap_due {
            return None;
        }
        let assumed = self.seen[home].receivers.div_ceil(2);
        let loss_of = |group: usize| {
            let losers = match group == home {
                true => self.seen[home].receivers - assumed,
                false => self.seen[group].receivers,
            };
            let below = rates[group - 1].max(if rate < rates[group] { rate } else { 0.0 });
            f64::from(losers) * (1.0 - below / rates[group])
        };
        let (group, loss) = (1..rates.len())
            .map(|group| (group, loss_of(group)))
            .min_by(|a, b| a.1.total_cmp(&b.1))?;
        (gain > loss).then(|| self.begin(offer, group, rates))
    }

    /// Begins the trial of a move.
    fn begin(&mut self, offer: Offer, group: usize, rates: &[f64]) -> Move {
        let Offer { home, rate, .. } = offer;
        let others = rates
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != group);
        let place = others.filter(|(_, other)| **other < rate).count();
        // The moved group leaves one place and takes another.
        let after = home - usize::from(group < home);
        let after = after + usize::from(place <= after);
        self.trial = Some(Trial {
            place,
            from: rates[group],
            receivers: self.seen[group].receivers,
            home: (home != group).then_some(after),
            home_rate: rates[home],
            home_receivers: self.seen[home].receivers,
            to: rate,
        });
        Move { group, rate }
    }

    /// Ends a trial. Returns the move back if it was not worth it.
    fn end_trial(&mut self, rates: &[f64]) -> Option<Move> {
        let trial = self.trial.take()?;
        let came = self.seen[trial.place].receivers;
        let (winners, losers) = match trial.home {
            None => (
                came.min(trial.receivers),
                trial.receivers.saturating_sub(came),
            ),
            Some(home) => {
                let left = self.seen[home].receivers;
                (trial.home_receivers.saturating_sub(left), trial.receivers)
            }
        };
        let gain = f64::from(winners) * (1.0 - trial.home_rate / rates[trial.place]);
        let below = rates.iter().copied().filter(|rate| *rate < trial.from);
        let below = below.fold(0.0, f64::max);
        let loss = f64::from(losers) * (1.0 - below / trial.from);
        if trial.receivers == 0 || (came > 0 && gain >= loss) {
            return None;
        }
        self.refused[self.next_refused] = trial.to;
        self.next_refused = (self.next_refused + 1) % REMEMBERED;
        Some(Move {
            group: trial.place,
            rate: trial.from,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports the same for a number of rounds, and returns the move that follows.
    fn after(places: &mut Places, rounds: u32, rates: &[f64], of: &[(u32, f64)]) -> Option<Move> {
        let own = |(&(count, highest), &rate): (&(u32, f64), &f64)| (rate, count, highest);
        for _ in 0..rounds {
            places.on_reports(of.iter().zip(rates).map(own));
        }
        places.poll_move(rates)
    }

    #[test]
    fn a_group_without_receivers_moves_to_those_that_could_get_more() {
        let (rates, mut places) = ([1.0, 3.0, 4.0], Places::new());
        let reports = [(5, 2.0), (0, 0.0), (1, 4.0)];
        assert_eq!(
            after(&mut places, SETTLING_ROUNDS - 1, &rates, &reports),
            None
        );
        let found = after(&mut places, 1, &rates, &reports);
        let rate = HEADROOM * 2.0;
        assert_eq!(found, Some(Move { group: 1, rate }));
    }

    #[test]
    fn no_group_moves_if_all_receivers_get_what_they_can() {
        let (rates, mut places) = ([1.0, 3.0, 4.0], Places::new());
        let reports = [(5, 1.0), (1, 3.0), (1, 4.0)];
        assert_eq!(after(&mut places, SWAP_ROUNDS, &rates, &reports), None);
    }

    /// Paths of 1 (four receivers), 2, 4 and 5: the group at 4 is worth less than one at 2.
    #[test]
    fn the_group_that_is_worth_least_moves_and_moves_back_if_few_gain() {
        let (rates, reports) = ([1.0, 4.0, 5.0], [(5, 2.0), (1, 4.0), (3, 5.0)]);
        let mut places = Places::new();
        assert_eq!(after(&mut places, SETTLING_ROUNDS, &rates, &reports), None);
        let rest = SWAP_ROUNDS - SETTLING_ROUNDS;
        let to = after(&mut places, rest, &rates, &reports).unwrap();
        assert_eq!(to.group, 1);
        let moved = [1.0, to.rate, 5.0];
        // Nobody has come: the former place is better.
        let reports = [(6, 1.0), (0, 0.0), (3, 5.0)];
        let back = after(&mut places, SWAP_ROUNDS, &moved, &reports);
        assert_eq!(
            back,
            Some(Move {
                group: 1,
                rate: 4.0
            })
        );
    }
}
