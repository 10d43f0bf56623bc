//! Reads the files to send, and stores received files.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use manyflow_object::error::NameError;
use manyflow_object::name;
use manyflow_object::sender::SourceFile;
use thiserror::Error;

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
    /// A file or folder with the name of a received file exists already.
    #[error("{0}: exists already and is not replaced; use --overwrite to replace files")]
    Exists(PathBuf),
    /// A link in the output folder leads out of it.
    #[error("{0}: a link leads out of the output folder; remove it or choose another folder")]
    Outside(PathBuf),
    /// The disk is full.
    #[error("{0}: the disk is full; make room and start again. Files stored so far are intact")]
    DiskFull(PathBuf),
    /// A file cannot be written.
    #[error("{path}: cannot be stored ({error}); check the folder. Files stored so far are intact")]
    Write {
        /// The path.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
}

/// Reads files, and folders with everything in them, as `cp -r` would copy them. The name of a file
/// in a folder starts with the folder's name.
///
/// Files are in the order of `paths`, and within a folder by name. Links to files are followed.
/// Links to folders inside a folder are left out with a warning, so there are no cycles. Empty
/// folders are not sent.
///
/// # Errors
/// [`FileError`] for the first path that cannot be sent.
pub fn read_sources(paths: &[PathBuf]) -> Result<Vec<SourceFile>, FileError> {
    let mut found = Vec::new();
    for path in paths {
        let before = found.len();
        find(path, own_name(path)?, &mut found)?;
        if found.len() == before {
            return Err(FileError::NoFiles(path.clone()));
        }
    }
    check_duplicates(&found)?;
    found.into_iter().map(read).collect()
}

/// A file to send, and its name at the receiver.
struct Found {
    path: PathBuf,
    name: String,
}

/// Returns the last component of a path. `.` and `/` have none, so their contents are sent without
/// a folder.
fn own_name(path: &Path) -> Result<String, FileError> {
    path.file_name()
        .map_or(Ok(String::new()), |name| utf8(name, path))
}

fn utf8(name: &std::ffi::OsStr, path: &Path) -> Result<String, FileError> {
    name.to_str()
        .map(str::to_owned)
        .ok_or_else(|| FileError::NotUtf8(path.to_owned()))
}

fn find(path: &Path, name: String, found: &mut Vec<Found>) -> Result<(), FileError> {
    let metadata = fs::metadata(path).map_err(|error| unreadable(path, error))?;
    if metadata.is_dir() {
        return find_in_folder(path, &name, found);
    }
    if !metadata.is_file() {
        return Err(FileError::Special(path.to_owned()));
    }
    name::check(&name).map_err(|error| FileError::Name {
        path: path.to_owned(),
        error,
    })?;
    found.push(Found {
        path: path.to_owned(),
        name,
    });
    Ok(())
}

fn find_in_folder(folder: &Path, prefix: &str, found: &mut Vec<Found>) -> Result<(), FileError> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let mut entries = entries.map_err(|error| unreadable(folder, error))?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if path.is_symlink() && path.is_dir() {
            tracing::warn!(path = %path.display(), "a link to a folder is not followed; name the folder to send it");
            continue;
        }
        let own = utf8(&entry.file_name(), &path)?;
        let name = if prefix.is_empty() {
            own
        } else {
            format!("{prefix}/{own}")
        };
        find(&path, name, found)?;
    }
    Ok(())
}

fn unreadable(path: &Path, error: io::Error) -> FileError {
    let path = path.to_owned();
    if error.kind() == ErrorKind::NotFound {
        FileError::Missing(path)
    } else {
        FileError::Unreadable { path, error }
    }
}

fn check_duplicates(found: &[Found]) -> Result<(), FileError> {
    let mut names = std::collections::BTreeSet::new();
    found.iter().try_for_each(|file| {
        let is_new = names.insert(&file.name);
        let duplicate = || FileError::DuplicateName {
            path: file.path.clone(),
            name: file.name.clone(),
        };
        if is_new { Ok(()) } else { Err(duplicate()) }
    })
}

fn read(file: Found) -> Result<SourceFile, FileError> {
    let content = fs::read(&file.path).map_err(|error| unreadable(&file.path, error))?;
    Ok(SourceFile {
        name: file.name,
        content: Bytes::from(content),
    })
}

