//! A receiver's own parameters (RFC 3738 section 3.2).

use core::time::Duration;

use crate::ConfigError;
use crate::units::Rate;
use crate::webrc::{LossConfig, RttRule, Session};

/// How a receiver behaves. The defaults are RFC 3738's.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceiverConfig {
    /// EL: the time between decisions to join. `None` takes TSD/20 (section 3.2.2.4).
    pub epoch: Option<Duration>,
    /// MRR_b: the highest rate that this receiver wants. `None` leaves it to the session.
    pub maximum_rate: Option<Rate>,
    /// The filters of LOSSP (section 3.2.2.1).
    pub loss: LossConfig,
    /// How the round-trip time is averaged.
    pub rtt_rule: RttRule,
    /// Alpha: the smoothing constant of ARTT, in (0, 1). `None` takes 0.25 (section 3.2.2.2), and 0.1 with [`RttRule::Spacing`], whose
    /// measurements scatter less: receivers behind one router then agree better.
    pub alpha: Option<f64>,
    /// The weights of the reception rates in start-up. `None` takes section 3.2.2.5's.
    pub start_up_weights: Option<Weights>,
    /// The weights of the reception rates in normal operation. `None` takes section 3.2.2.5's.
    pub normal_weights: Option<Weights>,
    /// SSMINR_P: the lowest slow start rate, in packets per second. `None` takes BCR_P (1 + 1/P + 1/P^2) (section 3.2.2.6).
    pub slow_start_minimum_packets_per_s: Option<f64>,
    /// How the target rate is computed.
    pub target_rule: TargetRule,
    /// In start-up, wait an epoch after the first packet of each wave, and end start-up where the rate has not followed
    /// the join (section 3.2.2.6, the optional rule).
    pub shortfall_check: bool,
    /// In normal operation, do not join before the rate has begun to fall: otherwise a queue is feeding it (section 3.2.3.6).
    pub falling_rate_check: bool,
    /// Go by what the bottleneck carries when a wave fills it: start-up leaves the wave that did, and no later join goes above what
    /// the bottleneck carries in the mean of a time slot. Not in the texts. Without it, an equation that sees no loss lets two joins
    /// fall into one slot, more than a buffer holds. It needs leaves that take effect at once, which IGMP's need not.
    pub capacity_check: bool,
    /// The equation's rate is multiplied by this. 1 is the RFC's, with which the peaks follow the equation and the mean lies
    /// below it; ln(1/P) / (1 - P), 1.15 with P = 0.75, lets the mean follow (the paper's Eq. (7)).
    pub equation_factor: f64,
    /// The rise of the time from join to first packet that ends start-up, in units of section 3.2.2.6's threshold.
    pub rtt_increase_factor: f64,
    /// Packets, on any channel, that must follow a gap before it counts as loss.
    pub reorder_packets: u32,
    /// When a join without a packet is withdrawn. `None` takes max(2V/ARTT, 10 ARTT), at least three packet spacings.
    pub join_timeout: Option<Duration>,
    /// When silence ends the session. `None` takes max(10 s, TSD) (section 3.2.3.8).
    pub silence_timeout: Option<Duration>,
    /// When a standing time slot index ends the session. `None` takes max(20 s, 2 TSD) (section 3.2.3.8).
    pub slot_timeout: Option<Duration>,
}

impl Default for ReceiverConfig {
    fn default() -> ReceiverConfig {
        ReceiverConfig {
            epoch: None,
            maximum_rate: None,
            loss: LossConfig::default(),
            rtt_rule: RttRule::Rfc,
            alpha: None,
            start_up_weights: None,
            normal_weights: None,
            slow_start_minimum_packets_per_s: None,
            target_rule: TargetRule::Rfc,
            shortfall_check: true,
            falling_rate_check: true,
            capacity_check: false,
            equation_factor: 1.0,
            rtt_increase_factor: 1.0,
            reorder_packets: 3,
            join_timeout: None,
            silence_timeout: None,
            slot_timeout: None,
        }
    }
}

