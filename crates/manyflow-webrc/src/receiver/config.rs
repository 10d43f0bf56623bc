//! A receiver's own parameters (RFC 3738 section 3.2).

use core::time::Duration;

use crate::{LossConfig, LossFilter, RttRule, Session};
use manyflow_core::ConfigError;
use manyflow_core::estimate::tcp_equation::TcpEquation;
use manyflow_core::units::Rate;

/// The parameters of a receiver. The defaults are RFC 3738's.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceiverConfig {
    /// EL: the time between decisions to join. `None` takes TSD/20 (section 3.2.2.4).
    pub epoch: Option<Duration>,
    /// MRR_b: the maximum rate of this receiver. `None` sets no maximum below the session rate.
    pub maximum_rate: Option<Rate>,
    /// The filters of LOSSP (section 3.2.2.1).
    pub loss: LossConfig,
    /// The time from a join until this host sends the message for it. It is no part of the
    /// round-trip time.
    pub join_delay: Duration,
    /// The rule for averaging the round-trip time.
    pub rtt_rule: RttRule,
    /// Alpha: the smoothing constant of ARTT, in (0, 1). `None` takes 0.25 (section 3.2.2.2), or
    /// 0.1 with [`RttRule::Spacing`]: its measurements scatter less, and receivers behind one
    /// router agree better with a lower value.
    pub alpha: Option<f64>,
    /// The weights of the reception rates in start-up. `None` takes those of section 3.2.2.5.
    pub start_up_weights: Option<Weights>,
    /// The weights of the reception rates in normal operation. `None` takes those of section
    /// 3.2.2.5.
    pub normal_weights: Option<Weights>,
    /// SSMINR_P: the minimum slow start rate, in packets per second. `None` takes BCR_P (1 + 1/P +
    /// 1/P^2) (section 3.2.2.6).
    pub slow_start_minimum_packets_per_s: Option<f64>,
    /// The rule for the target rate.
    pub target_rule: TargetRule,
    /// Whether start-up waits an epoch after the first packet of each wave, and ends if the rate
    /// has not followed the join (section 3.2.2.6, the optional rule).
    pub shortfall_check: bool,
    /// Whether a receiver in normal operation waits with a join until the rate has begun to fall:
    /// before that, a queue may be feeding it (section 3.2.3.6).
    pub falling_rate_check: bool,
    /// Whether LOSSP is reset when a receiver waits in this way, so that the target rate does not
    /// grow (section 3.2.3.6). A reset forgets how many packets have come since the last loss
    /// event. Beside a TCP with long intervals between loss events, there are resets in each of
    /// them, and LOSSP stays at twice the true probability.
    pub falling_rate_reset: bool,
    /// Whether the receiver measures the bottleneck's capacity when a wave fills it. Start-up then
    /// leaves that wave, and later joins keep the average rate of a time slot below the capacity.
    /// Neither in the RFC nor in the paper. Without this check, the equation allows two joins in
    /// one slot if there is no loss, which overflows a large buffer. With IGMP, a leave takes
    /// effect after seconds, so start-up joins no wave that is above the capacity which pairs of
    /// packets show (`receiver/pairs.rs`).
    pub capacity_check: bool,
    /// Whether a shortfall of the rate, or a rise of the time from join to first packet, counts
    /// only if packets are also later behind the sender's schedule than before. Neither in the
    /// RFC nor in the paper. On computers that share their processors, a sender or a receiver that
    /// waits for a processor looks like a full path otherwise, and start-up ends far below the
    /// path's rate. Start-up that losses ended also resumes once, if a time slot then passes
    /// without loss and without a queue.
    pub delay_check: bool,
    /// The TCP that REQN describes. The RFC's is Reno.
    pub equation: TcpEquation,
    /// The factor by which the equation's rate is multiplied, above 0. With the RFC's 1, the peaks
    /// of the rate follow the equation, and its average is lower. `None` takes ln(1/P) / (1 - P),
    /// which is 1.15 for P = 0.75: then the average follows the equation (the paper's Eq. (7)).
    pub equation_factor: Option<f64>,
    /// The duration of a loss event in average round-trip times, above 0. RFC 3738's is 1 (section
    /// 3.2.3.4). While a queue is full, the round-trip time is above its average, and a TCP that
    /// loses no packet at first takes up to another round-trip time to react. So a receiver beside
    /// a TCP counts two loss events where the TCP counts one, unless they last longer.
    pub loss_event_rtts: f64,
    /// The share of the path's capacity that the receiver takes whatever it loses, in [0, 1). The
    /// capacity is what packet trains show, so this has no effect in sessions without trains. It is
    /// in neither RFC nor paper, and it ignores congestion: several such receivers overload a link.
    /// It is meant for links that carry few flows, beside a TCP such as BBR, whose rate does not
    /// depend on the loss.
    pub capacity_share: f64,
    /// The rise of the time from join to first packet that ends start-up, as a multiple of section
    /// 3.2.2.6's threshold. Above 0.
    pub rtt_increase_factor: f64,
    /// The number of packets on any channel that follow a gap before it counts as loss.
    pub reorder_packets: u32,
    /// The time after which a join without a packet is withdrawn. `None` takes max(2V/ARTT, 10
    /// ARTT), at least three packet spacings (section 3.2.3.7).
    pub join_timeout: Option<Duration>,
    /// The duration of silence that ends the session. `None` takes max(10 s, TSD) (section
    /// 3.2.3.8).
    pub silence_timeout: Option<Duration>,
    /// The time without a new time slot index that ends the session. `None` takes max(20 s, 2 TSD)
    /// (section 3.2.3.8).
    pub slot_timeout: Option<Duration>,
}

