//! LOSSP: the average loss event probability, through two filters (RFC 3738 section 3.2.2.1).
//!
//! Losses in WEBRC come in bursts, just after a wave was joined. So packets and loss events first
//! go into X and Y, from which a fraction G moves on at the end of each epoch (the time-based
//! filter). This fraction is averaged into Z, the inverse of the probability, with weight Delta for
//! each loss event (the loss-based filter).

/// The smoothing constants of the two filters.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct LossConfig {
    /// Nu of the time-based filter, in (0, 1). It spreads losses over TSD / Nu seconds.
    pub nu: f64,
    /// Delta of the loss-based filter, in (0, 1): the weight of one loss event.
    pub delta: f64,
}

impl Default for LossConfig {
    /// Returns the values of RFC 3738 section 3.2.2.1.
    fn default() -> LossConfig {
        LossConfig {
            nu: 0.3,
            delta: 0.3,
        }
    }
}

/// The estimator. Its fields have the RFC's names.
#[derive(Clone, Debug)]
pub(super) struct LossEstimator {
    delta: f64,
    /// G = Nu EL / TSD.
    g: f64,
    /// Packets since the last loss event began.
    w: f64,
    /// Packets before the last loss event that are not yet filtered into Z.
    x: f64,
    /// Loss events that are not yet filtered into Z.
    y: f64,
    /// The long-term estimate of the inverse of the probability.
    z: f64,
    probability: f64,
}

impl LossEstimator {
    /// Makes an estimator for epochs of `epoch_slots` time slots (EL / TSD). It starts at a
    /// probability of 1.
    pub(super) fn new(config: LossConfig, epoch_slots: f64) -> LossEstimator {
        LossEstimator {
            delta: config.delta,
            g: config.nu * epoch_slots,
            w: 0.0,
            x: 0.0,
            y: 0.0,
            z: 1.0,
            probability: 1.0,
        }
    }

    /// Returns LOSSP as of the end of the last epoch or reset.
    pub(super) fn probability(&self) -> f64 {
        self.probability
    }

    /// Counts `packets` that were received or lost.
    pub(super) fn on_packets(&mut self, packets: u64) {
        self.w += packets as f64;
    }

    /// Counts the beginning of a loss event.
    pub(super) fn on_loss_event(&mut self) {
        self.x += self.w;
        self.w = 0.0;
        self.y += 1.0;
    }

    /// Ends an epoch: moves a fraction of the recent history on, and computes LOSSP.
    pub(super) fn on_epoch(&mut self) {
        self.z = self.filtered(self.g * self.x, self.g * self.y);
        self.x *= 1.0 - self.g;
        self.y *= 1.0 - self.g;
        let as_it_is = self.filtered(self.x, self.y);
        let if_the_next_were_lost = self.filtered(self.x + self.w + 1.0, self.y + 1.0);
        self.probability = 1.0 / as_it_is.max(if_the_next_were_lost).max(1.0);
    }

    /// Forgets everything and takes the value `probability`, in (0, 1].
    pub(super) fn reset(&mut self, probability: f64) {
        (self.w, self.x, self.y) = (0.0, 0.0, 0.0);
        self.z = 1.0 / probability;
        self.probability = probability;
    }

    /// Z after `events` loss events among `packets`: Z (1-Delta)^Y + X/(Y+1) (1 - (1-Delta)^(Y+1)).
    fn filtered(&self, packets: f64, events: f64) -> f64 {
        let keep = 1.0 - self.delta;
        self.z * libm::pow(keep, events)
            + packets / (events + 1.0) * (1.0 - libm::pow(keep, events + 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Epochs of 20 packets, each `interval`th of them lost, with RFC 3738's recommended epoch.
    fn run(estimator: &mut LossEstimator, interval: u64, packets: u64) {
        for packet in 1..=packets {
            estimator.on_packets(1);
            if packet % interval == 0 {
                estimator.on_loss_event();
            }
            if packet % 20 == 0 {
                estimator.on_epoch();
            }
        }
    }

    #[test]
    fn steady_loss_is_found() {
        for interval in [10, 100, 1000] {
            let mut estimator = LossEstimator::new(LossConfig::default(), 0.05);
            estimator.reset(0.5);
            run(&mut estimator, interval, 200 * interval);
            let found = estimator.probability() * interval as f64;
            assert!(
                (0.7..1.4).contains(&found),
                "one in {interval}: off by a factor of {found}"
            );
        }
    }

    #[test]
    fn a_burst_of_events_is_spread_over_epochs() {
        let mut estimator = LossEstimator::new(LossConfig::default(), 0.05);
        estimator.reset(0.001);
        estimator.on_packets(100);
        estimator.on_loss_event();
        estimator.on_epoch();
        let at_once = estimator.probability();
        for _ in 0..200 {
            estimator.on_epoch();
        }
        assert!(estimator.z < 1000.0 && at_once > 0.001, "{at_once}");
    }

    #[test]
    fn a_reset_is_exact_and_lasts_through_epochs_without_packets() {
        let mut estimator = LossEstimator::new(LossConfig::default(), 0.05);
        estimator.reset(0.02);
        assert_eq!(estimator.probability(), 0.02);
        estimator.on_epoch();
        assert!((estimator.probability() - 0.02).abs() < 1e-12);
    }

    #[test]
    fn a_long_time_without_loss_lowers_the_estimate() {
        let mut estimator = LossEstimator::new(LossConfig::default(), 0.05);
        estimator.reset(0.02);
        estimator.on_packets(10_000);
        estimator.on_epoch();
        assert!(estimator.probability() < 0.001);
    }
}
