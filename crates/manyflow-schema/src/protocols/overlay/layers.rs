//! The layers of an overlay session's messages.

use core::time::Duration;

use manyflow_overlay::{LayerSize, Layers, PAYLOAD_BYTES_MAX};
use serde::Deserialize;

use super::OverlaySessionTable;
use manyflow_model::quantity::{Bits, Count};

/// `sessions.overlay.layers`
#[derive(Copy, Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct UnitLayerTable {
    /// The length of the layer in a message.
    pub length: Bits,
    /// The worth of the layer in relation to the others.
    pub dollars: Count,
}

impl OverlaySessionTable {
    /// Returns the layers of a message; `None` if one is longer or worth more than a layer can be.
    pub fn layers(&self) -> Option<Vec<LayerSize>> {
        let layer = |table: &UnitLayerTable| {
            Some(LayerSize {
                bytes: table.length.bytes().try_into().ok()?,
                dollars: table.dollars.get().try_into().ok()?,
            })
        };
        let layers = self.layers.iter();
        let sent = layers.filter(|_| self.layered.unwrap_or(true));
        sent.map(layer).collect()
    }

    /// Checks the layers of a message.
    pub(super) fn check_layers(&self) -> Result<(), String> {
        if self.layers.is_empty() || self.layered == Some(false) {
            return Ok(());
        }
        let rate = self.rate.ok_or("messages in layers need a `rate`")?;
        let layers = self
            .layers()
            .ok_or("a layer is longer than 65,535 B, or worth more than $65,535")?;
        let purse_s = 8.0 * self.message_bytes() as f64 / rate.rate().bits_per_s() as f64;
        let purse = Duration::try_from_secs_f64(purse_s).unwrap_or(Duration::MAX);
        let table = Layers::encode(purse, 0, &layers).map_err(|error| error.to_string())?;
        let bytes = layers
            .iter()
            .map(|layer| u64::from(layer.bytes))
            .sum::<u64>();
        let whole = bytes + table.len() as u64;
        match bytes == self.message_bytes() {
            _ if whole > u64::from(PAYLOAD_BYTES_MAX) => Err(format!(
                "with its table, a message can have {PAYLOAD_BYTES_MAX} bytes, not {whole}"
            )),
            true => Ok(()),
            false => Err(format!(
                "the layers have {bytes} bytes, but a `message` {}: make them equal",
                self.message_bytes()
            )),
        }
    }
}
