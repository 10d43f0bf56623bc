//! Names and values that can be written in more than one way.

use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A name, or a list of names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OneOrMany(pub Vec<String>);

/// A value of an axis of the sweep, as written in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label(pub String);

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
