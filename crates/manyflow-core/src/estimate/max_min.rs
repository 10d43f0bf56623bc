//! Max-min fair shares of one resource (Bertsekas and Gallager, "Data Networks", section 6.5.2).

/// Returns the share of `capacity` that each of `demands` gets, in the same order and unit; no
/// number is negative. No share exceeds its demand, and no share could grow without reducing one
/// that is not larger. Capacity that no demand asks for is left over.
pub fn max_min(capacity: f64, demands: &[f64]) -> Vec<f64> {
    let level = level(capacity, demands);
    demands.iter().map(|demand| demand.min(level)).collect()
}

/// Returns the largest share that any demand gets; infinity if all demands are met.
fn level(capacity: f64, demands: &[f64]) -> f64 {
    let mut ascending = demands.to_vec();
    ascending.sort_by(f64::total_cmp);
    let mut left = capacity;
    for (met, demand) in ascending.iter().enumerate() {
        let equal = left / (ascending.len() - met) as f64;
        if *demand > equal {
            return equal;
        }
        left -= demand;
    }
    f64::INFINITY
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_demands_are_met_and_large_ones_share_what_is_left() {
        assert_eq!(max_min(10.0, &[8.0, 2.0, 9.0]), [4.0, 2.0, 4.0]);
        assert_eq!(max_min(10.0, &[4.0, 1.0]), [4.0, 1.0]);
        assert_eq!(max_min(9.0, &[f64::INFINITY; 3]), [3.0; 3]);
        assert_eq!(max_min(0.0, &[1.0, 2.0]), [0.0, 0.0]);
        assert!(max_min(1.0, &[]).is_empty());
    }

    proptest! {
        #[test]
        fn the_shares_use_the_capacity_or_meet_all_demands(
            capacity in 0.0..100.0f64,
            demands in proptest::collection::vec(0.0..50.0f64, 1..20),
        ) {
            let shares = max_min(capacity, &demands);
            let total: f64 = shares.iter().sum();
            let wanted: f64 = demands.iter().sum();
            prop_assert!((total - capacity.min(wanted)).abs() < 1e-9);
            let most = shares.iter().copied().fold(0.0, f64::max);
            for (share, demand) in shares.iter().zip(&demands) {
                prop_assert!(share == demand || (share - most).abs() < 1e-9);
            }
        }
    }
}
