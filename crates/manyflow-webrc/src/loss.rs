//! LOSSP: the average loss event probability, through two filters (RFC 3738 section 3.2.2.1).
//!
//! Losses in WEBRC come in bursts, just after a wave was joined. So packets and loss events first
//! go into X and Y, from which a fraction G moves on at the end of each epoch (the time-based
//! filter). This fraction is averaged into Z, the inverse of the probability, with weight Delta for
//! each loss event (the loss-based filter).
//!
//! Each step divides X packets by Y + 1, as if they began and ended between loss events. But the
//! fraction that moves on is small, so 1 is counted again in each step: with Delta = 0.3, Z settles
//! at 0.84 times the packets between loss events if these are regular, as behind a full queue.
//! [`LossFilter::Balanced`] divides by Y, and settles at that number.
//!
//! At the end of start-up, Z is set to the value for which the equation gives the present rate.
//! That is no measurement: under a queue that others have filled, the end comes at a fraction of
//! the fair rate. But Z gives it up only by the factor 1 - Delta for each loss event, and beside a
//! TCP these take seconds. [`LossFilter::Measured`] also averages without this value: its weight in
//! Z is known, (1 - Delta) to the number of loss events since. The larger of the two averages
//! counts, so the receiver rises as a TCP does that has left slow start too early.

/// The rule by which loss events and packets are averaged into Z.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossFilter {
    /// RFC 3738 section 3.2.2.1. Overestimates the probability of regular losses by a fifth.
    #[default]
    Rfc,
    /// Neither in the RFC nor in the paper: the limit of the loss-based filter if loss events come
    /// evenly among the packets. Underestimates the probability of independent losses by up to 4 %.
    Balanced,
    /// Neither in the RFC nor in the paper: as [`Balanced`](LossFilter::Balanced), but the value
    /// that Z has at the end of start-up does not hold the measured intervals down.
    Measured,
}

/// The weight below which the value that ended start-up no longer matters.
const FIRST_WEIGHT_MIN: f64 = 0.001;

/// The smoothing constants of the two filters.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct LossConfig {
    /// The rule of the filters.
    pub filter: LossFilter,
    /// Nu of the time-based filter, in (0, 1). It spreads losses over TSD / Nu seconds.
    pub nu: f64,
    /// Delta of the loss-based filter, in (0, 1): the weight of one loss event.
    pub delta: f64,
}

impl Default for LossConfig {
    /// Returns the values of RFC 3738 section 3.2.2.1.
    fn default() -> LossConfig {
        LossConfig {
            filter: LossFilter::Rfc,
            nu: 0.3,
            delta: 0.3,
        }
    }
}

impl LossConfig {
    /// The new Z after `events` loss events (Y) among `packets` (X): Z (1-Delta)^Y + X/(Y+1) (1 -
    /// (1-Delta)^(Y+1)), or, balanced, Z (1-Delta)^Y + X/Y (1 - (1-Delta)^Y).
    fn filtered(&self, z: f64, packets: f64, events: f64) -> f64 {
        let keep = 1.0 - self.delta;
        let kept = libm::pow(keep, events);
        let added = match self.filter {
            LossFilter::Rfc => packets / (events + 1.0) * (1.0 - keep * kept),
            _ if events > f64::EPSILON => packets / events * (1.0 - kept),
            // The limit as events approach 0.
            LossFilter::Balanced | LossFilter::Measured => packets * -libm::log(keep),
        };
        z * kept + added
    }
}

/// The estimator. Its fields have the RFC's names.
#[derive(Clone, Debug)]
pub(super) struct LossEstimator {
    /// Packets since the last loss event began.
    w: f64,
    /// Packets before the last loss event that are not yet filtered into Z.
    x: f64,
    /// Loss events that are not yet filtered into Z.
    y: f64,
    /// The long-term estimate of the inverse of the probability.
    z: f64,
    probability: f64,
    /// The value of Z at the end of start-up.
    first: f32,
    /// The weight that this value still has in Z: 1 at first.
    first_weight: f32,
}

