//! The theory behind Cost-Benefit: circuits that ask for a share of links, one after the other, and
//! are admitted for ever or not at all (section IV-A). No daemon needs it; it is here so that the
//! bound can be seen to hold.
//!
//! A circuit takes the same share of each link of its path, and is worth b for each unit of that
//! share, 1 <= b <= beta. A link of which u is in use has the price a * gamma^u, and who is worth
//! the sum of its path's prices, and fits, is admitted. No circuit asks for more than 1 / log2
//! gamma of a link. Then the best that a prescient algorithm could do is at most 1 + 2 log2 gamma
//! times as much.
//!
//! The paper has a = 1 / d on paths of d links, and gamma = d * beta. That much is not enough:
//! where all are worth 1, the first circuit, however small, makes the price exceed what any other
//! can pay, and there is no bound at all. Its argument is that the last doubling of the price sold
//! 1 / log2 gamma of the link; so the price must be able to double before it refuses the least.
//! Here a is half of the paper's, and gamma = 2 d beta, which adds 2 to the bound.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A circuit that asks to be admitted.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Circuit {
    /// The first link of its path, and the one after the last.
    pub links: (usize, usize),
    /// The share of each that it takes; at most 1 / log2 gamma.
    pub share: f64,
    /// What a unit of share is worth, at least 1.
    pub benefit: f64,
}

impl Circuit {
    /// The sum over its links.
    fn sum(&self, of_links: &[f64]) -> f64 {
        of_links[self.links.0..self.links.1].iter().sum()
    }
}

/// The benefit of what is admitted on a path of links: an empty one costs `empty`, one of which u
/// is in use `gamma^u` times as much.
pub fn admitted(circuits: &[Circuit], links: usize, empty: f64, gamma: f64) -> f64 {
    let mut used = vec![0.0; links];
    let mut prices = vec![empty; links];
    let mut sum = 0.0;
    for circuit in circuits {
        let range = circuit.links.0..circuit.links.1;
        let fits = used[range.clone()]
            .iter()
            .all(|used| used + circuit.share <= 1.0);
        if !fits || circuit.benefit < circuit.sum(&prices) {
            continue;
        }
        sum += circuit.share * circuit.benefit;
        for link in range {
            used[link] += circuit.share;
            prices[link] = empty * libm::pow(gamma, used[link]);
        }
    }
    sum
}

/// What no algorithm can exceed, prescient or not, and were circuits divisible: the linear
/// programme's dual. With any price for each link, the sum of prices and of what circuits are worth
/// above theirs is such a bound; it is lowered by giving each link in turn the price at which what
/// wants it just fits. On one link that is the optimum itself: the dearest first, until it is full.
pub fn prescient(circuits: &[Circuit], links: usize) -> f64 {
    /// More change little: paths are short.
    const ROUNDS: usize = 4;
    let mut prices = vec![0.0; links];
    let mut wanting = Vec::new();
    for link in (0..links).cycle().take(ROUNDS * links) {
        prices[link] = 0.0;
        wanting.clear();
        let users = circuits
            .iter()
            .filter(|circuit| (circuit.links.0..circuit.links.1).contains(&link));
        wanting
            .extend(users.map(|circuit| (circuit.benefit - circuit.sum(&prices), circuit.share)));
        prices[link] = clearing_price(&mut wanting);
    }
    let above = circuits
        .iter()
        .map(|circuit| circuit.share * (circuit.benefit - circuit.sum(&prices)).max(0.0));
    prices.iter().sum::<f64>() + above.sum::<f64>()
}

/// The price at which those who can pay it just fill a link: pairs of what each can pay and its
/// share.
fn clearing_price(wanting: &mut [(f64, f64)]) -> f64 {
    wanting.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
    let mut used = 0.0;
    let full = wanting.iter().find(|(_, share)| {
        used += share;
        used > 1.0
    });
    full.map_or(0.0, |(pays, _)| pays.max(0.0))
}

