//! The average loss interval, and p (RFC 4654 sections 5.4 to 5.6).

/// n: the number of loss intervals that count (section 5.4).
const INTERVALS: usize = 8;
/// w_0 to w_(n-1) (section 5.4).
const WEIGHTS: [f64; INTERVALS] = [1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2];
/// THRESHOLD: the smallest discount factor (section 5.5).
const THRESHOLD: f64 = 0.5;

/// A closed interval between two loss events.
#[derive(Copy, Clone, Debug)]
struct Interval {
    /// I_i: the number of packets in the interval, at least 1.
    packets: f64,
    /// DF_i: the interval's discount factor, in (0, 1].
    discount: f64,
}

/// The most recent loss intervals.
#[derive(Debug)]
pub(super) struct Intervals {
    discounts: bool,
    /// I_1 to I_k, newest first.
    closed: [Interval; INTERVALS],
    /// k: the number of closed intervals, at most n.
    count: usize,
    /// The index of the synthetic interval before the first loss event, while it counts.
    seed: Option<usize>,
}

impl Intervals {
    /// A history without loss events. `discounts` says whether section 5.5 applies.
    pub(super) fn new(discounts: bool) -> Intervals {
        let none = Interval {
            packets: 1.0,
            discount: 1.0,
        };
        Intervals {
            discounts,
            closed: [none; INTERVALS],
            count: 0,
            seed: None,
        }
    }

    /// Whether there was a loss event.
    pub(super) fn has_any(&self) -> bool {
        self.count > 0
    }

    /// Takes l_0 as the interval before the first loss event (section 5.6).
    pub(super) fn seed(&mut self, packets: f64) {
        debug_assert!(!self.has_any(), "only the first loss event is seeded");
        self.close(packets);
        self.seed = Some(0);
    }

    /// Multiplies l_0 by a factor (section 5.6). Does nothing if l_0 no longer counts.
    pub(super) fn rescale_seed(&mut self, factor: f64) {
        if let Some(place) = self.seed {
            let packets = &mut self.closed[place].packets;
            *packets = (*packets * factor).max(1.0);
        }
    }

    /// Closes the open interval, which has this many packets (section 5.3).
    pub(super) fn close(&mut self, packets: f64) {
        let discount = self.general_discount(packets);
        for interval in &mut self.closed {
            interval.discount *= discount;
        }
        self.closed.rotate_right(1);
        self.closed[0] = Interval {
            packets: packets.max(1.0),
            discount: 1.0,
        };
        self.count = (self.count + 1).min(INTERVALS);
        self.seed = self.seed.map(|place| place + 1);
        self.seed = self.seed.filter(|place| *place < INTERVALS);
    }

    /// The loss event rate p in (0, 1], for an open interval I_0 of `open` packets (sections 5.4
    /// and 5.5). `None` before the first loss event.
    ///
    /// The open interval counts only if it lowers p. With fewer than n intervals, the average is
    /// taken over those (RFC 5348 section 5.4).
    pub(super) fn loss_event_rate(&self, open: f64) -> Option<f64> {
        if !self.has_any() {
            return None;
        }
        let discount = self.general_discount(open);
        let (mut packets_0, mut weight_0) = (open * WEIGHTS[0], WEIGHTS[0]);
        for (interval, weight) in self.closed[..self.count - 1].iter().zip(&WEIGHTS[1..]) {
            let weight = weight * interval.discount * discount;
            packets_0 += interval.packets * weight;
            weight_0 += weight;
        }
        let (packets_1, weight_1) = self.totals();
        let p = (weight_0 / packets_0).min(weight_1 / packets_1);
        debug_assert!(p > 0.0 && p <= 1.0, "p = {p}");
        Some(p)
    }

    /// I_tot1 and W_tot1: the weighted sums over the closed intervals.
    fn totals(&self) -> (f64, f64) {
        let closed = self.closed[..self.count].iter().zip(&WEIGHTS);
        closed.fold((0.0, 0.0), |(packets, weights), (interval, weight)| {
            let weight = weight * interval.discount;
            (packets + interval.packets * weight, weights + weight)
        })
    }

    /// DF: below 1 if the open interval exceeds twice the average of the closed ones (section 5.5).
    fn general_discount(&self, open: f64) -> f64 {
        if !self.discounts || !self.has_any() {
            return 1.0;
        }
        let (packets, weights) = self.totals();
        let mean = packets / weights;
        if open > 2.0 * mean {
            (2.0 * mean / open).max(THRESHOLD)
        } else {
            1.0
        }
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
    fn without_a_loss_event_there_is_no_rate() {
        assert_eq!(of(&[], true).loss_event_rate(1e9), None);
    }

    #[test]
    fn the_open_interval_counts_only_where_it_is_long() {
        let intervals = of(&[100.0; 8], false);
        assert!((mean(&intervals, 1.0) - 100.0).abs() < 1e-9);
        assert!((mean(&intervals, 100.0) - 100.0).abs() < 1e-9);
        // w_0 is a sixth of all weights.
        assert!((mean(&intervals, 700.0) - 200.0).abs() < 1e-9);
    }

    #[test]
    fn an_old_interval_leaves_by_degrees() {
        let mut intervals = of(&[1000.0], false);
        let mut means = Vec::new();
        for _ in 0..8 {
            intervals.close(100.0);
            means.push(mean(&intervals, 1.0));
        }
        assert!(means.windows(2).all(|pair| pair[1] < pair[0]), "{means:?}");
        assert!((means[7] - 100.0).abs() < 1e-9);
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
