//! A member's folder.
//!
//! ```text
//!   FOLDER/name              the member's name
//!   FOLDER/chunks/SHA-256    a chunk
//!   FOLDER/names/SHA-256     the manifest of the name with this digest
//!   FOLDER/journal/SHA-256   manifests of a batch whose files may not be on disk
//!   FOLDER/damaged/SHA-256   bytes that no longer matched their digest when they were read
//! ```

mod journal;

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use manyflow_core::Time;
use manyflow_net::{disk, seldom::Seldom};
use manyflow_store::{
    Address, Hash, Held, Manifest, MemberName, NameError, STORED_BYTES_MAX, Shelf, ShelfError,
    Usage,
};
use nix::fcntl::{Flock, FlockArg};
use tempfile::NamedTempFile;

use journal::Journal;

/// The beginning of the names of files that are not complete.
const PARTIAL: &str = ".partial-";

/// The room that chunks leave free. Removals take room before a garbage collection makes any: a
/// manifest that says that a file was removed has at most 1 MiB, and mostly one block of the disk.
const RESERVED_BYTES: u64 = 4 << 20;

/// Held while a file of a shelf gets or loses its name. So bytes that are put are not taken for
/// those that were there a moment before, which are damaged or old.
type Changes = Mutex<()>;

/// A shelf in a folder. A file appears under its name when all its bytes are on disk.
#[derive(Debug)]
pub struct DiskShelf {
    folder: PathBuf,
    name: MemberName,
    journal: Journal,
    changes: Changes,
    /// The room that chunks leave free, in bytes.
    reserved: u64,
    opened_at: Instant,
    /// Failures of the disk, for the log.
    failures: Mutex<Seldom>,
    /// Keeps other processes out of the folder.
    _lock: Flock<File>,
}

/// The reason why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// The folder cannot be created, read or written.
    #[error("{folder}: cannot be used ({error}); check the folder, or choose another one")]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// Another process uses the folder.
    #[error("{0}: another process stores chunks here; stop it, or choose another folder")]
    Busy(PathBuf),
    /// The folder belongs to a member of another name.
    #[error(
        "{folder}: belongs to member {held}, not {wanted}; leave the name out, or choose another folder"
    )]
    OtherName {
        /// The folder.
        folder: PathBuf,
        /// The name in the folder.
        held: MemberName,
        /// The name that was asked for.
        wanted: MemberName,
    },
    /// The file with the member's name holds something else.
    #[error("{path}: {error}; correct the file")]
    InvalidName {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: NameError,
    },
}

