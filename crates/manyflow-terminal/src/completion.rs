//! Values that shells complete besides commands and options. The program is asked for them while a
//! command line is written, so that they are those of this folder and this machine.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;

use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter as _,
};
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};
use manyflow_figures::Source;
use manyflow_net::interfaces::own_addresses;

/// The variable by which a shell asks a program for completions.
const VARIABLE: &str = "COMPLETE";

/// Writes the script that completes the command lines of `program`, which has to be in the shell's
/// path, to `out`. `shell` is `bash`, `zsh` or `fish`.
///
/// # Errors
/// If the shell is another one, or `out` cannot be written to.
pub fn write_script(shell: &str, program: &str, out: &mut dyn io::Write) -> io::Result<()> {
    let shells: [&dyn EnvCompleter; 3] = [&Bash, &Zsh, &Fish];
    let known = shells.into_iter().find(|known| known.is(shell));
    let known =
        known.ok_or_else(|| io::Error::other(format!("no script for the shell {shell}")))?;
    known.write_registration(VARIABLE, program, program, program, out)
}

/// Completes the ids of figures.
pub fn figures() -> ArgValueCandidates {
    ArgValueCandidates::new(figure_candidates)
}

/// Completes files in TOML, folders, and the ids of figures.
pub fn scenarios() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let is_scenario = |path: &std::path::Path| path.extension().is_some_and(|it| it == "toml");
        let mut found = PathCompleter::any().filter(is_scenario).complete(current);
        let begins = |id: &OsStr| {
            let (id, current) = (id.as_encoded_bytes(), current.as_encoded_bytes());
            id.starts_with(current)
        };
        let figures = figure_candidates().into_iter();
        found.extend(figures.filter(|figure| begins(figure.get_value())));
        found
    })
}

/// Completes the names of this machine's network interfaces.
pub fn interfaces() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let own = own_addresses().unwrap_or_default().into_iter();
        // An interface has several addresses.
        let names: BTreeSet<_> = own.map(|own| own.interface).collect();
        names.into_iter().map(CompletionCandidate::new).collect()
    })
}

/// Returns the ids of figures, with the titles of those whose text is at hand.
fn figure_candidates() -> Vec<CompletionCandidate> {
    let figures = manyflow_figures::list(None).unwrap_or_default();
    let candidates = figures.iter().map(|figure| {
        let title = match figure.source() {
            Source::BuiltIn(text) => manyflow_figures::title(text),
            Source::File(_) => None,
        };
        CompletionCandidate::new(figure.id()).help(title.map(Into::into))
    });
    candidates.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(candidates: &[CompletionCandidate]) -> Vec<&str> {
        let values = candidates.iter().map(CompletionCandidate::get_value);
        values.map(|value| value.to_str().unwrap()).collect()
    }

    #[test]
    fn scenarios_are_files_and_figures() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("mine.toml"), "").unwrap();
        std::fs::write(folder.path().join("mine.csv"), "").unwrap();
        let start = folder.path().join("mi");
        let found = scenarios().complete(start.as_os_str());
        assert_eq!(
            values(&found),
            [start.with_file_name("mine.toml").to_str().unwrap()]
        );
        let found = scenarios().complete(OsStr::new("webrc-1"));
        assert!(values(&found).contains(&"webrc-11"), "{found:?}");
        assert!(!values(&found).contains(&"webrc-9"), "{found:?}");
    }

    #[test]
    fn interfaces_are_those_of_this_machine() {
        let found = interfaces().candidates();
        let count = values(&found).iter().filter(|name| **name == "lo").count();
        assert_eq!(count, 1, "{found:?}");
    }

    #[test]
    fn other_shells_have_no_script() {
        let error = write_script("tcsh", "manyflow", &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("tcsh"), "{error}");
    }
}
