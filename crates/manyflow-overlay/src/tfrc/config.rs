//! The parameters of many-to-many TFRC.

use core::time::Duration;

use manyflow_core::ConfigError;
use manyflow_core::estimate::tcp_equation::ResponseFunction;
use manyflow_core::units::Rate;

/// The parameters of [`Tfrc`](super::Tfrc). The paper gives few numbers; the fields name the
/// sources of the others.
#[derive(Clone, Debug, PartialEq)]
pub struct TfrcConfig {
    /// The rate of a group before any daemon has reported, and the demand of a client that starts
    /// to send: the paper's "predefined initial rate" (section 4.3.1). At least 1 kbit/s. The
    /// default is about nine messages of 1400 bytes a second.
    pub initial_rate: Rate,
    /// The round-trip time that a receiving daemon assumes until the sending daemon reports it;
    /// positive. The default is that of RFC 4654 section 2.4.1.
    pub initial_rtt: Duration,
    /// The weight of the past in the average round-trip time, in [0, 1). RFC 5348 section 4.3
    /// recommends 0.9 together with a correction (section 4.5), which is not implemented here, and
    /// a low value otherwise.
    pub rtt_history: f64,
    /// The TCP that Eq. (1) describes. The paper's is Reno.
    pub response: ResponseFunction,
    /// Whether repaired copies count towards the rate, and thereby reduce the rate of new messages.
    pub count_repairs: bool,
    /// Whether the lost packet that begins a loss event counts for the interval that it begins, as
    /// in RFC 5348 section 5.3. With `false`, only arrived packets count, as section 4.2 says
    /// literally.
    pub count_losses: bool,
    /// The weight of I_past in the average interval between loss events, in [0, 1) (Eq. (2)).
    pub loss_history: f64,
    /// The time between updates of local clients' demands, positive.
    pub demand_interval: Duration,
    /// The weight of the past in local clients' demands, in [0, 0.5): lower than that of the
    /// present (section 4.3.1).
    pub demand_history: f64,
}

impl Default for TfrcConfig {
    fn default() -> TfrcConfig {
        TfrcConfig {
            initial_rate: Rate::from_bits_per_s(100_000),
            initial_rtt: Duration::from_millis(500),
            rtt_history: 0.5,
            response: ResponseFunction::Reno,
            count_repairs: true,
            count_losses: true,
            loss_history: 0.5,
            demand_interval: Duration::from_millis(500),
            demand_history: 0.25,
        }
    }
}

impl TfrcConfig {
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
                "the loss intervals' history",
                "at least 0 and below 1",
                (0.0..1.0).contains(&self.loss_history),
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
