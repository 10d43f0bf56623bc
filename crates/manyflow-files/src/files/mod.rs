//! Files on disks: those to send, and those received.
//!
//! ```text
//! paths --find--> sources, bundles of small files --> ObjectSender
//!
//! ObjectReceiver --symbols--> spool --publish--> the output folder
//! ```

mod altered;
mod bundle;
mod handles;
mod number;
mod part;
mod scratch;
mod selection;
mod sources;
mod spool;
mod store;
mod tables;
mod write_behind;

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use manyflow_net::disk;
use manyflow_object::error::NameError;
use thiserror::Error;

pub(crate) use bundle::unpack;
pub(crate) use number::{receiver_number, write_receiver_number};
pub(crate) use part::Part;
pub use scratch::{Scratch, default_scratch};
pub use selection::Selection;
pub use sources::{SourceOptions, Sources, find_sources};
pub(crate) use spool::Spool;
pub use store::{Existing, Staged, Store};

/// An error with a file or folder. Each message is one line, names the path and says what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FileError {
    /// A path to send does not exist.
    #[error("{0}: no such file or folder; check the path")]
    Missing(PathBuf),
    /// A path to send cannot be read.
    #[error("{path}: cannot be read ({error}); check its permissions")]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// A path to send is a device, pipe or socket.
    #[error("{0}: neither a file nor a folder; leave it out")]
    Special(PathBuf),
    /// A file to send does not have the length that the system states.
    #[error(
        "{0}: its length is not known before it is read, as in /proc and /sys; send a copy of it"
    )]
    Unsized(PathBuf),
    /// Receivers would refuse a file's name.
    #[error("{path}: cannot be sent under its name: {error}")]
    Name {
        /// The file's path.
        path: PathBuf,
        /// The flaw in its name.
        error: NameError,
    },
    /// A file's name is not UTF-8, which a URI needs.
    #[error("{0}: its name is not UTF-8; rename it")]
    NotUtf8(PathBuf),
    /// Two files would have the same name at the receiver.
    #[error(
        "{path}: another file has the same name {name:?}; rename one or send their common folder"
    )]
    DuplicateName {
        /// Path of the second file.
        path: PathBuf,
        /// The name of both files.
        name: String,
    },
    /// There is no regular file below the paths.
    #[error("{0}: no files to send in it; name at least one file")]
    NoFiles(PathBuf),
    /// A pattern that selects files is not a glob.
    #[error("{0}; write patterns such as `*.log` or `docs/**/*.md`")]
    Pattern(String),
    /// The patterns leave no file to send.
    #[error("no file to send is left by --include and --exclude; change the patterns")]
    NoneSelected,
    /// The output folder cannot be used.
    #[error("{folder}: cannot store files there ({error}); choose a folder that you may write")]
    Folder {
        /// The path.
        folder: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// A received file has an unsafe name.
    #[error("refused to store a file: {0}")]
    Unsafe(NameError),
    /// A received file has the name of the hidden folder for incomplete files.
    #[error("{0}: refused: the name is reserved for incomplete files; the sender has to rename it")]
    Reserved(PathBuf),
    /// A file or folder with the name of a received file exists already.
    #[error("{0}: exists already and is not replaced; use --overwrite to replace files")]
    Exists(PathBuf),
    /// A device, pipe or socket has the name of a received file.
    #[error("{0}: is not a regular file and is not replaced; remove it, or choose another folder")]
    NotRegular(PathBuf),
    /// A link in the output folder leads out of it.
    #[error("{0}: a link leads out of the output folder; remove it or choose another folder")]
    Outside(PathBuf),
    /// The disk is full.
    #[error(
        "{0}: the disk is full; make room and start again. Files stored so far are intact, and the session continues where it stopped"
    )]
    DiskFull(PathBuf),
    /// The disk has no room for the session's files.
    #[error(
        "{folder}: {needed} bytes are needed, but {available} are free; make room or choose a folder on another disk"
    )]
    NoRoom {
        /// A folder on the disk.
        folder: PathBuf,
        /// The bytes that the files will take.
        needed: u64,
        /// The bytes that are free.
        available: u64,
    },
    /// Another process receives the session into the same folder.
    #[error("{0}: another process receives this session into the folder; choose another folder")]
    Busy(PathBuf),
    /// A device to send is mounted for writing.
    #[error(
        "{device}: is mounted for writing on {mount}, so its content changes while it is sent; unmount it, mount it read-only, or send a copy: dd if={device} bs=1M | manyflow send -"
    )]
    Mounted {
        /// The device.
        device: PathBuf,
        /// The folder on which it, or a partition of it, is mounted.
        mount: String,
    },
    /// The target of an image is neither a block device nor a file.
    #[error("{0}: neither a block device nor an existing file; name one for the image")]
    NoTarget(PathBuf),
    /// The target of an image cannot be opened, written or read back.
    #[error("{path}: the image cannot be written to it ({error}); check the device")]
    Target {
        /// The device or file.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// The target of an image is mounted, or held by another program.
    #[error("{0}: in use (mounted, or held by LVM, RAID or another program); release it first")]
    InUse(PathBuf),
    /// The target of an image is shorter than the image.
    #[error("{path}: has {length} bytes, but the image has {needed} or more; use a larger device")]
    TargetTooShort {
        /// The device or file.
        path: PathBuf,
        /// Its length in bytes.
        length: u64,
        /// The length that the image has at least, in bytes.
        needed: u64,
    },
    /// The target of an image does not have the bytes that were written to it.
    #[error(
        "{path}: reads other bytes than were written, at position {offset}; the device is broken"
    )]
    ReadBack {
        /// The device or file.
        path: PathBuf,
        /// The position of the first section that differs.
        offset: u64,
    },
    /// The command that reads the image has ended, or cannot be written to.
    #[error("the command that reads the image takes no more of it ({0})")]
    Pipe(io::Error),
    /// A bundle is not an archive of files, or lacks some of them.
    #[error("{0:?}: not the archive that the table of files announces; ask the session's sender")]
    Bundle(String),
    /// A file cannot be written.
    #[error("{path}: cannot be stored ({error}); check the folder. Files stored so far are intact")]
    Write {
        /// The path.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
}

fn unreadable(path: &Path, error: io::Error) -> FileError {
    let path = path.to_owned();
    if error.kind() == ErrorKind::NotFound {
        FileError::Missing(path)
    } else {
        FileError::Unreadable { path, error }
    }
}

fn write_error(path: &Path, error: io::Error) -> FileError {
    let path = path.to_owned();
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => FileError::DiskFull(path),
        _ => FileError::Write { path, error },
    }
}

/// Returns the free room of the disk of `folder`, in bytes; `None` if the system does not say.
pub(crate) fn free_room(folder: &Path) -> Option<u64> {
    disk::room(folder).map(|(free, _)| free)
}

/// Checks that the disk of `folder` has room for `needed` bytes.
///
/// # Errors
/// [`FileError::NoRoom`] if it has not. A disk that does not say is assumed to have room.
pub(crate) fn check_room(folder: &Path, needed: u64) -> Result<(), FileError> {
    let Some(available) = free_room(folder) else {
        return Ok(());
    };
    if needed <= available {
        return Ok(());
    }
    Err(FileError::NoRoom {
        folder: folder.to_owned(),
        needed,
        available,
    })
}

/// Writes a folder to disk: only then does a new name in it survive a power cut.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    fs::File::open(folder)?.sync_all()
}
