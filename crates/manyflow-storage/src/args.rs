//! The options of `put`, `get`, `ls` and `rm`, and of the tasks of `store`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use manyflow_core::units::{Bytes, Rate, parse_duration};
use manyflow_terminal::address::{connect_with_port, listen};
use manyflow_terminal::members::MembersArgs;

const PUT_EXAMPLES: &str = "\
Examples:
  # Each chunk on two of three members; the file is then called image.iso in the store
  manyflow put image.iso --member 10.0.0.1:7001 --member 10.0.0.2:7001 --member 10.0.0.3:7001

  # A folder: photos/2026/a.jpg is then called 2026/a.jpg. Small files share chunks
  manyflow put -r photos/2026 --member dns:store.example.net:7001

  # On three members, under another name, with JSON for scripts
  manyflow put build/out.tar --member dns:store.example.net:7001 --replicas 3 --name releases/1.2/out.tar --json

  # Keep the last five versions readable, and fail if another put has been faster
  manyflow put state.json --member dns:store.example.net:7001 --keep 5 --if-version 1795824000000

  # Behind a switch, encrypted on the way with a key of `manyflow keygen --shared-key service.key`
  manyflow put *.iso --to 10.0.0.9:7000 --key service.key";

const GET_EXAMPLES: &str = "\
Examples:
  manyflow get image.iso --member 10.0.0.1:7001 --member 10.0.0.2:7001 --member 10.0.0.3:7001
  manyflow get releases/1.2/out.tar --member dns:store.example.net:7001 -o /tmp/out.tar
  manyflow get image.iso --from 10.0.0.9:7000 --overwrite --json

  # An earlier version, as `manyflow ls --versions` lists them
  manyflow get state.json --member dns:store.example.net:7001 --version 1795824000000

The file appears under its name when all its bytes have been verified. An interrupted get continues when it is run
again.";

const LS_EXAMPLES: &str = "\
Examples:
  manyflow ls --member 10.0.0.1:7001 --member 10.0.0.2:7001 --member 10.0.0.3:7001
  manyflow ls releases/ --member dns:store.example.net:7001 --json
  manyflow ls state.json --from 10.0.0.9:7000 --versions";

const RM_EXAMPLES: &str = "\
Examples:
  manyflow rm image.iso releases/1.2/out.tar --member dns:store.example.net:7001

The bytes remain on the members until `manyflow store gc`.";

const VERIFY_EXAMPLES: &str = "\
Examples:
  # Has every chunk its copies?
  manyflow store verify --member 10.0.0.1:7001 --member 10.0.0.2:7001 --member 10.0.0.3:7001

  # Members also read all chunks and compare them with their digests
  manyflow store verify --member dns:store.example.net:7001 --read

Ends with 1 if copies are missing.";

const REPAIR_EXAMPLES: &str = "\
Examples:
  # After the loss of a member: name those that are left
  manyflow store repair --member 10.0.0.1:7001 --member 10.0.0.2:7001

  # With a limit, besides that it yields to other clients
  manyflow store repair --member dns:store.example.net:7001 --rate 200Mbit/s

Ends with 1 if copies are still missing.";

const REBALANCE_EXAMPLES: &str = "\
Examples:
  # After members have joined
  manyflow store rebalance --member dns:store.example.net:7001";

const GC_EXAMPLES: &str = "\
Examples:
  # How much belongs to no file?
  manyflow store gc --member dns:store.example.net:7001 --dry-run

  # Remove it, unless it was put less than two days ago
  manyflow store gc --member dns:store.example.net:7001 --age 2d

Run it while all members run: a member that is away may have the only record of a file.";

const S3_EXAMPLES: &str = "\
Examples:
  # keys.txt has a line `AKEXAMPLE a-secret-of-at-least-16-bytes` for each client
  manyflow store s3 --member dns:store.example.net:7001 --listen 127.0.0.1:9000 --credentials keys.txt

  # aws, rclone and restic with this surface
  aws --endpoint-url http://127.0.0.1:9000 s3 cp image.iso s3://images/
  rclone --s3-provider Other --s3-endpoint http://127.0.0.1:9000 --s3-env-auth copy photos :s3:photos
  restic -r s3:http://127.0.0.1:9000/backup backup /home

The surface speaks HTTP without TLS: put it on loopback, or behind a server that ends TLS.";

const USAGE_EXAMPLES: &str = "\
Examples:
  manyflow store usage --member 10.0.0.1:7001 --member 10.0.0.2:7001 --member 10.0.0.3:7001";

/// Commands for the files of a store.
#[derive(Debug, Subcommand)]
pub enum FileCommand {
    /// Store files on members, several copies of each chunk
    #[command(after_help = PUT_EXAMPLES)]
    Put(PutArgs),
    /// Read a file from all members at once
    #[command(after_help = GET_EXAMPLES)]
    Get(GetArgs),
    /// List the files of a store
    #[command(after_help = LS_EXAMPLES)]
    Ls(LsArgs),
    /// Remove files from a store
    #[command(after_help = RM_EXAMPLES)]
    Rm(RmArgs),
}

