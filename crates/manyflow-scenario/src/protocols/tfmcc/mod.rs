//! TFMCC in scenarios: its parameters, its sessions and its events.

mod events;
mod session;
mod wire;

pub(crate) use session::Tfmcc;

use manyflow_tfmcc::{ReceiverConfig, SenderConfig};
use serde::Deserialize;

use super::{ResponseName, set, set_equation};
use manyflow_model::error::Fault;
use manyflow_model::quantity::{Bits, BitsPerSecond, Count, Number, Seconds};

/// `sessions.tfmcc`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TfmccTable {
    /// The size of a packet, including headers.
    pub packet: Option<Bits>,
    /// The initial value of R_max, the maximum round-trip time.
    pub initial_maximum_rtt: Option<Seconds>,
    /// The application's maximum rate.
    pub maximum_rate: Option<BitsPerSecond>,
    /// g: the share by which a rate has to be below an earlier report to be reported as well.
    pub suppression_margin: Option<Number>,
    /// Whether routers may mark data packets instead of dropping them.
    pub ecn: Option<bool>,
    /// N: an upper bound on the number of receivers.
    pub receivers_max: Option<Count>,
    /// The TCP that the equation describes.
    pub response: Option<ResponseName>,
    /// The minimum RTO of that TCP, for small windows.
    pub minimum_rto: Option<Seconds>,
    /// Whether a long interval without loss reduces the weight of older ones.
    pub history_discounting: Option<bool>,
}

impl TfmccTable {
    /// Returns the parameters of the sender.
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

    /// Returns the parameters of the receivers.
    pub(crate) fn receiver(&self) -> ReceiverConfig {
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
    pub(crate) fn check(&self) -> Result<(), Fault> {
        self.sender().check().map_err(Fault::value)?;
        self.receiver().check().map_err(Fault::value)
    }
}
