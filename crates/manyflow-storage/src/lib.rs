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
//! let cli = Cli::parse_from(["store", "ls", "--member", "10.0.0.1:7001"]);
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

use std::path::Path;
use std::pin::pin;

use anyhow::Result;
use manyflow_ensembles::anypoint::Options;
use manyflow_ensembles::store::{GetError, LiveService, PutError, StoreClient, StoreError};
use manyflow_net::group_key::GroupKey;
use manyflow_store::{DownloadError, StoreConfig, UploadError};
use manyflow_terminal::failure::Interrupted;
use manyflow_terminal::members::Found;
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

/// Opens the service of a command. Returns its members, too, if they were named.
async fn open(args: &StoreClientArgs) -> Result<(LiveService, Found)> {
    let options = options(args.key.as_deref())?;
    if let Some(switch) = &args.switch {
        return Ok((LiveService::new(switch, options), Found::default()));
    }
    let found = args.members.look_up().await?;
    let service = LiveService::of_members(found.members.clone(), options)?;
    Ok((service, found))
}

/// Returns the parameters of transfers.
fn config(args: &StoreClientArgs, copies: u8) -> StoreConfig {
    StoreConfig {
        copies,
        silence_max: args.patience,
        ..StoreConfig::default()
    }
}

/// Returns a client of a service.
fn client(service: &LiveService, args: &StoreClientArgs, copies: u8) -> StoreClient<LiveService> {
    StoreClient::new(service.clone(), config(args, copies), args.patience)
}

/// Does a command's work with its service, unless a signal ends it before.
async fn with_service<T>(
    args: &StoreClientArgs,
    display: &Display,
    work: impl AsyncFnOnce(&LiveService) -> Result<T>,
) -> Result<T> {
    // The signals have handlers before anything is sent.
    let mut interrupted = pin!(interrupted());
    let (service, members) = tokio::select! {
        biased;
        () = &mut interrupted => return Err(Interrupted.into()),
        opened = open(args) => opened?,
    };
    let display = display.on_standard_error();
    let set = |members| service.set_members(members);
    let done = tokio::select! {
        biased;
        () = &mut interrupted => Err(Interrupted.into()),
        done = work(&service) => done,
        failed = args.members.follow(members, set, &display) => match failed? {},
    };
    service.end().await;
    done
}
