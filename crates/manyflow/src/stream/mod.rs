//! `manyflow stream`: live data in layers, which each receiver gets at its own quality.

mod consume;
mod feed;
pub(crate) mod recv;
pub(crate) mod send;

use std::path::Path;

use anyhow::Result;
use manyflow_layered::hop::HopKey;
use manyflow_net::group_key::GroupKey;
use manyflow_streams::report_key;

use crate::cli::StreamCommand;
use manyflow_terminal::Display;
use manyflow_terminal::usage;

pub(crate) async fn run(command: StreamCommand, display: &Display) -> Result<()> {
    match command {
        StreamCommand::Send(args) => send::run(*args, display).await,
        StreamCommand::Recv(args) => recv::run(*args, display).await,
    }
}

/// Reads the shared key of reports, if there is one.
pub(crate) fn read_key(path: Option<&Path>) -> Result<Option<HopKey>> {
    let key = path.map(GroupKey::read).transpose();
    let key = key.map_err(|error| usage(format!("--key: {error}")))?;
    Ok(key.as_ref().map(report_key))
}
