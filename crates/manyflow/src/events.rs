//! The objects of `--json`: `events.md` lists the keys of each event, and builds with assertions
//! check each object that a command prints. So the tests of all commands test the list, and
//! docs/output.md has the same one.

use serde_json::Value;

/// The table of docs/output.md.
const TABLE: &str = include_str!("events.md");

/// A key that every object may have: `serve` names the session.
const SESSION_NAME: &str = "session_name";

/// A row of the table.
struct Row<'a> {
    commands: Vec<&'a str>,
    events: Vec<&'a str>,
    /// The keys, and whether each may be missing.
    keys: Vec<(&'a str, bool)>,
}

/// Returns the rows of the table.
fn rows() -> impl Iterator<Item = Row<'static>> {
    TABLE.lines().skip(2).map(|line| {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let mut cell = || cells.next().unwrap_or_default();
        let (commands, events, _when, keys) = (cell(), cell(), cell(), cell());
        Row {
            commands: names(commands).map(|(name, _)| name).collect(),
            events: names(events).map(|(name, _)| name).collect(),
            keys: names(keys).collect(),
        }
    })
}

/// Returns the texts in back quotes outside of parentheses, and whether a question mark follows
/// each.
fn names(cell: &str) -> impl Iterator<Item = (&str, bool)> {
    let parts = cell.split('`');
    let following = parts.clone().skip(1).chain([""]);
    let mut depth = 0;
    parts
        .zip(following)
        .enumerate()
        .filter_map(move |(index, (part, next))| {
            if index % 2 == 0 {
                depth += part.matches('(').count() as i32 - part.matches(')').count() as i32;
                return None;
            }
            (depth == 0).then_some((part, next.starts_with('?')))
        })
}

/// Checks an object of `command`, such as `bench sim`.
///
/// # Errors
/// Returns a message if the table has no such event of the command, or other keys.
pub(crate) fn check(command: &str, object: &Value) -> Result<(), String> {
    let event = object["event"].as_str().unwrap_or_default();
    let mut problem = format!("events.md has no event `{event}` of `{command}`");
    for row in rows() {
        let is_any = row.commands.is_empty();
        if !(is_any || row.commands.contains(&command)) || !row.events.contains(&event) {
            continue;
        }
        match row.difference(object) {
            None => return Ok(()),
            Some(difference) => problem = format!("`{event}` of `{command}`: {difference}"),
        }
    }
    Err(problem)
}

impl Row<'_> {
    /// Returns a key that the object lacks, or one that the row lacks.
    fn difference(&self, object: &Value) -> Option<String> {
        let keys = object.as_object()?;
        let lacks = |(key, may_miss): &&(&str, bool)| !may_miss && !keys.contains_key(*key);
        if let Some((key, _)) = self.keys.iter().find(lacks) {
            return Some(format!("the object has no key `{key}`"));
        }
        let is_known = |key: &str| {
            ["event", SESSION_NAME].contains(&key)
                || self.keys.iter().any(|(known, _)| *known == key)
        };
        let unknown = keys.keys().find(|key| !is_known(key))?;
        Some(format!("events.md has no key `{unknown}`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory as _;
    use serde_json::json;

    #[test]
    fn an_object_has_the_keys_of_its_row() {
        let done = json!({"event": "done", "messages": 1, "bytes": 2, "seconds": 0.5});
        assert_eq!(check("pub", &done), Ok(()));
        let mut other = done.clone();
        other["more"] = 1.into();
        assert!(check("pub", &other).unwrap_err().contains("`more`"));
        let few = json!({"event": "done", "messages": 1});
        assert!(check("pub", &few).unwrap_err().contains("`bytes`"));
        assert!(
            check("sub", &done)
                .unwrap_err()
                .contains("no event `done` of `sub`")
        );
        let failed = json!({"event": "failed", "error": "x", "session_name": "y"});
        assert_eq!(check("serve", &failed), Ok(()));
    }

    #[test]
    fn every_row_names_commands_that_exist() {
        let mut count = 0;
        for row in rows() {
            assert!(
                !row.events.is_empty() && !row.keys.is_empty(),
                "{:?}",
                row.events
            );
            for name in &row.commands {
                let command = name.split(' ').try_fold(Cli::command(), |above, word| {
                    above.find_subcommand(word).cloned()
                });
                assert!(command.is_some(), "{name}");
            }
            count += 1;
        }
        assert!(count > 50, "{count}");
    }

    #[test]
    fn every_command_has_a_row() {
        fn leaves(command: &clap::Command, above: &str, all: &mut Vec<String>) {
            for below in command.get_subcommands() {
                let path = format!("{above} {}", below.get_name()).trim().to_owned();
                // `demo` is a command of its own, too.
                if !below.has_subcommands() || path == "demo" {
                    all.push(path.clone());
                }
                leaves(below, &path, all);
            }
        }
        let mut commands = Vec::new();
        leaves(&Cli::command(), "", &mut commands);
        for command in commands.iter().filter(|it| *it != "demo files") {
            let has = rows().any(|row| row.commands.contains(&command.as_str()));
            assert!(has, "{command}");
        }
    }

    #[test]
    fn the_manual_has_the_table() {
        let manual = include_str!("../../../docs/output.md");
        assert!(
            manual.contains(TABLE.trim_end()),
            "copy src/events.md into docs/output.md"
        );
    }
}
