//! The signed tables of an image's sections, in a file of the spool: each behind its length in
//! 4 bytes.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;

use super::spool::read_if_exists;

/// The name of the file.
pub(super) const TABLES: &str = "tables";

/// Returns the tables that an earlier process has received. The last may be incomplete, because the
/// process was killed: it is cut off then.
///
/// # Errors
/// If the file cannot be read or cut.
pub(super) fn read(folder: &Path) -> io::Result<Vec<Vec<u8>>> {
    let path = folder.join(TABLES);
    let bytes = read_if_exists(&path)?.unwrap_or_default();
    let tables = split(&bytes);
    let length: usize = tables.iter().map(|table| table.len() + 4).sum();
    if length < bytes.len() {
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(length as u64)?;
    }
    Ok(tables)
}

/// Appends a table.
///
/// # Errors
/// If it cannot be written.
pub(super) fn append(folder: &Path, table: &[u8]) -> io::Result<()> {
    let path = folder.join(TABLES);
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    let length = (table.len() as u32).to_be_bytes();
    file.write_all(&[&length, table].concat())
}

fn split(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut tables = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk()
        && let Some((table, rest)) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)
    {
        tables.push(table.to_owned());
        bytes = rest;
    }
    tables
}
