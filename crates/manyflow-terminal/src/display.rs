//! Output: bars for people, JSON lines for programs, and warnings between the bars.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use manyflow_core::units::{Bytes, Rate};
use manyflow_files::session::Progress;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::events::Table;
use crate::failure::usage;
use crate::options::{LogFormat, OutputArgs};
pub use crate::output::OutputError;
use crate::output::print_line;
use crate::shown::{shown, shown_json, shown_lines, shown_log};

/// The variable with the levels of the log.
const LOG_VARIABLE: &str = "MANYFLOW_LOG";
/// The levels without options. async-nats logs each attempt to connect; bridges report the first.
/// s3s logs each request that it refuses, with its body; the client has the answer.
const DEFAULT_LEVELS: &str = "warn,async_nats=off,s3s=off";
/// The levels with --quiet.
const QUIET_LEVELS: &str = "error,async_nats=off,s3s=off";

/// Whether the user (no-color.org) and the terminal permit colours, by the values of NO_COLOR and
/// TERM. A `dumb` terminal would show their escape sequences.
fn permits_colours(no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    no_color.is_none_or(OsStr::is_empty) && term.is_none_or(|term| term != "dumb")
}

fn has_colours() -> bool {
    let [no_color, term] = ["NO_COLOR", "TERM"].map(std::env::var_os);
    permits_colours(no_color.as_deref(), term.as_deref())
}

/// Parses the value of MANYFLOW_LOG.
///
/// # Errors
/// Returns an error if it is invalid. A single word has to be a level: EnvFilter would take another
/// one for the name of a module, and log nothing else.
fn parse_levels(levels: &str) -> anyhow::Result<EnvFilter> {
    let is_word = !levels.contains(['=', ',', ':', '[']);
    let is_level = levels
        .parse::<tracing_subscriber::filter::LevelFilter>()
        .is_ok();
    let filter = EnvFilter::builder().parse(levels).ok();
    filter.filter(|_| is_level || !is_word).ok_or_else(|| {
        usage(format!(
            "{LOG_VARIABLE}={levels} has no levels: use error, warn, info, debug or trace, or \
             MODULE=LEVEL,..."
        ))
    })
}

/// Returns the levels of the log: those of the options, of MANYFLOW_LOG, of RUST_LOG, or warnings.
///
/// # Errors
/// Returns an error if MANYFLOW_LOG is invalid.
fn levels(
    options: &OutputArgs,
    manyflow_log: Option<&str>,
    rust_log: Option<EnvFilter>,
) -> anyhow::Result<EnvFilter> {
    match (options.quiet, options.verbose, manyflow_log) {
        (true, ..) => Ok(EnvFilter::new(QUIET_LEVELS)),
        (false, 0, Some(levels)) => parse_levels(levels),
        (false, 0, None) => Ok(rust_log.unwrap_or_else(|| EnvFilter::new(DEFAULT_LEVELS))),
        (false, 1, _) => Ok(EnvFilter::new("info")),
        (false, 2, _) => Ok(EnvFilter::new("debug")),
        (false, 3.., _) => Ok(EnvFilter::new("trace")),
    }
}

/// The output of a command.
#[derive(Clone, Debug)]
pub struct Display {
    options: OutputArgs,
    /// The command that prints, such as `bench sim`.
    command: String,
    events: Table,
    /// Whether lines for people go to standard error.
    to_standard_error: bool,
    /// The name of the session that everything is about, if the command runs several.
    session: Option<String>,
    bars: MultiProgress,
}

impl Display {
    /// The output of `command`, such as `bench sim`, which prints objects of the table `events`.
    pub fn new(options: &OutputArgs, command: String, events: Table) -> Display {
        let bars = MultiProgress::new();
        if options.json || options.quiet {
            bars.set_draw_target(ProgressDrawTarget::hidden());
        }
        Display {
            options: options.clone(),
            command,
            events,
            to_standard_error: false,
            session: None,
            bars,
        }
    }

    /// The command that prints, such as `bench sim`.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// A copy of this display that writes all lines to standard error.
    pub fn on_standard_error(&self) -> Display {
        Display {
            to_standard_error: true,
            ..self.clone()
        }
    }

    /// A copy of this display that names the session `name` in lines, bars and objects.
    pub fn of_session(&self, name: &str) -> Display {
        Display {
            session: Some(name.to_owned()),
            ..self.clone()
        }
    }

    /// Whether the user asked for objects for programs.
    pub fn is_json(&self) -> bool {
        self.options.json
    }

