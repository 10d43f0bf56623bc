//! The options of `store`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use manyflow_storage::StoreTask;

pub(super) const STORE_EXAMPLES: &str = "\
Examples:
  # Three members, each with a disk of its own, and a client
  manyflow store --dir /srv/chunks --listen 10.0.0.1:7001
  manyflow store --dir /srv/chunks --listen 10.0.0.2:7001
  manyflow store --dir /srv/chunks --listen 10.0.0.3:7001
  manyflow put image.iso --member 10.0.0.1:7001 --member 10.0.0.2:7001 --member 10.0.0.3:7001

  # With a name for error messages, a key that clients must have, and metrics for Prometheus
  manyflow store --dir /srv/chunks --listen 10.0.0.1:7001 --name rack-1 --key service.key --metrics 127.0.0.1:9464

  # After a member was lost: how many chunks lack copies? Restore them
  manyflow store verify --member 10.0.0.1:7001 --member 10.0.0.2:7001
  manyflow store repair --member 10.0.0.1:7001 --member 10.0.0.2:7001

SIGTERM ends a member at once. Nothing that it has acknowledged is lost, even by SIGKILL.";

/// Arguments of `store`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    pub(crate) task: Option<StoreTask>,
    #[command(flatten)]
    pub(crate) member: Option<StoreMemberArgs>,
}

/// Arguments of a member.
#[derive(Debug, Args)]
pub(crate) struct StoreMemberArgs {
    /// The folder for chunks, which is made if it is missing. One process uses a folder at a time
    #[arg(long, value_name = "FOLDER")]
    pub(crate) dir: PathBuf,
    /// Accept connections of clients and switches at this address
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::address::listen::<7000>)]
    pub(crate) listen: SocketAddr,
    /// The member's name, which no other member has: letters, digits, or any of -._: [default: a
    /// random name, which the folder keeps]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// The key that the clients have, too: 32 bytes in base64. Other clients are not understood
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Serve a status page over HTTP on this address, and metrics for Prometheus (OpenMetrics text)
    /// at /metrics
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::address::listen::<9464>)]
    pub(crate) metrics: Option<SocketAddr>,
}