/// The worst ratio of the prescient bound to what prices admit, over so many inputs on a path of
/// `hops` links: random ones, and ones made to deceive. `gamma` is the price's base, at least 8 for
/// each hop; benefits are between 1 and `gamma / (2 * hops)`.
pub fn worst_ratio(gamma: f64, hops: usize, inputs: u32, seed: u64) -> f64 {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let empty = 0.5 / hops as f64;
    let ratios = (0..inputs).map(|input| {
        let circuits = circuits(gamma, hops, input, &mut random);
        prescient(&circuits, hops) / admitted(&circuits, hops, empty, gamma)
    });
    ratios.fold(1.0, f64::max)
}

/// One input. Of four, one is random. The others fill all links at ever better offers, and stop
/// anywhere: with circuits over all links, with circuits over one, or with the poor ones over all
/// and the last, rich ones over one each.
fn circuits(gamma: f64, hops: usize, input: u32, random: &mut Pcg64Mcg) -> Vec<Circuit> {
    let most = 1.0 / libm::log2(gamma);
    let beta = gamma / (2.0 * hops as f64);
    let share = most * random.random_range(0.3..=1.0);
    let mut circuits = Vec::new();
    if input.is_multiple_of(4) {
        for _ in 0..random.random_range(1..200) {
            let first = random.random_range(0..hops);
            let links = (first, random.random_range(first + 1..=hops));
            let share = most * random.random_range(0.01..=1.0);
            let benefit = libm::pow(beta, random.random());
            circuits.push(Circuit {
                links,
                share,
                benefit,
            });
        }
        return circuits;
    }
    let steps = random.random_range(1..=8);
    let last = random.random_range(0..=steps);
    for step in 0..=last {
        let benefit = libm::pow(beta, f64::from(step) / f64::from(steps));
        let whole = match input % 4 {
            1 => true,
            2 => false,
            _ => step < last,
        };
        for _ in 0..(1.0 / share) as usize + 1 {
            if whole {
                circuits.push(Circuit {
                    links: (0, hops),
                    share,
                    benefit,
                });
                continue;
            }
            circuits.extend((0..hops).map(|hop| Circuit {
                links: (hop, hop + 1),
                share,
                benefit,
            }));
        }
    }
    circuits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_admitted_is_within_the_bound_of_the_best() {
        for hops in [1, 2, 5] {
            for base in [8.0, 16.0, 64.0, 256.0, 1024.0] {
                let gamma = base * hops as f64;
                let worst = worst_ratio(gamma, hops, 10_000, 1);
                let bound = 1.0 + 2.0 * libm::log2(gamma);
                println!("{hops} links, gamma {gamma}: at worst {worst:.2}, bound {bound:.2}");
                assert!(worst <= bound);
                // The inputs do deceive.
                assert!(worst >= 0.4 * bound);
            }
        }
    }

    #[test]
    fn the_price_of_an_empty_link_must_be_below_the_least_benefit() {
        let gamma = 64.0;
        let bound = 1.0 + 2.0 * libm::log2(gamma);
        let poor = Circuit {
            links: (0, 1),
            share: 1e-3,
            benefit: 1.0,
        };
        let all = vec![poor; 1000];
        let ratio = |empty| prescient(&all, 1) / admitted(&all, 1, empty, gamma);
        assert!(ratio(1.0) > 10.0 * bound, "the paper's price");
        assert!(ratio(0.5) <= bound, "half of it");
    }

    #[test]
    fn the_prescient_bound_is_the_optimum_of_one_link() {
        let circuit = |share, benefit| Circuit {
            links: (0, 1),
            share,
            benefit,
        };
        let circuits = [circuit(0.5, 1.0), circuit(0.4, 8.0), circuit(0.4, 2.0)];
        assert!((prescient(&circuits, 1) - (0.4 * 8.0 + 0.4 * 2.0 + 0.2)).abs() < 1e-12);
    }

    #[test]
    fn the_prescient_bound_is_above_what_fits_on_a_path() {
        // Two short circuits for 3 each, or a long one for 5: the short ones are better.
        let circuit = |links, benefit| Circuit {
            links,
            share: 1.0,
            benefit,
        };
        let circuits = [
            circuit((0, 2), 5.0),
            circuit((0, 1), 3.0),
            circuit((1, 2), 3.0),
        ];
        let bound = prescient(&circuits, 2);
        assert!((6.0..=8.0).contains(&bound), "{bound}");
    }
}
