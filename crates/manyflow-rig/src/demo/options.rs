//! The options of `demo`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use manyflow_core::units::{Bytes, parse_duration};

/// Examples for the help.
pub const DEMO_EXAMPLES: &str = "\
Examples:
  manyflow demo --size 1.5MB
  manyflow demo overlay
  manyflow demo ensemble --size 10MB
  manyflow demo stream --picture pictures.png

The links are emulated in user space on loopback; no packet leaves this machine, and root is not needed.";

const OVERLAY_EXAMPLE: &str = "\
Example:
  manyflow demo overlay --for 20s";

const ENSEMBLE_EXAMPLE: &str = "\
Example:
  manyflow demo ensemble --size 10MB";

const STREAM_EXAMPLE: &str = "\
Example:
  manyflow demo stream --picture pictures.png";

/// Arguments of `demo`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DemoArgs {
    /// Another demo than that of files.
    #[command(subcommand)]
    pub command: Option<DemoCommand>,
    /// Arguments of the demo of files.
    #[command(flatten)]
    pub files: FilesDemoArgs,
}

/// Arguments of the demo of files.
#[derive(Debug, Args)]
pub struct FilesDemoArgs {
    /// The size of the file to send
    #[arg(long, default_value = "1.5MB")]
    pub size: Bytes,
    /// The seed of the file's content and of the links' faults
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// The other demos.
#[derive(Debug, Subcommand)]
pub enum DemoCommand {
    /// Watch six clients of three daemons exchange group messages, while a link gets slow and a
    /// daemon is killed
    #[command(after_help = OVERLAY_EXAMPLE)]
    Overlay(OverlayDemoArgs),
    /// Watch a client fetch a file from four servers over one connection, while one of them is
    /// killed and another joins
    #[command(after_help = ENSEMBLE_EXAMPLE)]
    Ensemble(EnsembleDemoArgs),
    /// Watch four receivers of one stream, each with the quality that its link carries
    #[command(after_help = STREAM_EXAMPLE)]
    Stream(StreamDemoArgs),
}

/// Arguments of `demo overlay`.
#[derive(Debug, Args)]
pub struct OverlayDemoArgs {
    /// The duration. A link is slow from a quarter of it to its half; a daemon is killed at five
    /// eighths of it
    #[arg(long = "for", value_name = "TIME", default_value = "40s", value_parser = parse_duration)]
    pub duration: Duration,
}

/// Arguments of `demo ensemble`.
#[derive(Debug, Args)]
pub struct EnsembleDemoArgs {
    /// The size of the file to fetch
    #[arg(long, default_value = "20MB")]
    pub size: Bytes,
    /// The seed of the file's content
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Arguments of `demo stream`.
#[derive(Debug, Args)]
pub struct StreamDemoArgs {
    /// The duration
    #[arg(long = "for", value_name = "TIME", default_value = "40s", value_parser = parse_duration)]
    pub duration: Duration,
    /// The PNG file for the picture as the receivers got it. By default, it has a new name in the
    /// directory for temporary files
    #[arg(long, value_name = "FILE")]
    pub picture: Option<PathBuf>,
}
