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

use crate::GROUPS_MAX;

/// The number of rounds after a move before the next move of an unused group.
const SETTLING_ROUNDS: u32 = 8;

/// The number of rounds after a move before a group with receivers is moved.
const SWAP_ROUNDS: u32 = 25;

/// The smallest ratio of a group's new rate to that of the group whose receivers it is for.
const STEP_MIN: f64 = 1.08;

/// The distance within which two rates are the same.
const SAME: f64 = 0.05;

/// The share of the rate that paths carry which a group gets in its new place.
pub(super) const HEADROOM: f64 = 0.97;

/// The number of moves that are remembered because they were not worth it.
const REMEMBERED: usize = 8;

/// A move: the group that loses its place, and its new rate in bytes per second.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Move {
    pub(super) group: usize,
    pub(super) rate: f64,
}

/// The reports about one group since the last move.
#[derive(Copy, Clone, Debug)]
struct Seen {
    /// The number of reports in the last round with any; 0 if there was none.
    receivers: u32,
    /// The lowest of the rounds' highest rates that paths carry.
    highest: f64,
}

impl Seen {
    const NONE: Seen = Seen {
        receivers: 0,
        highest: f64::INFINITY,
    };
}

/// A group with receivers that was moved, to see whether it was worth it.
#[derive(Copy, Clone, Debug)]
struct Trial {
    /// The former rate and the new one.
    from: f64,
    to: f64,
    /// The receivers that have lost their group, as a sum of the shares of their rate that they
    /// lost.
    loss: f64,
    /// The rate that the receivers of the new place had before.
    below: f64,
}

/// The places of a session's groups.
#[derive(Clone, Debug)]
pub(super) struct Places {
    seen: [Seen; GROUPS_MAX as usize],
    rounds: u32,
    trial: Option<Trial>,
    /// The number of reports in the last rounds; a change makes all moves worth another trial.
    receivers: u32,
    /// The new rates of moves that were not worth it.
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
            receivers: 0,
            refused: [0.0; REMEMBERED],
            next_refused: 0,
        }
    }

    /// Records the reports of a round: for each group, their number and the highest rate that a path
    /// carries.
    pub(super) fn on_reports(&mut self, reports: impl Iterator<Item = (u32, f64)>) {
        self.rounds += 1;
        for (seen, (receivers, highest)) in self.seen.iter_mut().zip(reports) {
            if receivers > 0 {
                seen.receivers = receivers;
                seen.highest = seen.highest.min(highest);
            }
        }
    }

    /// Returns a move, given the cumulative rates of the groups.
    pub(super) fn poll_move(&mut self, rates: &[f64]) -> Option<Move> {
        if self.rounds < SETTLING_ROUNDS {
            return None;
        }
        let is_swap_due = self.rounds >= SWAP_ROUNDS;
        if is_swap_due && let Some(back) = self.end_trial(rates) {
            return Some(self.begin(back));
        }
        let best = match self.best(rates) {
            Some((home, rate, gain)) => self.place_for(home, rate, gain, rates, is_swap_due),
            None => None,
        };
        if best.is_none() && is_swap_due {
            self.clear();
        }
        best.map(|chosen| self.begin(chosen))
    }

    fn clear(&mut self) {
        let receivers = self.seen.iter().map(|seen| seen.receivers).sum();
        if receivers != self.receivers {
            (self.receivers, self.refused) = (receivers, [0.0; REMEMBERED]);
        }
        (self.seen, self.rounds) = ([Seen::NONE; GROUPS_MAX as usize], 0);
    }

    fn begin(&mut self, chosen: Move) -> Move {
        self.clear();
        chosen
    }

    /// Returns the group whose receivers could gain most, the rate of a further group for them, and
    /// the gain: the sum over receivers of the share of their path's rate that they would gain.
    fn best(&self, rates: &[f64]) -> Option<(usize, f64, f64)> {
        let mut best: Option<(usize, f64, f64)> = None;
        for (group, (seen, &own)) in self.seen.iter().zip(rates).enumerate() {
            let rate = HEADROOM * seen.highest;
            let is_free = |other: &f64| !is_same(*other, rate);
            let is_new = rates.iter().all(is_free) && self.refused.iter().all(is_free);
            if seen.receivers == 0 || rate < STEP_MIN * own || !is_new {
                continue;
            }
            let assumed = f64::from((seen.receivers / 2).max(1));
            let gain = assumed * (1.0 - own / rate);
            if best.is_none_or(|(_, _, most)| gain > most) {
                best = Some((group, rate, gain));
            }
        }
        best
    }

    /// Returns the move of the group that is worth least to this new place: one without receivers,
    /// the nearest above `home` if there are several, or else the one whose receivers lose least.
    fn place_for(
        &mut self,
        home: usize,
        rate: f64,
        gain: f64,
        rates: &[f64],
        is_swap_due: bool,
    ) -> Option<Move> {
        let is_unused = |group: &usize| self.seen[*group].receivers == 0;
        let above = (home + 1..rates.len()).find(is_unused);
        if let Some(group) = above.or_else(|| (0..home).rev().find(is_unused)) {
            return Some(Move { group, rate });
        }
        if !is_swap_due {
            return None;
        }
        let loss_of = |group: usize| {
            let below = rates[group - 1].max(if rate < rates[group] { rate } else { 0.0 });
            f64::from(self.seen[group].receivers) * (1.0 - below / rates[group])
        };
        let others = (1..rates.len()).filter(|group| *group != home);
        let (group, loss) = others
            .map(|group| (group, loss_of(group)))
            .min_by(|a, b| a.1.total_cmp(&b.1))?;
        if gain <= loss {
            return None;
        }
        self.trial = Some(Trial {
            from: rates[group],
            to: rate,
            loss,
            below: rates[home],
        });
        Some(Move { group, rate })
    }

    /// Ends a trial. Returns the move back if it was not worth it.
    fn end_trial(&mut self, rates: &[f64]) -> Option<Move> {
        let trial = self.trial.take()?;
        let to = |rate: &f64| is_same(*rate, trial.to);
        let group = rates.iter().position(to)?;
        let gain = f64::from(self.seen[group].receivers) * (1.0 - trial.below / trial.to);
        if gain >= trial.loss {
            return None;
        }
        self.refused[self.next_refused] = trial.to;
        self.next_refused = (self.next_refused + 1) % REMEMBERED;
        Some(Move {
            group,
            rate: trial.from,
        })
    }
}