impl Default for ReceiverConfig {
    fn default() -> ReceiverConfig {
        ReceiverConfig {
            epoch: None,
            maximum_rate: None,
            loss: LossConfig::default(),
            join_delay: Duration::ZERO,
            rtt_rule: RttRule::Rfc,
            alpha: None,
            start_up_weights: None,
            normal_weights: None,
            slow_start_minimum_packets_per_s: None,
            target_rule: TargetRule::Rfc,
            shortfall_check: true,
            falling_rate_check: true,
            falling_rate_reset: true,
            capacity_check: false,
            delay_check: false,
            equation: TcpEquation::RENO,
            equation_factor: Some(1.0),
            loss_event_rtts: 1.0,
            capacity_share: 0.0,
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
    /// Beta: the weight of an epoch's rate in ARR, the anticipated rate.
    pub beta: f64,
    /// Zeta: the weight of an epoch's rate in TRR, the true rate.
    pub zeta: f64,
}

/// The rule for the target rate.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TargetRule {
    /// RFC 3738 section 3.2.2.7: min(max(SSR, REQN), MRR), and min(4 TRR, MRR) in start-up.
    #[default]
    Rfc,
    /// The paper's Eq. (5): as [`Rfc`](TargetRule::Rfc), but at most Gamma^(3/2) TRR, and
    /// min(Gamma^3 TRR, MRR) in start-up.
    Paper,
}

impl ReceiverConfig {
    /// The parameters for real networks. They are RFC 3738's, except for these options:
    /// [`RttRule::Spacing`], the checks of capacity and delay, loss events of two round-trip times,
    /// [`LossFilter::Measured`], no reset of LOSSP, and a minimum RTO of 200 ms. The average rate
    /// follows the equation.
    pub fn live() -> ReceiverConfig {
        ReceiverConfig {
            loss: LossConfig {
                filter: LossFilter::Measured,
                ..LossConfig::default()
            },
            falling_rate_reset: false,
            loss_event_rtts: 2.0,
            equation: TcpEquation {
                minimum_rto_s: 0.2,
                ..TcpEquation::RENO
            },
            equation_factor: None,
            rtt_rule: RttRule::Spacing,
            capacity_check: true,
            delay_check: true,
            ..ReceiverConfig::default()
        }
    }

    /// Returns EL, the duration of an epoch, for `session`.
    pub fn epoch(&self, session: &Session) -> Duration {
        self.epoch.unwrap_or(session.config().time_slot / 20)
    }

    /// Returns Alpha.
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
            (
                "the equation factor",
                "above 0",
                self.equation_factor.is_none_or(|factor| factor > 0.0),
            ),
            ("the minimum RTO", "0 s to 60 s", self.equation.is_valid()),
            (
                "the duration of loss events",
                "above 0",
                self.loss_event_rtts > 0.0,
            ),
            (
                "the share of the capacity",
                "0 to below 1",
                (0.0..1.0).contains(&self.capacity_share),
            ),
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

    /// Returns Beta and Zeta in start-up (section 3.2.2.5).
    pub(super) fn start_up_weights(&self, p: f64) -> Weights {
        let root = p.sqrt();
        let recommended = Weights {
            beta: (1.0 - root.sqrt()) / 2.0,
            zeta: root / (1.0 + root),
        };
        self.start_up_weights.unwrap_or(recommended)
    }

    /// Returns Beta and Zeta in normal operation (section 3.2.2.5).
    pub(super) fn normal_weights(&self, session: &Session) -> Weights {
        let (p, slot_s) = (session.decrease(), session.time_slot_s());
        let epoch_s = self.epoch(session).as_secs_f64();
        let beta = 1.0 - libm::pow(p / (1.0 + p), epoch_s / slot_s);
        self.normal_weights.unwrap_or(Weights {
            beta,
            zeta: 2.0 * epoch_s / (4.0 + slot_s),
        })
    }

    /// Returns the factor of the equation's rate.
    pub(super) fn equation_factor(&self, session: &Session) -> f64 {
        self.equation_factor.unwrap_or(peak_over_mean(session))
    }

    /// Returns the ratio of peak to average rate with one join per time slot, times the decay over
    /// half an epoch, the average wait of a join.
    pub(super) fn late_peak_over_mean(&self, session: &Session) -> f64 {
        let late = self.epoch(session).as_secs_f64() / 2.0 / session.time_slot_s();
        peak_over_mean(session) * session.power(-late)
    }

    /// Returns SSMINR_P, in packets per second (section 3.2.2.6).
    pub(super) fn slow_start_minimum(&self, session: &Session) -> f64 {
        let recommended = session.subscribed_rate(2, 0.0);
        self.slow_start_minimum_packets_per_s.unwrap_or(recommended)
    }
}

/// Returns the ratio of peak to average rate with one join per time slot: ln(1/P) / (1 - P) (the
/// paper's Eq. (7)).
fn peak_over_mean(session: &Session) -> f64 {
    let p = session.decrease();
    -libm::log(p) / (1.0 - p)
}
