//! A program: reads its command line, runs a command, and reports its failure in the format that
//! the user asked for.

use std::process::ExitCode;

use anyhow::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Command, CommandFactory, FromArgMatches};
use clap_complete::CompleteEnv;
use serde_json::json;

use crate::display::Display;
use crate::events::Table;
use crate::failure::{
    CLOSED_OUTPUT, CommandFailed, FAILURE, USAGE, exit_code, files_advice, is_closed_output,
    may_pass,
};
use crate::help::{self, Groups};
use crate::options::{LogFormat, OutputArgs};
use crate::output::OutputError;
use crate::signals;

/// The properties of a program besides its commands.
#[derive(Copy, Clone, Debug)]
pub struct Program {
    /// The objects that `--json` prints.
    pub events: Table,
    /// The commands in the groups in which help lists them; without groups, in one list.
    pub groups: Groups,
    /// Commands of another program that users look for in this one, and the sentence that each
    /// gets instead.
    pub elsewhere: &'static [(&'static str, &'static str)],
    /// Returns the exit code of an error that only this program has.
    pub exit_code: fn(&Error) -> Option<u8>,
}

impl Program {
    /// Reads the command line, and runs its command to the end. Returns the exit code that `--help`
    /// lists.
    pub fn run<C, F>(
        &self,
        output: impl Fn(&C) -> &OutputArgs,
        command: impl FnOnce(C, Display) -> F,
    ) -> ExitCode
    where
        C: CommandFactory + FromArgMatches,
        F: Future<Output = anyhow::Result<()>>,
    {
        // Ends the process if a shell has asked for completions.
        CompleteEnv::with_factory(C::command).complete();
        let (cli, name) = match self.parse::<C>() {
            Ok(parsed) => parsed,
            Err(code) => return code,
        };
        let display = Display::new(output(&cli), name, self.events);
        if let Err(error) = display.start_log() {
            return self.fail(&error, &display);
        }
        let (program, version) = (C::command(), env!("CARGO_PKG_VERSION"));
        tracing::debug!("{} {version} runs", program.get_name());
        let runtime = match tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
        {
            Ok(runtime) => runtime,
            Err(error) => {
                let error = Error::new(error).context("no runtime");
                return self.fail(&error, &display);
            }
        };
        let result = runtime.block_on(async {
            signals::survive_long_files();
            command(cli, display.clone()).await
        });
        // A thread that blocks on standard input would keep the runtime from shutting down.
        runtime.shutdown_background();
        match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) if is_closed_output(&error) => ExitCode::from(CLOSED_OUTPUT),
            Err(error) if error.is::<CommandFailed>() => ExitCode::from(self.code(&error)),
            Err(error) => self.fail(&error, &display),
        }
    }

    /// Returns the command line, and the names of its command and those below it: `bench sim`.
    ///
    /// # Errors
    /// Returns the exit code if there is no command to run: help was printed, or the command line
    /// is invalid.
    fn parse<C: CommandFactory + FromArgMatches>(&self) -> Result<(C, String), ExitCode> {
        let parsed = self.command::<C>().try_get_matches().and_then(|matches| {
            let command = names(&matches);
            Ok((C::from_arg_matches(&matches)?, command))
        });
        parsed.map_err(|error| self.report(&error))
    }

    /// Returns the definition of the command line, with help that fits the terminal.
    fn command<C: CommandFactory>(&self) -> Command {
        help::lay_out(C::command(), self.groups, help::width())
    }

    /// Prints help to standard output, or an error.
    fn report(&self, error: &clap::Error) -> ExitCode {
        if !error.use_stderr() {
            return self.end_help(error.print().map_err(OutputError::new));
        }
        let options = OutputArgs::guess(std::env::args().skip(1));
        let elsewhere = self.place_elsewhere(error);
        let message = elsewhere.map_or_else(|| message(error), str::to_owned);
        let code = match may_pass(error) {
            true => FAILURE,
            false => USAGE,
        };
        let display = Display::new(&options, String::new(), self.events);
        // If an output is closed, nobody reads the error.
        let _ =
            display.print_json(&json!({"event": "failed", "error": message, "exit_code": code}));
        // A wrong value needs no usage: its message says what to write.
        let is_complete = elsewhere.is_some() || error.kind() == ErrorKind::ValueValidation;
        match options.log_format {
            LogFormat::Text if is_complete => display.fail(&message),
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

    /// Returns the exit code of help that was printed, or says why it was not.
    fn end_help(&self, printed: Result<(), OutputError>) -> ExitCode {
        match printed {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) if error.is_closed() => CLOSED_OUTPUT.into(),
            Err(error) => {
                let options = OutputArgs::guess(std::env::args().skip(1));
                Display::new(&options, String::new(), self.events).fail(&error.to_string());
                ExitCode::FAILURE
            }
        }
    }

    /// Returns the sentence about the command of another program that the user has written.
    fn place_elsewhere(&self, error: &clap::Error) -> Option<&'static str> {
        let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else {
            return None;
        };
        let mut elsewhere = self.elsewhere.iter();
        elsewhere.find_map(|(command, place)| (command == name).then_some(*place))
    }

    /// Prints the reason for which a command fails, and returns its exit code.
    fn fail(&self, error: &Error, display: &Display) -> ExitCode {
        let code = self.code(error);
        let message = format!("{error:#}");
        let message = format!("{message}{}", files_advice(&message));
        // If standard output is what failed, the message still goes to standard error.
        let _ =
            display.print_json(&json!({"event": "failed", "error": message, "exit_code": code}));
        display.fail(&message);
        ExitCode::from(code)
    }

    fn code(&self, error: &Error) -> u8 {
        (self.exit_code)(error).unwrap_or_else(|| exit_code(error))
    }
}