impl LossEstimator {
    /// Makes an estimator that starts at a probability of 1.
    pub(super) fn new() -> LossEstimator {
        LossEstimator {
            w: 0.0,
            x: 0.0,
            y: 0.0,
            z: 1.0,
            probability: 1.0,
            first: 1.0,
            first_weight: 0.0,
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

    /// Ends an epoch of `epoch_slots` time slots (EL / TSD): moves a fraction of the recent history
    /// on, and computes LOSSP.
    pub(super) fn on_epoch(&mut self, config: &LossConfig, epoch_slots: f64) {
        let g = config.nu * epoch_slots;
        let g_events = g * self.y;
        self.z = config.filtered(self.z, g * self.x, g_events);
        self.x *= 1.0 - g;
        self.y *= 1.0 - g;
        if self.first_weight > 0.0 {
            self.first_weight *= libm::pow(1.0 - config.delta, g_events) as f32;
        }
        let as_it_is = self.interval(config, self.x, self.y);
        let if_the_next_were_lost = self.interval(config, self.x + self.w + 1.0, self.y + 1.0);
        self.probability = 1.0 / as_it_is.max(if_the_next_were_lost).max(1.0);
    }

    /// Returns the average number of packets between loss events, with `packets` and `events` that
    /// are not in Z yet.
    fn interval(&self, config: &LossConfig, packets: f64, events: f64) -> f64 {
        let average = config.filtered(self.z, packets, events);
        let weight = f64::from(self.first_weight);
        if config.filter != LossFilter::Measured || weight < FIRST_WEIGHT_MIN {
            return average;
        }
        let weight = weight * libm::pow(1.0 - config.delta, events);
        match weight < 1.0 {
            true => average.max((average - weight * f64::from(self.first)) / (1.0 - weight)),
            false => average,
        }
    }

    /// Forgets everything and takes the value `probability`, in (0, 1].
    pub(super) fn reset(&mut self, probability: f64) {
        (self.w, self.x, self.y) = (0.0, 0.0, 0.0);
        self.z = 1.0 / probability;
        self.probability = probability;
        self.first_weight = 0.0;
    }

    /// Does the same at the end of start-up: `probability` follows from the rate at that time, and
    /// is not measured.
    pub(super) fn reset_unmeasured(&mut self, probability: f64) {
        self.reset(probability);
        (self.first, self.first_weight) = (self.z as f32, 1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3738's recommended epoch, in time slots.
    const EPOCH: f64 = 0.05;

    /// Epochs of 20 packets, each `interval`th of them lost.
    fn run(estimator: &mut LossEstimator, config: &LossConfig, interval: u64, packets: u64) {
        for packet in 1..=packets {
            estimator.on_packets(1);
            if packet % interval == 0 {
                estimator.on_loss_event();
            }
            if packet % 20 == 0 {
                estimator.on_epoch(config, EPOCH);
            }
        }
    }

    #[test]
    fn steady_loss_is_found() {
        for interval in [10, 100, 1000] {
            let mut estimator = LossEstimator::new();
            estimator.reset(0.5);
            run(
                &mut estimator,
                &LossConfig::default(),
                interval,
                200 * interval,
            );
            let found = estimator.probability() * interval as f64;
            assert!(
                (0.7..1.4).contains(&found),
                "one in {interval}: off by a factor of {found}"
            );
        }
    }

    #[test]
    fn the_balanced_filter_settles_at_the_interval_of_regular_losses() {
        let settled = |filter| {
            let config = LossConfig {
                filter,
                ..LossConfig::default()
            };
            let mut estimator = LossEstimator::new();
            estimator.reset(0.5);
            run(&mut estimator, &config, 1000, 200_000);
            estimator.probability() * 1000.0
        };
        let balanced = settled(LossFilter::Balanced);
        assert!((balanced - 1.0).abs() < 0.02, "{balanced}");
        let rfc = settled(LossFilter::Rfc);
        assert!((1.15..1.25).contains(&rfc), "{rfc}");
    }

    #[test]
    fn the_value_that_ended_start_up_gives_way_to_measured_intervals() {
        // Start-up ended at a tenth of the true rate, so the probability seems 100 times as high.
        let after = |filter, events: u64, settled: bool| {
            let config = LossConfig {
                filter,
                ..LossConfig::default()
            };
            let mut estimator = LossEstimator::new();
            estimator.reset_unmeasured(0.1);
            run(&mut estimator, &config, 1000, 1000 * events);
            if settled {
                // Without packets, what has been counted moves on into Z.
                (0..2000).for_each(|_| estimator.on_epoch(&config, EPOCH));
            }
            estimator.probability() * 1000.0
        };
        let measured = after(LossFilter::Measured, 1, true);
        assert!((0.95..1.05).contains(&measured), "{measured}");
        let balanced = after(LossFilter::Balanced, 1, true);
        assert!(balanced > 3.0, "{balanced}");
        // In the end, both agree.
        for filter in [LossFilter::Measured, LossFilter::Balanced] {
            let last = after(filter, 200, false);
            assert!((last - 1.0).abs() < 0.02, "{filter:?}: {last}");
        }
    }

    #[test]
    fn short_measured_intervals_are_averaged_with_the_value_that_ended_start_up() {
        let config = |filter| LossConfig {
            filter,
            ..LossConfig::default()
        };
        let after = |filter| {
            let mut estimator = LossEstimator::new();
            estimator.reset_unmeasured(0.001);
            run(&mut estimator, &config(filter), 20, 100);
            estimator.probability()
        };
        assert_eq!(after(LossFilter::Measured), after(LossFilter::Balanced));
    }

    #[test]
    fn a_burst_of_events_is_spread_over_epochs() {
        let mut estimator = LossEstimator::new();
        estimator.reset(0.001);
        estimator.on_packets(100);
        estimator.on_loss_event();
        estimator.on_epoch(&LossConfig::default(), EPOCH);
        let at_once = estimator.probability();
        for _ in 0..200 {
            estimator.on_epoch(&LossConfig::default(), EPOCH);
        }
        assert!(estimator.z < 1000.0 && at_once > 0.001, "{at_once}");
    }

    #[test]
    fn a_reset_is_exact_and_lasts_through_epochs_without_packets() {
        let mut estimator = LossEstimator::new();
        estimator.reset(0.02);
        assert_eq!(estimator.probability(), 0.02);
        estimator.on_epoch(&LossConfig::default(), EPOCH);
        assert!((estimator.probability() - 0.02).abs() < 1e-12);
    }

    #[test]
    fn a_long_time_without_loss_lowers_the_estimate() {
        let mut estimator = LossEstimator::new();
        estimator.reset(0.02);
        estimator.on_packets(10_000);
        estimator.on_epoch(&LossConfig::default(), EPOCH);
        assert!(estimator.probability() < 0.001);
    }
}
