//! The terminal side of manyflow's programs: what they read from their command line, how they
//! print, log and end.
//!
//! | file | contents |
//! |---|---|
//! | `program.rs` | [`Program`]: from the command line to the exit code |
//! | [`help`] | help that fits the terminal, with commands in groups |
//! | [`completion`] | what shells complete besides commands and options |
//! | [`address`] | addresses in options and files |
//! | [`members`] | `--member`: the members of a service, whose names are looked up again |
//! | `options.rs` | [`OutputArgs`]: `--json`, `--quiet`, `--verbose`, `--log-format` |
//! | `display.rs` | [`Display`]: bars for people, JSON for programs, the log |
//! | `output.rs` | lines on standard output, and their error |
//! | `events.rs` | [`events::Table`]: the objects of `--json`, which builds with assertions check |
//! | `receivers.rs` | the receivers of a sender: a table, objects, those missing at the end |
//! | [`status`] | the status page of every role: one page, which draws what a role describes |
//! | `streams.rs` | streams and relays: their objects, and the paths of their pages |
//! | [`metrics`] | the pages that roles serve: metrics and status |
//! | `openmetrics.rs` | the metrics of roles, as the lab shows them |
//! | `received.rs` | the progress and the result of a receiver of files |
//! | `shown.rs` | text from the network, made safe for a terminal |
//! | `failure.rs` | errors of the command line, and the exit codes of all errors |
//! | `signals.rs` | the signals that end a command |
#![forbid(unsafe_code)]

pub mod address;
pub mod completion;
pub mod display;
pub mod events;
pub mod failure;
pub mod help;
pub mod members;
pub mod metrics;
pub mod openmetrics;
pub mod options;
mod output;
pub mod program;
pub mod received;
pub mod receivers;
pub mod shown;
pub mod signals;
pub mod status;
pub mod streams;

pub use display::{Display, OutputError};
pub use failure::usage;
pub use options::{LogFormat, OutputArgs};
pub use program::Program;
