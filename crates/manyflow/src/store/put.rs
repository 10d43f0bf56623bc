//! `manyflow put`: stores files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use manyflow_core::units::Bytes;
use manyflow_ensembles::store::{LiveService, PutOptions, PutReport, put};
use manyflow_store::{Manifest, STORED_BYTES_MAX, is_name};
use serde_json::json;

use super::progress::{TransferProgress, rate};
use crate::cli::PutArgs;
use crate::messages::Interrupted;
use manyflow_terminal::display::{Display, OutputError, count_files};
use manyflow_terminal::signals::interrupted;
use manyflow_terminal::usage;

/// Stores all files, one after the other.
pub(super) async fn run(args: PutArgs, display: &Display) -> Result<()> {
    let service = super::service(&args.to, &args.client)?;
    let named = name_files(&args)?;
    if !(1..=STORED_BYTES_MAX as u64).contains(&args.chunk.0) {
        let chunk = args.chunk;
        return Err(usage(format!(
            "--chunk {chunk}: a chunk has 1 to {STORED_BYTES_MAX} bytes"
        )));
    }
    let started = Instant::now();
    let mut bytes = 0;
    for (name, path) in &named {
        bytes += tokio::select! {
            // The signals have handlers before anything is sent.
            biased;
            () = interrupted() => return Err(Interrupted.into()),
            stored = put_file(&args, &service, name, path, display) => stored?,
        };
    }
    if named.len() > 1 {
        let seconds = started.elapsed().as_secs_f64();
        let files = count_files(named.len());
        display.print_line(&format!("{files}, {} in {seconds:.1} s", Bytes(bytes)))?;
    }
    display.print_json(&json!({
        "event": "done", "files": named.len(), "bytes": bytes,
        "seconds": started.elapsed().as_secs_f64(),
    }))?;
    Ok(())
}

/// Returns the name of each file in the store.
fn name_files(args: &PutArgs) -> Result<BTreeMap<String, PathBuf>> {
    if args.name.is_some() && args.files.len() > 1 {
        return Err(usage(
            "--name is for one file: put the others by themselves",
        ));
    }
    let mut named: BTreeMap<String, PathBuf> = BTreeMap::new();
    for path in &args.files {
        let name = match &args.name {
            Some(name) => name.clone(),
            None => default_name(path)?,
        };
        if !is_name(&name) {
            return Err(usage(format!(
                "{name:?}: a name has 1 to 1024 bytes without control characters; choose one with --name"
            )));
        }
        if let Some(other) = named.insert(name.clone(), path.clone()) {
            let (path, other) = (path.display(), other.display());
            return Err(usage(format!(
                "{path} and {other} have the same name; put them one by one with --name"
            )));
        }
    }
    Ok(named)
}

fn default_name(path: &Path) -> Result<String> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.map(str::to_owned).ok_or_else(|| {
        usage(format!(
            "{}: has no name in UTF-8; choose one with --name",
            path.display()
        ))
    })
}

/// Stores a file. Returns its length in bytes.
async fn put_file(
    args: &PutArgs,
    service: &LiveService,
    name: &str,
    path: &Path,
    display: &Display,
) -> Result<u64> {
    let options = PutOptions {
        name: name.to_owned(),
        chunk_bytes: args.chunk.0 as u32,
        store: super::config(&args.client, args.replicas),
        patience: args.client.patience,
    };
    let mut progress = TransferProgress::new(display, name);
    let stored = put(service, path, options, |now| progress.show(now)).await;
    let elapsed = progress.finish();
    let stored = stored?;
    print_stored(args, path, &stored, elapsed?, display)?;
    Ok(stored.manifest.size)
}

fn print_stored(
    args: &PutArgs,
    path: &Path,
    stored: &PutReport,
    elapsed: Duration,
    display: &Display,
) -> Result<(), OutputError> {
    let (manifest, copies) = (&stored.manifest, args.replicas);
    let chunks = manifest.chunks.len();
    let rate = rate(manifest.size, elapsed);
    display.print_line(&format!(
        "{}: {}, {chunks} {}, {copies} {} of each, {:.1} s, {rate}",
        manifest.name,
        Bytes(manifest.size),
        if chunks == 1 { "chunk" } else { "chunks" },
        if copies == 1 { "copy" } else { "copies" },
        elapsed.as_secs_f64(),
    ))?;
    display.print_json(&json!({
        "event": "stored",
        "name": manifest.name,
        "file": path,
        "bytes": manifest.size,
        "sha256": manifest.digest.to_string(),
        "version": manifest.version,
        "chunks": chunks,
        "chunk_bytes": manifest.chunk_bytes,
        "replicas": copies,
        "replaced": stored.replaced,
        "members": chunks_of_members(manifest),
        "seconds": elapsed.as_secs_f64(),
        "rate_bits_per_s": rate.bits_per_s(),
    }))
}

/// Returns the number of chunks on each member.
fn chunks_of_members(manifest: &Manifest) -> BTreeMap<&str, u64> {
    let mut members = BTreeMap::new();
    for member in manifest.chunks.iter().flat_map(|chunk| &chunk.members) {
        *members.entry(member.as_str()).or_default() += 1;
    }
    members
}
