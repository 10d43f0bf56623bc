//! The receiver's spool: a hidden folder in the output folder, with the symbols of incomplete
//! files.
//!
//! ```text
//! .manyflow-3f2a...c1/     named after the digest of the session's table of files
//!     lock                 held by the process that receives the session
//!     table                the table of files
//!     journal              the places of symbols: the receiver's records, 16 bytes each
//!     tables               instead, the tables of an image's sections
//!     image                the image, unless a device or command gets it
//!     1, 2, ...            the contents of objects, with symbols in places of their blocks
//!     receiver             the number under which the receiver reports to the sender, if it does
//! ```
//!
//! The receiver's number remains when all else is removed, so that a receiver that is started again
//! after its end is the same one to the sender.
//!
//! A process that was killed leaves its spool. The next one that receives a session with the same
//! table continues from it. Symbols wait in memory until [`Spool::flush`], and so do their records,
//! which are written after the symbols. Blocks have digests, so the symbols that a power cut
//! destroys are received again. Without a digest of the table, the spool has a random name and
//! serves only its own process.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use manyflow_object::storage::{Record, Storage};
use nix::fcntl::{Flock, FlockArg};
use tempfile::TempPath;

use super::FileError;
use super::handles::Handles;
use super::number::RECEIVER;
use super::tables;
use super::write_behind::WriteBehind;

/// The beginning of the names of spools. Received files cannot have such names.
pub(super) const PREFIX: &str = ".manyflow-";
/// A part of the names of spools without a digest, which no process can continue.
const TEMPORARY: &str = ".manyflow-tmp-";
/// The age from which a dead process's spool is removed, although its session could be continued.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);
/// The owner's permission to read and write.
const READ_WRITE: u32 = 0o600;
const RECORD_BYTES: usize = 16;
/// The name of the file whose lock the process holds.
const LOCK: &str = "lock";
/// The kind of record that marks an object whose files are in the output folder.
const STORED: u32 = 4;

/// Symbols of incomplete files, on the disk of the output folder.
#[derive(Debug)]
pub(crate) struct Spool {
    folder: PathBuf,
    /// Whether the folder remains when the spool is dropped.
    is_kept: bool,
    journal: File,
    handles: Handles,
    /// Symbols that are not in the objects' files yet.
    waiting: WriteBehind,
    /// Records that are not in the journal yet.
    records: Vec<u8>,
    /// Whether the session has an image, and so a table for each section.
    has_sections: bool,
    _lock: Flock<File>,
}

/// The state of an earlier process.
#[derive(Debug, Default)]
pub(crate) struct Earlier {
    /// The session's table of files; `None` if the process had not received it.
    pub(crate) table: Option<Vec<u8>>,
    /// The records of the receiver, in order.
    pub(crate) records: Vec<Record>,
    /// The objects whose files were stored in the output folder.
    pub(crate) stored: Vec<u32>,
}

impl Spool {
    /// Opens the spool of the session whose table of files has the digest `table_sha256`, in the
    /// folder `output`. Removes spools of dead processes that nobody will continue.
    ///
    /// # Errors
    /// [`FileError`] if the folder cannot be used, or if another process uses this spool.
    pub(crate) fn open(
        output: &Path,
        table_sha256: Option<&[u8; 32]>,
    ) -> Result<(Spool, Earlier), FileError> {
        remove_leftovers(output);
        let opened = match table_sha256 {
            Some(digest) => {
                let folder = folder_of(output, digest);
                fs::create_dir_all(&folder).map(|()| (folder, true))
            }
            None => tempfile::Builder::new()
                .prefix(TEMPORARY)
                .tempdir_in(output)
                .map(|folder| (folder.keep(), false)),
        };
        let failed = |error| FileError::Folder {
            folder: output.to_owned(),
            error,
        };
        let (folder, is_kept) = opened.map_err(failed)?;
        let lock = lock(&folder)
            .map_err(failed)?
            .ok_or_else(|| FileError::Busy(output.to_owned()))?;
        make_writable(&folder).map_err(failed)?;
        let earlier = read_earlier(&folder).map_err(failed)?;
        let journal = open_journal(&folder).map_err(failed)?;
        let spool = Spool {
            folder,
            is_kept,
            journal,
            handles: Handles::default(),
            waiting: WriteBehind::default(),
            records: Vec::new(),
            has_sections: false,
            _lock: lock,
        };
        Ok((spool, earlier))
    }

