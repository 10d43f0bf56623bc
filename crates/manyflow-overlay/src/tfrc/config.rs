//! The parameters of many-to-many TFRC.

use core::time::Duration;

use manyflow_core::ConfigError;
use manyflow_core::estimate::tcp_equation::TcpEquation;
use manyflow_core::units::Rate;

/// The parameters of [`Tfrc`](super::Tfrc). The paper gives few numbers; the fields name the
/// sources of the others.
#[derive(Clone, Debug, PartialEq)]
pub struct TfrcConfig {
    /// The rate to a daemon that has not reported yet, and the demand of a client that starts to
    /// send: the paper's "predefined initial rate" (section 4.3.1). At least 1 kbit/s. The
    /// default is about nine messages of 1400 bytes a second.
    pub initial_rate: Rate,
    /// The round-trip time that a receiving daemon assumes until the sending daemon reports it;
    /// positive. The default is that of RFC 4654 section 2.4.1.
    pub initial_rtt: Duration,
    /// The weight of the past in the average round-trip time, in [0, 1). RFC 5348 section 4.3
    /// recommends 0.9 together with [`damping_history`](TfrcConfig::damping_history), and a low
    /// value otherwise.
    pub rtt_history: f64,
    /// q2 of RFC 5348 section 4.5, in [0, 1): the rate falls while the round-trip time is above its
    /// average, in which the past has this weight. The RFC recommends 0.9. `None`, the default, is
    /// the paper's TFRC without this correction.
    pub damping_history: Option<f64>,
    /// The TCP that Eq. (1) describes. The paper's is Reno.
    pub equation: TcpEquation,
    /// Whether repaired copies count towards the rate, and thereby reduce the rate of new messages.
    pub count_repairs: bool,
    /// Whether the lost packet that begins a loss event counts for the interval that it begins, as
    /// in RFC 5348 section 5.3. With `false`, only arrived packets count, as section 4.2 says
    /// literally.
    pub count_losses: bool,
    /// Whether an interval includes the packets in the round-trip time of the loss event that
    /// begins it, as in RFC 5348 section 5.3. The paper ignores these packets.
    pub whole_intervals: bool,
    /// The average of the intervals between loss events.
    pub loss_average: LossAverage,
    /// Whether routers may mark messages over links of datagrams instead of dropping them (ECN). A
    /// mark counts as a loss (RFC 5348 section 5.1).
    pub ecn: bool,
    /// The time between updates of local clients' demands, positive.
    pub demand_interval: Duration,
    /// The weight of the past in local clients' demands, in [0, 0.5): lower than that of the
    /// present (section 4.3.1).
    pub demand_history: f64,
}

/// The average of the intervals between loss events, of which p is the reciprocal.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum LossAverage {
    /// Eq. (2) of the paper: an exponential average.
    Exponential {
        /// The weight of I_past, in [0, 1). The paper's is 0.5.
        history: f64,
    },
    /// The weighted average over the last eight intervals (RFC 5348 section 5.4).
    Intervals {
        /// Whether older intervals lose weight during a long interval without losses (section 5.5).
        discounts: bool,
    },
}

impl Default for LossAverage {
    fn default() -> LossAverage {
        LossAverage::Exponential { history: 0.5 }
    }
}

impl LossAverage {
    fn is_valid(self) -> bool {
        match self {
            LossAverage::Exponential { history } => (0.0..1.0).contains(&history),
            LossAverage::Intervals { .. } => true,
        }
    }
}

impl Default for TfrcConfig {
    fn default() -> TfrcConfig {
        TfrcConfig {
            initial_rate: Rate::from_bits_per_s(100_000),
            initial_rtt: Duration::from_millis(500),
            rtt_history: 0.5,
            damping_history: None,
            equation: TcpEquation::RENO,
            count_repairs: true,
            count_losses: true,
            whole_intervals: false,
            loss_average: LossAverage::default(),
            ecn: false,
            demand_interval: Duration::from_millis(500),
            demand_history: 0.25,
        }
    }
}

impl TfrcConfig {
    /// Returns the parameters for live overlays, with links of 1 to 1000 Mbit/s. They follow RFC
    /// 5348 where the paper's simulations had other needs: a pair begins with 4 kB in the initial
    /// round-trip time (section 4.2), and the rate is that of eight intervals between loss events
    /// (section 5.4), which varies less than the paper's average.
    pub fn live() -> TfrcConfig {
        TfrcConfig {
            initial_rate: Rate::from_bits_per_s(320_000),
            initial_rtt: Duration::from_millis(100),
            whole_intervals: true,
            loss_average: LossAverage::Intervals { discounts: true },
            ..TfrcConfig::default()
        }
    }

    /// Checks the parameters' ranges.
    ///
    /// # Errors
    /// Returns an error if a parameter is outside its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        ConfigError::first_of([
            (
                "the initial rate",
                "at least 1 kbit/s",
                self.initial_rate.bits_per_s() >= 1000,
            ),
            ("the minimum RTO", "0 s to 60 s", self.equation.is_valid()),
            (
                "the initial round-trip time",
                "positive",
                !self.initial_rtt.is_zero(),
            ),
            (
                "the round-trip time's history",
                "at least 0 and below 1",
                (0.0..1.0).contains(&self.rtt_history),
            ),
            (
                "the damping's history",
                "at least 0 and below 1",
                self.damping_history
                    .is_none_or(|q2| (0.0..1.0).contains(&q2)),
            ),
            (
                "the loss intervals' history",
                "at least 0 and below 1",
                self.loss_average.is_valid(),
            ),
            (
                "the demand's interval",
                "positive",
                !self.demand_interval.is_zero(),
            ),
            (
                "the demand's history",
                "at least 0 and below 0.5",
                (0.0..0.5).contains(&self.demand_history),
            ),
        ])
    }

    /// Returns the initial rate in bytes per second.
    pub(super) fn initial_bytes_per_s(&self) -> f64 {
        self.initial_rate.bits_per_s() as f64 / 8.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_average_that_forgets_nothing_is_refused() {
        for config in [
            TfrcConfig {
                damping_history: Some(1.0),
                ..TfrcConfig::default()
            },
            TfrcConfig {
                loss_average: LossAverage::Exponential { history: 1.0 },
                ..TfrcConfig::default()
            },
        ] {
            let error = config.check().unwrap_err().to_string();
            assert!(
                error.ends_with("history must be at least 0 and below 1"),
                "{error}"
            );
        }
    }

    #[test]
    fn parameters_out_of_range_are_refused_by_name() {
        assert_eq!(TfrcConfig::default().check(), Ok(()));
        let config = TfrcConfig {
            demand_history: 0.5,
            ..TfrcConfig::default()
        };
        let error = config.check().unwrap_err().to_string();
        assert_eq!(
            error,
            "the demand's history must be at least 0 and below 0.5"
        );
    }
}
