//! What a daemon's TFRC is like.

use core::time::Duration;

use manyflow_core::ConfigError;
use manyflow_core::units::Rate;

/// The parameters of [`Tfrc`](super::Tfrc). The paper gives few numbers: where it gives none, the
/// field says where its default is from.
#[derive(Clone, Debug, PartialEq)]
pub struct TfrcConfig {
    /// The rate of a group before any daemon has reported, and what a client that begins to send is
    /// taken to ask for: the paper's "predefined initial rate" (section 4.3.1), at least 1 kbit/s.
    /// The default is about nine messages of 1400 bytes a second.
    pub initial_rate: Rate,
    /// What a receiving daemon takes for the round-trip time until it is told, positive. RFC 4654
    /// section 2.4.1 has the same.
    pub initial_rtt: Duration,
    /// The weight of the past in the average round-trip time, in [0, 1). RFC 5348 section 4.3 has
    /// 0.9, together with a correction (section 4.5) that is not here, and a low value otherwise.
    pub rtt_history: f64,
    /// Repaired copies count towards the rate: so much less is sent anew.
    pub count_repairs: bool,
    /// The lost packet that begins a loss event counts for the interval that it begins, as in
    /// RFC 5348 section 5.3. Section 4.2's letter, `false`, counts what arrived and no more.
    pub count_losses: bool,
    /// The weight of I_past in the average interval between loss events, in [0, 1) (Eq. (2)).
    pub loss_history: f64,
    /// The time between looks at what local clients ask for, positive.
    pub demand_interval: Duration,
    /// The weight of the past in what they ask for, in [0, 0.5): lower than that of the present
    /// (section 4.3.1).
    pub demand_history: f64,
}

impl Default for TfrcConfig {
    fn default() -> TfrcConfig {
        TfrcConfig {
            initial_rate: Rate::from_bits_per_s(100_000),
            initial_rtt: Duration::from_millis(500),
            rtt_history: 0.5,
            count_repairs: true,
            count_losses: true,
            loss_history: 0.5,
            demand_interval: Duration::from_millis(500),
            demand_history: 0.25,
        }
    }
}

impl TfrcConfig {
    /// # Errors
    /// Where a parameter is outside its range.
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

    /// The initial rate in bytes per second.
    pub(super) fn initial_bytes_per_s(&self) -> f64 {
        self.initial_rate.bits_per_s() as f64 / 8.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_named() {
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
