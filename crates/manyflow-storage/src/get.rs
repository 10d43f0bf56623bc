//! `manyflow get`: reads a file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use manyflow_core::units::Bytes;
use manyflow_ensembles::store::{GetOptions, GetReport, LiveService, get};
use manyflow_store::is_name;
use serde_json::{Map, Value, json};

use crate::args::GetArgs;
use crate::progress::{TransferProgress, rate};
use manyflow_terminal::display::{Display, OutputError};
use manyflow_terminal::usage;

/// Reads the file.
pub(crate) async fn run(args: GetArgs, display: &Display) -> Result<()> {
    let name = &args.name;
    if !is_name(name) {
        return Err(usage(format!(
            "{name:?}: a name has 1 to 1024 bytes without control characters"
        )));
    }
    let output = output(name, args.output.as_deref())?;
    let options = GetOptions {
        name: name.clone(),
        version: args.version,
        output: output.clone(),
        overwrite: args.overwrite,
        // The number of copies has no effect on a get.
        store: crate::config(&args.client, 1),
        patience: args.client.patience,
    };
    let mut progress = TransferProgress::new(display, name);
    let get = async |service: &LiveService| {
        let read = get(service, options, |now| progress.show(now)).await;
        Ok(read?)
    };
    let read = crate::with_service(&args.client, display, get).await;
    let elapsed = progress.finish();
    print_read(&read?, &output, elapsed?, display)?;
    Ok(())
}

/// Returns the path of the file to write.
fn output(name: &str, output: Option<&Path>) -> Result<PathBuf> {
    let last = || {
        let last = name.rsplit('/').next().unwrap_or_default();
        match last {
            "" | "." | ".." => Err(usage(format!(
                "{name:?} does not end in the name of a file; choose one with -o"
            ))),
            _ => Ok(last),
        }
    };
    match output {
        None => Ok(PathBuf::from(last()?)),
        Some(folder) if folder.is_dir() => Ok(folder.join(last()?)),
        Some(path) if path.file_name().is_none() => {
            let path = path.display();
            Err(usage(format!("-o {path}: is not the path of a file")))
        }
        Some(path) => Ok(path.to_owned()),
    }
}

fn print_read(
    read: &GetReport,
    output: &Path,
    elapsed: Duration,
    display: &Display,
) -> Result<(), OutputError> {
    let GetReport {
        manifest,
        counters,
        resumed_bytes,
    } = read;
    let seconds = elapsed.as_secs_f64();
    let rate = rate(manifest.size - resumed_bytes, elapsed);
    let members = counters.bytes.len();
    display.print_line(&format!(
        "{}: {} from {members} {}, {seconds:.1} s, {rate}",
        output.display(),
        Bytes(manifest.size),
        if members == 1 { "member" } else { "members" },
    ))?;
    let bytes = counters.bytes.iter();
    let bytes: Map<String, Value> = bytes
        .map(|(member, bytes)| (member.to_string(), (*bytes).into()))
        .collect();
    display.print_json(&json!({
        "event": "done",
        "name": manifest.name,
        "file": output,
        "bytes": manifest.size,
        "sha256": manifest.digest.to_string(),
        "version": manifest.version,
        "chunks": manifest.chunks.len(),
        "resumed_bytes": resumed_bytes,
        "members": bytes,
        "missing": counters.missing,
        "wrong": counters.wrong,
        "timeouts": counters.timeouts,
        "seconds": seconds,
        "rate_bits_per_s": rate.bits_per_s(),
    }))
}
