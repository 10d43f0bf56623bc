//! A parsed TOML file whose keys and values know their places. Sweeps and `--fast` replace
//! values in it, and later errors can still name the line.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{Fault, NAME_MAX, Problem, shortened};

/// A value with its place in the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The bytes of the value in the file.
    pub span: Range<usize>,
    /// The value.
    pub value: Value,
}

/// A value of TOML.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A number, which is finite.
    Number(f64),
    /// `true` or `false`.
    Flag(bool),
    /// A list.
    List(Vec<Node>),
    /// A table, in the order of the file.
    Table(Vec<Entry>),
}

/// An entry of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The bytes of the key in the file.
    pub key_span: Range<usize>,
    /// The value.
    pub node: Node,
}

/// Parses TOML.
pub fn parse(text: &str) -> Result<Node, Fault> {
    let table = DeTable::parse(text).map_err(|error| Fault {
        path: Vec::new(),
        span: error.span(),
        problem: Problem::Syntax(described(&error, text)),
    })?;
    let span = table.span();
    table_node(table.into_inner(), span)
}

/// Parses a setting, `KEY=VALUE`, and returns the path and the value. A value that is not TOML is a
/// text.
pub fn setting(text: &str) -> Result<(Vec<String>, Value), Fault> {
    let no_setting = || {
        let message = format!("`{}` is not KEY=VALUE", shortened(text, NAME_MAX));
        Fault::value(message)
    };
    let (key, value) = text.split_once('=').ok_or_else(no_setting)?;
    let tree = match parse(text) {
        Ok(tree) => tree,
        Err(_) => {
            let mut tree = parse(&format!("{key} = ''")).map_err(|_| no_setting())?;
            tree.each_text(&mut |empty| *empty = value.trim().to_owned());
            tree
        }
    };
    match tree.leaves().as_slice() {
        [(path, node)] => Ok((path.clone(), node.value.clone())),
        _ => Err(Fault::value("a setting has one key and one value")),
    }
}

/// Returns the message of a TOML error. Names the key of a duplicate, which TOML's message omits.
fn described(error: &toml::de::Error, text: &str) -> String {
    let key = error.span().and_then(|span| text.get(span));
    match (error.message(), key) {
        ("duplicate key", Some(key)) => {
            let key = shortened(key, NAME_MAX);
            format!("the key `{key}` appears twice: keep one")
        }
        (message, _) => message.to_owned(),
    }
}

fn table_node(table: DeTable<'_>, span: Range<usize>) -> Result<Node, Fault> {
    let mut entries = table
        .into_iter()
        .map(|(key, value)| {
            Ok(Entry {
                key: key.get_ref().to_string(),
                key_span: key.span(),
                node: node(value).map_err(|fault| fault.within(key.get_ref()))?,
            })
        })
        .collect::<Result<Vec<_>, Fault>>()?;
    entries.sort_by_key(|entry| entry.key_span.start);
    Ok(Node {
        span,
        value: Value::Table(entries),
    })
}