    /// Logs to standard error with the levels that the user asks for. Lines have a time where they
    /// are kept: a terminal shows them when they happen.
    ///
    /// # Errors
    /// Returns an error if MANYFLOW_LOG is invalid.
    pub fn start_log(&self) -> anyhow::Result<()> {
        let own = std::env::var(LOG_VARIABLE).ok();
        let of_libraries = EnvFilter::try_from_default_env().ok();
        let filter = levels(&self.options, own.as_deref(), of_libraries);
        let is_terminal = io::stderr().is_terminal();
        let log = tracing_subscriber::fmt()
            .with_env_filter(
                filter
                    .as_ref()
                    .map_or(EnvFilter::new(DEFAULT_LEVELS), EnvFilter::clone),
            )
            .with_ansi(is_terminal && has_colours())
            .with_target(false)
            .with_writer(self.clone());
        match self.options.log_format {
            LogFormat::Text if is_terminal => log.without_time().init(),
            LogFormat::Text => log.init(),
            LogFormat::Json => log
                .json()
                .flatten_event(true)
                .with_current_span(true)
                .with_span_list(false)
                .init(),
        }
        filter.map(drop)
    }

    /// Prints one line for people; nothing with `--json`.
    pub fn print_line(&self, line: &str) -> Result<(), OutputError> {
        if self.to_standard_error {
            self.print_note(line);
        } else if !self.options.json {
            let label = self.label();
            let line = match io::stdout().is_terminal() {
                true => shown_lines(line),
                false => line.into(),
            };
            self.bars
                .suspend(|| print_line(format_args!("{label}{line}")))?;
        }
        Ok(())
    }

    /// Prints a screen with escape sequences of its own, whose texts have been escaped.
    pub fn print_screen(&self, screen: &str) -> Result<(), OutputError> {
        self.bars.suspend(|| print_line(screen))
    }

    /// Prints one line for people on standard error, for commands that use standard output
    /// otherwise; nothing with `--json` and `--quiet`. A log in JSON has the line instead.
    pub fn print_note(&self, line: &str) {
        if self.options.log_format == LogFormat::Json {
            tracing::info!("{line}");
        } else if !self.options.json && !self.options.quiet {
            let label = self.label();
            let line = shown_lines(line);
            // If standard error is closed, the line cannot be reported anywhere.
            let _ = self
                .bars
                .suspend(|| writeln!(io::stderr(), "{label}{line}"));
        }
    }

    /// Prints the reason for which the program fails, on standard error.
    pub fn fail(&self, message: &str) {
        let message = shown(message);
        if self.options.log_format == LogFormat::Json {
            tracing::error!("{message}");
            return;
        }
        // If standard error is closed too, the message cannot be reported anywhere.
        let _ = self
            .bars
            .suspend(|| writeln!(io::stderr(), "error: {message}"));
    }

    /// Prints one object for programs; nothing without `--json`. The key `session_name` names the
    /// session, if the command runs several.
    pub fn print_json(&self, value: &Value) -> Result<(), OutputError> {
        if cfg!(debug_assertions)
            && let Err(problem) = self.events.check(&self.command, value)
        {
            panic!("{problem}: {value}");
        }
        if !self.options.json {
            return Ok(());
        }
        let mut value = value.clone();
        if let Some(session) = &self.session {
            value["session_name"] = session.as_str().into();
        }
        print_line(shown_json(&value.to_string()))
    }

    /// The beginning of lines and bars.
    fn label(&self) -> String {
        let session = self.session.as_ref();
        session.map_or_else(String::new, |session| format!("{session}: "))
    }

    /// A bar that only shows that work is in progress.
    pub fn spinner(&self, message: String) -> ProgressBar {
        let style = ProgressStyle::with_template("{spinner} {prefix}{msg}");
        let bar = ProgressBar::new_spinner()
            .with_style(style.expect("the template is ours"))
            .with_prefix(self.label())
            .with_message(message);
        let bar = self.bars.add(bar);
        bar.enable_steady_tick(Duration::from_millis(120));
        bar
    }

    /// A bar for a transfer, with `label` in front. It is empty until a length is set.
    pub fn transfer(&self, label: String) -> ProgressBar {
        let style = ProgressStyle::with_template(
            "{prefix} {bar:24.cyan/blue} {percent:>3}%  {received:>17}  {msg}  {left}",
        );
        let style = style
            .expect("the template is ours")
            .progress_chars("█▉▊▋▌▍▎▏ ");
        let style = style.with_key(
            "received",
            |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                let _ = match state.len() {
                    Some(length) => write!(out, "{} / {}", Bytes(state.pos()), Bytes(length)),
                    None => Ok(()),
                };
            },
        );
        let style = style.with_key(
            "left",
            |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                let _ = match state.eta().as_secs() {
                    0 => Ok(()),
                    seconds => write!(out, "{seconds} s left"),
                };
            },
        );
        self.bars.add(
            ProgressBar::no_length()
                .with_style(style)
                .with_prefix(label),
        )
    }
}

