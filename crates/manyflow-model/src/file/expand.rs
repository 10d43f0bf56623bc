//! Expands short forms: texts among the parameters, and tables with a `count`.

use crate::error::Fault;
use crate::expression::Environment;
use crate::file::de::read;
use crate::file::tree::{Entry, Node, Value, name_of};
use crate::names::{formula_name, numbered};
use crate::quantity::{Count, Quantity};

/// The maximum number of tables that one entry makes. More are a mistake in `count`.
const COUNT_MAX: u32 = 100_000;

/// The lists of tables whose `count` is expanded here. The plan expands sessions, because there
/// may be thousands.
const REPEATED: [&str; 2] = ["links", "measure"];

/// Inserts texts for their placeholders, repeats tables with a `count`, and returns the
/// parameters, which it removes from the tree.
pub fn expand(tree: &mut Node) -> Result<Environment, Fault> {
    let parameters = match tree.take("parameters") {
        Some(mut table) => {
            let within = |fault: Fault| fault.within("parameters");
            let texts = take_texts(&mut table.node).map_err(within)?;
            if !texts.is_empty() {
                table.node.each_text(&mut |text| replace(text, &texts));
                tree.each_text(&mut |text| replace(text, &texts));
            }
            quantities(&table.node).map_err(within)?
        }
        None => Environment::new(),
    };
    for key in REPEATED {
        if let Some(list) = tree.get_mut(key) {
            repeat(list, &parameters).map_err(|fault| fault.within(key))?;
        }
    }
    Ok(parameters)
}

/// A text parameter: its placeholder `{name}` and its value.
type Text = (String, String);

/// Removes and returns the parameters that are texts, such as `{ text = "cubic" }`.
fn take_texts(parameters: &mut Node) -> Result<Vec<Text>, Fault> {
    let Value::Table(entries) = &mut parameters.value else {
        return Err(Fault::value("a table is expected").spanned(&parameters.span));
    };
    let mut texts = Vec::new();
    for entry in entries.extract_if(.., |entry| matches!(entry.node.value, Value::Table(_))) {
        let text = match entry.node.get("text").map(|node| &node.value) {
            Some(Value::Text(text)) if entry.node.keys() == ["text"] => Ok(text.clone()),
            _ => Err(Fault::value("a text is written as { text = \"cubic\" }")),
        };
        let text = text.and_then(|text| name(&entry).map(|()| text));
        let text = text.map_err(|fault| fault.within(&entry.key).spanned(&entry.node.span))?;
        texts.push((format!("{{{}}}", entry.key), text));
    }
    Ok(texts)
}

fn name(entry: &Entry) -> Result<(), Fault> {
    formula_name(&entry.key)?;
    match entry.key.as_str() {
        "i" => Err(Fault::value(
            "`{i}` is the number of a repeated table: choose another name",
        )),
        _ => Ok(()),
    }
}

fn replace(text: &mut String, texts: &[Text]) {
    if text.contains('{') {
        for (placeholder, value) in texts {
            *text = text.replace(placeholder, value);
        }
    }
}

/// Returns the parameters that are quantities. Each is a number, or a formula over the
/// parameters before it.
fn quantities(table: &Node) -> Result<Environment, Fault> {
    let mut environment = Environment::new();
    let Value::Table(entries) = &table.value else {
        return Err(Fault::value("a table is expected").spanned(&table.span));
    };
    for entry in entries {
        formula_name(&entry.key).map_err(|fault| fault.spanned(&entry.key_span))?;
        let value: Quantity = read(&entry.node, &environment)
            .map_err(|fault| fault.within(&entry.key).spanned(&entry.node.span))?;
        environment.insert(entry.key.clone(), value.into());
    }
    Ok(environment)
}