    /// Makes the spool one of an image. Drops the symbols of an earlier process, because complete
    /// sections are in the image's output. Returns the signed tables that it had received.
    ///
    /// # Errors
    /// If the folder cannot be used.
    pub(crate) fn begin_image(&mut self) -> io::Result<Vec<Vec<u8>>> {
        self.has_sections = true;
        self.journal.set_len(0)?;
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            if name.is_some_and(|name| name.parse::<u128>().is_ok()) {
                fs::remove_file(&path)?;
            }
        }
        tables::read(&self.folder)
    }

    /// Writes pending symbols and records. They then survive the end of the process.
    ///
    /// # Errors
    /// If they cannot be written. They are tried again at the next call.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let Spool {
            folder,
            handles,
            waiting,
            ..
        } = self;
        waiting.write(None, |object, offset, bytes| {
            open(folder, handles, object)?.write_all_at(bytes, offset)
        })?;
        self.journal.write_all(&self.records)?;
        self.records.clear();
        Ok(())
    }

    /// Whether symbols or records wait for [`flush`](Self::flush).
    pub(crate) fn has_pending(&self) -> bool {
        !self.records.is_empty() || !self.waiting.is_empty()
    }

    /// Takes an object's content out of the spool, as a file of `length` bytes.
    pub(crate) fn take(&mut self, object: u128, length: u64) -> io::Result<TempPath> {
        self.flush()?;
        self.handles.close(object);
        let path = self.path(object);
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)?;
        file.set_len(length)?;
        TempPath::try_from_path(path)
    }

    /// The folder, which is on the disk of the output folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Takes note of an object whose files are in the output folder.
    pub(crate) fn note_stored(&mut self, object: u128) -> io::Result<()> {
        let Ok(object) = u32::try_from(object) else {
            return Ok(());
        };
        self.append([object, STORED << 24, 0, 0]);
        Ok(())
    }

    /// Removes the spool when it is dropped: nothing is left to continue.
    pub(crate) fn discard(&mut self) {
        self.is_kept = false;
    }

    fn path(&self, object: u128) -> PathBuf {
        self.folder.join(object.to_string())
    }

    fn append(&mut self, words: [u32; 4]) {
        for word in words {
            self.records.extend_from_slice(&word.to_be_bytes());
        }
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        let (result, verb) = match self.is_kept {
            true => (self.flush(), "written"),
            false => (remove_contents(&self.folder), "removed"),
        };
        if let Err(error) = result {
            tracing::warn!("{}: cannot be {verb} ({error})", self.folder.display());
        }
    }
}

impl Storage for Spool {
    fn write_at(&mut self, object: u128, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.waiting.is_full() {
            self.flush()?;
        }
        self.waiting.add(object, offset, bytes);
        Ok(())
    }

    fn read_at(&mut self, object: u128, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if !self.waiting.has(object, offset, buffer.len()) {
            let file = open(&self.folder, &mut self.handles, object)?;
            let mut read = 0;
            while read < buffer.len() {
                match file.read_at(&mut buffer[read..], offset + read as u64)? {
                    0 => break,
                    length => read += length,
                }
            }
            // The padding of the last block may never have been written.
            buffer[read..].fill(0);
        }
        self.waiting.copy_to(object, offset, buffer);
        Ok(())
    }

    fn remove(&mut self, object: u128) -> io::Result<()> {
        self.waiting.remove(Some(object));
        self.handles.close(object);
        match fs::remove_file(self.path(object)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn record(&mut self, record: Record) -> io::Result<()> {
        self.append(encode(record));
        Ok(())
    }

    fn record_table(&mut self, table: &[u8]) -> io::Result<()> {
        if self.has_sections {
            return tables::append(&self.folder, table);
        }
        let path = self.folder.join("table.new");
        fs::write(&path, table)?;
        fs::rename(path, self.folder.join("table"))
    }
}

/// Returns the spool of the session whose table of files has this digest.
pub(super) fn folder_of(output: &Path, table_sha256: &[u8; 32]) -> PathBuf {
    let digest = table_sha256[..16].iter();
    let hex: String = digest.map(|byte| format!("{byte:02x}")).collect();
    output.join(format!("{PREFIX}{hex}"))
}

/// Removes a spool, except for the number of its receiver.
fn remove_contents(folder: &Path) -> io::Result<()> {
    if !folder.join(RECEIVER).exists() {
        return fs::remove_dir_all(folder);
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let is_folder = entry.file_type()?.is_dir();
        match entry.file_name().to_str() {
            Some(RECEIVER | LOCK) => {}
            _ if is_folder => fs::remove_dir_all(entry.path())?,
            _ => fs::remove_file(entry.path())?,
        }
    }
    // The last file, since the next process may begin as soon as it has gone.
    fs::remove_file(folder.join(LOCK))
}

/// Returns the file of an object.
fn open<'a>(folder: &Path, handles: &'a mut Handles, object: u128) -> io::Result<&'a File> {
    handles.get(object, || {
        OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(folder.join(object.to_string()))
    })
}

