//! The parameters of TFMCC.

use manyflow_tfmcc::{ReceiverConfig, SenderConfig};
use serde::Deserialize;

use super::{ResponseName, set, set_equation};
use manyflow_model::error::Fault;
use manyflow_model::quantity::{Bits, BitsPerSecond, Count, Number, Seconds};

/// `sessions.tfmcc`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TfmccTable {
    /// The length of a packet, including headers.
    ///
    /// Default: `1000 B`. Name: s.
    pub packet: Option<Bits>,
    /// The first value of the session's maximum round-trip time.
    ///
    /// Default: `500 ms`. Name: R_max.
    pub initial_maximum_rtt: Option<Seconds>,
    /// The application's maximum rate.
    ///
    /// Default: none.
    pub maximum_rate: Option<BitsPerSecond>,
    /// A report suppresses those that are not lower by this fraction.
    ///
    /// Default: 0.1. Name: g.
    pub suppression_margin: Option<Number>,
    /// Whether routers may mark data packets instead of dropping them.
    ///
    /// Default: `false`.
    pub ecn: Option<bool>,
    /// An upper bound on the number of receivers, for the feedback timers.
    ///
    /// Default: 10,000. Name: N.
    pub receivers_max: Option<Count>,
    /// The TCP that Eq. (1) describes: `reno`, as in the RFC, or `cubic`, the larger of Reno's and
    /// CUBIC's average windows.
    ///
    /// Default: `reno`.
    pub response: Option<ResponseName>,
    /// The minimum RTO of that TCP, up to 60 s: for windows of less than three packets, and the
    /// less the larger the window; docs/choices.md#options-of-webrc-that-are-not-in-the-papers.
    ///
    /// Default: `0 s`.
    pub minimum_rto: Option<Seconds>,
    /// Whether a long interval without loss reduces the weight of older ones (section 5.5).
    ///
    /// Default: `true`.
    pub history_discounting: Option<bool>,
}

impl TfmccTable {
    /// Returns the parameters of the sender.
    pub fn sender(&self) -> SenderConfig {
        let mut config = SenderConfig::default();
        set(
            &mut config.packet_bytes,
            self.packet.map(|size| size.bytes() as u32),
        );
        set(
            &mut config.initial_rtt_max,
            self.initial_maximum_rtt.map(Seconds::duration),
        );
        config.maximum_rate = self.maximum_rate.map(BitsPerSecond::rate);
        set(
            &mut config.suppression_margin,
            self.suppression_margin.map(|number| number.0),
        );
        set(&mut config.ecn, self.ecn);
        config
    }

    /// Returns the parameters of the receivers.
    pub fn receiver(&self) -> ReceiverConfig {
        let mut config = ReceiverConfig::default();
        set(
            &mut config.receivers_max,
            self.receivers_max.map(Count::get),
        );
        set_equation(&mut config.equation, self.response, self.minimum_rto);
        set(&mut config.history_discounting, self.history_discounting);
        config
    }

    /// Checks that the parameters are in their ranges.
    ///
    /// # Errors
    /// Returns the first error.
    pub fn check(&self) -> Result<(), Fault> {
        self.sender().check().map_err(Fault::value)?;
        self.receiver().check().map_err(Fault::value)
    }
}
