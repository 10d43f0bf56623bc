//! The commands of manyflow's chunk store: files in and out, and the tasks of its operators.
//!
//! | file | what it holds |
//! |---|---|
//! | `args.rs` | the options, with examples |
//! | `put.rs`, `get.rs`, `list.rs` | files into the store and out of it; listings and removal |
//! | `maintain.rs` | verification, repair, garbage collection, usage |
//! | `s3.rs` | the S3 surface of [`manyflow_s3`] as a command |
//! | `progress.rs` | the progress of transfers |
//!
//! The operations themselves are in [`manyflow_ensembles::store`].
//!
//! # Example
//!
//! ```no_run
//! use clap::Parser;
//! use manyflow_storage::FileCommand;
//! use manyflow_terminal::events::Table;
//! use manyflow_terminal::{Display, OutputArgs};
//!
//! #[derive(Parser)]
//! struct Cli {
//!     #[command(subcommand)]
//!     command: FileCommand,
//!     #[command(flatten)]
//!     output: OutputArgs,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> anyhow::Result<()> {
//! let cli = Cli::parse_from(["store", "ls", "--from", "10.0.0.9:7000"]);
//! let events = Table::new(include_str!("../../manyflow/src/events.md"));
//! let display = Display::new(&cli.output, "ls".to_owned(), events);
//! manyflow_storage::run(cli.command, &display).await
//! # }
//! ```
#![forbid(unsafe_code)]

mod args;
mod get;
mod list;
mod maintain;
mod progress;
mod put;
mod s3;

use std::future::Future;
use std::path::Path;

use anyhow::Result;
use manyflow_ensembles::anypoint::Options;
use manyflow_ensembles::store::{GetError, LiveService, PutError, StoreClient, StoreError};
use manyflow_net::group_key::GroupKey;
use manyflow_store::{DownloadError, StoreConfig, UploadError};
use manyflow_terminal::failure::Interrupted;
use manyflow_terminal::signals::interrupted;
use manyflow_terminal::{Display, usage};

pub use args::{
    FileCommand, GcArgs, GetArgs, LsArgs, PutArgs, RepairArgs, RmArgs, S3Args, StoreClientArgs,
    StoreTask, UsageArgs, VerifyArgs,
};

/// Runs a command for files.
///
/// # Errors
/// If the command fails; [`exit_code`] returns the exit code.
pub async fn run(command: FileCommand, display: &Display) -> Result<()> {
    match command {
        FileCommand::Put(args) => put::run(args, display).await,
        FileCommand::Get(args) => get::run(args, display).await,
        FileCommand::Ls(args) => list::list(args, display).await,
        FileCommand::Rm(args) => list::remove(args, display).await,
    }
}

/// Runs a task of an operator.
///
/// # Errors
/// If the task fails; [`exit_code`] returns the exit code.
pub async fn run_task(task: StoreTask, display: &Display) -> Result<()> {
    match task {
        StoreTask::Verify(args) => maintain::verify(args, display).await,
        StoreTask::Repair(args) => maintain::repair(args, display).await,
        StoreTask::Rebalance(args) => maintain::rebalance(args, display).await,
        StoreTask::Gc(args) => maintain::collect_garbage(args, display).await,
        StoreTask::Usage(args) => maintain::show_usage(args, display).await,
        StoreTask::S3(args) => s3::run(args, display).await,
    }
}

/// Returns the exit code of an error of these commands.
pub fn exit_code(error: &anyhow::Error) -> Option<u8> {
    if let Some(error) = error.downcast_ref::<PutError>() {
        return Some(match error {
            PutError::Config(_) | PutError::Manifest(_) => 2,
            PutError::Session(_) | PutError::Upload(UploadError::Silent { .. }) => 3,
            PutError::Find(error) => get_exit_code(error),
            _ => 1,
        });
    }
    if let Some(error) = error.downcast_ref::<StoreError>() {
        return Some(match error {
            StoreError::Config(_) => 2,
            StoreError::Session(_)
            | StoreError::Download(DownloadError::Silent { .. })
            | StoreError::Upload(UploadError::Silent { .. }) => 3,
            StoreError::Find(error) => get_exit_code(error),
            _ => 1,
        });
    }
    error.downcast_ref::<GetError>().map(get_exit_code)
}

fn get_exit_code(error: &GetError) -> u8 {
    match error {
        GetError::Config(_) => 2,
        GetError::Session(_) | GetError::Download(DownloadError::Silent { .. }) => 3,
        _ => 1,
    }
}

/// Returns the parameters of connections.
///
/// # Errors
/// If the key cannot be read.
pub fn options(key: Option<&Path>) -> Result<Options> {
    let key = key.map(GroupKey::read).transpose();
    Ok(Options {
        key: key.map_err(|error| usage(format!("--key: {error}")))?,
        ..Options::default()
    })
}

/// Returns the service behind `switch`.
fn service(switch: &str, args: &StoreClientArgs) -> Result<LiveService> {
    let has_port = switch
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if !has_port {
        return Err(usage(format!(
            "{switch}: the switch has no port; write HOST:PORT"
        )));
    }
    Ok(LiveService::new(switch, options(args.key.as_deref())?))
}

/// Returns the parameters of transfers.
fn config(args: &StoreClientArgs, copies: u8) -> StoreConfig {
    StoreConfig {
        copies,
        silence_max: args.patience,
        ..StoreConfig::default()
    }
}

/// Returns a client of the service behind `switch`.
fn client(switch: &str, args: &StoreClientArgs, copies: u8) -> Result<StoreClient<LiveService>> {
    let service = service(switch, args)?;
    Ok(StoreClient::new(
        service,
        config(args, copies),
        args.patience,
    ))
}

/// Waits for a command's work, unless a signal ends it before.
async fn unless_interrupted<T, E>(work: impl Future<Output = Result<T, E>>) -> Result<T>
where
    anyhow::Error: From<E>,
{
    tokio::select! {
        // The signals have handlers before anything is sent.
        biased;
        () = interrupted() => Err(Interrupted.into()),
        done = work => Ok(done?),
    }
}