/// A folder for received files.
///
/// A file appears under its name only when all its bytes are on disk.
#[derive(Debug)]
pub struct Store {
    /// The folder's path without links, so that paths below it can be recognised.
    folder: PathBuf,
    existing: Existing,
}

/// The treatment of an existing file that has the name of a received one.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// The existing file remains, and the received one is not stored.
    #[default]
    Keep,
    /// The received file replaces it in one step.
    Replace,
}

impl Store {
    /// Opens `folder`, creates it if it is missing, and checks that files can be written to it.
    ///
    /// # Errors
    /// [`FileError::Folder`] if files cannot be written.
    pub fn open(folder: &Path, existing: Existing) -> Result<Self, FileError> {
        let usable = || {
            fs::create_dir_all(folder)?;
            tempfile::Builder::new()
                .prefix(".writable.")
                .suffix(".part")
                .tempfile_in(folder)?
                .close()?;
            fs::canonicalize(folder)
        };
        let folder = usable().map_err(|error| FileError::Folder {
            folder: folder.to_owned(),
            error,
        })?;
        Ok(Store { folder, existing })
    }

    /// Stores `content` under `name`, a relative path with `/` between its components, and returns
    /// the file's path.
    ///
    /// # Errors
    /// [`FileError`]. The name then refers to what it did before, or to nothing.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<PathBuf, FileError> {
        name::check(name).map_err(FileError::Unsafe)?;
        let path = self.folder.join(name);
        let (folders, own_name) = name.rsplit_once('/').unwrap_or(("", name));
        let folder = self.make_folders(folders)?;
        let written = write_and_rename(&folder, own_name, content, self.existing);
        written.map_err(|error| match (error.kind(), self.existing) {
            (ErrorKind::AlreadyExists, Existing::Keep) => FileError::Exists(path.clone()),
            _ => write_error(&path, error),
        })?;
        Ok(path)
    }

    /// Creates `folders` below the store one by one, because a link among them must not lead out of
    /// the store.
    fn make_folders(&self, folders: &str) -> Result<PathBuf, FileError> {
        let mut folder = self.folder.clone();
        for component in folders.split('/').filter(|component| !component.is_empty()) {
            let next = folder.join(component);
            make_folder(&folder, &next).map_err(|error| write_error(&next, error))?;
            folder = fs::canonicalize(&next).map_err(|error| write_error(&next, error))?;
            if !folder.starts_with(&self.folder) {
                return Err(FileError::Outside(next));
            }
        }
        Ok(folder)
    }
}

fn make_folder(parent: &Path, folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Ok(()) => sync_folder(parent),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Writes a file under a temporary name, and renames it. The temporary file is removed if anything
/// fails before the rename.
fn write_and_rename(
    folder: &Path,
    name: &str,
    content: &[u8],
    existing: Existing,
) -> io::Result<()> {
    let mut temporary = temporary_file(folder, name)?;
    temporary.write_all(content)?;
    temporary.as_file().sync_all()?;
    let path = folder.join(name);
    let stored = match existing {
        Existing::Keep => temporary.persist_noclobber(path),
        Existing::Replace => temporary.persist(path),
    };
    stored.map_err(|error| error.error)?;
    sync_folder(folder)
}

fn temporary_file(folder: &Path, name: &str) -> io::Result<tempfile::NamedTempFile> {
    // A name may have at most 255 bytes, including the suffix.
    let start: String = name.chars().take(40).collect();
    let prefix = format!(".{start}.");
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).suffix(".part").rand_bytes(4);
    // The umask removes permissions from these.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder)
}

/// Writes a folder to disk: only then does a new name in it survive a power cut.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) {
        File::open(folder)?.sync_all()
    } else {
        Ok(())
    }
}