fn node(value: Spanned<DeValue<'_>>) -> Result<Node, Fault> {
    let span = value.span();
    let refused = |message: &str| Err(Fault::value(message).spanned(&span));
    let value = match value.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(digits) => match i64::from_str_radix(digits.as_str(), digits.radix()) {
            Ok(number) => Value::Number(number as f64),
            Err(_) => return refused("the number is too large"),
        },
        DeValue::Float(digits) => match digits.as_str().parse::<f64>() {
            Ok(number) if number.is_finite() => Value::Number(number),
            _ => return refused("the number must be finite"),
        },
        DeValue::Boolean(flag) => Value::Flag(flag),
        DeValue::Datetime(_) => return refused("a date has no meaning in a scenario"),
        DeValue::Array(items) => {
            Value::List(items.into_iter().map(node).collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => return table_node(table, span),
    };
    Ok(Node { span, value })
}

impl Node {
    /// Returns an entry of a table by its key, or of a list by its `name` or index.
    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Table(entries) => entries.iter().find(|e| e.key == key).map(|e| &e.node),
            Value::List(items) => items.get(position(items, key)?),
            _ => None,
        }
    }

    /// Returns the entry of a table.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        let Value::Table(entries) = &mut self.value else {
            return None;
        };
        let found = entries.iter_mut().find(|entry| entry.key == key);
        found.map(|entry| &mut entry.node)
    }

    /// Returns the items of a list.
    ///
    /// # Errors
    /// Returns a fault with the message `expected` if the value is not a list.
    pub fn items(&self, expected: &str) -> Result<&[Node], Fault> {
        match &self.value {
            Value::List(items) => Ok(items),
            _ => Err(Fault::value(expected)),
        }
    }

    /// Changes every text in this value, but no keys.
    pub fn each_text(&mut self, change: &mut impl FnMut(&mut String)) {
        match &mut self.value {
            Value::Text(text) => change(text),
            Value::List(items) => items.iter_mut().for_each(|item| item.each_text(change)),
            Value::Table(entries) => {
                let nodes = entries.iter_mut().map(|entry| &mut entry.node);
                nodes.for_each(|node| node.each_text(change));
            }
            Value::Number(_) | Value::Flag(_) => {}
        }
    }

    /// Returns the value at `path`.
    pub fn find(&self, path: &[String]) -> Option<&Node> {
        path.iter().try_fold(self, |here, key| here.next(key))
    }

    /// Returns the place of the value at `path`, or of the innermost existing table around it.
    pub fn locate(&self, path: &[String]) -> Range<usize> {
        let (mut here, mut path) = (self, path.iter());
        while let Some(next) = path.next().and_then(|key| here.next(key)) {
            here = next;
        }
        here.span.clone()
    }

    fn next(&self, key: &str) -> Option<&Node> {
        self.get(key).or_else(|| self.only_holder(key)?.get(key))
    }

    /// Returns the only item of a list that has this key.
    fn only_holder(&self, key: &str) -> Option<&Node> {
        let Value::List(items) = &self.value else {
            return None;
        };
        match holders(items, key).as_slice() {
            [only] => Some(&items[*only]),
            _ => None,
        }
    }

    /// Puts `value` at `path`. Creates missing tables on the way, but no items of lists. A value on
    /// the way that is no table becomes one. A path that omits the name of an item means the only
    /// item with the key that follows: `links.rate`.
    pub fn set(&mut self, path: &[String], value: Node) -> Result<(), Fault> {
        let Some((key, rest)) = path.split_first() else {
            *self = value;
            return Ok(());
        };
        if !matches!(self.value, Value::Table(_) | Value::List(_)) {
            // Some keys take a value or a table. If this one does not, its type refuses the table.
            (self.value, self.span) = (Value::Table(Vec::new()), value.span.clone());
        }
        let next = match &mut self.value {
            Value::Table(entries) => match entries.iter().position(|e| e.key == *key) {
                Some(found) => &mut entries[found].node,
                None => new_entry(entries, key, &value),
            },
            Value::List(items) => match position(items, key) {
                Some(found) => &mut items[found],
                None => {
                    let holder = only_holder(items, key)?;
                    return items[holder].set(path, value);
                }
            },
            _ => unreachable!("other values have become a table"),
        };
        next.set(rest, value).map_err(|fault| fault.within(key))
    }

    /// Removes a key from a table and returns its entry.
    pub fn take(&mut self, key: &str) -> Option<Entry> {
        let Value::Table(entries) = &mut self.value else {
            return None;
        };
        let found = entries.iter().position(|e| e.key == key)?;
        Some(entries.remove(found))
    }

    /// Returns the keys of a table.
    pub fn keys(&self) -> Vec<&str> {
        match &self.value {
            Value::Table(entries) => entries.iter().map(|e| e.key.as_str()).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns all values below this table that are not tables, with their paths.
    pub fn leaves(&self) -> Vec<(Vec<String>, &Node)> {
        let Value::Table(entries) = &self.value else {
            return vec![(Vec::new(), self)];
        };
        let below = |entry| {
            let Entry { key, node, .. }: &Entry = entry;
            let prefixed = move |(mut path, leaf): (Vec<String>, _)| {
                path.insert(0, key.clone());
                (path, leaf)
            };
            node.leaves().into_iter().map(prefixed)
        };
        entries.iter().flat_map(below).collect()
    }
}

fn new_entry<'a>(entries: &'a mut Vec<Entry>, key: &str, value: &Node) -> &'a mut Node {
    let node = Node {
        span: value.span.clone(),
        value: Value::Table(Vec::new()),
    };
    entries.push(Entry {
        key: key.to_owned(),
        key_span: value.span.clone(),
        node,
    });
    let last = entries.len() - 1;
    &mut entries[last].node
}

fn position(items: &[Node], key: &str) -> Option<usize> {
    let by_name = items.iter().position(|item| name_of(item) == Some(key));
    by_name.or_else(|| key.parse().ok().filter(|&index| index < items.len()))
}

