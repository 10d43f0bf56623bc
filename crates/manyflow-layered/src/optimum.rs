//! The best menu: the rates of groups with which receivers use the largest share of their paths.
//! Studies compare protocols with it. The sender of SIM's second edition chooses its menu so, by
//! what it knows of the paths.

/// The best menu for a set of receivers, and its efficiency.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimum {
    /// The cumulative rates of the groups that are used, ascending, in the unit of the capacities.
    pub rates: Vec<f64>,
    /// The efficiency of section IV-A of SIM's paper, above 0 to 1: the mean of rate over
    /// capacity, if each receiver has the highest rate of the menu that its capacity carries.
    pub efficiency: f64,
}

/// Returns the menu of at most `groups` groups that gives these receivers the highest efficiency,
/// among the menus whose lowest rate all receivers can have.
///
/// Each receiver has one entry in `capacities`, all of them above 0 and in the same unit. A rate of
/// the best menu is the capacity of a receiver, because a rate between two capacities can be raised
/// to the higher one. The lowest capacity is one of them. The others are found by dynamic
/// programming over the sorted capacities, in O(`groups` n^2) steps for n receivers.
///
/// Returns `None` without receivers or groups.
///
/// ```
/// use manyflow_layered::optimum::best_menu;
///
/// // The receivers of Fig. 2 of SIM's paper: one of them gets 3 of its 4 Mbit/s.
/// let behind = [1., 1., 1., 1., 2., 3., 3., 3., 3., 3., 4., 5., 5., 6., 6., 6.];
/// let best = best_menu(&behind, 5).expect("there are receivers and groups");
/// assert_eq!(best.rates, [1., 2., 3., 5., 6.]);
/// assert!((best.efficiency - 15.75 / 16.).abs() < 1e-9);
/// ```
pub fn best_menu(capacities: &[f64], groups: u8) -> Option<Optimum> {
    let mut sorted: Vec<(f64, f64)> = capacities.iter().map(|rate| (*rate, 1.0)).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (rates, sum) = best_rates(&sorted, groups)?;
    let efficiency = sum / sorted.len() as f64;
    debug_assert!(
        efficiency <= 1.0 + 1e-9,
        "no receiver has more than its capacity"
    );
    Some(Optimum { rates, efficiency })
}

/// Returns the rates of the best menu, ascending, and the sum of all receivers' shares of their
/// capacities. `paths` holds capacities, ascending, with the number of receivers that have each;
/// the lowest is a rate of the menu even if it has none.
pub(crate) fn best_rates(paths: &[(f64, f64)], groups: u8) -> Option<(Vec<f64>, f64)> {
    let count = paths.len();
    if count == 0 || groups == 0 {
        return None;
    }
    let shares = Shares::of(paths);
    // For the paths from each place on, with the groups so far: the highest sum of shares if the
    // first of them has its capacity, and the place of the next rate.
    let mut best: Vec<Vec<(f64, usize)>> = Vec::new();
    best.push(
        (0..count)
            .map(|from| (shares.sum(from, count), count))
            .collect(),
    );
    for _ in 1..groups {
        let fewer = best.last()?;
        let more = (0..count).map(|from| {
            let split = |next: usize| (shares.sum(from, next) + fewer[next].0, next);
            let splits = (from + 1..count).map(split);
            splits.fold(
                fewer[from],
                |best, new| if new.0 > best.0 { new } else { best },
            )
        });
        let more = more.collect();
        best.push(more);
    }
    let sum = best.last()?[0].0;
    let (mut rates, mut place, mut left) = (Vec::new(), 0, best.len());
    while place < count {
        rates.push(paths[place].0);
        // With one more group at no gain, the row of fewer groups has the same next place.
        left = left.saturating_sub(1);
        place = best[left][place].1;
    }
    debug_assert!(
        rates.len() <= usize::from(groups),
        "the menu has too many rates"
    );
    Some((rates, sum))
}

/// The sums of shares of receivers with consecutive capacities.
struct Shares<'a> {
    paths: &'a [(f64, f64)],
    /// The sum of receivers / capacity before each place.
    inverse: Vec<f64>,
}

impl Shares<'_> {
    fn of(paths: &[(f64, f64)]) -> Shares<'_> {
        let mut inverse = vec![0.0];
        let mut sum = 0.0;
        for (capacity, receivers) in paths {
            sum += receivers / capacity;
            inverse.push(sum);
        }
        Shares { paths, inverse }
    }

    /// Returns the sum of the shares of the receivers at `from..to`, if all have the capacity of
    /// the first.
    fn sum(&self, from: usize, to: usize) -> f64 {
        self.paths[from].0 * (self.inverse[to] - self.inverse[from])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the mean share under a menu: each receiver has the highest rate that it carries.
    fn efficiency(capacities: &[f64], menu: &[f64]) -> f64 {
        let share = |capacity: &f64| {
            let carried = menu.iter().copied().filter(|rate| rate <= capacity);
            carried.fold(0.0, f64::max) / capacity
        };
        capacities.iter().map(share).sum::<f64>() / capacities.len() as f64
    }

    #[test]
    fn no_receivers_or_groups_have_no_menu() {
        assert_eq!(best_menu(&[], 3), None);
        assert_eq!(best_menu(&[1.0], 0), None);
    }

    #[test]
    fn one_group_has_the_lowest_capacity() {
        let best = best_menu(&[4.0, 2.0], 1).unwrap();
        assert_eq!((best.rates, best.efficiency), (vec![2.0], 0.75));
    }

    proptest! {
        #[test]
        fn no_menu_of_as_many_groups_is_better(
            capacities in prop::collection::vec(1_u32..20, 1..8), groups in 1_u8..5,
        ) {
            let capacities: Vec<f64> = capacities.into_iter().map(f64::from).collect();
            let best = best_menu(&capacities, groups).unwrap();
            prop_assert!(best.rates.len() <= usize::from(groups));
            let reached = efficiency(&capacities, &best.rates);
            prop_assert!((reached - best.efficiency).abs() < 1e-9, "{best:?}, {reached}");
            let lowest = capacities.iter().copied().fold(f64::INFINITY, f64::min);
            // Every choice of capacities that contains the lowest.
            for chosen in 0_u32..1 << capacities.len() {
                let places = (0..capacities.len()).filter(|place| chosen & (1 << place) != 0);
                let mut menu: Vec<f64> = places.map(|place| capacities[place]).collect();
                menu.push(lowest);
                menu.sort_by(f64::total_cmp);
                menu.dedup();
                if menu.len() <= usize::from(groups) {
                    prop_assert!(efficiency(&capacities, &menu) <= best.efficiency + 1e-9);
                }
            }
        }
    }
}
