//! `manyflow store`, `put` and `get`: a replicated store of chunks behind a switch.

mod get;
mod member;
mod progress;
mod put;

use std::path::Path;

use anyhow::Result;
use manyflow_ensembles::anypoint::Options;
use manyflow_ensembles::store::{GetError, LiveService, PutError};
use manyflow_net::group_key::GroupKey;
use manyflow_store::{DownloadError, StoreConfig, UploadError};

use crate::cli::{StoreClientArgs, StoreCommand};
use manyflow_terminal::Display;
use manyflow_terminal::usage;

pub(crate) async fn run(command: StoreCommand, display: &Display) -> Result<()> {
    match command {
        StoreCommand::Store(args) => member::run(args, display).await,
        StoreCommand::Put(args) => put::run(args, display).await,
        StoreCommand::Get(args) => get::run(args, display).await,
    }
}

/// Returns the exit code of an error of these commands.
pub(crate) fn exit_code(error: &anyhow::Error) -> Option<u8> {
    if let Some(error) = error.downcast_ref::<PutError>() {
        return Some(match error {
            PutError::Config(_) | PutError::Manifest(_) => 2,
            PutError::Session(_) | PutError::Upload(UploadError::Silent { .. }) => 3,
            PutError::Find(error) => get_exit_code(error),
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
fn options(key: Option<&Path>) -> Result<Options> {
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
