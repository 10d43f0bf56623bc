//! The command line: its commands, options and help.

mod bench;
mod soak;

use clap::{Parser, Subcommand};
use manyflow_terminal::OutputArgs;
use manyflow_terminal::events::Table;

pub(crate) use bench::{
    AudienceArgs, BenchCommand, DownloadsArgs, GroupArgs, GroupController, GroupLayout,
    GroupProgram, HeterogeneityArgs, LiveArgs, LossArgs, OrderArgs, OrderProgram, RelayBenchArgs,
    SendOptions, StreamBenchArgs, StreamBenchProtocol, SwitchBenchArgs,
};
pub(crate) use soak::{OrderSoakArgs, OverlaySoakArgs, SoakArgs, SoakCommand, StreamSoakArgs};

/// The objects of `--json`.
pub(crate) const EVENTS: Table = Table::new(include_str!("../events.md"));

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    failed: a file, a socket, a role that does not work, a bound that is not met
  2    the command line is invalid
  130  interrupted by Ctrl-C, SIGTERM or SIGHUP
  141  standard output was closed before everything was written to it

Environment:
  MANYFLOW_LOG  levels of the log: error, warn, info, debug or trace, or those of modules, as in RUST_LOG
  NO_COLOR      no colours, if it is not empty";

/// Measures manyflow beside other programs, and runs it for a long time with faults. The program
/// `manyflow` has to be in the folder of this one.
#[derive(Debug, Parser)]
#[command(version, after_long_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure the speed of the simulator, of transfers and of relays
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Transfer files or group messages for a long time with faults, and check all of them and the
    /// memory
    #[command(subcommand)]
    Soak(SoakCommand),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_table_of_objects_has_every_command() {
        EVENTS.check_commands(&Cli::command()).unwrap();
    }

    #[test]
    fn the_manual_has_the_table_of_objects() {
        let manual = include_str!("../../../../docs/output.md");
        let table = include_str!("../events.md").trim_end();
        assert!(
            manual.contains(table),
            "copy src/events.md into docs/output.md"
        );
    }
}