/// Returns the names of subcommands, separated by spaces.
fn names(matches: &ArgMatches) -> String {
    match matches.subcommand() {
        None => String::new(),
        Some((name, below)) => format!("{name} {}", names(below)).trim_end().to_owned(),
    }
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
    use clap::Arg;

    fn program() -> Command {
        let recv = Command::new("recv").arg(Arg::new("SESSION").required(true));
        let bench = Command::new("bench").subcommand(Command::new("sim"));
        let program = Command::new("manyflow").subcommands([recv, bench]);
        program
            .subcommand_required(true)
            .arg_required_else_help(true)
    }

    #[test]
    fn the_message_of_an_invalid_command_line_is_one_line() {
        let parse = |words: &[&str]| program().try_get_matches_from(words).unwrap_err();
        let shown = message(&parse(&["manyflow", "recv"]));
        assert!(shown.contains("<SESSION>; --help"), "{shown}");
        assert!(!shown.contains('\n') && !shown.contains("Usage"), "{shown}");
        let shown = message(&parse(&["manyflow"]));
        assert!(shown.contains("no command given"), "{shown}");
    }

    #[test]
    fn a_command_has_the_names_of_those_above_it() {
        let matches = program()
            .try_get_matches_from(["manyflow", "bench", "sim"])
            .unwrap();
        assert_eq!(names(&matches), "bench sim");
    }

    #[test]
    fn a_command_of_another_program_is_named_with_its_place() {
        let here = Program {
            events: Table::new(""),
            groups: &[],
            elsewhere: &[("soak", "soak is there")],
            exit_code: |_| None,
        };
        let place = |words: &[&str]| {
            let error = program().try_get_matches_from(words).unwrap_err();
            here.place_elsewhere(&error)
        };
        let words = ["manyflow", "soak", "files", "--for", "1min"];
        assert_eq!(place(&words), Some("soak is there"));
        assert_eq!(place(&["manyflow", "soek"]), None);
        assert_eq!(place(&["manyflow", "recv"]), None);
    }
}