/// The weights of the two reception rate filters, each in (0, 1) (section 3.2.2.5).
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Weights {
    /// Beta: how much an epoch's rate moves ARR, the anticipated rate.
    pub beta: f64,
    /// Zeta: how much an epoch's rate moves TRR, the true rate.
    pub zeta: f64,
}

/// The rule for the target rate.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum TargetRule {
    /// RFC 3738 section 3.2.2.7: min(max(SSR, REQN), MRR), in start-up min(4 TRR, MRR).
    #[default]
    Rfc,
    /// The paper's Eq. (5): also at most Gamma^(3/2) TRR, in start-up min(Gamma^3 TRR, MRR).
    Paper,
}

impl ReceiverConfig {
    /// EL for `session`.
    pub fn epoch(&self, session: &Session) -> Duration {
        self.epoch.unwrap_or(session.config().time_slot / 20)
    }

    /// Alpha, with its default.
    pub(super) fn alpha(&self) -> f64 {
        self.alpha.unwrap_or(match self.rtt_rule {
            RttRule::Rfc => 0.25,
            RttRule::Spacing => 0.1,
        })
    }

    pub(super) fn check(&self, session: &Session) -> Result<(), ConfigError> {
        let fraction = |x: f64| x > 0.0 && x < 1.0;
        let weights = |w: Option<Weights>| w.is_none_or(|w| fraction(w.beta) && fraction(w.zeta));
        let epoch = self.epoch(session);
        ConfigError::first_of([
            (
                "the epoch",
                "1 ms to one time slot",
                epoch >= Duration::from_millis(1) && epoch <= session.config().time_slot,
            ),
            ("Nu", "between 0 and 1", fraction(self.loss.nu)),
            ("Delta", "between 0 and 1", fraction(self.loss.delta)),
            ("Alpha", "between 0 and 1", fraction(self.alpha())),
            (
                "Beta and Zeta",
                "between 0 and 1",
                weights(self.start_up_weights) && weights(self.normal_weights),
            ),
            (
                "the slow start minimum",
                "above 0",
                self.slow_start_minimum_packets_per_s
                    .is_none_or(|rate| rate > 0.0),
            ),
            ("the equation factor", "above 0", self.equation_factor > 0.0),
            (
                "the RTT increase factor",
                "above 0",
                self.rtt_increase_factor > 0.0,
            ),
            (
                "the maximum rate",
                "above 0",
                self.maximum_rate.is_none_or(|rate| rate > Rate::default()),
            ),
        ])
    }

    /// Beta and Zeta in start-up (section 3.2.2.5).
    pub(super) fn start_up_weights(&self, p: f64) -> Weights {
        let root = p.sqrt();
        let recommended = Weights {
            beta: (1.0 - root.sqrt()) / 2.0,
            zeta: root / (1.0 + root),
        };
        self.start_up_weights.unwrap_or(recommended)
    }

    /// Beta and Zeta in normal operation (section 3.2.2.5).
    pub(super) fn normal_weights(&self, session: &Session) -> Weights {
        let (p, slot_s) = (session.decrease(), session.time_slot_s());
        let epoch_s = self.epoch(session).as_secs_f64();
        let beta = 1.0 - libm::pow(p / (1.0 + p), epoch_s / slot_s);
        self.normal_weights.unwrap_or(Weights {
            beta,
            zeta: 2.0 * epoch_s / (4.0 + slot_s),
        })
    }

    /// The peak at which the mean of a cycle with one join a time slot is 1: ln(1/P) / (1 - P) (the paper's Eq. (7)), and the
    /// decay over half an epoch, for which joins wait in the mean.
    pub(super) fn peak_over_mean(&self, session: &Session) -> f64 {
        let (p, slot_s) = (session.decrease(), session.time_slot_s());
        let late = self.epoch(session).as_secs_f64() / 2.0 / slot_s;
        -libm::log(p) / (1.0 - p) * session.power(-late)
    }

    /// SSMINR_P (section 3.2.2.6).
    pub(super) fn slow_start_minimum(&self, session: &Session) -> f64 {
        let recommended = session.subscribed_rate(2, 0.0);
        self.slow_start_minimum_packets_per_s.unwrap_or(recommended)
    }
}