impl DiskShelf {
    /// Opens a folder, and creates it if it is missing. A new folder gets the name `wanted`, or a
    /// random one; another folder keeps its name. Files that are not complete are removed.
    ///
    /// # Errors
    /// If the folder cannot be used, another process uses it, or it has another name than `wanted`.
    pub fn open(folder: &Path, wanted: Option<MemberName>) -> Result<DiskShelf, DiskError> {
        let unusable = |error| DiskError::Folder {
            folder: folder.to_owned(),
            error,
        };
        for part in ["chunks", "names", "damaged"] {
            fs::create_dir_all(folder.join(part)).map_err(unusable)?;
        }
        let lock = File::create(folder.join("lock")).map_err(unusable)?;
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock)
            .map_err(|_| DiskError::Busy(folder.to_owned()))?;
        let name = match read_name(folder)? {
            Some(held) => match wanted {
                Some(wanted) if wanted != held => {
                    let folder = folder.to_owned();
                    return Err(DiskError::OtherName {
                        folder,
                        held,
                        wanted,
                    });
                }
                _ => held,
            },
            None => {
                let name = wanted.unwrap_or_else(random_name);
                let bytes = name.as_str().as_bytes();
                write_synced(folder, "name", bytes, &Changes::default()).map_err(unusable)?;
                name
            }
        };
        remove_partial(folder).map_err(unusable)?;
        let journal = Journal::open(folder).map_err(unusable)?;
        // A process that was killed may have renamed a chunk without syncing the folder.
        for part in ["chunks", "names"] {
            sync_folder(&folder.join(part)).map_err(unusable)?;
        }
        Ok(DiskShelf {
            folder: folder.to_owned(),
            name,
            journal,
            changes: Changes::default(),
            reserved: RESERVED_BYTES,
            opened_at: Instant::now(),
            failures: Mutex::default(),
            _lock: lock,
        })
    }

    /// Returns the member's name.
    pub fn name(&self) -> &MemberName {
        &self.name
    }

    /// Returns the free room of the disk in bytes; `None` if the system does not say.
    pub fn free_bytes(&self) -> Option<u64> {
        self.room().map(|(free, _)| free)
    }

    /// Returns the size of the disk in bytes; `None` if the system does not say.
    pub fn disk_bytes(&self) -> Option<u64> {
        self.room().map(|(_, size)| size)
    }

    /// Returns the free bytes and the size of the disk.
    fn room(&self) -> Option<(u64, u64)> {
        disk::room(&self.folder)
    }

    /// Returns the number of files in a part of the folder, and their bytes.
    fn measure(&self, part: &str) -> io::Result<(u64, u64)> {
        let (mut count, mut bytes) = (0, 0);
        for entry in fs::read_dir(self.folder.join(part))? {
            // A file that was removed meanwhile does not count.
            if let Ok(metadata) = entry?.metadata() {
                count += 1;
                bytes += metadata.len();
            }
        }
        Ok((count, bytes))
    }

    fn place(&self, address: Address) -> (PathBuf, String) {
        let part = match address {
            Address::Chunk(_) => "chunks",
            Address::Name(_) => "names",
        };
        (self.folder.join(part), address.hash().to_string())
    }

    /// Returns that a chunk is missing, or that a manifest was damaged: a client would take a
    /// missing manifest for a wrong name.
    fn miss(&self, address: Address, file: &str) -> Result<Option<Bytes>, ShelfError> {
        let damaged = self.folder.join("damaged").join(file);
        match address {
            Address::Name(_) if damaged.exists() => {
                let damaged = damaged.display();
                Err(ShelfError(format!("its manifest is damaged ({damaged})")))
            }
            _ => Ok(None),
        }
    }

    /// Whether bytes fit. Manifests may take the room that chunks leave free.
    fn has_room(&self, address: Address, bytes: &Bytes) -> bool {
        let needed = bytes.len() as u64 + self.reserved;
        match address {
            Address::Chunk(_) => self.free_bytes().is_none_or(|free| free >= needed),
            Address::Name(_) => true,
        }
    }

    fn unreadable(&self, error: io::Error) -> ShelfError {
        self.log_failure(format!("cannot read from the disk ({error})"))
    }

    fn unwritable(&self, error: io::Error) -> ShelfError {
        self.log_failure(match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                "the disk is full; make room".to_owned()
            }
            _ => format!("cannot write to the disk ({error})"),
        })
    }

    /// Logs a failure, at most once a minute. Returns it as an error.
    fn log_failure(&self, reason: String) -> ShelfError {
        let now = Time::ZERO + self.opened_at.elapsed();
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = failures.count(now) {
            let folder = self.folder.display();
            tracing::warn!(count, "{folder}: a request failed: {reason}");
        }
        ShelfError(reason)
    }

    /// Moves bytes that were damaged when they were read aside, so that they are found by a person
    /// and by nobody else. Others may have moved or replaced them meanwhile.
    fn set_aside(&self, address: Address) -> io::Result<()> {
        let (folder, file) = self.place(address);
        let path = folder.join(&file);
        let _changes = lock(&self.changes);
        match read_at_most(&path, STORED_BYTES_MAX + 1) {
            Ok(bytes) if matches_address(address, &bytes) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            bytes => bytes?,
        };
        tracing::warn!(
            "{}: the bytes do not match their digest; moved to the folder damaged",
            path.display()
        );
        fs::rename(path, self.folder.join("damaged").join(file))
    }
}

impl Shelf for DiskShelf {
    fn put(&self, address: Address, bytes: &Bytes) -> Result<(), ShelfError> {
        let (folder, file) = self.place(address);
        let written = match self.has_room(address, bytes) {
            true => write_synced(&folder, &file, bytes, &self.changes),
            false => Err(ErrorKind::StorageFull.into()),
        };
        written.map_err(|error| self.unwritable(error))
    }

    fn put_all(&self, items: &[(Address, Bytes)]) -> Result<(), ShelfError> {
        let are_names = items
            .iter()
            .all(|(address, _)| matches!(address, Address::Name(_)));
        match items.len() > 1 && are_names {
            true => self
                .journal
                .put(items, &self.changes)
                .map_err(|error| self.unwritable(error)),
            false => items
                .iter()
                .try_for_each(|(address, bytes)| self.put(*address, bytes)),
        }
    }

