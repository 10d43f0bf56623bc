//! The options for reports of receivers: whom `send` expects, and who `recv` is.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgGroup, Args};
use manyflow_files::completion::{ReceiverName, UntilDone};

/// Arguments of `send` for the reports of its receivers.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("audience").args(["expect", "until_done"]).multiple(true))]
pub(crate) struct AudienceArgs {
    /// Expect the receivers of this list: a name in each line, or a name and the public key of the
    /// receiver (or its file). Receivers report how far they are and why they failed; send shows
    /// it, names those missing at its end, and then exits with 1
    #[arg(long, value_name = "FILE")]
    pub(crate) expect: Option<PathBuf>,
    /// Stop when this number of receivers have reported that they have all files; with --expect,
    /// of those listed: all of them, if no number is given. With --for, send fails if they have not
    /// in that time
    #[arg(long, value_name = "RECEIVERS", num_args = 0..=1, default_missing_value = "all", conflicts_with = "forever")]
    pub(crate) until_done: Option<UntilDone>,
    /// The address and UDP port for these reports
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value = "0.0.0.0:5446",
        requires = "audience", value_parser = crate::address::listen::<5446>)]
    pub(crate) reports: SocketAddr,
}

impl AudienceArgs {
    /// Whether receivers report.
    pub(crate) fn takes_reports(&self) -> bool {
        self.expect.is_some() || self.until_done.is_some()
    }
}

/// Arguments of `recv` for its reports to the sender.
#[derive(Debug, Args)]
pub(crate) struct IdentityArgs {
    /// The name under which the sender lists this receiver, which is the same one wherever it has
    /// the name [default: the name of the host; the receiver is the same one in the same output
    /// folder]
    #[arg(long)]
    pub(crate) name: Option<ReceiverName>,
    /// Sign reports with this private key of `manyflow keygen`, so that a sender that lists the
    /// public key believes them and no others
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    /// Do not report to the sender, even if it asks its receivers to
    #[arg(long, conflicts_with_all = ["name", "identity"])]
    pub(crate) no_report: bool,
}
