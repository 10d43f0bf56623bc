//! Converts the parsed tree into the types of the schema, through serde. Every error carries
//! its place, and a quantity may be a formula over the scenario's parameters.

use std::iter;
use std::ops::Range;
use std::slice;

use serde::Deserialize;
use serde::de::value::{SeqDeserializer, StrDeserializer};
use serde::de::{
    DeserializeSeed, Error as _, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor,
};

use crate::error::Fault;
use crate::expression::{Environment, Expression};
use crate::file::tree::{Entry, Node, Value, name_of};
use crate::quantity::{ANY, Kind, OR_TABLE, Quantity, START};

/// Reads a `T` from `node`. Its formulas can use the names in `environment`.
pub fn read<'de, T: Deserialize<'de>>(
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

    fn items(self, items: &'de [Node]) -> Items<'de> {
        Items {
            reader: self,
            items: items.iter().enumerate(),
        }
    }

    fn entries(self, entries: &'de [Entry]) -> Entries<'de> {
        Entries {
            reader: self,
            entries: entries.iter(),
            current: None,
        }
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
            Value::List(items) => visitor.visit_seq(self.items(items)),
            Value::Table(entries) => visitor.visit_map(self.entries(entries)),
        }
    }

    /// Reads a table by its keys. A list would give the values without their names.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.deserialize_map(visitor)
    }

    // Each of these calls one method of the visitor, so that the compiler does not generate the
    // others for every type of the schema.
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.node.value {
            Value::Table(entries) => visitor.visit_map(self.entries(entries)),
            other => Err(Fault::invalid_type(unexpected(other), &visitor)),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.node.value {
            Value::List(items) => visitor.visit_seq(self.items(items)),
            other => Err(Fault::invalid_type(unexpected(other), &visitor)),
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
        let name = match (name.strip_prefix(OR_TABLE), &self.node.value) {
            (Some(_), Value::Table(entries)) => return visitor.visit_map(self.entries(entries)),
            (Some(quantity), _) => quantity,
            (None, _) => name,
        };
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
        unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

fn visit_number<'de, V: Visitor<'de>>(number: f64, visitor: V) -> Result<V::Value, Fault> {
    if is_count(number) {
        visitor.visit_u64(number as u64)
    } else {
        visitor.visit_f64(number)
    }
}

/// Describes a value that is not of the expected type.
fn unexpected(value: &Value) -> Unexpected<'_> {
    match value {
        Value::Text(text) => Unexpected::Str(text),
        Value::Number(number) if is_count(*number) => Unexpected::Unsigned(*number as u64),
        Value::Number(number) => Unexpected::Float(*number),
        Value::Flag(flag) => Unexpected::Bool(*flag),
        Value::List(_) => Unexpected::Seq,
        Value::Table(_) => Unexpected::Map,
    }
}

fn is_count(number: f64) -> bool {
    number.fract() == 0.0 && number >= 0.0
}

struct Items<'de> {
    reader: Reader<'de>,
    items: iter::Enumerate<slice::Iter<'de, Node>>,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Fault> {
        let Some((index, item)) = self.items.next() else {
            return Ok(None);
        };
        match seed.deserialize(self.reader.with(item)) {
            Ok(value) => Ok(Some(value)),
            Err(fault) => Err(in_item(fault, index, item)),
        }
    }
}

struct Entries<'de> {
    reader: Reader<'de>,
    entries: slice::Iter<'de, Entry>,
    current: Option<&'de Entry>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
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
        match seed.deserialize(key) {
            Ok(key) => Ok(Some(key)),
            Err(fault) => Err(at_place(fault, &entry.key, &entry.key_span)),
        }
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Fault> {
        let entry = self.current.take().expect("serde asks for a key first");
        match seed.deserialize(self.reader.with(&entry.node)) {
            Ok(value) => Ok(value),
            Err(fault) => Err(at_place(fault, &entry.key, &entry.node.span)),
        }
    }
}

// Outside the generic methods, so that they are compiled once.

#[cold]
fn in_item(fault: Fault, index: usize, item: &Node) -> Fault {
    let named = name_of(item).map_or_else(|| index.to_string(), str::to_owned);
    at_place(fault, &named, &item.span)
}

#[cold]
fn at_place(fault: Fault, key: &str, span: &Range<usize>) -> Fault {
    fault.within(key).spanned(span)
}
