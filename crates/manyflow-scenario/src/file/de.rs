//! Converts the parsed tree into the types of the schema, through serde. Every error carries
//! its place, and a quantity may be a formula over the scenario's parameters.

use std::iter;

use serde::Deserialize;
use serde::de::value::{SeqDeserializer, StrDeserializer};
use serde::de::{DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess, Visitor};

use crate::error::Fault;
use crate::expression::{Environment, Expression};
use crate::file::tree::{Entry, Node, Value, name_of};
use crate::quantity::{ANY, Kind, Quantity, START};

/// Reads a `T` from `node`. Its formulas can use the names in `environment`.
pub(crate) fn read<'de, T: Deserialize<'de>>(
    node: &'de Node,
    environment: &'de Environment,
) -> Result<T, Fault> {
    T::deserialize(Reader { node, environment })
}

#[derive(Copy, Clone)]
struct Reader<'de> {
    node: &'de Node,
    environment: &'de Environment,
}

impl<'de> Reader<'de> {
    fn with(self, node: &'de Node) -> Reader<'de> {
        Reader { node, ..self }
    }

    /// Reads a quantity: a number, or a text with a formula.
    fn quantity(self) -> Result<Quantity, Fault> {
        match &self.node.value {
            Value::Number(number) => Ok(Quantity::number(*number)),
            Value::Text(text) => self.formula(text),
            _ => Err(Fault::value(
                "a quantity is a number or a text such as `50 ms`",
            )),
        }
    }
}

impl Reader<'_> {
    fn formula(self, text: &str) -> Result<Quantity, Fault> {
        Expression::parse(text)?.evaluate(self.environment)
    }

    /// Returns the earliest and the latest time of `uniform A to B`. For a single time,
    /// both are equal.
    fn start(self) -> Result<[f64; 2], Fault> {
        let time = |quantity| Kind::Time.check(quantity);
        let range = match &self.node.value {
            Value::Text(text) => text.strip_prefix("uniform "),
            _ => None,
        };
        let Some(range) = range else {
            return time(self.quantity()?).map(|both| [both; 2]);
        };
        let (from, to) = range
            .split_once(" to ")
            .ok_or_else(|| Fault::value("write it as `uniform 0 s to 10 s`"))?;
        Ok([time(self.formula(from)?)?, time(self.formula(to)?)?])
    }
}

impl<'de> serde::Deserializer<'de> for Reader<'de> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.node.value {
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::Number(number) => visit_number(*number, visitor),
            Value::Flag(flag) => visitor.visit_bool(*flag),
            Value::List(items) => visitor.visit_seq(Items {
                reader: self,
                items: items.iter().enumerate(),
            }),
            Value::Table(entries) => visitor.visit_map(Entries {
                reader: self,
                entries: entries.iter(),
                current: None,
            }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self)
    }

    /// Evaluates the value and checks its unit, if the type is a quantity.
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        if name == ANY {
            let Quantity { value, dimension } = self.quantity()?;
            let exponents = [dimension.seconds, dimension.bits, dimension.packets];
            let parts = iter::once(value).chain(exponents.map(f64::from));
            return visitor.visit_newtype_struct(SeqDeserializer::new(parts));
        }
        if name == START {
            let parts = self.start()?.into_iter();
            return visitor.visit_newtype_struct(SeqDeserializer::new(parts));
        }
        match Kind::named(name) {
            Some(kind) => {
                let number = kind.check(self.quantity()?)?;
                visitor.visit_newtype_struct(number.into_deserializer())
            }
            None => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let Value::Text(text) = &self.node.value else {
            return Err(Fault::value("a text is expected"));
        };
        let choice: StrDeserializer<'_, Fault> = text.as_str().into_deserializer();
        visitor.visit_enum(choice)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

fn visit_number<'de, V: Visitor<'de>>(number: f64, visitor: V) -> Result<V::Value, Fault> {
    if number.fract() == 0.0 && number >= 0.0 {
        visitor.visit_u64(number as u64)
    } else {
        visitor.visit_f64(number)
    }
}

struct Items<'de, I> {
    reader: Reader<'de>,
    items: I,
}

impl<'de, I: Iterator<Item = (usize, &'de Node)>> SeqAccess<'de> for Items<'de, I> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Fault> {
        let Some((index, item)) = self.items.next() else {
            return Ok(None);
        };
        let named = name_of(item).map_or_else(|| index.to_string(), str::to_owned);
        seed.deserialize(self.reader.with(item))
            .map(Some)
            .map_err(|fault| fault.within(&named).spanned(&item.span))
    }
}

struct Entries<'de, I> {
    reader: Reader<'de>,
    entries: I,
    current: Option<&'de Entry>,
}

impl<'de, I: Iterator<Item = &'de Entry>> MapAccess<'de> for Entries<'de, I> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Fault> {
        self.current = self.entries.next();
        let Some(entry) = self.current else {
            return Ok(None);
        };
        let key: StrDeserializer<'_, Fault> = entry.key.as_str().into_deserializer();
        seed.deserialize(key)
            .map(Some)
            .map_err(|fault| fault.within(&entry.key).spanned(&entry.key_span))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Fault> {
        let entry = self.current.take().expect("serde asks for a key first");
        seed.deserialize(self.reader.with(&entry.node))
            .map_err(|fault| fault.within(&entry.key).spanned(&entry.node.span))
    }
}
