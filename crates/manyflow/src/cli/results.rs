//! The commands and options of `results`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// The commands for results of scenarios.
#[derive(Debug, Subcommand)]
pub(crate) enum ResultsCommand {
    /// Make the results of whole scenarios from the cells that `sim --shard` wrote
    #[command(after_help = MERGE_EXAMPLES)]
    Merge(MergeArgs),
}

const MERGE_EXAMPLES: &str = "\
Example:
  # On ten machines, or as ten jobs of a batch queue
  manyflow sim webrc-5 --shard 1/10 --out part
  ...
  manyflow sim webrc-5 --shard 10/10 --out part

  # The same files that `manyflow sim webrc-5` writes
  manyflow results merge part --out results";

/// Arguments of `results merge`.
#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    /// Folders with cells: those of `sim --out`, or folders in them
    #[arg(required = true, value_name = "FOLDER", value_parser = super::folder())]
    pub(crate) folders: Vec<PathBuf>,
    /// The folder for results, as for `sim`
    #[arg(long, default_value = "results", value_parser = super::folder())]
    pub(crate) out: PathBuf,
}
