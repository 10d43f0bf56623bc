//! A member's folder.
//!
//! ```text
//!   FOLDER/name              the member's name
//!   FOLDER/chunks/SHA-256    a chunk
//!   FOLDER/names/SHA-256     the manifest of the name with this digest
//!   FOLDER/damaged/SHA-256   bytes that no longer matched their digest when they were read
//! ```

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use manyflow_store::{
    Address, Hash, Manifest, MemberName, NameError, STORED_BYTES_MAX, Shelf, ShelfError,
};
use nix::fcntl::{Flock, FlockArg};
use tempfile::NamedTempFile;

/// The beginning of the names of files that are not complete.
const PARTIAL: &str = ".partial-";

/// A shelf in a folder. A file appears under its name when all its bytes are on disk.
#[derive(Debug)]
pub struct DiskShelf {
    folder: PathBuf,
    name: MemberName,
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
                write_synced(folder, "name", name.as_str().as_bytes()).map_err(unusable)?;
                name
            }
        };
        remove_partial(folder).map_err(unusable)?;
        // A process that was killed may have renamed a chunk without syncing the folder.
        for part in ["chunks", "names"] {
            sync_folder(&folder.join(part)).map_err(unusable)?;
        }
        Ok(DiskShelf {
            folder: folder.to_owned(),
            name,
            _lock: lock,
        })
    }

    /// Returns the member's name.
    pub fn name(&self) -> &MemberName {
        &self.name
    }

    /// Returns the free room of the disk in bytes; `None` if the system does not say.
    pub fn free_bytes(&self) -> Option<u64> {
        let disk = nix::sys::statvfs::statvfs(&self.folder).ok()?;
        Some(disk.blocks_available() * disk.fragment_size())
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

    /// Moves damaged bytes aside, so that they are found by a person and by nobody else.
    fn set_aside(&self, path: &Path, file: &str) -> io::Result<()> {
        tracing::warn!(
            "{}: the bytes do not match their digest; moved to the folder damaged",
            path.display()
        );
        fs::rename(path, self.folder.join("damaged").join(file))
    }
}

impl Shelf for DiskShelf {
    fn put(&mut self, address: Address, bytes: &Bytes) -> Result<(), ShelfError> {
        let (folder, file) = self.place(address);
        write_synced(&folder, &file, bytes).map_err(|error| match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                ShelfError("the disk is full; make room".to_owned())
            }
            _ => ShelfError(format!("cannot write to the disk ({error})")),
        })
    }

    fn get(&mut self, address: Address) -> Result<Option<Bytes>, ShelfError> {
        let (folder, file) = self.place(address);
        let path = folder.join(&file);
        let unreadable = |error| ShelfError(format!("cannot read from the disk ({error})"));
        let bytes = match read_at_most(&path, STORED_BYTES_MAX + 1) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return self.miss(address, &file);
            }
            Err(error) => return Err(unreadable(error)),
        };
        if matches_address(address, &bytes) {
            return Ok(Some(bytes.into()));
        }
        self.set_aside(&path, &file).map_err(unreadable)?;
        self.miss(address, &file)
    }

    fn list(&self) -> Result<Vec<Address>, ShelfError> {
        let unreadable = |error| ShelfError(format!("cannot read the folder ({error})"));
        let mut addresses = Vec::new();
        for (part, address) in [
            ("chunks", Address::Chunk as fn(Hash) -> Address),
            ("names", Address::Name),
        ] {
            for entry in fs::read_dir(self.folder.join(part)).map_err(unreadable)? {
                let file = entry.map_err(unreadable)?.file_name();
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
fn write_synced(folder: &Path, file: &str, bytes: &[u8]) -> io::Result<()> {
    let mut partial = tempfile::Builder::new()
        .prefix(PARTIAL)
        .tempfile_in(folder)?;
    partial.write_all(bytes)?;
    partial.as_file().sync_all()?;
    let persisted = NamedTempFile::persist(partial, folder.join(file));
    persisted.map_err(|error| error.error)?;
    sync_folder(folder)
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
mod tests {
    use super::*;

    fn chunk(text: &'static str) -> (Address, Bytes) {
        let bytes = Bytes::from_static(text.as_bytes());
        (Address::Chunk(Hash::of(&bytes)), bytes)
    }

    #[test]
    fn chunks_survive_a_restart_and_incomplete_files_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let (address, bytes) = chunk("some bytes");
        let mut shelf = DiskShelf::open(folder.path(), None).unwrap();
        let name = shelf.name().clone();
        shelf.put(address, &bytes).unwrap();
        drop(shelf);
        let partial = folder.path().join("chunks/.partial-1");
        fs::write(&partial, "half").unwrap();
        let mut shelf = DiskShelf::open(folder.path(), None).unwrap();
        assert_eq!(shelf.get(address).unwrap(), Some(bytes));
        assert_eq!(shelf.list().unwrap(), [address]);
        assert_eq!(*shelf.name(), name, "the name belongs to the disk");
        assert!(!partial.exists());
    }

    #[test]
    fn damaged_bytes_are_set_aside_and_can_be_put_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut shelf = DiskShelf::open(folder.path(), None).unwrap();
        let (address, bytes) = chunk("some bytes");
        shelf.put(address, &bytes).unwrap();
        let file = address.hash().to_string();
        fs::write(folder.path().join("chunks").join(&file), "same bytes").unwrap();
        assert_eq!(shelf.get(address).unwrap(), None);
        let aside = fs::read(folder.path().join("damaged").join(&file)).unwrap();
        assert_eq!(aside, b"same bytes");
        shelf.put(address, &bytes).unwrap();
        assert_eq!(shelf.get(address).unwrap(), Some(bytes));
    }

    #[test]
    fn a_damaged_manifest_is_not_taken_for_a_name_that_was_never_put() {
        let folder = tempfile::tempdir().unwrap();
        let mut shelf = DiskShelf::open(folder.path(), None).unwrap();
        let address = Address::of_name("file");
        assert_eq!(shelf.get(address).unwrap(), None);
        let path = folder.path().join("names").join(address.hash().to_string());
        fs::write(path, "no manifest").unwrap();
        for _ in 0..2 {
            let error = shelf.get(address).unwrap_err().to_string();
            assert!(error.contains("its manifest is damaged"), "{error}");
        }
    }

    #[test]
    fn a_folder_has_one_process_and_one_name() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| MemberName::new(name).unwrap());
        let shelf = DiskShelf::open(folder.path(), Some(a)).unwrap();
        let busy = DiskShelf::open(folder.path(), None).unwrap_err();
        assert!(matches!(busy, DiskError::Busy(_)), "{busy}");
        drop(shelf);
        let other = DiskShelf::open(folder.path(), Some(b)).unwrap_err();
        assert!(
            other.to_string().contains("belongs to member a, not b"),
            "{other}"
        );
    }

    #[test]
    fn a_failed_write_says_why_and_loses_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut shelf = DiskShelf::open(folder.path(), None).unwrap();
        let (address, bytes) = chunk("some bytes");
        shelf.put(address, &bytes).unwrap();
        // A folder in the place of a chunk cannot be replaced by a file.
        let (other, others) = chunk("other bytes");
        fs::create_dir(folder.path().join("chunks").join(other.hash().to_string())).unwrap();
        let error = shelf.put(other, &others).unwrap_err();
        assert!(error.to_string().starts_with("cannot write"), "{error}");
        assert_eq!(shelf.get(address).unwrap(), Some(bytes));
        let partial = fs::read_dir(folder.path().join("chunks")).unwrap();
        assert_eq!(partial.count(), 2, "no incomplete file remains");
    }
}
