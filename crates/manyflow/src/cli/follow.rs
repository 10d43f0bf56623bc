//! The options of `recv --follow`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use manyflow_core::units::Bytes;
use manyflow_files::follow::Source;

/// Options of a standing receiver.
#[derive(Debug, Args)]
#[command(next_help_heading = "Standing receivers")]
pub(crate) struct FollowArgs {
    /// Stand by, and receive each session that is announced and signed by a key of --trust, into a
    /// folder with its name below --output: by SAP (sap), in the catalogue of a server that
    /// `manyflow serve` or `send --publish` runs (a URL), or as files *.sdp in a folder; can be
    /// repeated. A newer session of the same name replaces the files of the older one
    #[arg(long, value_name = "sap|URL|FOLDER", conflicts_with_all = ["session", "overwrite"])]
    pub(crate) follow: Vec<Source>,
    /// Receive only sessions whose names match this glob pattern; can be repeated
    #[arg(long, value_name = "GLOB", requires = "follow")]
    pub(crate) only: Vec<String>,
    /// Receive only sessions whose files have at most this length together
    #[arg(long, value_name = "SIZE", requires = "follow")]
    pub(crate) max_size: Option<Bytes>,
    /// The number of sessions to receive at a time; each may take --memory
    #[arg(long, value_name = "NUMBER", default_value_t = 4, requires = "follow", value_parser = RangedU64ValueParser::<usize>::new().range(1..=64))]
    pub(crate) at_once: usize,
    /// The folder that remembers which sessions were received [default: .manyflow in the output
    /// folder]
    #[arg(long, value_name = "FOLDER", requires = "follow")]
    pub(crate) state: Option<PathBuf>,
}
