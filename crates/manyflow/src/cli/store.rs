//! The options of `store`, `put` and `get`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use manyflow_core::units::{Bytes, parse_duration};

const STORE_EXAMPLES: &str = "\
Examples:
  # Three members, each with a disk of its own, and the switch in front of them
  manyflow store --dir /srv/chunks --listen 10.0.0.1:7001
  manyflow store --dir /srv/chunks --listen 10.0.0.2:7001
  manyflow store --dir /srv/chunks --listen 10.0.0.3:7001
  manyflow switch --listen 0.0.0.0:7000 --policy replicas --member a=10.0.0.1:7001 --member b=10.0.0.2:7001 --member c=10.0.0.3:7001

  # With a name for error messages, a key that clients must have, and metrics for Prometheus
  manyflow store --dir /srv/chunks --listen 10.0.0.1:7001 --name rack-1 --key service.key --metrics 127.0.0.1:9464

SIGTERM ends a member at once. Nothing that it has acknowledged is lost, even by SIGKILL.";

const PUT_EXAMPLES: &str = "\
Examples:
  # Each chunk on two members; the file is then called image.iso in the store
  manyflow put image.iso --to 10.0.0.9:7000

  # On three members, under another name, with JSON for scripts
  manyflow put build/out.tar --to 10.0.0.9:7000 --replicas 3 --name releases/1.2/out.tar --json

  # Encrypted on the way, with a key of `manyflow keygen --shared-key service.key`
  manyflow put *.iso --to 10.0.0.9:7000 --key service.key";

const GET_EXAMPLES: &str = "\
Examples:
  manyflow get image.iso --from 10.0.0.9:7000
  manyflow get releases/1.2/out.tar --from 10.0.0.9:7000 -o /tmp/out.tar
  manyflow get image.iso --from 10.0.0.9:7000 --overwrite --json

The file appears under its name when all its bytes have been verified. An interrupted get continues when it is run
again.";

/// The commands of the chunk store.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Keep chunks of files on disk, as a member of a service behind a switch
    #[command(after_help = STORE_EXAMPLES)]
    Store(StoreArgs),
    /// Store files on the members of a service, several copies of each chunk
    #[command(after_help = PUT_EXAMPLES)]
    Put(PutArgs),
    /// Read a file from the members of a service, from all of them at once
    #[command(after_help = GET_EXAMPLES)]
    Get(GetArgs),
}

/// Arguments of `store`.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    /// The folder for chunks, which is made if it is missing. One process uses a folder at a time
    #[arg(long, value_name = "FOLDER")]
    pub(crate) dir: PathBuf,
    /// Accept connections of the switch at this address
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::address::listen::<7000>)]
    pub(crate) listen: SocketAddr,
    /// The member's name, which no other member has: letters, digits, or any of -._: [default: a
    /// random name, which the folder keeps]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// The key that the clients have, too: 32 bytes in base64. Other clients are not understood
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Serve metrics for Prometheus (OpenMetrics text) over HTTP on this address, at /metrics
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::address::listen::<9464>)]
    pub(crate) metrics: Option<SocketAddr>,
}

/// Options of clients of a store.
#[derive(Debug, Args)]
pub(crate) struct StoreClientArgs {
    /// The key that the members have, too: 32 bytes in base64
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Give up after this time without an answer
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    pub(crate) patience: Duration,
}

/// Arguments of `put`.
#[derive(Debug, Args)]
pub(crate) struct PutArgs {
    /// The files, one or more
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The switch of the service
    #[arg(long, value_name = "HOST:PORT", value_parser = crate::address::connect_with_port)]
    pub(crate) to: String,
    /// The number of members that store each chunk
    #[arg(long, value_name = "MEMBERS", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) replicas: u8,
    /// The name of a single file in the store: 1 to 1024 bytes without control characters
    /// [default: the file's name without its folder]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// The length of a chunk, 1B to 1048448B
    #[arg(long, value_name = "SIZE", default_value = "1MB")]
    pub(crate) chunk: Bytes,
    #[command(flatten)]
    pub(crate) client: StoreClientArgs,
}

/// Arguments of `get`.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// The name of the file in the store
    pub(crate) name: String,
    /// The switch of the service
    #[arg(long, value_name = "HOST:PORT", value_parser = crate::address::connect_with_port)]
    pub(crate) from: String,
    /// The file to write, or a folder [default: the last part of the name, in the present folder]
    #[arg(long, short, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    pub(crate) overwrite: bool,
    #[command(flatten)]
    pub(crate) client: StoreClientArgs,
}