/// Tasks of the operators of a store.
#[derive(Debug, Subcommand)]
pub enum StoreTask {
    /// Check that every chunk has all its copies
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(VerifyArgs),
    /// Restore the copies that are missing
    #[command(after_help = REPAIR_EXAMPLES)]
    Repair(RepairArgs),
    /// Move chunks to members that have joined
    #[command(after_help = REBALANCE_EXAMPLES)]
    Rebalance(RepairArgs),
    /// Remove chunks that belong to no file
    #[command(after_help = GC_EXAMPLES)]
    Gc(GcArgs),
    /// Show what each member holds, and its free room
    #[command(after_help = USAGE_EXAMPLES)]
    Usage(UsageArgs),
    /// Serve the files to clients of S3: aws s3, rclone, restic
    #[command(after_help = S3_EXAMPLES)]
    S3(S3Args),
}

/// Options of clients of a store: its members, or the switch before them.
#[derive(Debug, Args)]
#[command(mut_arg("member", |member| member.required_unless_present("switch")))]
pub struct StoreClientArgs {
    #[command(flatten)]
    pub(crate) members: MembersArgs,
    /// Instead of members: the switch before them, with the policy replicas
    #[arg(
        long = "at",
        value_name = "HOST:PORT",
        conflicts_with = "member",
        value_parser = connect_with_port
    )]
    pub(crate) switch: Option<String>,
    /// The key that the members have, too: 32 bytes in base64
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Give up after this time without an answer
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    pub(crate) patience: Duration,
}

/// Arguments of `put`.
#[derive(Debug, Args)]
#[command(mut_arg("switch", |switch| switch.long("to")))]
pub struct PutArgs {
    /// The files, one or more
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Store the files of folders, too, each with its path from the folder's name on as its name
    #[arg(long, short)]
    pub(crate) recursive: bool,
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
    /// Keep this number of earlier versions readable
    #[arg(long, value_name = "VERSIONS", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=64))]
    pub(crate) keep: u8,
    /// Store the file only if this version of it is the present one; 0 if there must be none
    #[arg(long, value_name = "VERSION")]
    pub(crate) if_version: Option<u64>,
    #[command(flatten)]
    pub(crate) client: StoreClientArgs,
}

/// Arguments of `get`.
#[derive(Debug, Args)]
#[command(mut_arg("switch", |switch| switch.long("from")))]
pub struct GetArgs {
    /// The name of the file in the store
    pub(crate) name: String,
    /// The version of the file [default: the newest one]
    #[arg(long)]
    pub(crate) version: Option<u64>,
    /// The file to write, or a folder [default: the last part of the name, in the present folder]
    #[arg(long, short, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    pub(crate) overwrite: bool,
    #[command(flatten)]
    pub(crate) client: StoreClientArgs,
}

/// Arguments of `ls`.
#[derive(Debug, Args)]
#[command(mut_arg("switch", |switch| switch.long("from")))]
pub struct LsArgs {
    /// The beginning of the names [default: all names]
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    /// List the earlier versions that can be read, too
    #[arg(long)]
    pub(crate) versions: bool,
    #[command(flatten)]
    pub(crate) client: StoreClientArgs,
}

/// Arguments of `rm`.
#[derive(Debug, Args)]
#[command(mut_arg("switch", |switch| switch.long("from")))]
pub struct RmArgs {
    /// The names of the files, one or more
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) client: StoreClientArgs,
}

/// Arguments of `store verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Let members read all chunks, and compare them with their digests
    #[arg(long)]
    pub(crate) read: bool,
    #[command(flatten)]
    pub(crate) client: StoreClientArgs,
}

/// Arguments of `store repair` and `store rebalance`.
#[derive(Debug, Args)]
pub struct RepairArgs {
    /// The maximum rate at which chunks are copied [default: what other clients leave]
    #[arg(long)]
    pub(crate) rate: Option<Rate>,
    /// Let members read all chunks first, so that damaged copies are replaced
    #[arg(long)]
    pub(crate) read: bool,
    #[command(flatten)]
    pub(crate) client: StoreClientArgs,
}

/// Arguments of `store gc`.
#[derive(Debug, Args)]
pub struct GcArgs {
    /// Keep what was put less than this ago. It has to be longer than any put takes
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_duration)]
    pub(crate) age: Duration,
    /// Count the garbage without removing it
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) client: StoreClientArgs,
}

/// Arguments of `store usage`.
#[derive(Debug, Args)]
pub struct UsageArgs {
    #[command(flatten)]
    pub(crate) client: StoreClientArgs,
}

/// Arguments of `store s3`.
#[derive(Debug, Args)]
pub struct S3Args {
    /// Accept HTTP clients at this address
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listen::<9000>)]
    pub(crate) listen: SocketAddr,
    /// The access keys of clients: in each line of the file a key, a space and its secret
    #[arg(long, value_name = "FILE")]
    pub(crate) credentials: PathBuf,
    /// The number of members that store each chunk of new objects
    #[arg(long, value_name = "MEMBERS", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) replicas: u8,
    #[command(flatten)]
    pub(crate) client: StoreClientArgs,
}
