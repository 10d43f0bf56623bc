//! ARTT: the average multicast round-trip time, with a weight that adjusts itself (RFC 3738 section
//! 3.2.2.2).
//!
//! Measurements that agree get a high weight, and measurements that scatter a low one: the number
//! of measurements for a good mean grows with the variance over the squared mean.
//!
//! The option [`RttRule::Spacing`] uses what is known about each measurement instead. The time from
//! join to first packet contains a wait for the wave's next packet: up to one spacing, and one
//! spacing more for each lost packet. The spacing follows from the packet's number. Half of it,
//! plus the expected losses, is subtracted, and a measurement has a low weight if the spacing is
//! long compared to the round trip. So the base channel's first measurement, which waits for up to
//! a second, is forgotten after a few joins instead of hundreds. The time from a join to its first
//! packet, without corrections, is never less than the round trip, so the average falls to this
//! time at once, not by the factor P.

/// The rule for averaging the round-trip time.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RttRule {
    /// RFC 3738 section 3.2.2.2: subtracts half a spacing of NWC waves, and weighs by the scatter
    /// of all measurements.
    #[default]
    Rfc,
    /// Neither in the RFC nor in the paper: subtracts half the spacing of the wave at this packet
    /// and the wait after losses, and weighs by that spacing.
    Spacing,
}

/// The average of a receiver's multicast round-trip times, in seconds.
#[derive(Clone, Debug)]
pub(super) struct AverageRtt {
    alpha: f64,
    /// P: no measurement lowers the average by more than this factor.
    lowest_factor: f64,
    average_s: f64,
    /// V: the average of the squares.
    square_s2: f64,
    measurements: u32,
    /// The sum of the weights under [`RttRule::Spacing`], which fades with `alpha`.
    weights: f64,
}

impl AverageRtt {
    /// Starts with the base channel's measurement, the smoothing constant `alpha` and the session's
    /// P.
    pub(super) fn new(alpha: f64, decrease: f64, first_s: f64) -> AverageRtt {
        AverageRtt {
            alpha,
            lowest_factor: decrease,
            average_s: first_s,
            square_s2: first_s * first_s,
            measurements: 0,
            weights: 0.0,
        }
    }

    /// Returns ARTT in seconds, which is always positive.
    pub(super) fn average_s(&self) -> f64 {
        self.average_s
    }

    /// Returns V / ARTT in seconds, from which the join time-out is computed (section 3.2.3.7).
    pub(super) fn spread_s(&self) -> f64 {
        self.square_s2 / self.average_s
    }

    /// Averages in a wave's measurement. The correction for the spacing of packets can make it
    /// negative.
    pub(super) fn on_sample(&mut self, sample_s: f64) {
        self.measurements += 1;
        let omega = (self.alpha * self.average_s * self.average_s / self.square_s2).min(1.0);
        let rho = omega / (1.0 - libm::pow(1.0 - omega, f64::from(self.measurements) + 1.0));
        let lowest_s = self.lowest_factor * self.average_s;
        self.average_in(sample_s, rho, lowest_s);
    }

    /// Averages in the time from join to first packet, `delay_s`, by [`RttRule::Spacing`]. The
    /// wave's packets are `spacing_s` apart, and the fraction `loss` of them is lost. The round
    /// trip took no longer than `longest_s`, which is above 0: the delay, and the host's own before
    /// it.
    /// Returns the corrected measurement.
    pub(super) fn on_delay(
        &mut self,
        delay_s: f64,
        spacing_s: f64,
        loss: f64,
        longest_s: f64,
    ) -> f64 {
        debug_assert!(
            longest_s > 0.0 && longest_s >= delay_s,
            "the host's delay is part of it"
        );
        let wait_s = spacing_s * (0.5 + loss / (1.0 - loss).max(0.1));
        let square_s2 = self.average_s * self.average_s;
        let weight = square_s2 / (square_s2 + spacing_s * spacing_s);
        let weights = self.weights + weight * (1.0 - self.alpha * self.weights);
        let lowest_s = longest_s.min(self.lowest_factor * self.average_s);
        let wanted_s = self.average_in(delay_s - wait_s, weight / weights, lowest_s);
        if wanted_s >= self.average_s {
            // A measurement that was cut by the limit on falls is not yet averaged in.
            self.weights = weights;
        }
        delay_s - wait_s
    }

