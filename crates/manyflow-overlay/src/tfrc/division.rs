//! The max-min division of the limits of pairs among the groups that cross them (Bertsekas and
//! Gallager, "Data Networks", section 6.5.2).
//!
//! A group crosses the pair of each remote daemon with members. With the limits `X(r)` and the
//! demands `d(g)`, the shares `x(g)` are the max-min fair ones under
//!
//! ```text
//!   sum of x(g) over the groups g that cross r <= X(r), for each pair r
//!   x(g) <= d(g)
//! ```
//!
//! All shares grow together. A share stops at its group's demand, or when one of its pairs is full.
//! The part of a pair that one group cannot use, because another of its pairs is full, thus goes
//! to the pair's other groups. The rest, which no group demands, is divided in the same way among
//! the groups with clients, and then among the others, so that a group whose demand grows is not
//! held back.

/// The division, and its memory, which is reused.
#[derive(Debug, Default)]
pub(super) struct Division {
    pairs: Vec<Room>,
    claims: Vec<Claim>,
    /// The pairs that each claim crosses, one claim after the other.
    crossed: Vec<usize>,
}

/// A pair's limit, as far as no closed claim takes it.
#[derive(Copy, Clone, Debug)]
struct Room {
    limit: f64,
    left: f64,
    /// The number of claims that cross the pair.
    claims: usize,
    /// The number of them whose shares still grow.
    open: usize,
    full: bool,
}

/// A group's claim.
#[derive(Copy, Clone, Debug)]
struct Claim {
    demand: f64,
    /// Whether the group has clients, which can use more than they demand.
    is_used: bool,
    share: f64,
    open: bool,
    /// The claim's places in [`Division::crossed`].
    begin: usize,
    end: usize,
}

impl Division {
    /// Begins a division of the `limits` of pairs.
    pub(super) fn begin(&mut self, limits: impl Iterator<Item = f64>) {
        self.claims.clear();
        self.crossed.clear();
        self.pairs.clear();
        self.pairs.extend(limits.map(|limit| Room {
            limit,
            left: limit,
            claims: 0,
            open: 0,
            full: false,
        }));
    }

    /// Adds the claim of a group that crosses `pairs`, at least one, given by their places.
    pub(super) fn push(&mut self, demand: f64, is_used: bool, pairs: impl Iterator<Item = usize>) {
        let begin = self.crossed.len();
        self.crossed.extend(pairs);
        self.claims.push(Claim {
            demand,
            is_used,
            share: 0.0,
            open: false,
            begin,
            end: self.crossed.len(),
        });
        self.count(self.claims.len() - 1, |room| room.claims += 1);
    }

    /// Returns the shares of the claims, in the order in which they were added.
    pub(super) fn shares(&mut self) -> impl Iterator<Item = f64> {
        self.fill(|claim| claim.demand);
        self.fill(|claim| if claim.is_used { f64::INFINITY } else { 0.0 });
        self.fill(|_| f64::INFINITY);
        self.check();
        self.claims.iter().map(|claim| claim.share)
    }

    /// Adds to all shares, at most `bound` to each.
    fn fill(&mut self, bound: impl Fn(&Claim) -> f64) {
        for index in 0..self.claims.len() {
            self.claims[index].open = true;
            self.count(index, |room| room.open += 1);
        }
        while let Some(level) = self.level() {
            let mut any = false;
            for index in 0..self.claims.len() {
                let bound = bound(&self.claims[index]);
                if self.claims[index].open && bound <= level {
                    self.close(index, bound);
                    any = true;
                }
            }
            // A closed claim leaves more for the others, so that the level must be found again.
            if !any {
                self.close_full(level);
            }
        }
    }

    /// Returns the level at which the next pair is full; `None` if all claims are closed.
    fn level(&self) -> Option<f64> {
        let open = self.pairs.iter().filter(|room| room.open > 0);
        let levels = open.map(|room| (room.left / room.open as f64).max(0.0));
        levels.reduce(f64::min)
    }

    /// Closes the claims that cross a pair that is full at a level.
    fn close_full(&mut self, level: f64) {
        for room in &mut self.pairs {
            room.full = room.open > 0 && room.left <= level * room.open as f64 * (1.0 + 1e-12);
        }
        for index in 0..self.claims.len() {
            let claim = self.claims[index];
            let crossed = self.crossed[claim.begin..claim.end].iter();
            let mut rooms = crossed.map(|&pair| self.pairs[pair]);
            if claim.open
                && let Some(room) = rooms.find(|room| room.full)
            {
                self.close(index, level);
                if room.claims == 1 {
                    // Without a rounding error.
                    self.claims[index].share = room.limit;
                }
            }
        }
    }

