//! The files to send: found in folders, read when they are sent.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use manyflow_object::fdt::Attributes;
use manyflow_object::name;
use manyflow_object::sender::{Source, SourceFile};

use nix::unistd::{Whence, lseek};

use super::altered::{Alteration, Altered};
use super::bundle::pack;
use super::handles::Handles;
use super::{FileError, Selection, unreadable};

/// The number of small files above which they are bundled. A plain FLUTE receiver has to unpack
/// bundles itself, so a few small files are sent alone.
const UNBUNDLED_MAX: usize = 100;

/// How to send files.
#[derive(Clone, Debug)]
pub struct SourceOptions {
    /// The maximum length of files that are bundled if there are more than a hundred of them, in
    /// bytes; 0 if none are. An object costs at least a packet, and an entry in the table of files
    /// that is longer than a small file.
    pub bundle_max: u64,
    /// A folder for temporary files.
    pub scratch: PathBuf,
    /// The files to send of those that are found.
    pub selection: Selection,
    /// Whether receivers set modes and times of modification as they are here.
    pub archive: bool,
}

/// The files to send.
#[derive(Debug)]
pub struct Sources {
    /// The files and bundles.
    pub files: Vec<SourceFile>,
    /// The number of files, including those in bundles.
    pub count: u64,
    /// The length of all files in bytes.
    pub bytes: u64,
    /// The number of entries of folders that cannot be sent. Each was logged.
    pub skipped: u64,
    /// The number of files, links and folders that receivers do not get as they are here. One
    /// sentence for each kind was logged.
    pub altered: u64,
}

impl Sources {
    /// The sources of a session that has an image instead of files, of this length if it is known.
    pub(crate) fn of_image(length: Option<u64>) -> Sources {
        Sources {
            files: Vec::new(),
            count: 1,
            bytes: length.unwrap_or(0),
            skipped: 0,
            altered: 0,
        }
    }
}

/// Finds files, and folders with everything in them, as `cp -r` would copy them. The name of a file
/// in a folder starts with the folder's name.
///
/// Files are in the order of `paths`, and within a folder by name. Links to files are followed.
/// Entries of folders that cannot be sent are left out with a warning: links to folders, which
/// could form cycles, devices, unreadable files, files whose length is not what the system states
/// (as in /proc and /sys), and files whose names receivers would refuse. A warning also names what
/// receivers do not get as it is here: see [`Sources::altered`].
///
/// # Errors
/// [`FileError`] if one of the `paths` cannot be sent, if it contains no file, if no file is
/// selected, or if two files have the same name.
pub fn find_sources(paths: &[PathBuf], options: &SourceOptions) -> Result<Sources, FileError> {
    let mut finder = Finder {
        selection: options.selection.clone(),
        archive: options.archive,
        ..Finder::default()
    };
    for path in paths {
        let before = finder.found.len() as u64 + finder.deselected;
        let name = own_name(path)?;
        finder.root = path.canonicalize().unwrap_or_default();
        finder.find(path, name)?;
        if finder.found.len() as u64 + finder.deselected == before {
            return Err(FileError::NoFiles(path.clone()));
        }
    }
    if finder.found.is_empty() {
        return Err(FileError::NoneSelected);
    }
    check_duplicates(&finder.found)?;
    finder.altered.log();
    let (count, skipped) = (finder.found.len() as u64, finder.skipped);
    let altered = finder.altered.count();
    let bytes = finder.found.iter().map(|file| file.length).sum();
    Ok(Sources {
        files: to_source_files(finder.found, options)?,
        count,
        bytes,
        skipped,
        altered,
    })
}

/// A file to send, and its name at the receiver.
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) name: String,
    pub(super) length: u64,
    modified: Option<SystemTime>,
    /// The attributes that receivers set.
    pub(super) attributes: Option<Attributes>,
}

#[derive(Default)]
struct Finder {
    /// The named path that is searched now, without links.
    root: PathBuf,
    altered: Altered,
    selection: Selection,
    archive: bool,
    found: Vec<Found>,
    skipped: u64,
    /// The number of files and folders that are not selected.
    deselected: u64,
}

