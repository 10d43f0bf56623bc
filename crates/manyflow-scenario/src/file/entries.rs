//! Values that can be written in more than one way.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::protocols::{OverlayLinkEntry, OverlayLinkTable};
use crate::quantity::Seconds;
use crate::schema::{Label, OneOrMany, ReceiverEntry, ReceiverTable, Start};

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

impl<'de> Deserialize<'de> for Label {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Label, D::Error> {
        struct Written;
        impl Visitor<'_> for Written {
            type Value = Label;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a number, `true` or `false`")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Label, E> {
                Ok(Label(text.to_owned()))
            }

            fn visit_bool<E: Error>(self, flag: bool) -> Result<Label, E> {
                Ok(Label(flag.to_string()))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Label, E> {
                Ok(Label(number.to_string()))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Label, E> {
                Ok(Label(number.to_string()))
            }
        }
        deserializer.deserialize_any(Written)
    }
}

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OneOrMany, D::Error> {
        struct Texts;
        impl<'de> Visitor<'de> for Texts {
            type Value = OneOrMany;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name or a list of names")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<OneOrMany, E> {
                Ok(OneOrMany(vec![name.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<OneOrMany, A::Error> {
                let mut all = Vec::new();
                while let Some(name) = names.next_element()? {
                    all.push(name);
                }
                Ok(OneOrMany(all))
            }
        }
        deserializer.deserialize_any(Texts)
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
