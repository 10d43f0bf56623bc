//! `manyflow ls` and `manyflow rm`: the names of a store.

use std::time::{Duration, SystemTime};

use anyhow::Result;
use manyflow_core::units::Bytes;
use manyflow_ensembles::store::{LiveService, StoreClient};
use manyflow_store::Summary;
use manyflow_terminal::display::{Display, OutputError, count_files};
use serde_json::json;

use crate::args::{LsArgs, RmArgs};

/// Lists files.
pub(crate) async fn list(args: LsArgs, display: &Display) -> Result<()> {
    let list = async |service: &LiveService| {
        let client = crate::client(service, &args.client, 1);
        list_all(&args, &client, display).await
    };
    crate::with_service(&args.client, display, list).await
}

async fn list_all(
    args: &LsArgs,
    client: &StoreClient<LiveService>,
    display: &Display,
) -> Result<()> {
    let (mut after, mut files, mut bytes) = (String::new(), 0, 0);
    loop {
        let page = client.list(&args.prefix, &after).await?;
        for file in page.files.values().filter(|file| !file.newest.is_removed) {
            let summary = &file.newest;
            print_file(summary, display)?;
            (files, bytes) = (files + 1, bytes + summary.size);
            if args.versions && summary.earlier > 0 {
                print_earlier(client, summary, display).await?;
            }
        }
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    display.print_line(&format!("{}, {}", count_files(files), Bytes(bytes)))?;
    display.print_json(&json!({"event": "done", "files": files, "bytes": bytes}))?;
    Ok(())
}

fn print_file(file: &Summary, display: &Display) -> Result<(), OutputError> {
    let Summary {
        name,
        version,
        size,
        chunks,
        copies,
        earlier,
        ..
    } = file;
    display.print_line(&format!(
        "{}  {:>12}  {version}  {name}",
        date(*version),
        Bytes(*size).to_string()
    ))?;
    display.print_json(&json!({
        "event": "file", "name": name, "bytes": size, "version": version, "chunks": chunks,
        "replicas": copies, "earlier": earlier,
    }))
}

async fn print_earlier(
    client: &StoreClient<LiveService>,
    file: &Summary,
    display: &Display,
) -> Result<()> {
    let manifest = client.find(&file.name).await?;
    for earlier in manifest.iter().flat_map(|manifest| &manifest.earlier) {
        let (version, bytes, name) = (earlier.version, earlier.size, &file.name);
        display.print_line(&format!(
            "{}  {:>12}  {version}  {name} (earlier)",
            date(version),
            Bytes(bytes).to_string()
        ))?;
        display.print_json(&json!({
            "event": "earlier", "name": name, "bytes": bytes, "version": version,
        }))?;
    }
    Ok(())
}

/// Returns the date of a version, which is the time of the put in milliseconds.
fn date(version: u64) -> String {
    let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(version));
    // The dates of HTTP end in the year 9999.
    let last = Duration::from_secs(253_402_300_799);
    let time = time.filter(|time| *time < SystemTime::UNIX_EPOCH + last);
    httpdate::fmt_http_date(time.unwrap_or(SystemTime::UNIX_EPOCH + last))
}

/// Removes files, one after the other.
pub(crate) async fn remove(args: RmArgs, display: &Display) -> Result<()> {
    let remove = async |service: &LiveService| {
        let client = crate::client(service, &args.client, 1);
        remove_all(&args.names, &client, display).await
    };
    crate::with_service(&args.client, display, remove).await
}

async fn remove_all(
    names: &[String],
    client: &StoreClient<LiveService>,
    display: &Display,
) -> Result<()> {
    for name in names {
        let removed = client.remove(name, None).await?;
        display.print_line(&format!("{name}: removed, {}", Bytes(removed.size)))?;
        display.print_json(&json!({
            "event": "removed", "name": name, "bytes": removed.size, "version": removed.version,
        }))?;
    }
    display.print_json(&json!({"event": "done", "files": names.len()}))?;
    Ok(())
}