/// Returns the items of a list that have this key.
fn holders(items: &[Node], key: &str) -> Vec<usize> {
    let holds = |item: &Node| matches!(item.value, Value::Table(_)) && item.get(key).is_some();
    let indices = items.iter().enumerate().filter(|(_, item)| holds(item));
    indices.map(|(index, _)| index).collect()
}

/// Returns the index of the only item of a list that has this key.
///
/// # Errors
/// Returns an error if no item has the key, or if several have it.
fn only_holder(items: &[Node], key: &str) -> Result<usize, Fault> {
    match holders(items, key).as_slice() {
        [only] => Ok(*only),
        [] => {
            let names = items.iter().filter_map(name_of);
            Err(Fault::at(&[], Problem::unknown("entry", key, names)))
        }
        several => {
            let name = |&index: &usize| {
                let name = name_of(&items[index]).map(str::to_owned);
                format!("`{}`", name.unwrap_or_else(|| index.to_string()))
            };
            let names: Vec<String> = several.iter().map(name).collect();
            let names = names.join(", ");
            Err(Fault::value(format!(
                "several entries have the key `{key}`: name one of {names} before it"
            )))
        }
    }
}

/// Returns the `name` of a table in a list, by which paths refer to it.
pub fn name_of(item: &Node) -> Option<&str> {
    match &item.get("name")?.value {
        Value::Text(name) if matches!(item.value, Value::Table(_)) => Some(name),
        _ => None,
    }
}

/// Returns the line, from 1, that contains the byte at this offset.
pub fn line_of(text: &str, byte: usize) -> usize {
    1 + text
        .as_bytes()
        .iter()
        .take(byte)
        .filter(|&&b| b == b'\n')
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(dotted: &str) -> Vec<String> {
        dotted.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn values_are_found_and_replaced_by_name_or_number() {
        let text = "[[links]]\nname = \"a\"\nrate = 1\n[[links]]\nname = \"b\"\nrate = 2\n";
        let mut tree = parse(text).unwrap();
        assert_eq!(line_of(text, tree.locate(&path("links.b.rate")).start), 6);
        let seven = Node {
            span: 0..0,
            value: Value::Number(7.0),
        };
        tree.set(&path("links.0.rate"), seven.clone()).unwrap();
        tree.set(&path("run.seeds"), seven.clone()).unwrap();
        assert_eq!(
            tree.get("links").unwrap().get("a").unwrap().get("rate"),
            Some(&seven)
        );
        assert_eq!(tree.get("run").unwrap().get("seeds"), Some(&seven));
        let fault = tree.set(&path("links.c.rate"), seven).unwrap_err();
        assert!(fault.to_string().contains("no entry `c`"), "{fault}");
    }

    #[test]
    fn a_path_without_a_name_means_the_only_item_that_has_the_key() {
        let text = "[[links]]\ndelay = 1\n[[links]]\nname = \"b\"\nrate = 2\ndelay = 1\n";
        let mut tree = parse(text).unwrap();
        assert_eq!(line_of(text, tree.locate(&path("links.rate")).start), 5);
        let nine = Node {
            span: 0..0,
            value: Value::Number(9.0),
        };
        tree.set(&path("links.rate"), nine.clone()).unwrap();
        assert_eq!(
            tree.get("links").unwrap().get("b").unwrap().get("rate"),
            Some(&nine)
        );
        let fault = tree.set(&path("links.delay"), nine).unwrap_err();
        assert!(
            fault.to_string().contains("name one of `0`, `b`"),
            "{fault}"
        );
    }

    #[test]
    fn a_setting_is_toml_or_a_text() {
        let value = |text| setting(text).map(|(path, value)| (path.join("."), value));
        let text = |text: &str| Value::Text(text.to_owned());
        assert_eq!(value("a.b=2").unwrap(), ("a.b".into(), Value::Number(2.0)));
        assert_eq!(
            value("a = 5 Mbit/s").unwrap(),
            ("a".into(), text("5 Mbit/s"))
        );
        assert_eq!(value("a='x=y'").unwrap(), ("a".into(), text("x=y")));
        let (_, list) = value("sweep.a=[\"1 s\", 2]").unwrap();
        assert!(matches!(list, Value::List(items) if items.len() == 2));
        for wrong in ["a", "=1", "a b=1", "a={b=1,c=2}", "a=1\nb=2"] {
            assert!(value(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn leaves_keep_the_order_of_the_file() {
        let tree = parse("z.b = [1]\nz.a = 2\nc = \"x\"\n").unwrap();
        let paths: Vec<String> = tree
            .leaves()
            .iter()
            .map(|(path, _)| path.join("."))
            .collect();
        assert_eq!(paths, ["z.b", "z.a", "c"]);
    }
}
