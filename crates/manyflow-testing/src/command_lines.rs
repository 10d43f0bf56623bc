//! The form of help and of errors, which is the same in all commands.

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
        let below = help
            .split_once("Commands:\n")
            .map_or("", |(_, below)| below);
        let lines = below.lines().take_while(|line| line.starts_with("  "));
        let names = lines
            .filter(|line| !line.starts_with("   "))
            .filter_map(|line| line.split_whitespace().next());
        let names = names.filter(|name| *name != "help");
        all.extend(names.map(|name| [&path[..], &[name.to_owned()]].concat()));
        next += 1;
    }
    all
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