    fn get(&self, address: Address) -> Result<Option<Bytes>, ShelfError> {
        let (folder, file) = self.place(address);
        let bytes = match read_at_most(&folder.join(&file), STORED_BYTES_MAX + 1) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return self.miss(address, &file);
            }
            Err(error) => return Err(self.unreadable(error)),
        };
        if matches_address(address, &bytes) {
            return Ok(Some(bytes.into()));
        }
        self.set_aside(address)
            .map_err(|error| self.unreadable(error))?;
        self.miss(address, &file)
    }

    fn find(&self, address: Address) -> Result<Option<Held>, ShelfError> {
        let (folder, file) = self.place(address);
        let metadata = match fs::metadata(folder.join(file)) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.unreadable(error)),
        };
        let modified = metadata
            .modified()
            .map_err(|error| self.unreadable(error))?;
        // A clock that was set back makes files young, and so keeps them.
        let age = SystemTime::now().duration_since(modified);
        Ok(Some(Held {
            bytes: metadata.len(),
            age: age.unwrap_or(Duration::ZERO),
        }))
    }

    fn refresh(&self, address: Address) -> Result<bool, ShelfError> {
        let (folder, file) = self.place(address);
        let _changes = lock(&self.changes);
        let refreshed =
            File::open(folder.join(file)).and_then(|file| file.set_modified(SystemTime::now()));
        match refreshed {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            refreshed => refreshed
                .map(|()| true)
                .map_err(|error| self.unwritable(error)),
        }
    }

    fn remove(&self, address: Address, age: Duration) -> Result<Option<u64>, ShelfError> {
        if let Address::Name(_) = address {
            self.journal
                .flush()
                .map_err(|error| self.unwritable(error))?;
        }
        let _changes = lock(&self.changes);
        let Some(held) = self.find(address)?.filter(|held| held.age >= age) else {
            return Ok(None);
        };
        let (folder, file) = self.place(address);
        match fs::remove_file(folder.join(file)) {
            Ok(()) => Ok(Some(held.bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.unwritable(error)),
        }
    }

    fn usage(&self) -> Result<Usage, ShelfError> {
        let measure = |part| self.measure(part).map_err(|error| self.unreadable(error));
        let (chunks, chunk_bytes) = measure("chunks")?;
        let (names, name_bytes) = measure("names")?;
        let (free_bytes, disk_bytes) = self.room().unwrap_or_default();
        Ok(Usage {
            chunks,
            chunk_bytes,
            names,
            name_bytes,
            damaged: measure("damaged")?.0,
            free_bytes,
            disk_bytes,
        })
    }

    fn list(&self) -> Result<Vec<Address>, ShelfError> {
        let mut addresses = Vec::new();
        for (part, address) in [
            ("chunks", Address::Chunk as fn(Hash) -> Address),
            ("names", Address::Name),
        ] {
            for entry in
                fs::read_dir(self.folder.join(part)).map_err(|error| self.unreadable(error))?
            {
                let file = entry.map_err(|error| self.unreadable(error))?.file_name();
                let hash = file.to_str().and_then(parse_hash);
                addresses.extend(hash.map(address));
            }
        }
        addresses.sort_unstable();
        Ok(addresses)
    }
}

fn matches_address(address: Address, bytes: &[u8]) -> bool {
    match address {
        Address::Chunk(hash) => Hash::of(bytes) == hash,
        Address::Name(_) => Manifest::decode(bytes)
            .is_ok_and(|manifest| Address::of_name(&manifest.name) == address),
    }
}

/// Writes a file so that it has its name only when it is complete and on disk.
fn write_synced(folder: &Path, file: &str, bytes: &[u8], changes: &Changes) -> io::Result<()> {
    let partial = write_partial(folder, bytes)?;
    partial.as_file().sync_all()?;
    name_partial(partial, folder, file, changes)?;
    sync_folder(folder)
}

/// Writes a file whose bytes may be lost if the system crashes.
fn write_unsynced(folder: &Path, file: &str, bytes: &[u8], changes: &Changes) -> io::Result<()> {
    name_partial(write_partial(folder, bytes)?, folder, file, changes)
}

fn write_partial(folder: &Path, bytes: &[u8]) -> io::Result<NamedTempFile> {
    let mut partial = tempfile::Builder::new()
        .prefix(PARTIAL)
        .tempfile_in(folder)?;
    partial.write_all(bytes)?;
    Ok(partial)
}

fn name_partial(
    partial: NamedTempFile,
    folder: &Path,
    file: &str,
    changes: &Changes,
) -> io::Result<()> {
    let _changes = lock(changes);
    let persisted = NamedTempFile::persist(partial, folder.join(file));
    persisted.map(drop).map_err(|error| error.error)
}

fn lock(changes: &Changes) -> MutexGuard<'_, ()> {
    changes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a folder to disk: only then does a new name in it survive a power cut.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn read_at_most(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(most as u64)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read_name(folder: &Path) -> Result<Option<MemberName>, DiskError> {
    let path = folder.join("name");
    match fs::read_to_string(&path) {
        Ok(text) => {
            let name = MemberName::new(text.trim());
            name.map(Some)
                .map_err(|error| DiskError::InvalidName { path, error })
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(DiskError::Folder {
            folder: folder.to_owned(),
            error,
        }),
    }
}

/// Returns a name that no other member is likely to have.
fn random_name() -> MemberName {
    let name = format!("member-{:016x}", rand::random::<u64>());
    MemberName::new(&name).expect("hexadecimal digits are legal")
}

fn remove_partial(folder: &Path) -> io::Result<()> {
    for part in [
        folder.to_owned(),
        folder.join("chunks"),
        folder.join("names"),
    ] {
        for entry in fs::read_dir(part)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(PARTIAL) {
                fs::remove_file(entry.path())?;
            }
        }
    }
    Ok(())
}

/// Parses the name of a file: 64 hexadecimal digits.
fn parse_hash(text: &str) -> Option<Hash> {
    let mut hash = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (place, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * place..2 * place + 2], 16).ok()?;
    }
    Some(Hash(hash))
}

#[cfg(test)]
mod tests;
