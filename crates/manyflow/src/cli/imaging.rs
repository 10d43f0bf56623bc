//! The options of `send` and `recv` for images: pipes and block devices.

use std::path::PathBuf;

use clap::Args;

/// Options of `send` for an image.
#[derive(Debug, Args)]
pub(crate) struct ImageSendArgs {
    /// The name under which receivers store what is read from standard input (-) or a block device
    /// [default: stdin, or the device's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
}

/// Options of `recv` for an image.
#[derive(Debug, Args)]
pub(crate) struct ImageRecvArgs {
    /// Run this command with `sh -c`, and write what arrives to its standard input, in order, while
    /// it arrives; for sessions of `send -` or of a device. The command is killed if the session
    /// does not arrive whole, and a recv that is run again begins with the first byte. If the
    /// command fails, recv exits with 1
    #[arg(long, value_name = "COMMAND", conflicts_with = "to")]
    pub(crate) pipe: Option<String>,
    /// Replace the content of this block device or existing file, instead of storing a file in the
    /// output folder, which then has the state of an interrupted recv only; for sessions of
    /// `send -` or of a device
    #[arg(long, value_name = "DEVICE")]
    pub(crate) to: Option<PathBuf>,
}