/// Replaces each table with a `count` of N by N copies. In the texts of a copy, `{i}` becomes
/// the number of the copy, from 0.
fn repeat(list: &mut Node, parameters: &Environment) -> Result<(), Fault> {
    let Value::List(items) = &mut list.value else {
        return Ok(());
    };
    let mut written = Vec::with_capacity(items.len());
    for (index, mut item) in std::mem::take(items).into_iter().enumerate() {
        let Some(entry) = item.take("count") else {
            written.push(item);
            continue;
        };
        let count = count(&entry, parameters).map_err(|fault| {
            let named = name_of(&item).map_or_else(|| index.to_string(), str::to_owned);
            fault
                .within("count")
                .within(&named)
                .spanned(&entry.node.span)
        })?;
        written.extend((0..count).map(|number| {
            let mut copy = item.clone();
            copy.each_text(&mut |text| *text = numbered(text, number));
            copy
        }));
    }
    *items = written;
    Ok(())
}

fn count(entry: &Entry, parameters: &Environment) -> Result<u32, Fault> {
    let count = read::<Count>(&entry.node, parameters)?.get();
    match count <= COUNT_MAX {
        true => Ok(count),
        false => Err(Fault::value(format!(
            "{count} tables: at most {COUNT_MAX} are possible"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    fn expanded(text: &str) -> Result<Node, String> {
        let mut tree = tree::parse(text).unwrap();
        let parameters = expand(&mut tree);
        parameters.map(|_| tree).map_err(|fault| fault.to_string())
    }

    #[test]
    fn placeholders_in_all_texts_are_replaced() {
        let tree = expanded(
            "title = \"{kind} and {other}\"\n[parameters]\nkind = { text = \"cubic\" }\nn = 2\n\
             [[sessions]]\nname = \"{kind}-{i}\"\nreceivers = [\"{kind}\"]",
        );
        let tree = tree.unwrap();
        let text = |path: [&str; 3]| {
            let found = path.iter().filter(|key| !key.is_empty());
            let found = found.fold(&tree, |node, key| node.get(key).unwrap());
            found.value.clone()
        };
        assert_eq!(
            text(["title", "", ""]),
            Value::Text("cubic and {other}".into())
        );
        assert_eq!(
            text(["sessions", "0", "name"]),
            Value::Text("cubic-{i}".into())
        );
        let receivers = tree
            .get("sessions")
            .unwrap()
            .get("0")
            .unwrap()
            .get("receivers");
        assert_eq!(
            receivers.unwrap().items("").unwrap()[0].value,
            Value::Text("cubic".into())
        );
    }

    #[test]
    fn a_count_repeats_a_table_and_numbers_the_copies() {
        let tree = expanded(
            "[parameters]\nhops = 2\n[[links]]\nname = \"hop-{i}\"\ncount = \"hops + 1\"\n\
             between = [\"r-{i}\", \"r-{i+1}\"]\n[[links]]\nname = \"last\"",
        );
        let links = tree.unwrap();
        let links = links.get("links").unwrap().items("").unwrap();
        let names: Vec<_> = links.iter().map(|link| name_of(link).unwrap()).collect();
        assert_eq!(names, ["hop-0", "hop-1", "hop-2", "last"]);
        let ends = links[1].get("between").unwrap().items("").unwrap();
        assert_eq!(ends[1].value, Value::Text("r-2".into()));
        assert!(links[1].get("count").is_none());
    }

    #[test]
    fn expansion_errors_name_the_key() {
        for (text, why) in [
            (
                "[[measure]]\nname = \"m\"\ncount = 1e6",
                "`measure.m.count`: 1000000 tables: at most 100000 are possible",
            ),
            (
                "[[links]]\ncount = \"n\"",
                "`links.0.count`: there is no name `n`",
            ),
            (
                "[parameters]\nx = {}",
                "`parameters.x`: a text is written as",
            ),
            (
                "[parameters]\nx = { text = 1 }",
                "`parameters.x`: a text is written as",
            ),
            (
                "[parameters]\ni = { text = \"a\" }",
                "`parameters.i`: `{i}` is the number",
            ),
            (
                "[parameters]\n\"a b\" = { text = \"a\" }",
                "`parameters.a b`: `a b` cannot be a name",
            ),
        ] {
            let error = expanded(text).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
    }
}
