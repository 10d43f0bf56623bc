//! The state folder: a record for each session, so that a restart receives nothing twice and
//! continues without waiting for the next announcement.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::{Announcement, Origin};
use crate::files::sync_folder;

/// The ending of a record's file.
const ENDING: &str = "json";
/// The longest record that is read, in bytes: a description of 64 KiB with each byte escaped.
const RECORD_BYTES_MAX: u64 = 512 << 10;

/// A session in the state folder. The file is `FOLDER.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The folder of the session's files, below the output folder.
    pub folder: String,
    /// How much was received.
    pub progress: Progress,
    /// The way on which the announcement came.
    pub origin: Origin,
    /// The description with its signature, which is verified again when the record is read.
    pub description: String,
}

/// The progress of a session between two runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Progress {
    /// Not all files are stored.
    Incomplete,
    /// All files are stored.
    Done {
        /// Their length together.
        bytes: u64,
    },
    /// The files are longer than the limit of that run.
    TooLarge {
        /// Their length together.
        bytes: u64,
    },
}

impl Record {
    pub(super) fn new(folder: &str, progress: Progress, announcement: &Announcement) -> Record {
        Record {
            folder: folder.to_owned(),
            progress,
            origin: announcement.origin.clone(),
            description: announcement.text.clone(),
        }
    }
}

/// The state folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The system refuses an operation.
    #[error(
        "cannot use {path} for the state of sessions: {cause}; choose another folder with --state"
    )]
    Unusable {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// Another follower uses the folder.
    #[error(
        "another receiver follows sessions with the state folder {0}: end it, or choose another folder with --state"
    )]
    Locked(PathBuf),
}

/// The state folder of one follower, which no other uses at the same time.
#[derive(Debug)]
pub(super) struct StateFolder {
    folder: PathBuf,
    _lock: Flock<File>,
}

impl StateFolder {
    /// Opens the folder, and makes it if it is missing.
    pub(super) fn open(folder: &Path) -> Result<StateFolder, StateError> {
        let unusable = |cause| StateError::Unusable {
            path: folder.to_owned(),
            cause,
        };
        fs::create_dir_all(folder).map_err(unusable)?;
        let lock = File::create(folder.join("lock")).map_err(unusable)?;
        let lock =
            Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(
                |(_, errno)| match errno {
                    nix::errno::Errno::EWOULDBLOCK => StateError::Locked(folder.to_owned()),
                    errno => unusable(errno.into()),
                },
            )?;
        Ok(StateFolder {
            folder: folder.to_owned(),
            _lock: lock,
        })
    }

    /// Reads all records. A file that is no record is named in the log, and ignored.
    pub(super) fn read(&self) -> Result<Vec<Record>, StateError> {
        let unusable = |cause| StateError::Unusable {
            path: self.folder.clone(),
            cause,
        };
        let mut records = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(unusable)? {
            let path = entry.map_err(unusable)?.path();
            if path.extension().is_none_or(|ending| ending != ENDING) {
                continue;
            }
            match read_record(&path) {
                Ok(record) => records.push(record),
                Err(error) => tracing::warn!(
                    "{}: not the record of a session ({error}): it is ignored",
                    path.display()
                ),
            }
        }
        // The order of a folder is any order.
        records.sort_by(|one, two| one.folder.cmp(&two.folder));
        Ok(records)
    }

    /// Writes a record. After a crash, there is the old or the new one.
    pub(super) fn save(&self, record: &Record) -> Result<(), StateError> {
        let path = self.path(&record.folder);
        let text = serde_json::to_vec_pretty(record).expect("all keys are texts");
        let write = || {
            let mut beside = tempfile::NamedTempFile::new_in(&self.folder)?;
            beside.write_all(&text)?;
            beside.as_file().sync_all()?;
            beside.persist(&path)?;
            sync_folder(&self.folder)
        };
        write().map_err(|cause| StateError::Unusable {
            path: path.clone(),
            cause,
        })
    }

    /// Removes the record of a folder, if there is one.
    pub(super) fn forget(&self, folder: &str) -> Result<(), StateError> {
        let path = self.path(folder);
        match fs::remove_file(&path) {
            Err(cause) if cause.kind() != ErrorKind::NotFound => {
                Err(StateError::Unusable { path, cause })
            }
            _ => Ok(()),
        }
    }

    fn path(&self, folder: &str) -> PathBuf {
        self.folder.join(format!("{folder}.{ENDING}"))
    }
}

fn read_record(path: &Path) -> io::Result<Record> {
    if fs::metadata(path)?.len() > RECORD_BYTES_MAX {
        return Err(io::Error::other("it is too long"));
    }
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}