impl Finder {
    fn find(&mut self, path: &Path, name: String) -> Result<(), FileError> {
        if self.selection.excludes(&name) {
            self.deselected += 1;
            return Ok(());
        }
        let metadata = fs::metadata(path).map_err(|error| unreadable(path, error))?;
        if metadata.is_dir() {
            return self.find_in_folder(path, &name);
        }
        if !self.selection.includes(&name) {
            self.deselected += 1;
            return Ok(());
        }
        if !metadata.is_file() {
            return Err(FileError::Special(path.to_owned()));
        }
        name::check(&name).map_err(|error| FileError::Name {
            path: path.to_owned(),
            error,
        })?;
        let file = File::open(path).map_err(|error| unreadable(path, error))?;
        if !has_stated_length(&file, metadata.len()).map_err(|error| unreadable(path, error))? {
            return Err(FileError::Unsized(path.to_owned()));
        }
        if has_holes(&file, &metadata) {
            self.altered.note(Alteration::Filled, path);
        }
        self.found.push(Found {
            path: path.to_owned(),
            name,
            length: metadata.len(),
            modified: metadata.modified().ok(),
            attributes: self.archive.then(|| attributes(&metadata)),
        });
        Ok(())
    }

    fn find_in_folder(&mut self, folder: &Path, prefix: &str) -> Result<(), FileError> {
        let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let mut entries = entries.map_err(|error| unreadable(folder, error))?;
        entries.sort_by_key(fs::DirEntry::file_name);
        if entries.is_empty() {
            self.altered.note(Alteration::EmptyFolder, folder);
        }
        for entry in entries {
            let path = entry.path();
            let found = self.found.len();
            if path.is_symlink() && path.is_dir() {
                tracing::warn!(
                    "{}: a link to a folder is not followed; name the folder to send it",
                    path.display()
                );
                self.skipped += 1;
            } else if let Err(error) = self.find_entry(&path, prefix) {
                self.skip_for(&error);
            } else if path.is_symlink() && self.found.len() > found {
                let target = path.canonicalize().unwrap_or_default();
                let kind = match target.starts_with(&self.root) {
                    true => Alteration::Copied,
                    false => Alteration::CopiedFromOutside,
                };
                self.altered.note(kind, &path);
            }
        }
        Ok(())
    }

    fn find_entry(&mut self, path: &Path, prefix: &str) -> Result<(), FileError> {
        let own = own_name(path)?;
        let name = if prefix.is_empty() {
            own
        } else {
            format!("{prefix}/{own}")
        };
        self.find(path, name)
    }

    fn skip_for(&mut self, error: &FileError) {
        tracing::warn!("left out: {error}");
        self.skipped += 1;
    }
}

/// Whether a file has the length that the system states. Those of /proc state 0, and those of /sys
/// a page.
fn has_stated_length(file: &File, length: u64) -> io::Result<bool> {
    let last = file.read_at(&mut [0], length.saturating_sub(1))?;
    Ok((last == 1) == (length > 0))
}

/// Whether a file has holes, which receivers store as zeros.
fn has_holes(file: &File, metadata: &fs::Metadata) -> bool {
    /// The unit of [`MetadataExt::blocks`], in bytes.
    const BLOCK: u64 = 512;
    // Compressed files have fewer blocks, too, but no holes.
    metadata.blocks() * BLOCK < metadata.len()
        && lseek(file, 0, Whence::SeekHole)
            .is_ok_and(|hole| u64::try_from(hole).is_ok_and(|hole| hole < metadata.len()))
}

/// Returns the attributes that receivers set. A time before 1970 becomes 1970.
fn attributes(metadata: &fs::Metadata) -> Attributes {
    Attributes {
        mode: metadata.mode() & Attributes::MODE_MAX,
        modified_s: u64::try_from(metadata.mtime()).unwrap_or(0),
    }
}

/// Returns the last component of a path. `.` and `/` have none, so their contents are sent without
/// a folder.
fn own_name(path: &Path) -> Result<String, FileError> {
    path.file_name().map_or(Ok(String::new()), |name| {
        name.to_str()
            .map(str::to_owned)
            .ok_or_else(|| FileError::NotUtf8(path.to_owned()))
    })
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

/// Makes a source of each large file, and bundles of small ones if there are many.
fn to_source_files(
    found: Vec<Found>,
    options: &SourceOptions,
) -> Result<Vec<SourceFile>, FileError> {
    let is_small = |file: &Found| file.length <= options.bundle_max && options.bundle_max > 0;
    let is_bundled = found.iter().filter(|file| is_small(file)).count() > UNBUNDLED_MAX;
    let (small, alone): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|file| is_bundled && is_small(file));
    let handles = Arc::new(Mutex::new(Handles::default()));
    let mut files: Vec<_> = (0..)
        .zip(alone)
        .map(|(number, found)| SourceFile {
            name: found.name,
            content: Arc::new(FileSource {
                path: found.path,
                number,
                length: found.length,
                modified: found.modified,
                handles: Arc::clone(&handles),
            }),
            bundle: None,
            attributes: found.attributes,
        })
        .collect();
    let taken = files.iter().map(|file| file.name.clone()).collect();
    files.extend(pack(small, taken, &options.scratch)?);
    Ok(files)
}

