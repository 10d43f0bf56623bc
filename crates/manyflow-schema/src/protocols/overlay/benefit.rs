//! The benefit of messages under Cost-Benefit.

use manyflow_overlay::cost_benefit::{Benefit, Layer};
use serde::Deserialize;

use manyflow_model::quantity::Number;

/// A benefit: `per-message`, `per-receiver`, or a table.
#[derive(Clone, Debug, PartialEq)]
pub struct BenefitEntry(pub Benefit);

/// The names of benefits without parameters.
const NAMES: [(&str, Benefit); 2] = [
    ("per-message", Benefit::PerMessage),
    ("per-receiver", Benefit::PerReceiver),
];

/// `benefit`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct BenefitTable {
    /// The rate in messages per second at which one more message is worth half as much as the
    /// first.
    ///
    /// Default: none; not with `layers`.
    pub half_at: Option<Number>,
    /// The parts of a stream, the most valuable for each of its messages first.
    ///
    /// Default: none; not with `half-at`.
    pub layers: Option<Vec<LayerTable>>,
}

/// `benefit.layers`
#[derive(Copy, Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LayerTable {
    /// The messages per second of the layer, in addition to the layers before.
    pub messages: Number,
    /// The worth of all of them, where a message under `per-message` is worth one dollar.
    pub dollars: Number,
}

impl BenefitEntry {
    /// The description of the value in errors.
    pub const EXPECTED: &str = "a benefit such as \"per-message\", \"per-receiver\", { half-at = 50 } or { layers = [{ messages = 2, dollars = 10 }] }";

    /// Returns the benefit of this name, if there is one.
    pub fn named(name: &str) -> Option<BenefitEntry> {
        let (_, benefit) = NAMES.into_iter().find(|(known, _)| *known == name)?;
        Some(BenefitEntry(benefit))
    }
}

impl BenefitTable {
    /// Returns the benefit; `None` if the table does not have exactly one of its keys.
    pub fn benefit(self) -> Option<Benefit> {
        let layer = |table: LayerTable| Layer {
            messages_per_s: table.messages.0,
            dollars: table.dollars.0,
        };
        match (self.half_at, self.layers) {
            (Some(Number(half_messages_per_s)), None) => Some(Benefit::Diminishing {
                half_messages_per_s,
            }),
            (None, Some(layers)) => Some(Benefit::Layers(layers.into_iter().map(layer).collect())),
            _ => None,
        }
    }
}
