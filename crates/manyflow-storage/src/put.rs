//! `manyflow put`: stores files.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use manyflow_core::units::Bytes;
use manyflow_ensembles::store::{
    LiveService, PACKED_BYTES_MAX, PutError, PutOptions, PutReport, put,
};
use manyflow_net::disk::is_special;
use manyflow_store::{Manifest, STORED_BYTES_MAX, is_name};
use manyflow_terminal::display::{Display, OutputError, count_files};
use manyflow_terminal::usage;
use serde_json::json;

use crate::args::PutArgs;
use crate::progress::{TransferProgress, rate};

/// Stores all files: small ones together, the others one after the other.
pub(crate) async fn run(args: PutArgs, display: &Display) -> Result<()> {
    let named = name_files(&args)?;
    if !(1..=STORED_BYTES_MAX as u64).contains(&args.chunk.0) {
        let chunk = args.chunk;
        return Err(usage(format!(
            "--chunk {chunk}: a chunk has 1 to {STORED_BYTES_MAX} bytes"
        )));
    }
    let started = Instant::now();
    let files = named.len();
    let put = async |service: &LiveService| put_all(&args, service, named, display).await;
    let bytes = crate::with_service(&args.client, display, put).await?;
    if files > 1 {
        let seconds = started.elapsed().as_secs_f64();
        let files = count_files(files);
        display.print_line(&format!("{files}, {} in {seconds:.1} s", Bytes(bytes)))?;
    }
    display.print_json(&json!({
        "event": "done", "files": files, "bytes": bytes,
        "seconds": started.elapsed().as_secs_f64(),
    }))?;
    Ok(())
}

/// Stores files. Returns their bytes.
async fn put_all(
    args: &PutArgs,
    service: &LiveService,
    named: BTreeMap<String, PathBuf>,
    display: &Display,
) -> Result<u64> {
    // A version is looked at file by file.
    let can_pack = named.len() > 1 && args.keep == 0 && args.if_version.is_none();
    let (small, others): (Vec<_>, Vec<_>) = named
        .into_iter()
        .partition(|(_, path)| can_pack && is_small(path));
    let mut bytes = put_small(args, service, small, display).await?;
    for (name, path) in &others {
        bytes += put_file(args, service, name, path, display).await?;
    }
    Ok(bytes)
}

fn is_small(path: &Path) -> bool {
    let metadata = fs::metadata(path);
    metadata.is_ok_and(|metadata| metadata.is_file() && metadata.len() <= PACKED_BYTES_MAX)
}

/// Stores small files together. Returns their bytes.
async fn put_small(
    args: &PutArgs,
    service: &LiveService,
    small: Vec<(String, PathBuf)>,
    display: &Display,
) -> Result<u64> {
    if small.is_empty() {
        return Ok(0);
    }
    let started = Instant::now();
    let (mut bytes, mut printed) = (0, Ok(()));
    let client = crate::client(service, &args.client, args.replicas);
    let stored = client.put_packed(small, |path, stored| {
        bytes += stored.manifest.size;
        if printed.is_ok() {
            printed = print_stored(args, &path, &stored, started.elapsed(), display);
        }
    });
    stored.await?;
    printed?;
    Ok(bytes)
}

fn options(args: &PutArgs, name: &str) -> PutOptions {
    let store = crate::config(&args.client, args.replicas);
    PutOptions {
        chunk_bytes: args.chunk.0 as u32,
        keep: args.keep,
        expected: args.if_version,
        ..PutOptions::new(name, store, args.client.patience)
    }
}

/// Returns the name of each file in the store.
fn name_files(args: &PutArgs) -> Result<BTreeMap<String, PathBuf>> {
    let is_single = args.files.len() == 1 && !args.recursive;
    if (args.name.is_some() || args.if_version.is_some()) && !is_single {
        return Err(usage(
            "--name and --if-version are for one file: put the others by themselves",
        ));
    }
    let mut found = Vec::new();
    for path in &args.files {
        let name = match &args.name {
            Some(name) => name.clone(),
            None => default_name(path, args)?,
        };
        match args.recursive {
            true => find_files(path, name, args, &mut found)?,
            false => found.push((name, path.clone())),
        }
    }
    let mut named: BTreeMap<String, PathBuf> = BTreeMap::new();
    for (name, path) in found {
        if !is_name(&name) {
            return Err(usage(format!(
                "{name:?}: a name has 1 to 1024 bytes without control characters; {}",
                name_advice(args)
            )));
        }
        if let Some(other) = named.insert(name, path.clone()) {
            let (path, other) = (path.display(), other.display());
            return Err(usage(format!(
                "{path} and {other} have the same name; put them one by one with --name"
            )));
        }
    }
    Ok(named)
}

/// Finds the files below a path. Their names begin with `name`. Links to folders are not followed.
/// Pipes, sockets, devices and links that lead nowhere are left out: a pipe may have no writer.
fn find_files(
    path: &Path,
    name: String,
    args: &PutArgs,
    found: &mut Vec<(String, PathBuf)>,
) -> Result<()> {
    if !path.is_dir() {
        found.push((name, path.to_owned()));
        return Ok(());
    }
    let unreadable = |error: io::Error| PutError::Read {
        path: path.to_owned(),
        error,
    };
    for entry in fs::read_dir(path).map_err(unreadable)? {
        let below = entry.map_err(unreadable)?.path();
        let is_gone = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
        if is_special(&below) || fs::metadata(&below).is_err_and(is_gone) {
            tracing::warn!("left out: {}: neither a file nor a folder", below.display());
            continue;
        }
        let name = format!("{name}/{}", default_name(&below, args)?);
        if !(below.is_symlink() && below.is_dir()) {
            find_files(&below, name, args, found)?;
        }
    }
    Ok(())
}

fn default_name(path: &Path, args: &PutArgs) -> Result<String> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.map(str::to_owned).ok_or_else(|| {
        usage(format!(
            "{}: has no name in UTF-8; {}",
            path.display(),
            name_advice(args)
        ))
    })
}

fn name_advice(args: &PutArgs) -> &'static str {
    match args.recursive {
        true => "rename it, or put it alone with --name",
        false => "choose one with --name",
    }
}

/// Stores a file. Returns its length in bytes.
async fn put_file(
    args: &PutArgs,
    service: &LiveService,
    name: &str,
    path: &Path,
    display: &Display,
) -> Result<u64> {
    let mut progress = TransferProgress::new(display, name);
    let stored = put(service, path, options(args, name), |now| progress.show(now)).await;
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