/// A file that is opened when it is read.
struct FileSource {
    path: PathBuf,
    /// The file's number among the open files.
    number: u128,
    length: u64,
    modified: Option<SystemTime>,
    handles: Arc<Mutex<Handles>>,
}

impl FileSource {
    /// Opens the file if it is still the one that was found.
    fn open(&self) -> io::Result<File> {
        let file = File::open(&self.path)?;
        let metadata = file.metadata()?;
        if metadata.len() == self.length && metadata.modified().ok() == self.modified {
            Ok(file)
        } else {
            Err(io::Error::other("it has changed since sending began"))
        }
    }
}

impl Source for FileSource {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        let file = handles.get(self.number, || self.open())?;
        file.read_exact_at(buffer, offset)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    io::Error::new(error.kind(), "it has become shorter since sending began")
                }
                _ => error,
            })
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

    fn find(paths: &[PathBuf]) -> Result<Sources, FileError> {
        find_selected(paths, &[], &[])
    }

    fn find_selected(
        paths: &[PathBuf],
        include: &[&str],
        exclude: &[&str],
    ) -> Result<Sources, FileError> {
        let owned = |patterns: &[&str]| patterns.iter().map(|&p| p.to_owned()).collect::<Vec<_>>();
        let options = SourceOptions {
            bundle_max: 1_000,
            scratch: std::env::temp_dir(),
            selection: Selection::new(&owned(include), &owned(exclude)).unwrap(),
            archive: false,
        };
        find_sources(paths, &options)
    }

    fn names(sources: &Sources) -> Vec<&str> {
        sources
            .files
            .iter()
            .map(|file| file.name.as_str())
            .collect()
    }

    fn content(file: &SourceFile) -> Vec<u8> {
        let mut content = vec![0; file.content.length() as usize];
        file.content.read_at(0, &mut content).unwrap();
        content
    }

    #[test]
    fn folders_are_read_as_cp_would_copy_them() {
        let home = folder();
        let single = put(home.path(), "single.txt", "1");
        put(home.path(), "tree/b/deep.txt", "3");
        put(home.path(), "tree/a é.txt", "2");
        fs::create_dir(home.path().join("tree/empty")).unwrap();
        let files = find(&[single, home.path().join("tree")]).unwrap();
        assert_eq!((files.skipped, files.altered), (0, 1));
        assert_eq!(
            names(&files),
            ["single.txt", "tree/a é.txt", "tree/b/deep.txt"]
        );
        assert_eq!(content(&files.files[2]), b"3");
        let files = find(&[home.path().join("tree/.")]).unwrap();
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
        let files = find(&[home.path().join("tree")]).unwrap();
        assert_eq!(names(&files), ["tree/link"]);
        assert_eq!(content(&files.files[0]), b"x");
        assert_eq!((files.skipped, files.altered), (1, 1));
    }

    #[test]
    fn files_without_the_length_that_they_state_are_refused_or_left_out() {
        let unsized_file = PathBuf::from("/proc/version");
        let error = find(std::slice::from_ref(&unsized_file)).unwrap_err();
        assert!(matches!(&error, FileError::Unsized(path) if *path == unsized_file));
        let home = folder();
        put(home.path(), "tree/good", "1");
        std::os::unix::fs::symlink(unsized_file, home.path().join("tree/version")).unwrap();
        let sources = find(&[home.path().join("tree")]).unwrap();
        assert_eq!(names(&sources), ["tree/good"]);
        assert_eq!(sources.skipped, 1);
    }

    #[test]
    fn files_with_holes_are_counted_and_others_are_not() {
        let home = folder();
        let sparse = File::create(home.path().join("sparse")).unwrap();
        sparse.set_len(1 << 20).unwrap();
        let whole = put(home.path(), "whole", &"x".repeat(100_000));
        let sources = find(&[home.path().join("sparse"), whole]).unwrap();
        assert_eq!((sources.count, sources.altered), (2, 1));
        assert_eq!(content(&sources.files[0]), vec![0; 1 << 20]);
    }

    #[test]
    fn a_path_that_cannot_be_sent_is_named() {
        let home = folder();
        let missing = home.path().join("missing");
        let error = find(std::slice::from_ref(&missing)).unwrap_err();
        assert!(matches!(&error, FileError::Missing(path) if *path == missing));
        assert!(
            error.to_string().contains("missing: no such file")
                && !error.to_string().contains('\n')
        );

        let (one, two) = (put(home.path(), "a/x", "1"), put(home.path(), "b/x", "2"));
        assert!(
            matches!(find(&[one, two]), Err(FileError::DuplicateName { name, .. }) if name == "x")
        );

        fs::create_dir(home.path().join("empty")).unwrap();
        assert!(matches!(
            find(&[home.path().join("empty")]),
            Err(FileError::NoFiles(_))
        ));
        let odd = put(home.path(), "back\\slash", "");
        assert!(matches!(find(&[odd]), Err(FileError::Name { .. })));
    }

    #[cfg(unix)]
    #[test]
    fn a_socket_or_a_name_that_is_not_utf8_is_refused() {
        use std::os::unix::ffi::OsStrExt;
        let home = folder();
        let socket = home.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(matches!(find(&[socket]), Err(FileError::Special(_))));
        let odd = home.path().join(std::ffi::OsStr::from_bytes(b"\xff"));
        fs::write(&odd, "").unwrap();
        assert!(matches!(find(&[odd]), Err(FileError::NotUtf8(_))));
    }

    #[test]
    fn entries_that_cannot_be_sent_are_left_out_and_counted() {
        use std::os::unix::ffi::OsStrExt;
        let home = folder();
        put(home.path(), "tree/good", "1");
        put(home.path(), "tree/back\\slash", "2");
        let odd = home
            .path()
            .join("tree")
            .join(std::ffi::OsStr::from_bytes(b"\xff"));
        fs::write(odd, "").unwrap();
        let _listener =
            std::os::unix::net::UnixListener::bind(home.path().join("tree/socket")).unwrap();
        std::os::unix::fs::symlink("nowhere", home.path().join("tree/dangling")).unwrap();
        let sources = find(&[home.path().join("tree")]).unwrap();
        assert_eq!(names(&sources), ["tree/good"]);
        assert_eq!((sources.count, sources.skipped), (1, 4));
    }

    #[test]
    fn a_file_that_changes_is_not_sent_further() {
        let home = folder();
        let path = put(home.path(), "x", "content");
        let sources = find(std::slice::from_ref(&path)).unwrap();
        fs::write(&path, "other content").unwrap();
        let mut bytes = [0; 7];
        sources.files[0].content.read_at(0, &mut bytes).unwrap_err();
    }

    #[test]
    fn files_are_selected_by_the_paths_that_receivers_see() {
        let home = folder();
        for name in ["a.md", "b.log", "old/a.md", "old/secret/key.md", "dist/x"] {
            put(home.path(), &format!("tree/{name}"), name);
        }
        let tree = home.path().join("tree");
        let selected = |include: &[&str], exclude: &[&str]| {
            let sources = find_selected(std::slice::from_ref(&tree), include, exclude).unwrap();
            assert_eq!(sources.skipped, 0);
            let files = sources.files.into_iter();
            files.map(|file| file.name).collect::<Vec<_>>()
        };
        assert_eq!(
            selected(&["*.md", "tree/dist"], &["secret"]),
            ["tree/a.md", "tree/dist/x", "tree/old/a.md"]
        );
        assert_eq!(selected(&["tree/*.md"], &[]), ["tree/a.md"]);
        assert_eq!(
            selected(&[], &["tree/old/**", "*.log"]),
            ["tree/a.md", "tree/dist/x"]
        );
    }

    #[test]
    fn patterns_may_leave_out_named_paths_but_not_all() {
        let home = folder();
        let (one, two) = (
            put(home.path(), "a.md", "1"),
            put(home.path(), "b.log", "2"),
        );
        let paths = [one, two];
        let sources = find_selected(&paths, &[], &["*.log"]).unwrap();
        assert_eq!(names(&sources), ["a.md"]);
        let none = find_selected(&paths, &["*.txt"], &[]);
        assert!(matches!(none, Err(FileError::NoneSelected)), "{none:?}");
    }

    #[test]
    fn many_small_files_are_bundled_and_large_ones_are_not() {
        let home = folder();
        put(home.path(), "tree/large", &"x".repeat(1_001));
        for number in 0..150 {
            put(home.path(), &format!("tree/{number}"), &"y".repeat(number));
        }
        let sources = find(&[home.path().join("tree")]).unwrap();
        assert_eq!(names(&sources), ["tree/large", "manyflow-bundle-1.tar.gz"]);
        assert_eq!((sources.count, sources.files[1].bundle), (151, Some(150)));
        assert_eq!(sources.bytes, 1_001 + 150 * 149 / 2);
        let again = find(&[home.path().join("tree")]).unwrap();
        assert_eq!(content(&sources.files[1]), content(&again.files[1]));
    }
}
