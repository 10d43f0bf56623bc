//! Reads the command line, and reports an invalid one in the format that the user asked for.

use std::io;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _};
use serde_json::json;

use crate::cli::{Cli, LogFormat, OutputArgs};
use crate::display::Display;
use crate::{CLOSED_OUTPUT, FAILURE, USAGE, address};

/// Returns the command line, and the names of its command and those below it: `bench sim`.
///
/// # Errors
/// Returns the exit code if there is no command to run: help was printed, or the command line is
/// invalid.
pub(crate) fn parse() -> Result<(Cli, String), ExitCode> {
    let parsed = Cli::command().try_get_matches().and_then(|matches| {
        let command = names(&matches);
        Ok((Cli::from_arg_matches(&matches)?, command))
    });
    parsed.map_err(|error| report(&error))
}

/// Returns the names of subcommands, separated by spaces.
fn names(matches: &ArgMatches) -> String {
    match matches.subcommand() {
        None => String::new(),
        Some((name, below)) => format!("{name} {}", names(below)).trim_end().to_owned(),
    }
}

/// Prints help to standard output, or an error.
fn report(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return match error.print() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => CLOSED_OUTPUT.into(),
            Err(_) => ExitCode::FAILURE,
        };
    }
    let options = OutputArgs::guess(std::env::args().skip(1));
    let message = message(error);
    let code = match address::may_pass(error) {
        true => FAILURE,
        false => USAGE,
    };
    let display = Display::new(&options, String::new());
    // If an output is closed, nobody reads the error.
    let _ = display.print_json(&json!({"event": "failed", "error": message, "exit_code": code}));
    match options.log_format {
        // A wrong value needs no usage: its message says what to write.
        LogFormat::Text if error.kind() == ErrorKind::ValueValidation => display.fail(&message),
        LogFormat::Text => {
            let _ = error.print();
        }
        LogFormat::Json => {
            let _ = display.start_log();
            display.fail(&message);
        }
    }
    code.into()
}

/// Returns the error in one line, without usage and tips.
fn message(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "no command given: --help lists them".to_owned();
    }
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    let words = first
        .strip_prefix("error: ")
        .unwrap_or(first)
        .split_whitespace();
    let message = words.collect::<Vec<_>>().join(" ");
    match error.kind() {
        ErrorKind::ValueValidation => message,
        _ => message + "; --help lists the options",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_an_invalid_command_line_is_one_line() {
        let parse = |words: &[&str]| Cli::command().try_get_matches_from(words).unwrap_err();
        let shown = message(&parse(&["manyflow", "recv"]));
        assert!(shown.contains("<SESSION>; --help"), "{shown}");
        assert!(!shown.contains('\n') && !shown.contains("Usage"), "{shown}");
        let shown = message(&parse(&["manyflow"]));
        assert!(shown.contains("no command given"), "{shown}");
    }

    #[test]
    fn a_command_has_the_names_of_those_above_it() {
        let matches = Cli::command()
            .try_get_matches_from(["manyflow", "bench", "sim"])
            .unwrap();
        assert_eq!(names(&matches), "bench sim");
    }
}
