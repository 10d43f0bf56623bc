//! `manyflow keygen`: makes a key that signs session descriptions, a shared key, or certificates.
//! Reads the keys that `recv` trusts.

use std::path::Path;
use std::time::SystemTime;

use anyhow::Result;
use manyflow_messages::certificates::{Subject, make_certificates};
use manyflow_net::group_key::GroupKey;
use manyflow_net::keys::{KeyError, PublicKey, SigningKey};
use serde_json::json;

use crate::cli::KeygenArgs;
use manyflow_terminal::Display;
use manyflow_terminal::usage;

pub(crate) fn run(args: &KeygenArgs, display: &Display) -> Result<()> {
    if let Some(folder) = &args.certificates {
        return certificates(folder, &args.daemon, display);
    }
    if let Some(file) = &args.shared_key {
        GroupKey::generate(file)?;
        display.print_line(&file.display().to_string())?;
        display.print_json(&json!({"event": "written", "file": file}))?;
        return Ok(());
    }
    let file = args
        .file
        .as_ref()
        .ok_or_else(|| usage("name a file for the key"))?;
    let public = SigningKey::generate(file)?.to_string();
    display.print_line(&public)?;
    display.print_json(&json!({"event": "done", "public_key": public}))?;
    Ok(())
}

/// Makes certificates for the daemons of an overlay.
fn certificates(folder: &Path, daemons: &[String], display: &Display) -> Result<()> {
    let subjects: Vec<_> = daemons.iter().map(|daemon| subject(daemon)).collect();
    for file in make_certificates(folder, &subjects, year())? {
        display.print_line(&file.display().to_string())?;
        display.print_json(&json!({"event": "written", "file": file}))?;
    }
    Ok(())
}

/// Parses `NAME` or `NAME=HOST,HOST`.
fn subject(daemon: &str) -> Subject {
    let (name, hosts) = daemon.split_once('=').unwrap_or((daemon, ""));
    let hosts = hosts.split(',').filter(|host| !host.is_empty());
    Subject {
        name: name.to_owned(),
        hosts: hosts.map(str::to_owned).collect(),
    }
}

/// Returns the present year, to a day.
fn year() -> i32 {
    const DAYS_PER_YEAR: f64 = 365.2425;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let days = now.unwrap_or_default().as_secs() / 86_400;
    1970 + (days as f64 / DAYS_PER_YEAR) as i32
}

/// Reads the public keys of `--trust`, each of which is a file or the key itself.
pub(crate) fn trusted_keys(given: &[String]) -> Result<Vec<PublicKey>> {
    let keys = given.iter().map(|key| PublicKey::named(key));
    let keys: Result<_, KeyError> = keys.collect();
    keys.map_err(|error| usage(format!("--trust: {error}")))
}
