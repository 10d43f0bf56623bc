//! ARTT: the average multicast round-trip time, with a weight that adjusts itself (RFC 3738 section 3.2.2.2).
//!
//! Measurements that agree are averaged in with a high weight, measurements that scatter with a low one: the number of
//! measurements for a good mean grows with variance over squared mean.

/// The average of the multicast round-trip times that a receiver measured, in seconds.
#[derive(Clone, Debug)]
pub(super) struct AverageRtt {
    alpha: f64,
    /// P: no measurement lowers the average by more than this factor.
    lowest_factor: f64,
    average_s: f64,
    /// V: the average of the squares.
    square_s2: f64,
    measurements: u32,
}

impl AverageRtt {
    /// Starts from the base channel's measurement, with the smoothing constant `alpha` and the session's P.
    pub(super) fn new(alpha: f64, decrease: f64, first_s: f64) -> AverageRtt {
        AverageRtt {
            alpha,
            lowest_factor: decrease,
            average_s: first_s,
            square_s2: first_s * first_s,
            measurements: 0,
        }
    }

    /// ARTT in seconds; always positive.
    pub(super) fn average_s(&self) -> f64 {
        self.average_s
    }

    /// V / ARTT in seconds: what the join time-out goes by (section 3.2.3.7).
    pub(super) fn spread_s(&self) -> f64 {
        self.square_s2 / self.average_s
    }

    /// Averages a wave's measurement in. It may be negative, from the correction for the spacing of packets.
    pub(super) fn on_sample(&mut self, sample_s: f64) {
        self.measurements += 1;
        let omega = (self.alpha * self.average_s * self.average_s / self.square_s2).min(1.0);
        let rho = omega / (1.0 - libm::pow(1.0 - omega, f64::from(self.measurements) + 1.0));
        self.square_s2 += rho * (sample_s * sample_s - self.square_s2);
        let filtered = self.average_s + rho * (sample_s - self.average_s);
        self.average_s = filtered.max(self.lowest_factor * self.average_s);
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

    #[test]
    fn negative_measurements_cannot_make_it_negative() {
        let mut rtt = AverageRtt::new(0.25, 0.75, 0.1);
        (0..1000).for_each(|_| rtt.on_sample(-5.0));
        assert!(rtt.average_s() > 0.0);
    }
}
