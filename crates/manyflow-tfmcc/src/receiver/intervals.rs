//! The average loss interval, and p (RFC 4654 sections 5.4 to 5.6).

use manyflow_core::estimate::loss_intervals::LossIntervals;

/// THRESHOLD: the smallest discount factor (section 5.5).
const DISCOUNT_MIN: f64 = 0.5;

/// The most recent loss intervals.
#[derive(Debug)]
pub(super) struct Intervals {
    history: LossIntervals,
    /// The number of the synthetic interval before the first loss event, while it counts.
    seed: Option<usize>,
}

impl Intervals {
    /// A history without loss events. `discounts` says whether section 5.5 applies.
    pub(super) fn new(discounts: bool) -> Intervals {
        let discount_min = if discounts { DISCOUNT_MIN } else { 1.0 };
        Intervals {
            history: LossIntervals::new(discount_min),
            seed: None,
        }
    }

    /// Whether there was a loss event.
    pub(super) fn has_any(&self) -> bool {
        self.history.count() > 0
    }

    /// Takes l_0 as the interval before the first loss event (section 5.6).
    pub(super) fn seed(&mut self, packets: f64) {
        debug_assert!(!self.has_any(), "only the first loss event is seeded");
        self.close(packets);
        self.seed = Some(0);
    }

    /// Multiplies l_0 by a factor (section 5.6). Does nothing if l_0 no longer counts.
    pub(super) fn rescale_seed(&mut self, factor: f64) {
        if let Some(number) = self.seed {
            self.history.scale(number, factor);
        }
    }

    /// Closes the open interval, which has this many packets (section 5.3).
    pub(super) fn close(&mut self, packets: f64) {
        self.history.close(packets);
        let number = self.seed.map(|number| number + 1);
        self.seed = number.filter(|number| *number < self.history.count());
    }

    /// The loss event rate p in (0, 1], for an open interval I_0 of `open` packets (sections 5.4
    /// and 5.5). `None` before the first loss event.
    ///
    /// The open interval counts only if it lowers p. With fewer than eight intervals, the average
    /// is taken over those (RFC 5348 section 5.4).
    pub(super) fn loss_event_rate(&self, open: f64) -> Option<f64> {
        self.history.loss_event_rate(open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(closed: &[f64], discounts: bool) -> Intervals {
        let mut intervals = Intervals::new(discounts);
        closed.iter().for_each(|packets| intervals.close(*packets));
        intervals
    }

    fn mean(intervals: &Intervals, open: f64) -> f64 {
        1.0 / intervals.loss_event_rate(open).unwrap()
    }

    #[test]
    fn a_long_time_without_loss_takes_weight_from_what_was_before() {
        let (with, without) = (of(&[100.0; 8], true), of(&[100.0; 8], false));
        assert!((mean(&with, 150.0) - mean(&without, 150.0)).abs() < 1e-9);
        let open = 1000.0;
        assert!(mean(&with, open) > 1.3 * mean(&without, open));
        // At most half of the weight goes: (1000 + 100 * 5 / 2) / (1 + 5 / 2).
        assert!((mean(&with, open) - 1250.0 / 3.5).abs() < 1e-9);
    }

    #[test]
    fn a_discount_stays_with_the_intervals_that_it_was_given_to() {
        let mut intervals = of(&[100.0; 8], true);
        intervals.close(1000.0);
        // The newest has weight 1, the others what is left of theirs: half.
        let expected = (1000.0 + 100.0 * 2.5) / 3.5;
        assert!((mean(&intervals, 1.0) - expected).abs() < 1e-9);
    }

    #[test]
    fn the_seed_is_rescaled_while_it_counts() {
        let mut intervals = Intervals::new(false);
        intervals.seed(400.0);
        intervals.rescale_seed(0.25);
        assert_eq!(mean(&intervals, 1.0), 100.0);
        (0..8).for_each(|_| intervals.close(50.0));
        intervals.rescale_seed(1e-9);
        assert!((mean(&intervals, 1.0) - 50.0).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn p_is_a_probability_between_the_shortest_and_the_longest_interval(
            closed in prop::collection::vec(0.0..1e9f64, 1..20), open in 1.0..1e9f64, discounts: bool,
        ) {
            let intervals = of(&closed, discounts);
            let p = intervals.loss_event_rate(open).unwrap();
            let last = closed.iter().rev().take(8).map(|packets| packets.max(1.0));
            let (low, high) = last.chain([open]).fold((f64::MAX, 0.0f64), |(low, high), packets| {
                (low.min(packets), high.max(packets))
            });
            prop_assert!(p <= 1.0 && p * low <= 1.0 + 1e-9 && p * high >= 1.0 - 1e-9, "{p}");
        }
    }
}