/// Runs `watching`, which reports progress. The returned future completes when standard output can
/// no longer be written to.
pub fn watch(
    watching: impl Future<Output = Result<(), OutputError>> + Send + 'static,
) -> (
    JoinHandle<Result<(), OutputError>>,
    impl Future<Output = ()>,
) {
    let (failed, heard) = oneshot::channel();
    let task = tokio::spawn(async move {
        let watched = watching.await;
        if watched.is_err() {
            // If the receiver is gone, the command has ended already.
            let _ = failed.send(());
        }
        watched
    });
    let unheard = async {
        if heard.await.is_err() {
            std::future::pending().await
        }
    };
    (task, unheard)
}

/// `1 file`, `2 files`.
pub fn count_files(count: usize) -> String {
    format!("{count} {}", if count == 1 { "file" } else { "files" })
}

/// Sets a transfer's bar to `progress`.
pub fn show(bar: &ProgressBar, progress: &Progress) {
    // Before the table of files has come, a length of 0 would be a full bar.
    if progress.objects.needed_bytes > 0 {
        bar.set_length(progress.objects.needed_bytes);
    }
    bar.set_position(
        progress
            .objects
            .useful_bytes
            .min(progress.objects.needed_bytes),
    );
    bar.set_message(match progress.webrc {
        Some(status) => rate_line(status.received, status.waves, progress),
        None if bar.length() > Some(0) && bar.length() == Some(bar.position()) => {
            "storing".to_owned()
        }
        None => "joining".to_owned(),
    });
}

fn rate_line(rate: Rate, waves: u32, progress: &Progress) -> String {
    let waves = format!("{waves} waves");
    format!(
        "{:>11}  {waves:>8}  loss {:>4.1} %",
        rate.to_string(),
        progress.packets.loss() * 100.0
    )
}

impl<'a> MakeWriter<'a> for Display {
    type Writer = LogLine;

    fn make_writer(&'a self) -> LogLine {
        LogLine {
            bars: self.bars.clone(),
            is_json: self.options.log_format == LogFormat::Json,
            line: Vec::new(),
        }
    }
}

/// A line of the log. It is written when it is complete, so that it does not cut through a bar.
#[derive(Debug)]
pub struct LogLine {
    bars: MultiProgress,
    is_json: bool,
    line: Vec<u8>,
}

impl Write for LogLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LogLine {
    fn drop(&mut self) {
        let line = String::from_utf8_lossy(&self.line);
        let line = match self.is_json {
            true => shown_json(&line),
            false => shown_log(&line),
        };
        // An error of standard error itself cannot be reported anywhere.
        let _ = self
            .bars
            .suspend(|| io::stderr().write_all(line.as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_no_length_before_the_length_of_the_files_is_known() {
        let display = Display::new(&OutputArgs::default(), "recv".to_owned(), Table::new(""));
        let bar = display.transfer(String::new());
        let mut progress = Progress::default();
        show(&bar, &progress);
        assert_eq!(bar.length(), None);
        (progress.objects.needed_bytes, progress.objects.useful_bytes) = (1_000, 250);
        show(&bar, &progress);
        assert_eq!((bar.length(), bar.position()), (Some(1_000), 250));
    }

    #[test]
    fn colours_are_left_out_if_the_user_or_the_terminal_has_none() {
        let permits = |no_color: Option<&str>, term: Option<&str>| {
            permits_colours(no_color.map(OsStr::new), term.map(OsStr::new))
        };
        assert!(permits(None, Some("xterm")) && permits(Some(""), None));
        assert!(!permits(Some("1"), Some("xterm")) && !permits(None, Some("dumb")));
    }

    #[test]
    fn libraries_that_log_each_request_are_silent_unless_asked() {
        let quiet = OutputArgs {
            quiet: true,
            ..OutputArgs::default()
        };
        let plain = OutputArgs::default();
        for (options, expected) in [(&plain, "warn"), (&quiet, "error")] {
            let levels = levels(options, None, None).unwrap().to_string();
            let mut levels: Vec<_> = levels.split(',').collect();
            levels.sort_unstable();
            let mut wanted = ["async_nats=off", "s3s=off", expected];
            wanted.sort_unstable();
            assert_eq!(levels, wanted);
        }
        let asked = |own, other| levels(&plain, own, other).unwrap().to_string();
        let other = || Some(EnvFilter::new("s3s=debug"));
        assert_eq!(asked(Some("s3s=info"), other()), "s3s=info");
        assert_eq!(asked(None, other()), "s3s=debug");
        assert!(levels(&plain, Some("nonsense"), None).is_err());
        let verbose = OutputArgs {
            verbose: 2,
            ..OutputArgs::default()
        };
        let shown = levels(&verbose, Some("error"), None).unwrap();
        assert_eq!(shown.to_string(), "debug");
    }
}
