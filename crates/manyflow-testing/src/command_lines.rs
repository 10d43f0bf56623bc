//! The form of help and of errors, which is the same in all commands.

use std::process::Command;

use serde_json::Value;

use crate::programs::Ended;

/// All commands, and those that only have commands below them.
fn commands(run: fn(&[&str]) -> Ended) -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    let mut next = 0;
    while next < all.len() {
        let path: Vec<String> = all[next].clone();
        let mut words: Vec<&str> = path.iter().map(String::as_str).collect();
        words.push("--help");
        let help = run(&words).succeeded("--help").stdout;
        // Commands stand before the options, in one list or in groups, and none of their arguments
        // begins with a letter.
        let above = help.split("Options:\n").next().unwrap_or_default();
        let lines = above.lines().filter_map(|line| line.strip_prefix("  "));
        let names = lines
            .filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()))
            .filter_map(|line| line.split_whitespace().next());
        let names = names.filter(|name| *name != "help");
        all.extend(names.map(|name| [&path[..], &[name.to_owned()]].concat()));
        next += 1;
    }
    all
}

/// Returns the commands among the examples in a help, each in one line. Comments and lines of files
/// are left out.
pub fn examples(help: &str) -> Vec<String> {
    let joined = help.replace(" \\\n     ", "");
    let lines = joined.lines();
    let behind = lines.skip_while(|line| !line.starts_with("Example"));
    let examples = behind
        .skip(1)
        .map_while(|line| match line.strip_prefix("  ") {
            None if line.is_empty() => Some(""),
            example => example,
        });
    let is_command = |line: &&str| !line.starts_with(['#', '[', '{']) && !line.contains(" = ");
    let examples = examples.filter(|line| !line.is_empty()).filter(is_command);
    examples.map(str::to_owned).collect()
}

/// Checks that the help of each command of a program fits lines of 80 and of 100 columns, that
/// examples remain the same, and that each command without others below it has one. `command`
/// returns the program with arguments.
///
/// # Panics
/// If the help of a command differs.
pub fn check_widths(run: fn(&[&str]) -> Ended, command: fn(&[&str]) -> Command) {
    for path in commands(run) {
        let [narrow, wide] = [80, 100].map(|width| {
            let mut words: Vec<&str> = path.iter().map(String::as_str).collect();
            words.push("-h");
            let mut command = command(&words);
            let help = command.env("COLUMNS", width.to_string()).output().unwrap();
            let help = String::from_utf8(help.stdout).unwrap();
            for line in help.lines() {
                assert!(
                    line.chars().count() <= width,
                    "{path:?}, {width} columns: {line}"
                );
            }
            help
        });
        assert_eq!(examples(&narrow), examples(&wide), "{path:?}");
        let is_leaf = !narrow.contains("<COMMAND>");
        assert!(
            !is_leaf || !examples(&narrow).is_empty(),
            "{path:?} has no example"
        );
    }
}

/// Returns the objects of the lines of an output.
///
/// # Panics
/// If a line is not JSON.
pub fn objects(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

/// Checks that help and the errors of wrong options have the same form in all commands of the
/// program that `run` runs. Returns the number of commands.
///
/// # Panics
/// If a command differs.
pub fn check_all_commands(run: fn(&[&str]) -> Ended) -> usize {
    let commands = commands(run);
    for path in &commands {
        let with = |more: &[&str]| {
            let mut words: Vec<&str> = path.iter().map(String::as_str).collect();
            words.extend(more);
            run(&words)
        };
        for option in ["-h", "--help"] {
            let ended = with(&[option]).succeeded(option);
            assert!(
                ended.stdout.contains("Usage: manyflow"),
                "{path:?}: {ended:?}"
            );
            assert!(ended.stderr.is_empty(), "{path:?}: {ended:?}");
            assert!(
                !ended.stdout.contains('\x1b'),
                "colours for a pipe: {path:?}"
            );
            for global in ["--json", "--quiet", "--verbose", "--log-format"] {
                assert!(ended.stdout.contains(global), "{path:?} {option}: {global}");
            }
        }
        let ended = with(&["--no-such-option"]);
        assert_eq!(ended.code(), 2, "{path:?}: {ended:?}");
        assert!(ended.stderr.starts_with("error: "), "{path:?}: {ended:?}");
        assert!(ended.stdout.is_empty(), "{path:?}: {ended:?}");
        let ended = with(&["--no-such-option", "--json", "--log-format", "json"]);
        assert_eq!(ended.code(), 2, "{path:?}: {ended:?}");
        let [failed] = &objects(&ended.stdout)[..] else {
            panic!("{path:?}: {ended:?}");
        };
        assert_eq!(
            (&failed["event"], &failed["exit_code"]),
            (&"failed".into(), &2.into())
        );
        assert!(
            failed["error"]
                .as_str()
                .unwrap()
                .contains("--no-such-option"),
            "{failed}"
        );
        let [logged] = &objects(&ended.stderr)[..] else {
            panic!("{path:?}: {ended:?}");
        };
        assert_eq!(logged["level"], "ERROR", "{logged}");
    }
    commands.len()
}
