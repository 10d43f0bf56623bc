//! Values that can be written in more than one way.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use crate::protocols::{BenefitEntry, BenefitTable, OverlayLinkEntry, OverlayLinkTable};
use crate::{ReceiverEntry, ReceiverTable, Start};
use manyflow_model::quantity::Seconds;

impl<'de> Deserialize<'de> for ReceiverEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ReceiverEntry, D::Error> {
        struct Entry;
        impl<'de> Visitor<'de> for Entry {
            type Value = ReceiverEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a node's name, or a table such as { node = \"R\", start = \"8 s\" }")
            }

            fn visit_str<E: Error>(self, node: &str) -> Result<ReceiverEntry, E> {
                let node = node.to_owned();
                Ok(ReceiverEntry(ReceiverTable {
                    node,
                    ..ReceiverTable::default()
                }))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ReceiverEntry, A::Error> {
                ReceiverTable::deserialize(MapAccessDeserializer::new(map)).map(ReceiverEntry)
            }
        }
        deserializer.deserialize_any(Entry)
    }
}

impl<'de> Deserialize<'de> for OverlayLinkEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OverlayLinkEntry, D::Error> {
        struct Entry;
        impl<'de> Visitor<'de> for Entry {
            type Value = OverlayLinkEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "two nodes, or a table such as { between = [\"A\", \"B\"], weight = 2 }",
                )
            }

            fn visit_seq<A: SeqAccess<'de>>(self, ends: A) -> Result<OverlayLinkEntry, A::Error> {
                let between = Deserialize::deserialize(SeqAccessDeserializer::new(ends))?;
                let weight = None;
                Ok(OverlayLinkEntry(OverlayLinkTable { between, weight }))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OverlayLinkEntry, A::Error> {
                let table = OverlayLinkTable::deserialize(MapAccessDeserializer::new(map));
                table.map(OverlayLinkEntry)
            }
        }
        deserializer.deserialize_any(Entry)
    }
}

impl<'de> Deserialize<'de> for BenefitEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<BenefitEntry, D::Error> {
        struct Entry;
        impl<'de> Visitor<'de> for Entry {
            type Value = BenefitEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(BenefitEntry::EXPECTED)
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<BenefitEntry, E> {
                let named = BenefitEntry::named(name);
                named.ok_or_else(|| E::invalid_value(Unexpected::Str(name), &self))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<BenefitEntry, A::Error> {
                let table = BenefitTable::deserialize(MapAccessDeserializer::new(map))?;
                let benefit = table.benefit().map(BenefitEntry);
                benefit.ok_or_else(|| A::Error::custom("a benefit has `half-at` or `layers`"))
            }
        }
        deserializer.deserialize_any(Entry)
    }
}

impl<'de> Deserialize<'de> for Start {
    /// Reads the range that the reader has split and evaluated. A single time is given as
    /// both ends.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Start, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename = "quantity: start")]
        struct Range((f64, f64));
        let Range((from, to)) = Range::deserialize(deserializer)?;
        if from > to {
            return Err(D::Error::custom("`uniform` takes the earlier time first"));
        }
        let (from, to) = (Seconds(from), Seconds(to));
        Ok(Start { from, to })
    }
}
