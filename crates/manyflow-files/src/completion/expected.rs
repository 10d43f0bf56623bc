//! The list of receivers that a sender expects.
//!
//! ```text
//! # The machines of room 5
//! lab-01
//! lab-02
//! lab-03  ed25519:MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=
//! lab-04  keys/lab-04.key.pub
//! ```

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use manyflow_net::keys::{KeyError, PublicKey};
use manyflow_net::text::BYTE_ORDER_MARK;

use super::identity::{NameError, ReceiverName};

/// The beginning of a public key as text.
const KEY_PREFIX: &str = "ed25519:";

/// The maximum number of receivers in a list.
pub const EXPECTED_MAX: usize = 100_000;

/// A receiver that the sender expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The name.
    pub name: ReceiverName,
    /// The key that signs the receiver's reports; without one, its name is believed.
    pub key: Option<PublicKey>,
}

/// The reason why a list of receivers cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExpectedError {
    /// The file cannot be read.
    #[error("{path}: cannot be read ({cause}); check the path and its permissions")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// A line is invalid.
    #[error("{path}:{line}: {reason}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1 on.
        line: usize,
        /// The flaw.
        reason: LineError,
    },
    /// The file names no receiver.
    #[error("{0}: names no receiver: write one name in each line")]
    Empty(PathBuf),
}

/// The flaw of a line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// The name is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The key is invalid, or its file cannot be read.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// There is more than a name and a key.
    #[error("expected NAME, or NAME and a public key (or its file), and nothing else")]
    Surplus,
    /// An earlier line has the name or the key.
    #[error("{0} is in an earlier line, too: each receiver needs a name and a key of its own")]
    Twice(String),
    /// The list is too long.
    #[error("more than {EXPECTED_MAX} receivers: share them among several sessions")]
    TooMany,
}

/// Reads a list: a name in each line, a name and a key, or a key, which is its own name. `#` begins
/// a comment. Keys are texts or files; files are relative to the folder of the list.
///
/// # Errors
/// If the list cannot be read, has an invalid line, or is empty.
pub fn read_expected(path: &Path) -> Result<Vec<Expected>, ExpectedError> {
    let text = std::fs::read_to_string(path).map_err(|cause| ExpectedError::Unreadable {
        path: path.to_owned(),
        cause,
    })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let (mut list, mut seen) = (Vec::new(), HashSet::new());
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&text);
    for (number, line) in text.lines().enumerate() {
        let content = line.split('#').next().unwrap_or_default();
        let added = add_line(&mut list, &mut seen, content, folder);
        added.map_err(|reason| ExpectedError::Line {
            path: path.to_owned(),
            line: number + 1,
            reason,
        })?;
    }
    match list.is_empty() {
        true => Err(ExpectedError::Empty(path.to_owned())),
        false => Ok(list),
    }
}

fn add_line(
    list: &mut Vec<Expected>,
    seen: &mut HashSet<String>,
    line: &str,
    folder: &Path,
) -> Result<(), LineError> {
    let mut words = line.split_whitespace();
    let Some(name) = words.next() else {
        return Ok(());
    };
    let key = words
        .next()
        .or(name.starts_with(KEY_PREFIX).then_some(name));
    let name: ReceiverName = name.parse()?;
    let key = key.map(|key| public_key(key, folder)).transpose()?;
    if words.next().is_some() {
        return Err(LineError::Surplus);
    }
    if list.len() == EXPECTED_MAX {
        return Err(LineError::TooMany);
    }
    let key_text = key.map(|key| key.to_string());
    let key_text = key_text.filter(|key| key != name.as_str());
    for text in [Some(name.to_string()), key_text].into_iter().flatten() {
        if !seen.insert(text.clone()) {
            return Err(LineError::Twice(text));
        }
    }
    list.push(Expected { name, key });
    Ok(())
}

/// Returns the key of this text, or of this file in `folder`.
fn public_key(key: &str, folder: &Path) -> Result<PublicKey, KeyError> {
    match key.starts_with(KEY_PREFIX) {
        true => key.parse(),
        false => PublicKey::read(&folder.join(key)),
    }
}