    fn close(&mut self, index: usize, more: f64) {
        self.claims[index].open = false;
        self.claims[index].share += more;
        self.count(index, |room| {
            room.open -= 1;
            room.left -= more;
        });
    }

    /// Calls `change` for each pair that a claim crosses.
    fn count(&mut self, index: usize, mut change: impl FnMut(&mut Room)) {
        let claim = self.claims[index];
        for &pair in &self.crossed[claim.begin..claim.end] {
            change(&mut self.pairs[pair]);
        }
    }

    /// Asserts that no pair carries more than its limit.
    fn check(&self) {
        for room in &self.pairs {
            debug_assert!(
                room.left >= -1e-6 * room.limit,
                "the shares exceed a limit of {} bytes/s by {}",
                room.limit,
                -room.left
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the shares of groups, given by their demands and pairs.
    fn shares(limits: &[f64], claims: &[(f64, Vec<usize>)]) -> Vec<f64> {
        let mut division = Division::default();
        division.begin(limits.iter().copied());
        for (demand, pairs) in claims {
            division.push(*demand, true, pairs.iter().copied());
        }
        division.shares().collect()
    }

    #[test]
    fn greedy_groups_share_a_pair_equally() {
        let claims = vec![(f64::INFINITY, vec![0]); 4];
        assert_eq!(shares(&[100.0], &claims), [25.0; 4]);
    }

    #[test]
    fn the_part_of_a_pair_that_a_group_cannot_use_goes_to_the_others() {
        let claims = [(1e9, vec![0, 1]), (1e9, vec![0])];
        assert_eq!(shares(&[100.0, 10.0], &claims), [10.0, 90.0]);
    }

    #[test]
    fn small_demands_are_met_and_the_rest_is_divided_equally() {
        let claims = [(10.0, vec![0]), (1e9, vec![0]), (1e9, vec![0])];
        assert_eq!(shares(&[100.0], &claims), [10.0, 45.0, 45.0]);
        let claims = [(10.0, vec![0]), (30.0, vec![0])];
        assert_eq!(shares(&[100.0], &claims), [40.0, 60.0]);
    }

    #[test]
    fn a_group_without_clients_takes_nothing_from_others() {
        let mut division = Division::default();
        division.begin([100.0].into_iter());
        division.push(0.0, false, [0].into_iter());
        division.push(2.0, true, [0].into_iter());
        assert_eq!(division.shares().collect::<Vec<_>>(), [0.0, 100.0]);
    }

    fn any_claims() -> impl Strategy<Value = Vec<(f64, Vec<usize>)>> {
        let pairs = proptest::sample::subsequence(vec![0, 1, 2, 3], 1..=4);
        proptest::collection::vec((0.1f64..1e3, pairs), 1..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// No pair carries more than its limit. Each group crosses a full pair, and if its demand
        /// is not met, none of that pair's groups has more. This characterises max-min shares
        /// (Bertsekas and Gallager).
        #[test]
        fn every_share_has_a_bottleneck(limits in any::<[u16; 4]>(), claims in any_claims()) {
            let limits = limits.map(|limit| f64::from(limit) + 1.0);
            let shares = shares(&limits, &claims);
            let crossing = |pair: usize| {
                let both = claims.iter().zip(&shares);
                both.filter(move |(claim, _)| claim.1.contains(&pair)).map(|(_, share)| *share)
            };
            for (pair, limit) in limits.iter().enumerate() {
                prop_assert!(crossing(pair).sum::<f64>() <= limit * (1.0 + 1e-6));
            }
            for ((demand, pairs), share) in claims.iter().zip(&shares) {
                let is_met = *share >= demand * (1.0 - 1e-6);
                let is_bottleneck = pairs.iter().any(|&pair| {
                    let is_full = crossing(pair).sum::<f64>() >= limits[pair] * (1.0 - 1e-6);
                    let largest = crossing(pair).fold(0.0, f64::max);
                    is_full && (is_met || largest <= share * (1.0 + 1e-6))
                });
                prop_assert!(is_bottleneck, "{limits:?} {claims:?} {shares:?}");
            }
        }
    }
}
