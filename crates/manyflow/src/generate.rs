//! `manyflow completions` and `manyflow man`: what is made from the definition of the command line,
//! so that it names every command and option.

use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory as _;
use serde_json::json;

use crate::cli::{Cli, CompletionShell, CompletionsArgs, ManArgs};
use manyflow_terminal::Display;
use manyflow_terminal::completion::write_script;

/// The name of the binary.
const NAME: &str = "manyflow";

pub(crate) fn completions(args: &CompletionsArgs, display: &Display) -> Result<()> {
    let script = script(args.shell)?;
    display.print_line(script.trim_end())?;
    let shell = args.shell.name();
    display.print_json(&json!({"event": "completions", "shell": shell, "script": script}))?;
    Ok(())
}

/// Returns the script that completes command lines in `shell`. It asks this program for what may
/// follow.
fn script(shell: CompletionShell) -> Result<String> {
    let mut script = Vec::new();
    write_script(shell.name(), NAME, &mut script)?;
    Ok(String::from_utf8(script)?)
}

pub(crate) fn man(args: &ManArgs, display: &Display) -> Result<()> {
    for file in write_pages(&args.out)? {
        display.print_line(&file.display().to_string())?;
        display.print_json(&json!({"event": "written", "file": file}))?;
    }
    Ok(())
}

/// Writes a page for each command into `folder`. Returns the files in alphabetical order.
fn write_pages(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let cannot = || {
        format!(
            "cannot write man pages to {}: choose another folder with --out",
            folder.display()
        )
    };
    std::fs::create_dir_all(folder).with_context(cannot)?;
    let mut files = Vec::new();
    let mut command = Cli::command().name(NAME).disable_help_subcommand(true);
    command.build();
    for (name, command) in pages(&command) {
        let file = folder.join(format!("{name}.1"));
        let mut page = Vec::new();
        clap_mangen::Man::new(command)
            .title(name.to_uppercase())
            .manual("manyflow")
            .render(&mut page)
            .and_then(|()| std::fs::write(&file, &page))
            .with_context(cannot)?;
        files.push(file);
    }
    files.sort();
    Ok(files)
}

/// Returns the pages of `command` and all commands below it by their names, such as
/// `manyflow-bench-sim`.
fn pages(command: &clap::Command) -> Vec<(String, clap::Command)> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let below = command.get_subcommands().filter(|it| !it.is_hide_set());
    let below = below.flat_map(pages);
    let own = (name.to_owned(), command.clone());
    std::iter::once(own).chain(below).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum as _;

    /// Returns all commands but the first, as the words after `manyflow`.
    fn paths(command: &clap::Command, above: &str) -> Vec<String> {
        let mut all = Vec::new();
        for below in command.get_subcommands() {
            let path = format!("{above} {}", below.get_name()).trim().to_owned();
            all.extend(paths(below, &path));
            all.push(path);
        }
        all
    }

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn there_is_a_man_page_for_every_command_with_its_options() {
        let folder = tempfile::tempdir().unwrap();
        let files = write_pages(folder.path()).unwrap();
        let paths = paths(&Cli::command(), "");
        assert!(paths.len() > 30, "{paths:?}");
        assert_eq!(files.len(), paths.len() + 1);
        for path in &paths {
            let page = format!("manyflow-{}.1", path.replace(' ', "-"));
            let text = std::fs::read_to_string(folder.path().join(&page));
            let text = text.unwrap_or_else(|error| panic!("{page}: {error}"));
            let words = path.split(' ');
            let command = words.fold(Cli::command(), |above, word| {
                above.find_subcommand(word).unwrap().clone()
            });
            for option in command.get_arguments().filter_map(|it| it.get_long()) {
                // Pages escape the hyphens of options.
                let shown = format!("\\-\\-{}", option.replace('-', "\\-"));
                assert!(text.contains(&shown), "{page} has no {shown}");
            }
        }
    }

    /// Returns what may follow the words.
    fn completed(words: &[&str]) -> Vec<String> {
        let words: Vec<_> = std::iter::once(&NAME)
            .chain(words)
            .map(Into::into)
            .collect();
        let last = words.len() - 1;
        let found = clap_complete::engine::complete(&mut Cli::command(), words, last, None);
        let values = found.unwrap().into_iter();
        let values = values.map(|candidate| candidate.get_value().to_string_lossy().into_owned());
        values.collect()
    }

    #[test]
    fn completions_name_every_command_and_option() {
        let command = Cli::command();
        for path in paths(&command, "") {
            let words: Vec<_> = path.split(' ').collect();
            let (name, above) = words.split_last().unwrap();
            let named = completed(&[above, &[""]].concat());
            assert!(
                named.iter().any(|known| known == name),
                "no {path}: {named:?}"
            );
        }
        let send = command.find_subcommand("send").unwrap();
        let named = completed(&["send", "--"]);
        for option in send.get_arguments().filter_map(|it| it.get_long()) {
            assert!(
                named.contains(&format!("--{option}")),
                "{named:?} has no {option}"
            );
        }
        for shell in CompletionShell::value_variants() {
            let script = script(*shell).unwrap();
            assert!(
                script.contains("COMPLETE") && script.contains(NAME),
                "{script}"
            );
        }
    }

    #[test]
    fn figures_scenarios_templates_and_interfaces_are_completed() {
        for (words, expected) in [
            (&["figure", "webrc-"][..], "webrc-9"),
            (&["figure", "webrc-9", "cb-1"], "cb-11"),
            (&["sim", "xp-"], "xp-t3"),
            (&["sim", "--new", "bot"], "bottleneck"),
            (&["emulate", "x-ker"], "x-kernel"),
            (&["lab", "any-1"], "any-10"),
            (&["recv", "x.sdp", "--interface", ""], "lo"),
            (&["send", "x", "--interface", "l"], "lo"),
            (&["relay", "--multicast-interface", ""], "lo"),
            (&["stream", "recv", "x.sdp", "--interface", ""], "lo"),
        ] {
            let found = completed(words);
            assert!(
                found.iter().any(|value| value == expected),
                "{words:?}: {found:?}"
            );
        }
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let error = write_pages("/dev/null/man".as_ref()).unwrap_err();
        assert!(error.to_string().contains("/dev/null/man"), "{error}");
    }
}
