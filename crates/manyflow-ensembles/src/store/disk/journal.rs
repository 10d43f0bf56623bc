//! The journal of a member's folder: batches of manifests that are on disk in one file each, while
//! the files with their names are not necessarily.
//!
//! A batch is written to the journal and synced, which makes the disk work once instead of once for
//! each manifest. Then each manifest gets its file. Some batches later, one sync of the whole file
//! system makes these files durable, and the batches are removed. When a folder is opened, the
//! manifests of the batches that are left get their files again, if these are not sound.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use manyflow_store::{Address, Batch, Hash, Manifest};

use super::{Changes, PARTIAL, sync_folder, write_synced, write_unsynced};

/// The batches after which the file system is synced.
const BATCHES_MAX: usize = 64;

/// The batches of a folder that are not known to be durable as files.
#[derive(Debug)]
pub(super) struct Journal {
    folder: PathBuf,
    names: PathBuf,
    /// The paths of the batches.
    batches: Mutex<Vec<PathBuf>>,
}

impl Journal {
    /// Opens the journal below a folder, and writes the manifests of its batches.
    pub(super) fn open(folder: &Path) -> io::Result<Journal> {
        let journal = Journal {
            folder: folder.join("journal"),
            names: folder.join("names"),
            batches: Mutex::default(),
        };
        fs::create_dir_all(&journal.folder)?;
        for entry in fs::read_dir(&journal.folder)? {
            let path = entry?.path();
            if !is_partial(&path) {
                journal.replay(&path)?;
            }
            fs::remove_file(path)?;
        }
        Ok(journal)
    }

    /// Writes the manifests of a batch whose files are not sound, or older.
    fn replay(&self, path: &Path) -> io::Result<()> {
        let bytes = Bytes::from(fs::read(path)?);
        // A batch that was cut was not acknowledged.
        for bytes in Batch::decode(bytes).unwrap_or_default() {
            let Ok(manifest) = Manifest::decode(&bytes) else {
                continue;
            };
            let file = Address::of_name(&manifest.name).hash().to_string();
            let held = fs::read(self.names.join(&file)).unwrap_or_default();
            if Manifest::is_newer(&bytes, &held) {
                write_synced(&self.names, &file, &bytes, &Changes::default())?;
            }
        }
        Ok(())
    }

    /// Stores manifests. When the call returns, they survive a crash.
    pub(super) fn put(&self, items: &[(Address, Bytes)], changes: &Changes) -> io::Result<()> {
        // A flush must not come between a batch and the files of its manifests.
        let mut batches = self.lock();
        let mut batch = Batch::default();
        for (_, manifest) in items {
            if !batch.push(manifest) {
                batches.push(self.write(std::mem::take(&mut batch))?);
                let fits = batch.push(manifest);
                debug_assert!(fits, "a manifest fits a batch");
            }
        }
        batches.push(self.write(batch)?);
        for (address, manifest) in items {
            write_unsynced(&self.names, &address.hash().to_string(), manifest, changes)?;
        }
        match batches.len() > BATCHES_MAX {
            true => self.flush_batches(&mut batches),
            false => Ok(()),
        }
    }

    /// Writes a batch, and returns its path.
    fn write(&self, batch: Batch) -> io::Result<PathBuf> {
        let bytes = batch.into_bytes();
        let file = Hash::of(&bytes).to_string();
        write_synced(&self.folder, &file, &bytes, &Changes::default())?;
        Ok(self.folder.join(file))
    }

    /// Makes the files of all batches durable, and removes the batches. A manifest must not be
    /// removed before, or its batch would bring it back.
    pub(super) fn flush(&self) -> io::Result<()> {
        self.flush_batches(&mut self.lock())
    }

    fn flush_batches(&self, batches: &mut Vec<PathBuf>) -> io::Result<()> {
        if batches.is_empty() {
            return Ok(());
        }
        let folder = File::open(&self.names)?;
        nix::unistd::syncfs(folder.as_fd())?;
        for path in batches.drain(..) {
            match fs::remove_file(path) {
                // The same batch may have come twice.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        sync_folder(&self.folder)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_partial(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().starts_with(PARTIAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str, version: u64) -> (Address, Bytes) {
        let manifest = Manifest {
            version,
            ..Manifest::empty(name, 1)
        };
        (Address::of_name(name), manifest.encode().unwrap())
    }

    fn path_of(folder: &Path, name: &str) -> PathBuf {
        let file = Address::of_name(name).hash().to_string();
        folder.join("names").join(file)
    }

    #[test]
    fn a_batch_brings_back_files_that_a_crash_has_damaged_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("names")).unwrap();
        let journal = Journal::open(folder.path()).unwrap();
        let items = ["lost", "cut", "newer", "whole"].map(|name| manifest(name, 5));
        journal.put(&items, &Changes::default()).unwrap();
        drop(journal);
        let path = |name| path_of(folder.path(), name);
        fs::remove_file(path("lost")).unwrap();
        fs::write(path("cut"), &items[1].1[..20]).unwrap();
        let (_, newer) = manifest("newer", 6);
        fs::write(path("newer"), &newer).unwrap();
        Journal::open(folder.path()).unwrap();
        for (name, bytes) in [
            ("lost", &items[0].1),
            ("cut", &items[1].1),
            ("newer", &newer),
        ] {
            assert_eq!(fs::read(path(name)).unwrap(), bytes[..], "{name}");
        }
        let left = fs::read_dir(folder.path().join("journal")).unwrap().count();
        assert_eq!(left, 0, "the batch is no longer needed");
    }

    #[test]
    fn batches_are_removed_after_a_sync() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("names")).unwrap();
        let journal = Journal::open(folder.path()).unwrap();
        for version in 0..=BATCHES_MAX as u64 {
            journal
                .put(&[manifest("a", version)], &Changes::default())
                .unwrap();
        }
        assert_eq!(journal.lock().len(), 0);
        journal
            .put(&[manifest("b", 1)], &Changes::default())
            .unwrap();
        assert_eq!(journal.lock().len(), 1);
        journal.flush().unwrap();
        fs::remove_file(path_of(folder.path(), "b")).unwrap();
        Journal::open(folder.path()).unwrap();
        assert!(!path_of(folder.path(), "b").exists(), "it was removed");
    }
}
