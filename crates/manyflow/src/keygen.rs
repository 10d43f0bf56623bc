//! `manyflow keygen`: makes a key that signs session descriptions. Reads the keys that `recv`
//! trusts.

use anyhow::Result;
use manyflow_live::filecast::keys::{KeyError, PublicKey, SigningKey, is_key_text};
use serde_json::json;

use crate::cli::KeygenArgs;
use crate::display::Display;
use crate::usage;

pub(crate) fn run(args: &KeygenArgs, display: &Display) -> Result<()> {
    let public = SigningKey::generate(&args.file)?.to_string();
    display.print_line(&public)?;
    display.print_json(&json!({"event": "done", "public_key": public}))?;
    Ok(())
}

/// Reads the public keys of `--trust`, each of which is a file or the key itself.
pub(crate) fn trusted_keys(given: &[String]) -> Result<Vec<PublicKey>> {
    let keys = given.iter().map(|key| match is_key_text(key) {
        true => key.parse(),
        false => PublicKey::read(key.as_ref()),
    });
    let keys: Result<_, KeyError> = keys.collect();
    keys.map_err(|error| usage(format!("--trust: {error}")))
}
