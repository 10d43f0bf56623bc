//! Room for the repair symbols of a sender: memory, or a temporary file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use manyflow_object::storage::{MemoryStorage, Storage};

use super::{FileError, check_room};

/// Returns the folder for large temporary files: the value of TMPDIR, or `/var/tmp`, because `/tmp`
/// is often in memory.
pub fn default_scratch() -> PathBuf {
    let persistent = Path::new("/var/tmp");
    match std::env::var_os("TMPDIR") {
        None if persistent.is_dir() => persistent.to_owned(),
        _ => std::env::temp_dir(),
    }
}

/// A sender's storage.
#[derive(Debug)]
pub enum Scratch {
    /// Symbols are in memory.
    Memory(MemoryStorage),
    /// Symbols are in a file without a name, which no longer exists when the process has ended.
    File(File),
}

impl Scratch {
    /// Creates a storage for `bytes`: in memory if these are at most `memory_max`, else in a file
    /// in `folder`.
    ///
    /// # Errors
    /// [`FileError`] if no file can be created in the folder, or if its disk is too small.
    pub fn create(bytes: u64, memory_max: u64, folder: &Path) -> Result<Scratch, FileError> {
        if bytes <= memory_max {
            return Ok(Scratch::Memory(MemoryStorage::default()));
        }
        check_room(folder, bytes)?;
        let file = tempfile::tempfile_in(folder).map_err(|error| FileError::Folder {
            folder: folder.to_owned(),
            error,
        })?;
        Ok(Scratch::File(file))
    }
}

impl Storage for Scratch {
    fn write_at(&mut self, object: u128, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match self {
            Scratch::Memory(memory) => memory.write_at(object, offset, bytes),
            // A sender uses a single object.
            Scratch::File(file) => file.write_all_at(bytes, offset),
        }
    }

    fn read_at(&mut self, object: u128, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        match self {
            Scratch::Memory(memory) => memory.read_at(object, offset, buffer),
            Scratch::File(file) => file.read_exact_at(buffer, offset),
        }
    }

    fn remove(&mut self, object: u128) -> io::Result<()> {
        match self {
            Scratch::Memory(memory) => memory.remove(object),
            Scratch::File(file) => file.set_len(0),
        }
    }
}
