//! The weighted average over the last eight loss intervals, and the loss event rate p (RFC 5348
//! sections 5.4 and 5.5 for TFRC, and RFC 4654 sections 5.4 and 5.5 for TFMCC).

/// n: the number of loss intervals that count (section 5.4).
const INTERVALS: usize = 8;
/// w_0 to w_(n-1) (section 5.4).
const WEIGHTS: [f64; INTERVALS] = [1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2];
/// THRESHOLD of TFRC: the smallest discount factor, as recommended (section 5.5).
pub const TFRC_DISCOUNT_MIN: f64 = 0.25;

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
pub struct LossIntervals {
    /// THRESHOLD; 1 without discounts.
    discount_min: f64,
    /// I_1 to I_k, newest first.
    closed: [Interval; INTERVALS],
    /// k: the number of closed intervals, at most n.
    count: usize,
}

impl LossIntervals {
    /// Returns a history without loss events. During a long interval without losses, older ones
    /// lose weight, down to this share of it (section 5.5): more than 0, and at most 1.
    pub fn new(discount_min: f64) -> LossIntervals {
        debug_assert!(discount_min > 0.0 && discount_min <= 1.0);
        let none = Interval {
            packets: 1.0,
            discount: 1.0,
        };
        LossIntervals {
            discount_min,
            closed: [none; INTERVALS],
            count: 0,
        }
    }

    /// Closes the open interval, which has this many packets (section 5.3). Fewer than one packet
    /// count as one. For the interval before the first loss event, `packets` should follow from
    /// the rate that was received (section 6.3.1).
    pub fn close(&mut self, packets: f64) {
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
    }

    /// Returns the number of closed intervals that count.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Multiplies a closed interval by a factor; 0 is the newest. It has at least one packet
    /// afterwards. Does nothing if the interval no longer counts.
    pub fn scale(&mut self, number: usize, factor: f64) {
        if let Some(interval) = self.closed[..self.count].get_mut(number) {
            interval.packets = (interval.packets * factor).max(1.0);
        }
    }

    /// Returns the loss event rate p in (0, 1], if the open interval I_0 has `open` packets
    /// (sections 5.4 and 5.5). Returns `None` before the first interval is closed.
    ///
    /// The open interval counts only if it lowers p. With fewer than n intervals, the average is
    /// taken over those.
    pub fn loss_event_rate(&self, open: f64) -> Option<f64> {
        if self.count == 0 {
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

    /// Returns I_tot1 and W_tot1, the weighted sums over the closed intervals.
    fn totals(&self) -> (f64, f64) {
        let closed = self.closed[..self.count].iter().zip(&WEIGHTS);
        closed.fold((0.0, 0.0), |(packets, weights), (interval, weight)| {
            let weight = weight * interval.discount;
            (packets + interval.packets * weight, weights + weight)
        })
    }

    /// Returns DF: below 1 if the open interval exceeds twice the average of the closed ones
    /// (section 5.5).
    fn general_discount(&self, open: f64) -> f64 {
        if self.count == 0 {
            return 1.0;
        }
        let (packets, weights) = self.totals();
        let mean = packets / weights;
        if open > 2.0 * mean {
            (2.0 * mean / open).max(self.discount_min)
        } else {
            1.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(closed: &[f64], discounts: bool) -> LossIntervals {
        let discount_min = if discounts { TFRC_DISCOUNT_MIN } else { 1.0 };
        let mut intervals = LossIntervals::new(discount_min);
        closed.iter().for_each(|packets| intervals.close(*packets));
        intervals
    }

    fn mean(intervals: &LossIntervals, open: f64) -> f64 {
        1.0 / intervals.loss_event_rate(open).unwrap()
    }

    #[test]
    fn without_a_loss_event_there_is_no_rate() {
        assert_eq!(of(&[], true).loss_event_rate(1e9), None);
    }

    #[test]
    fn the_open_interval_counts_only_if_it_is_long() {
        let intervals = of(&[100.0; 8], false);
        assert!((mean(&intervals, 1.0) - 100.0).abs() < 1e-9);
        assert!((mean(&intervals, 100.0) - 100.0).abs() < 1e-9);
        // w_0 is a sixth of all weights.
        assert!((mean(&intervals, 700.0) - 200.0).abs() < 1e-9);
    }

    #[test]
    fn an_old_interval_loses_its_weight_gradually() {
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
    fn a_long_time_without_loss_discounts_the_closed_intervals() {
        let (with, without) = (of(&[100.0; 8], true), of(&[100.0; 8], false));
        assert!((mean(&with, 150.0) - mean(&without, 150.0)).abs() < 1e-9);
        let open = 1000.0;
        assert!(mean(&with, open) > 1.3 * mean(&without, open));
        // The weights fall to a quarter at least: (1000 + 100 * 5 / 4) / (1 + 5 / 4).
        assert!((mean(&with, open) - 1125.0 / 2.25).abs() < 1e-9);
    }

    #[test]
    fn a_discount_is_permanent_for_the_intervals_that_were_closed_before() {
        let mut intervals = of(&[100.0; 8], true);
        intervals.close(1000.0);
        // The newest has weight 1, the others a quarter of theirs.
        let expected = (1000.0 + 100.0 * 1.25) / 2.25;
        assert!((mean(&intervals, 1.0) - expected).abs() < 1e-9);
    }

    #[test]
    fn p_is_at_most_one() {
        assert_eq!(of(&[0.0; 8], true).loss_event_rate(0.0), Some(1.0));
    }

    #[test]
    fn a_scaled_interval_keeps_its_place() {
        let mut intervals = of(&[400.0], false);
        intervals.scale(0, 0.25);
        intervals.scale(1, 9.0);
        assert_eq!(mean(&intervals, 1.0), 100.0);
        intervals.scale(0, 1e-9);
        assert_eq!(mean(&intervals, 1.0), 1.0);
    }
}
