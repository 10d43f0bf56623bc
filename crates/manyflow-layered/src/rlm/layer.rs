//! The state of one group at a receiver, and the estimate of the time from a join to its effect.

use core::time::Duration;

use super::ReceiverConfig;
use manyflow_core::time::{Time, seconds};

/// The lower bound of T_D: a timer that expires at once would expire forever.
const DETECTION_TIME_MIN: Duration = Duration::from_millis(1);

/// One group, joined or not.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    /// T_J's interval. The receiver waits for 1.4 times this on average before it adds the group.
    pub(super) join_interval: Duration,
    /// When this receiver started its last experiment with the group.
    pub(super) added: Option<Time>,
    /// When the last experiment with the group began, of this receiver or of another.
    pub(super) announced: Option<Time>,
    /// The number after the highest that has arrived since the join; `None` before the first
    /// packet.
    expected: Option<u32>,
}

impl Layer {
    pub(super) fn new(config: &ReceiverConfig) -> Layer {
        Layer {
            join_interval: config.join_timer_min,
            added: None,
            announced: None,
            expected: None,
        }
    }

    /// Returns whether a packet has arrived since the group was joined.
    pub(super) fn arrives(&self) -> bool {
        self.expected.is_some()
    }

    pub(super) fn on_join(&mut self) {
        self.expected = None;
    }

    /// Handles the number of a packet. Returns how many packets are missing before it, or `None` if
    /// the packet is late or a duplicate.
    pub(super) fn on_packet(&mut self, sequence: u32) -> Option<u32> {
        let missing = sequence.wrapping_sub(self.expected.unwrap_or(sequence));
        // A number that is half of all numbers ahead, or more, is behind.
        let ahead = missing < 1 << 31;
        ahead.then(|| {
            self.expected = Some(sequence.wrapping_add(1));
            missing
        })
    }

    /// Lengthens T_J to alpha T_J, after a failed experiment.
    pub(super) fn back_off(&mut self, config: &ReceiverConfig) {
        let longer = self.join_interval.mul_f64(config.backoff);
        self.join_interval = longer.min(config.join_timer_max);
    }

    /// Shortens T_J to beta T_J, after T_D without loss.
    pub(super) fn relax(&mut self, config: &ReceiverConfig) {
        let shorter = self.join_interval.mul_f64(config.relaxation);
        self.join_interval = shorter.max(config.join_timer_min);
    }
}

/// The estimate of the time from the start of an experiment to its first loss.
#[derive(Clone, Debug)]
pub(super) struct Detection {
    mean_s: f64,
    deviation_s: f64,
}

impl Detection {
    pub(super) fn new(config: &ReceiverConfig) -> Detection {
        Detection {
            mean_s: config.detection_time.as_secs_f64(),
            deviation_s: config.detection_deviation.as_secs_f64(),
        }
    }

    /// Returns T_D = k1 D + k2 sigma.
    pub(super) fn time(&self, config: &ReceiverConfig) -> Duration {
        let time_s = config.k1 * self.mean_s + config.k2 * self.deviation_s;
        seconds(time_s).max(DETECTION_TIME_MIN)
    }

    /// Adds the time after which an experiment failed to the estimate.
    pub(super) fn on_failure(&mut self, after: Duration, config: &ReceiverConfig) {
        let error_s = after.as_secs_f64() - self.mean_s;
        self.mean_s += config.g1 * error_s;
        self.deviation_s += config.g2 * (error_s.abs() - self.deviation_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_counted_across_the_wrap_and_late_packets_are_not() {
        let mut layer = Layer::new(&ReceiverConfig::default());
        let numbers = [u32::MAX - 2, u32::MAX - 1, 1, 0, 1, 2];
        let missing = numbers.map(|number| layer.on_packet(number));
        assert_eq!(missing, [Some(0), Some(0), Some(2), None, None, Some(0)]);
        layer.on_join();
        assert_eq!((layer.arrives(), layer.on_packet(900)), (false, Some(0)));
    }

    #[test]
    fn the_join_interval_stays_within_its_bounds() {
        let config = ReceiverConfig::default();
        let mut layer = Layer::new(&config);
        let intervals = [(); 8].map(|()| {
            layer.back_off(&config);
            layer.join_interval.as_secs()
        });
        assert_eq!(intervals, [10, 20, 40, 80, 160, 320, 600, 600]);
        layer.relax(&config);
        assert!((layer.join_interval.as_secs_f64() - 400.0).abs() < 1e-6);
        for _ in 0..20 {
            layer.relax(&config);
        }
        assert_eq!(layer.join_interval, config.join_timer_min);
    }

    #[test]
    fn the_detection_time_follows_the_measurements() {
        let config = ReceiverConfig::default();
        let mut detection = Detection::new(&config);
        assert_eq!(detection.time(&config), Duration::from_secs(9));
        // D = 5 + (1 - 5) / 4 = 4, sigma = 2 + (4 - 2) / 4 = 2.5.
        detection.on_failure(Duration::from_secs(1), &config);
        assert_eq!(detection.time(&config), Duration::from_secs(9));
        for _ in 0..60 {
            detection.on_failure(Duration::from_secs(1), &config);
        }
        assert!((detection.time(&config).as_secs_f64() - 1.0).abs() < 0.01);
    }
}
