//! TFMCC in scenarios: its parameters, and what is recorded of it.

mod events;
mod session;
mod wire;

pub(crate) use session::Tfmcc;

use manyflow_tfmcc::{ReceiverConfig, SenderConfig};
use serde::Deserialize;

use super::set;
use crate::error::Fault;
use crate::quantity::{Bits, BitsPerSecond, Count, Number, Seconds};

/// `sessions.tfmcc`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TfmccTable {
    /// Bytes of a packet, headers counted.
    pub packet: Option<Bits>,
    /// The first value of R_max.
    pub initial_maximum_rtt: Option<Seconds>,
    /// The application's maximum rate.
    pub maximum_rate: Option<BitsPerSecond>,
    /// g: how much lower a rate must be to be reported after another.
    pub suppression_margin: Option<Number>,
    /// Whether routers may mark data packets instead of dropping them.
    pub ecn: Option<bool>,
    /// N: an upper bound on the number of receivers.
    pub receivers_max: Option<Count>,
    /// Whether a long interval without loss reduces the weight of older ones.
    pub history_discounting: Option<bool>,
}

impl TfmccTable {
    /// The sender's parameters.
    pub(crate) fn sender(&self) -> SenderConfig {
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

    /// The receivers' parameters.
    pub(crate) fn receiver(&self) -> ReceiverConfig {
        let mut config = ReceiverConfig::default();
        set(
            &mut config.receivers_max,
            self.receivers_max.map(Count::get),
        );
        set(&mut config.history_discounting, self.history_discounting);
        config
    }

    /// Checks that the parameters are in their ranges.
    ///
    /// # Errors
    /// Names the first that is not.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        self.sender().check().map_err(Fault::value)?;
        self.receiver().check().map_err(Fault::value)
    }
}