/// Locks a spool; `None` if another process has locked it.
fn lock(folder: &Path) -> io::Result<Option<Flock<File>>> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(folder.join(LOCK))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, error)) => Err(error.into()),
    }
}

/// Makes the files in a spool readable and writable again. An earlier process may have set the mode
/// of a file that it was about to move to the output folder.
fn make_writable(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let mut permissions = entry.metadata()?.permissions();
        if permissions.mode() & READ_WRITE != READ_WRITE {
            permissions.set_mode(permissions.mode() | READ_WRITE);
            fs::set_permissions(entry.path(), permissions)?;
        }
    }
    Ok(())
}

fn read_earlier(folder: &Path) -> io::Result<Earlier> {
    let table = read_if_exists(&folder.join("table"))?;
    let journal = read_if_exists(&folder.join("journal"))?.unwrap_or_default();
    let mut earlier = Earlier {
        table,
        ..Earlier::default()
    };
    for record in journal.as_chunks::<RECORD_BYTES>().0 {
        let (words, _) = record.as_chunks::<4>();
        let words = [words[0], words[1], words[2], words[3]].map(u32::from_be_bytes);
        match decode(words) {
            Some(record) => earlier.records.push(record),
            None if words[1] >> 24 == STORED => earlier.stored.push(words[0]),
            None => {}
        }
    }
    Ok(earlier)
}

