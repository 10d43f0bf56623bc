//! Random early detection: drops or marks before the queue is full, the more the longer it is on average (Floyd and
//! Jacobson, "Random Early Detection Gateways for Congestion Avoidance", 1993).

use core::time::Duration;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::RedConfig;
use crate::units::Rate;

/// The state of a RED queue.
#[derive(Clone, Debug)]
pub(super) struct Red {
    config: RedConfig,
    /// avg, in packets.
    average: f64,
    /// count: packets since the last one dropped or marked; `None` while the average is below the minimum.
    since_last: Option<u32>,
}

/// What RED says of a packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Accept,
    /// Mark it if it can be marked, or drop it.
    Congested,
    /// Drop it, whatever it says.
    Drop,
}

impl Red {
    pub(super) fn new(config: RedConfig) -> Red {
        Red {
            config,
            average: 0.0,
            since_last: None,
        }
    }

    pub(super) fn marks(&self) -> bool {
        self.config.ecn
    }

    /// Judges a packet that finds `queued` packets before it; `idle` is for how long the queue has been empty.
    pub(super) fn judge(
        &mut self,
        queued: usize,
        idle: Option<Duration>,
        rate: Option<Rate>,
        random: &mut Pcg64Mcg,
    ) -> Verdict {
        self.update(queued, idle, rate);
        let RedConfig {
            minimum_packets: low,
            maximum_packets: high,
            maximum_probability: most,
            ..
        } = self.config;
        if self.average < low {
            self.since_last = None;
            return Verdict::Accept;
        }
        if self.average >= 2.0 * high {
            self.since_last = Some(0);
            return Verdict::Drop;
        }
        let count = self.since_last.map_or(0, |count| count + 1);
        let base = if self.average < high {
            most * (self.average - low) / (high - low)
        } else {
            most + (1.0 - most) * (self.average - high) / high
        };
        // Spaced evenly, instead of at random (section 7 of the paper).
        let probability = base / (1.0 - f64::from(count) * base).max(base);
        let is_hit = random.random::<f64>() < probability;
        self.since_last = Some(if is_hit { 0 } else { count });
        match is_hit {
            true if self.average < high => Verdict::Congested,
            true => Verdict::Drop,
            false => Verdict::Accept,
        }
    }

    fn update(&mut self, queued: usize, idle: Option<Duration>, rate: Option<Rate>) {
        let weight = self.config.weight;
        match (idle, rate) {
            (Some(idle), Some(rate)) => {
                let packets =
                    idle.as_secs_f64() * rate.packets_per_s(self.config.mean_packet_bytes);
                self.average *= libm::pow(1.0 - weight, packets);
            }
            _ => self.average += weight * (queued as f64 - self.average),
        }
    }
}