fn write_error(path: &Path, error: io::Error) -> FileError {
    let path = path.to_owned();
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => FileError::DiskFull(path),
        _ => FileError::Write { path, error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn put(folder: &Path, name: &str, content: &str) -> PathBuf {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    fn names(files: &[SourceFile]) -> Vec<&str> {
        files.iter().map(|file| file.name.as_str()).collect()
    }

    /// Returns the names of everything in a folder, temporary files included.
    fn listing(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn folders_are_read_as_cp_would_copy_them() {
        let home = folder();
        let single = put(home.path(), "single.txt", "1");
        put(home.path(), "tree/b/deep.txt", "3");
        put(home.path(), "tree/a é.txt", "2");
        fs::create_dir(home.path().join("tree/empty")).unwrap();
        let files = read_sources(&[single, home.path().join("tree")]).unwrap();
        assert_eq!(
            names(&files),
            ["single.txt", "tree/a é.txt", "tree/b/deep.txt"]
        );
        assert_eq!(files[2].content, "3");
        let files = read_sources(&[home.path().join("tree/.")]).unwrap();
        assert_eq!(names(&files), ["tree/a é.txt", "tree/b/deep.txt"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_to_files_are_followed_and_those_to_folders_are_not() {
        use std::os::unix::fs::symlink;
        let home = folder();
        let target = put(home.path(), "elsewhere/target", "x");
        fs::create_dir(home.path().join("tree")).unwrap();
        symlink(&target, home.path().join("tree/link")).unwrap();
        symlink(home.path(), home.path().join("tree/cycle")).unwrap();
        let files = read_sources(&[home.path().join("tree")]).unwrap();
        assert_eq!(names(&files), ["tree/link"]);
        assert_eq!(files[0].content, "x");
    }

    #[test]
    fn a_path_that_cannot_be_sent_is_named() {
        let home = folder();
        let missing = home.path().join("missing");
        let error = read_sources(std::slice::from_ref(&missing)).unwrap_err();
        assert!(matches!(&error, FileError::Missing(path) if *path == missing));
        assert!(
            error.to_string().contains("missing: no such file")
                && !error.to_string().contains('\n')
        );

        let (one, two) = (put(home.path(), "a/x", "1"), put(home.path(), "b/x", "2"));
        assert!(
            matches!(read_sources(&[one, two]), Err(FileError::DuplicateName { name, .. }) if name == "x")
        );

        fs::create_dir(home.path().join("empty")).unwrap();
        assert!(matches!(
            read_sources(&[home.path().join("empty")]),
            Err(FileError::NoFiles(_))
        ));
        let odd = put(home.path(), "back\\slash", "");
        assert!(matches!(read_sources(&[odd]), Err(FileError::Name { .. })));
    }

    #[cfg(unix)]
    #[test]
    fn a_socket_or_a_name_that_is_not_utf8_is_refused() {
        use std::os::unix::ffi::OsStrExt;
        let home = folder();
        let socket = home.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(matches!(
            read_sources(&[socket]),
            Err(FileError::Special(_))
        ));
        let odd = home.path().join(std::ffi::OsStr::from_bytes(b"\xff"));
        fs::write(&odd, "").unwrap();
        assert!(matches!(read_sources(&[odd]), Err(FileError::NotUtf8(_))));
    }

    #[test]
    fn a_file_is_stored_in_folders_that_are_made() {
        let home = folder();
        let store = Store::open(&home.path().join("new/out"), Existing::Keep).unwrap();
        let path = store.write("a/b/c.txt", b"content").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"content");
        assert_eq!(listing(path.parent().unwrap()), ["c.txt"]);
        assert_eq!(listing(&home.path().join("new/out")), ["a"]);
    }

    #[test]
    fn an_existing_file_is_replaced_only_on_request() {
        let home = folder();
        let path = put(home.path(), "x", "a longer old content");
        let store = Store::open(home.path(), Existing::Keep).unwrap();
        let error = store.write("x", b"new").unwrap_err();
        assert!(
            matches!(&error, FileError::Exists(kept) if *kept == path),
            "{error}"
        );
        assert_eq!(fs::read(&path).unwrap(), b"a longer old content");
        let store = Store::open(home.path(), Existing::Replace).unwrap();
        store.write("x", b"new").unwrap();
        assert_eq!(fs::read(path).unwrap(), b"new");
        assert_eq!(listing(home.path()), ["x"]);
    }

    #[test]
    fn an_existing_link_is_neither_followed_nor_replaced() {
        let home = folder();
        let target = put(home.path(), "target", "old");
        let link = home.path().join("link");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let store = Store::open(home.path(), Existing::Keep).unwrap();
        assert!(matches!(
            store.write("link", b"new"),
            Err(FileError::Exists(_))
        ));
        assert!(link.is_symlink());
        assert_eq!(fs::read(target).unwrap(), b"old");
    }

    #[test]
    fn a_long_name_can_be_stored() {
        let home = folder();
        let name = "é".repeat(127);
        Store::open(home.path(), Existing::Keep)
            .unwrap()
            .write(&name, b"")
            .unwrap();
        assert_eq!(listing(home.path()), [name]);
    }

    #[test]
    fn unsafe_names_are_refused() {
        let home = folder();
        let store = Store::open(&home.path().join("out"), Existing::Keep).unwrap();
        for name in ["", "../x", "/x", "a/../../x", "a\\b", "a\0b"] {
            assert!(
                matches!(store.write(name, b""), Err(FileError::Unsafe(_))),
                "{name:?} was stored"
            );
        }
        assert_eq!(listing(home.path()), ["out"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_in_the_store_do_not_lead_out_of_it() {
        use std::os::unix::fs::symlink;
        let (home, outside) = (folder(), folder());
        let store = Store::open(home.path(), Existing::Replace).unwrap();
        symlink(outside.path(), home.path().join("out")).unwrap();
        for name in ["out/x", "out/deep/x"] {
            assert!(
                matches!(store.write(name, b"x"), Err(FileError::Outside(_))),
                "{name:?} was stored"
            );
        }
        assert_eq!(listing(outside.path()), [""; 0]);

        // A link in place of the file is replaced. Its target is untouched.
        let target = put(outside.path(), "target", "old");
        symlink(&target, home.path().join("x")).unwrap();
        store.write("x", b"new").unwrap();
        assert_eq!(fs::read(target).unwrap(), b"old");
        // A link within the store does no harm.
        store.write("a/x", b"").unwrap();
        symlink(home.path().join("a"), home.path().join("inside")).unwrap();
        store.write("inside/y", b"").unwrap();
        assert_eq!(listing(&home.path().join("a")), ["x", "y"]);
    }

    #[test]
    fn what_is_in_the_way_is_told_and_nothing_temporary_stays() {
        let home = folder();
        let store = Store::open(home.path(), Existing::Replace).unwrap();
        store.write("taken/x", b"").unwrap();
        assert!(matches!(
            store.write("taken", b""),
            Err(FileError::Write { .. })
        ));
        assert!(matches!(
            store.write("taken/x/y", b""),
            Err(FileError::Write { .. })
        ));
        assert_eq!(listing(home.path()), ["taken"]);
        assert!(matches!(
            Store::open(&home.path().join("taken/x"), Existing::Keep),
            Err(FileError::Folder { .. })
        ));
    }

    /// A file system of `size_kib` KiB, which is unmounted when dropped; `None` without the right
    /// to mount one.
    #[cfg(target_os = "linux")]
    struct SmallDisk(tempfile::TempDir);

    #[cfg(target_os = "linux")]
    impl SmallDisk {
        fn mount(size_kib: u32) -> Option<Self> {
            let folder = folder();
            let options = format!("size={size_kib}k");
            let mounted = std::process::Command::new("mount")
                .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
                .arg(folder.path())
                .status();
            mounted
                .is_ok_and(|status| status.success())
                .then_some(SmallDisk(folder))
        }
    }

    #[cfg(target_os = "linux")]
    impl Drop for SmallDisk {
        fn drop(&mut self) {
            let _ = std::process::Command::new("umount")
                .arg(self.0.path())
                .status();
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_told_and_what_was_stored_stays() {
        let Some(disk) = SmallDisk::mount(256) else {
            eprintln!("skipped: mounting a small disk needs root");
            return;
        };
        let store = Store::open(disk.0.path(), Existing::Replace).unwrap();
        store.write("small", b"first").unwrap();
        let error = store.write("small", &[0; 1 << 20]).unwrap_err();
        assert!(matches!(error, FileError::DiskFull(_)), "{error}");
        assert_eq!(fs::read(disk.0.path().join("small")).unwrap(), b"first");
        assert_eq!(listing(disk.0.path()), ["small"]);
    }
}