pub(super) fn read_if_exists(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match File::open(path) {
        Ok(mut file) => {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(Some(bytes))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens the journal for appending. A record that is incomplete, because its process was killed, is
/// cut off.
fn open_journal(folder: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join("journal"))?;
    let length = file.metadata()?.len();
    file.set_len(length - length % RECORD_BYTES as u64)?;
    Ok(file)
}

/// Removes the spools of dead processes that nobody will continue.
fn remove_leftovers(output: &Path) {
    let Ok(entries) = fs::read_dir(output) else {
        return;
    };
    for folder in entries.flatten().map(|entry| entry.path()) {
        let name = folder.file_name().and_then(|name| name.to_str());
        let Some(name) = name.filter(|name| name.starts_with(PREFIX)) else {
            continue;
        };
        // The lock remains until the folder is removed.
        let Ok(Some(_lock)) = lock(&folder) else {
            continue;
        };
        // A receiver that has ended leaves its number only.
        let is_old = fs::metadata(folder.join("journal"))
            .or_else(|_| fs::metadata(folder.join(RECEIVER)))
            .and_then(|metadata| metadata.modified())
            .is_ok_and(|modified| {
                SystemTime::now()
                    .duration_since(modified)
                    .is_ok_and(|age| age > KEPT_FOR)
            });
        if name.starts_with(TEMPORARY) || is_old {
            let shown = folder.display();
            match fs::remove_dir_all(&folder) {
                Ok(()) => tracing::info!("{shown}: left by a dead process, and removed"),
                Err(error) => tracing::warn!(
                    "{shown}: left by a dead process, and cannot be removed ({error}): remove it by hand"
                ),
            }
        }
    }
}

fn encode(record: Record) -> [u32; 4] {
    match record {
        Record::Symbol {
            object,
            sbn,
            esi,
            place,
        } => [object, sbn, esi, place],
        Record::Withdrawn { object, sbn, esi } => [object, 1 << 24 | sbn, esi, 0],
        Record::Decoded { object, sbn } => [object, 2 << 24 | sbn, 0, 0],
        Record::Dropped { object, sbn } => [object, 3 << 24 | sbn, 0, 0],
    }
}

fn decode([object, kind_and_sbn, esi, place]: [u32; 4]) -> Option<Record> {
    let sbn = kind_and_sbn & 0x00ff_ffff;
    Some(match kind_and_sbn >> 24 {
        0 => Record::Symbol {
            object,
            sbn,
            esi,
            place,
        },
        1 => Record::Withdrawn { object, sbn, esi },
        2 => Record::Decoded { object, sbn },
        3 => Record::Dropped { object, sbn },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: [u8; 32] = [0xab; 32];

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_spool_keeps_symbols_records_and_the_table() {
        let home = tempfile::tempdir().unwrap();
        let (object, sbn, esi, place) = (7, 65_535, (1 << 24) - 1, 9);
        let records = [
            Record::Symbol {
                object,
                sbn,
                esi,
                place,
            },
            Record::Withdrawn { object, sbn, esi },
            Record::Decoded { object, sbn },
            Record::Dropped { object, sbn },
        ];
        let (mut spool, earlier) = Spool::open(home.path(), Some(&DIGEST)).unwrap();
        assert!(earlier.table.is_none() && earlier.records.is_empty());
        spool.record_table(b"table").unwrap();
        spool.write_at(7, 100, b"symbol").unwrap();
        for record in records {
            spool.record(record).unwrap();
        }
        spool.note_stored(8).unwrap();
        drop(spool);
        // A process was killed after it had set the mode of an object, and while it wrote a record.
        let folder = home.path().join(&names(home.path())[0]);
        fs::set_permissions(folder.join("7"), fs::Permissions::from_mode(0o040)).unwrap();
        let mut journal = OpenOptions::new()
            .append(true)
            .open(folder.join("journal"))
            .unwrap();
        journal.write_all(&[0; 7]).unwrap();

        for _ in 0..2 {
            let (mut spool, earlier) = Spool::open(home.path(), Some(&DIGEST)).unwrap();
            assert_eq!(earlier.table.as_deref(), Some(&b"table"[..]));
            assert_eq!(
                (&earlier.records[..], &earlier.stored[..]),
                (&records[..], &[8][..])
            );
            let mut bytes = [1; 8];
            spool.read_at(7, 100, &mut bytes).unwrap();
            assert_eq!(&bytes, b"symbol\0\0");
            // The superuser may read any file, so the mode itself is compared.
            let mode = fs::metadata(folder.join("7")).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o640);
        }
        let (mut spool, _) = Spool::open(home.path(), Some(&DIGEST)).unwrap();
        spool.discard();
        drop(spool);
        assert_eq!(names(home.path()), [""; 0]);
    }

    #[test]
    fn the_tables_of_an_image_survive_a_kill_and_its_symbols_do_not() {
        let home = tempfile::tempdir().unwrap();
        let (mut spool, _) = Spool::open(home.path(), Some(&DIGEST)).unwrap();
        assert!(spool.begin_image().unwrap().is_empty());
        spool.write_at(7, 100, b"symbol").unwrap();
        for table in [&b"one"[..], b"", b"three"] {
            spool.record_table(table).unwrap();
        }
        drop(spool);
        let folder = home.path().join(&names(home.path())[0]);
        assert!(folder.join("7").exists());
        // A process was killed while it wrote a table.
        let tables = OpenOptions::new()
            .append(true)
            .open(folder.join(tables::TABLES));
        tables.unwrap().write_all(&[0, 0, 0, 9, 1]).unwrap();
        for more in [&b"four"[..], b"five"] {
            let (mut spool, _) = Spool::open(home.path(), Some(&DIGEST)).unwrap();
            let tables = spool.begin_image().unwrap();
            assert_eq!(tables[..3], [&b"one"[..], b"", b"three"]);
            assert!(!folder.join("7").exists());
            spool.record_table(more).unwrap();
            drop(spool);
        }
        let (mut spool, _) = Spool::open(home.path(), Some(&DIGEST)).unwrap();
        assert_eq!(spool.begin_image().unwrap()[3..], [&b"four"[..], b"five"]);
    }

    #[test]
    fn two_processes_do_not_share_a_spool() {
        let home = tempfile::tempdir().unwrap();
        let first = Spool::open(home.path(), Some(&DIGEST)).unwrap();
        let second = Spool::open(home.path(), Some(&DIGEST));
        assert!(matches!(second, Err(FileError::Busy(_))));
        Spool::open(home.path(), Some(&[1; 32])).unwrap();
        Spool::open(home.path(), None).unwrap();
        drop(first);
        Spool::open(home.path(), Some(&DIGEST)).unwrap();
    }

    #[test]
    fn spools_that_nobody_will_continue_are_removed() {
        let home = tempfile::tempdir().unwrap();
        // A process without a digest of the table was killed, and another one is running.
        fs::create_dir(home.path().join(".manyflow-tmp-dead")).unwrap();
        let running = Spool::open(home.path(), None).unwrap();
        // Two others received sessions that could be continued, one of them long ago.
        for (digest, age) in [(1, Duration::ZERO), (2, KEPT_FOR * 2)] {
            let (spool, _) = Spool::open(home.path(), Some(&[digest; 32])).unwrap();
            let journal = File::open(spool.folder.join("journal")).unwrap();
            journal.set_modified(SystemTime::now() - age).unwrap();
        }
        let (mut spool, _) = Spool::open(home.path(), Some(&DIGEST)).unwrap();
        spool.discard();
        drop(spool);
        let left = names(home.path());
        assert_eq!(left.len(), 2, "{left:?}");
        assert!(left[0].contains("010101"), "{left:?}");
        drop(running);
        assert_eq!(names(home.path()).len(), 1);
    }
}
