//! The objects of `--json`: the table of a program lists the keys of each event, and builds with
//! assertions check each object that a command prints. So the tests of all commands test the table,
//! and docs/output.md has the same one.

use serde_json::Value;

/// A key that every object may have: `serve` names the session.
const SESSION_NAME: &str = "session_name";

/// A table in Markdown with the columns command, event, when and keys. A row without a command is
/// one of all commands, and a question mark follows a key that may be missing.
#[derive(Copy, Clone, Debug)]
pub struct Table(&'static str);

/// A row of the table.
struct Row<'a> {
    commands: Vec<&'a str>,
    events: Vec<&'a str>,
    /// The keys, and whether each may be missing.
    keys: Vec<(&'a str, bool)>,
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

impl Table {
    /// Returns the table of this text, whose first two lines are the head.
    pub const fn new(text: &'static str) -> Table {
        Table(text)
    }

    /// Returns the rows of the table.
    fn rows(self) -> impl Iterator<Item = Row<'static>> {
        self.0.lines().skip(2).map(|line| {
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

    /// Checks an object of `command`, such as `bench sim`.
    ///
    /// # Errors
    /// Returns a message if the table has no such event of the command, or other keys.
    pub fn check(self, command: &str, object: &Value) -> Result<(), String> {
        let event = object["event"].as_str().unwrap_or_default();
        let mut problem = format!("events.md has no event `{event}` of `{command}`");
        for row in self.rows() {
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

    /// Checks that each row has events with keys of commands that `program` has, and that each of
    /// its commands has a row.
    ///
    /// # Errors
    /// Returns a message that names the first row or command of which this is not true.
    pub fn check_commands(self, program: &clap::Command) -> Result<(), String> {
        for row in self.rows() {
            if row.events.is_empty() || row.keys.is_empty() {
                return Err(format!("a row of {:?} has no event or key", row.commands));
            }
            for name in &row.commands {
                let mut words = name.split(' ');
                let command = words.try_fold(program, |above, word| above.find_subcommand(word));
                command.ok_or_else(|| format!("events.md has `{name}`, the program has not"))?;
            }
        }
        let mut commands = Vec::new();
        leaves(program, "", &mut commands);
        let has_row = |name: &String| self.rows().any(|row| row.commands.contains(&name.as_str()));
        match commands.iter().find(|name| !has_row(name)) {
            None => Ok(()),
            Some(name) => Err(format!("events.md has no row of `{name}`")),
        }
    }
}

/// Adds the paths of the commands below `command` that can be run, such as `bench sim`.
fn leaves(command: &clap::Command, above: &str, all: &mut Vec<String>) {
    for below in command.get_subcommands() {
        let path = format!("{above} {}", below.get_name()).trim().to_owned();
        // `demo` is a command of its own, too.
        if !below.is_subcommand_required_set() {
            all.push(path.clone());
        }
        leaves(below, &path, all);
    }
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
    use clap::Command;
    use serde_json::json;

    const TABLE: Table = Table::new(
        "| command | event | when | keys |\n\
         |---|---|---|---|\n\
         | | `failed` | | `error`, `exit_code`? |\n\
         | `pub`, `bench sim` | `done` | at the end (never `later`) | `messages`, `bytes`, `seconds` |\n",
    );

    #[test]
    fn an_object_has_the_keys_of_its_row() {
        let check = |command: &str, object: &Value| TABLE.check(command, object);
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
    fn the_table_has_the_commands_of_its_program() {
        let bench = || Command::new("bench").subcommand_required(true);
        let publish = Command::new("pub");
        let program = Command::new("program").subcommand(bench().subcommand(Command::new("sim")));
        let check = |program: &Command| TABLE.check_commands(program);
        assert!(check(&program).unwrap_err().contains("`pub`"));
        let program = program.subcommand(publish);
        assert_eq!(check(&program), Ok(()));
        let program = program.subcommand(Command::new("sub"));
        assert!(check(&program).unwrap_err().contains("no row of `sub`"));
    }
}