    /// Averages in `sample_s` with weight `rho`; the average falls to `lowest_s` at the most.
    /// Returns the average without this limit.
    fn average_in(&mut self, sample_s: f64, rho: f64, lowest_s: f64) -> f64 {
        self.square_s2 += rho * (sample_s * sample_s - self.square_s2);
        let filtered = self.average_s + rho * (sample_s - self.average_s);
        self.average_s = filtered.max(lowest_s);
        filtered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agreeing_measurements_are_followed_quickly() {
        let mut rtt = AverageRtt::new(0.25, 0.75, 1.0);
        (0..12).for_each(|_| rtt.on_sample(0.2));
        assert!((rtt.average_s() - 0.2).abs() < 0.05, "{}", rtt.average_s());
    }

    #[test]
    fn scattered_measurements_weigh_less() {
        let weight = |samples: [f64; 2]| {
            let mut rtt = AverageRtt::new(0.25, 0.75, 1.0);
            (0..40).for_each(|i| rtt.on_sample(samples[i % 2]));
            let before = rtt.average_s();
            rtt.on_sample(before + 1.0);
            rtt.average_s() - before
        };
        assert!(weight([0.1, 1.9]) < 0.75 * weight([1.0, 1.0]));
    }

    /// Joins waves whose first packet comes after a wait of 0, 1/4, 1/2 or 3/4 of a spacing.
    fn joins(rtt: &mut AverageRtt, joins: u32, round_trip_s: f64, spacing_s: f64) {
        for join in 0..joins {
            let wait_s = spacing_s * (0.125 + f64::from(join * 3 % 4) / 4.0);
            let delay_s = round_trip_s + wait_s;
            rtt.on_delay(delay_s, spacing_s, 0.0, delay_s);
        }
    }

    #[test]
    fn the_spacing_rule_forgets_the_base_channel_after_a_few_joins() {
        let mut by_rfc = AverageRtt::new(0.25, 0.75, 1.0);
        (0..40).for_each(|_| by_rfc.on_sample(0.0125));
        let mut by_spacing = AverageRtt::new(0.1, 0.75, 1.0);
        joins(&mut by_spacing, 40, 0.0125, 0.001);
        let error = |rtt: &AverageRtt| rtt.average_s() / 0.0125 - 1.0;
        assert!(error(&by_rfc) > 0.15, "{}", error(&by_rfc));
        assert!(error(&by_spacing).abs() < 0.05, "{}", error(&by_spacing));
    }

    #[test]
    fn the_spacing_rule_measures_round_trips_shorter_than_a_spacing() {
        let mut rtt = AverageRtt::new(0.1, 0.75, 0.1);
        joins(&mut rtt, 400, 0.0125, 0.03);
        assert!(
            (rtt.average_s() - 0.0125).abs() < 0.004,
            "{}",
            rtt.average_s()
        );
    }

    #[test]
    fn the_spacing_rule_allows_for_lost_first_packets() {
        let mut rtt = AverageRtt::new(0.1, 0.75, 0.1);
        // One first packet in five is lost: the second comes a spacing later.
        for join in 0..400 {
            let lost = if join % 5 == 0 { 0.02 } else { 0.0 };
            let delay_s = 0.1 + 0.01 + lost;
            rtt.on_delay(delay_s, 0.02, 0.2, delay_s);
        }
        assert!((rtt.average_s() - 0.1).abs() < 0.004, "{}", rtt.average_s());
    }

    #[test]
    fn the_spacing_rule_falls_to_the_time_of_a_join_at_once() {
        let mut rtt = AverageRtt::new(0.1, 0.75, 0.4);
        // A slow wave says little, but the round trip was no longer than this.
        rtt.on_delay(0.06, 0.7, 0.0, 0.06);
        assert_eq!(rtt.average_s(), 0.06);
        rtt.on_delay(0.021, 0.002, 0.0, 0.021);
        assert!(
            (rtt.average_s() - 0.02).abs() < 0.002,
            "{}",
            rtt.average_s()
        );
        // A host's delay that was subtracted in excess does not make it zero.
        rtt.on_delay(0.0, 0.002, 0.0, 0.008);
        assert!(rtt.average_s() > 0.007, "{}", rtt.average_s());
    }

    #[test]
    fn negative_measurements_cannot_make_it_negative() {
        let mut rtt = AverageRtt::new(0.25, 0.75, 0.1);
        (0..1000).for_each(|_| rtt.on_sample(-5.0));
        assert!(rtt.average_s() > 0.0);
    }
}
