//! The options of every command: what it prints, and where.

use clap::{ArgAction, Args, ValueEnum};

/// Options for output.
#[derive(Clone, Debug, Default, Args)]
pub struct OutputArgs {
    /// Print JSON objects on standard output, one in each line, instead of bars and tables
    /// (docs/output.md)
    #[arg(long, global = true, help_heading = "Output")]
    pub json: bool,
    /// Print results and errors only: neither progress and notes nor warnings
    #[arg(long, short, global = true, help_heading = "Output")]
    pub quiet: bool,
    /// Log more: -v what happens, -vv the reasons, -vvv everything; without it what MANYFLOW_LOG or
    /// RUST_LOG requests, or warnings
    #[arg(long, short, global = true, action = ArgAction::Count, conflicts_with = "quiet", help_heading = "Output")]
    pub verbose: u8,
    /// The format of the log and of errors on standard error: text or json
    #[arg(long, global = true, value_enum, value_name = "FORMAT", default_value_t = LogFormat::Text, help_heading = "Output")]
    pub log_format: LogFormat,
}

/// The format of the log.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines of text, with the time (RFC 3339, UTC) unless standard error is a terminal
    #[default]
    Text,
    /// JSON objects, one in each line, with the keys timestamp, level and message
    Json,
}

impl OutputArgs {
    /// Returns the options in the words of a command line that cannot be parsed as a whole, so that
    /// its error has the format that the user asked for.
    pub fn guess(words: impl Iterator<Item = String>) -> OutputArgs {
        let mut guessed = OutputArgs::default();
        let mut words = words.take_while(|word| word != "--").peekable();
        while let Some(word) = words.next() {
            let is_json = |format: Option<&str>| format == Some("json");
            guessed.json |= word == "--json";
            let format = word.strip_prefix("--log-format=");
            let next = words.peek().map(String::as_str);
            if is_json(format) || word == "--log-format" && is_json(next) {
                guessed.log_format = LogFormat::Json;
            }
        }
        guessed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_of_an_invalid_command_line_is_guessed() {
        let guess = |line: &str| OutputArgs::guess(line.split(' ').map(str::to_owned));
        assert!(guess("send --json").json);
        assert!(!guess("emulate -- tool --json").json);
        for line in ["x --log-format json", "x --log-format=json"] {
            assert_eq!(guess(line).log_format, LogFormat::Json, "{line}");
        }
        assert_eq!(
            guess("x --log-format text --json").log_format,
            LogFormat::Text
        );
    }
}
