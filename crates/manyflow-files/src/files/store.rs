//! The folder for received files.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use manyflow_net::disk::{is_special, sha256_of_file};
use manyflow_object::fdt::Attributes;
use manyflow_object::name;
use tempfile::TempPath;

use super::{FileError, Part, spool, sync_folder, write_error};

/// A folder for received files.
///
/// A file appears under its name only when all its bytes are on disk.
#[derive(Clone, Debug)]
pub struct Store {
    /// The folder's path without links, so that paths below it can be recognised.
    folder: PathBuf,
    existing: Existing,
    refuses_hidden: bool,
}

/// A complete file that has not its name yet.
#[derive(Debug)]
pub struct Staged {
    /// The content, on the disk of the output folder.
    pub content: TempPath,
    /// The relative path to store it at, with `/` between its components.
    pub name: String,
    /// The mode and time to set. They are ignored in a session without an authenticated table of
    /// files, because anyone could have sent them.
    pub attributes: Option<Attributes>,
}

/// The treatment of an existing file that has the name of a received one, but another content.
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
            // A folder that was removed has no path. A file in it would not be permitted.
            let folder = fs::canonicalize(folder)?;
            tempfile::tempfile_in(&folder)?;
            Ok(folder)
        };
        let folder = usable().map_err(|error| FileError::Folder {
            folder: folder.to_owned(),
            error,
        })?;
        Ok(Store {
            folder,
            existing,
            refuses_hidden: false,
        })
    }

    /// Makes the store refuse files with hidden names: those of a session without an authenticated
    /// table of files, whose bundles anyone could have sent.
    pub fn refusing_hidden(self) -> Self {
        Store {
            refuses_hidden: true,
            ..self
        }
    }

    /// The folder's path without links.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether a regular file of this name, length and SHA-256 exists. A file that cannot be read
    /// counts as missing.
    pub fn has(&self, name: &str, length: u64, sha256: &[u8; 32]) -> bool {
        let path = self.folder.join(name);
        let is_candidate = name::check(name).is_ok()
            && fs::symlink_metadata(&path)
                .is_ok_and(|metadata| metadata.is_file() && metadata.len() == length);
        is_candidate
            && self.is_inside(&path)
            && sha256_of_file(&path).is_ok_and(|found| found == *sha256)
    }

    /// Opens the file that a received one of this name will replace; `None` if there is no regular
    /// file that may be replaced.
    pub(crate) fn former(&self, name: &str) -> Option<Part> {
        let path = self.folder.join(name);
        let is_regular = |path: &Path| fs::symlink_metadata(path).is_ok_and(|it| it.is_file());
        let is_candidate =
            self.existing == Existing::Replace && name::check(name).is_ok() && is_regular(&path);
        let file = File::open(&path).ok();
        let file = file.filter(|_| is_candidate && self.is_inside(&path))?;
        let length = file.metadata().ok()?.len();
        Some(Part {
            file: Arc::new(file),
            start: 0,
            length,
        })
    }

    /// Whether no link leads from the store to a path outside of it.
    fn is_inside(&self, path: &Path) -> bool {
        fs::canonicalize(path).is_ok_and(|path| path.starts_with(&self.folder))
    }

    /// Sets the attributes of `staged` files, writes the files to disk, and moves them to their
    /// names. Returns a result for each file.
    ///
    /// If a file cannot be stored, its name then refers to what it did before, or to nothing.
    pub fn publish(&self, staged: Vec<Staged>) -> Vec<Result<PathBuf, FileError>> {
        if let Err(error) = self.sync(&staged) {
            let failed = |file: &Staged| {
                let error = io::Error::new(error.kind(), error.to_string());
                Err(write_error(&self.folder.join(&file.name), error))
            };
            return staged.iter().map(failed).collect();
        }
        let is_single = staged.len() == 1;
        let mut folders = BTreeMap::new();
        let publish = |staged: Staged| {
            let path = self.rename(staged.content, &staged.name, &mut folders)?;
            if is_single && let Some(folder) = path.parent() {
                sync_folder(folder).map_err(|error| write_error(&path, error))?;
            }
            Ok(path)
        };
        let results = staged.into_iter().map(publish).collect();
        if !is_single && let Err(error) = sync_disk(&self.folder) {
            tracing::warn!("{}: cannot be synced ({error})", self.folder.display());
        }
        results
    }

    /// Writes staged files to disk: a single file alone, several with all others on the disk, since
    /// each request takes some milliseconds.
    fn sync(&self, staged: &[Staged]) -> io::Result<()> {
        match staged {
            [] => Ok(()),
            [file] => self.set_attributes(file)?.sync_all(),
            files => {
                for file in files.iter().filter(|file| file.attributes.is_some()) {
                    self.set_attributes(file)?;
                }
                sync_disk(&self.folder)
            }
        }
    }

    /// Sets a file's attributes, if it has some. Returns the file, which its new mode may keep from
    /// being opened again.
    fn set_attributes(&self, staged: &Staged) -> io::Result<File> {
        let file = File::open(&staged.content)?;
        if let Some(Attributes { mode, modified_s }) = staged.attributes
            && !self.refuses_hidden
        {
            let modified = UNIX_EPOCH.checked_add(Duration::from_secs(modified_s));
            // A time that this system cannot have is not worth a file.
            if let Err(error) = file.set_modified(modified.unwrap_or(UNIX_EPOCH)) {
                tracing::warn!("{}: its time cannot be set ({error})", staged.name);
            }
            file.set_permissions(Permissions::from_mode(mode & Attributes::MODE_MAX))?;
        }
        Ok(file)
    }

    /// `made` are the folders of files that were published just before, by name.
    fn rename(
        &self,
        staged: TempPath,
        name: &str,
        made: &mut BTreeMap<String, PathBuf>,
    ) -> Result<PathBuf, FileError> {
        name::check(name).map_err(FileError::Unsafe)?;
        if self.refuses_hidden {
            name::check_visible(name).map_err(FileError::Unsafe)?;
        }
        let path = self.folder.join(name);
        if name.starts_with(spool::PREFIX) {
            return Err(FileError::Reserved(path));
        }
        let (folders, own_name) = name.rsplit_once('/').unwrap_or(("", name));
        if !made.contains_key(folders) {
            made.insert(folders.to_owned(), self.make_folders(folders)?);
        }
        let target = made[folders].join(own_name);
        if self.existing == Existing::Replace && is_special(&target) {
            return Err(FileError::NotRegular(path));
        }
        let stored = match self.existing {
            Existing::Keep => staged.persist_noclobber(target),
            Existing::Replace => staged.persist(target),
        };
        stored.map_err(|error| match (error.error.kind(), self.existing) {
            (ErrorKind::AlreadyExists, Existing::Keep) => FileError::Exists(path.clone()),
            _ => write_error(&path, error.error),
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

/// Writes all files of the disk that has `folder`.
fn sync_disk(folder: &Path) -> io::Result<()> {
    let folder = File::open(folder)?;
    if cfg!(target_os = "linux") {
        return Ok(nix::unistd::syncfs(folder)?);
    }
    nix::unistd::sync();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

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

    /// Returns the names of everything in a folder, temporary files included.
    fn listing(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    const ATTRIBUTES: Attributes = Attributes {
        mode: 0o6640,
        modified_s: 1_000_000_007,
    };

    #[test]
    fn attributes_are_set_unless_anyone_could_have_sent_them() {
        let home = folder();
        let trusting = store(home.path(), Existing::Keep);
        let attributes = |path: &Path| {
            let metadata = fs::metadata(path).unwrap();
            (metadata.mode() & 0o7777, metadata.mtime())
        };
        let single = publish(&trusting, "single", b"x").unwrap();
        let several = publish_all(&trusting, &[("a", b"1"), ("b", b"2")]);
        for path in several.into_iter().map(Result::unwrap).chain([single]) {
            assert_eq!(attributes(&path), (0o640, 1_000_000_007), "{path:?}");
        }
        let wary = trusting.refusing_hidden();
        let path = publish(&wary, "wary", b"x").unwrap();
        assert_ne!(attributes(&path).1, 1_000_000_007);
    }

    /// Stages `content` outside of the store, and publishes it.
    fn publish(store: &Store, name: &str, content: &[u8]) -> Result<PathBuf, FileError> {
        let mut results = publish_all(store, &[(name, content)]);
        results.pop().unwrap()
    }

    fn publish_all(store: &Store, files: &[(&str, &[u8])]) -> Vec<Result<PathBuf, FileError>> {
        let staging = tempfile::tempdir_in(store.folder().parent().unwrap()).unwrap();
        let staged = files.iter().enumerate().map(|(number, (name, content))| {
            let path = put(staging.path(), &number.to_string(), "");
            fs::write(&path, content).unwrap();
            Staged {
                content: TempPath::try_from_path(path).unwrap(),
                name: name.to_string(),
                attributes: Some(ATTRIBUTES),
            }
        });
        store.publish(staged.collect())
    }

    fn store(home: &Path, existing: Existing) -> Store {
        Store::open(&home.join("out"), existing).unwrap()
    }

    #[test]
    fn a_file_is_stored_in_folders_that_are_made() {
        let home = folder();
        let store = Store::open(&home.path().join("new/out"), Existing::Keep).unwrap();
        let path = publish(&store, "a/b/c.txt", b"content").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"content");
        assert_eq!(listing(path.parent().unwrap()), ["c.txt"]);
        assert_eq!(listing(&home.path().join("new/out")), ["a"]);
    }

    #[test]
    fn an_existing_file_is_replaced_only_on_request() {
        let home = folder();
        let path = put(&home.path().join("out"), "x", "a longer old content");
        let store = super::tests::store(home.path(), Existing::Keep);
        let error = publish(&store, "x", b"new").unwrap_err();
        assert!(
            matches!(&error, FileError::Exists(kept) if *kept == path),
            "{error}"
        );
        assert_eq!(fs::read(&path).unwrap(), b"a longer old content");
        let store = super::tests::store(home.path(), Existing::Replace);
        publish(&store, "x", b"new").unwrap();
        assert_eq!(fs::read(path).unwrap(), b"new");
        assert_eq!(listing(&home.path().join("out")), ["x"]);
    }

    #[test]
    fn an_existing_link_is_neither_followed_nor_replaced() {
        let home = folder();
        let target = put(&home.path().join("out"), "target", "old");
        let link = home.path().join("out/link");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let store = super::tests::store(home.path(), Existing::Keep);
        assert!(matches!(
            publish(&store, "link", b"new"),
            Err(FileError::Exists(_))
        ));
        assert!(link.is_symlink());
        assert_eq!(fs::read(target).unwrap(), b"old");
    }

    #[test]
    fn a_long_name_can_be_stored() {
        let home = folder();
        let name = "é".repeat(127);
        publish(&store(home.path(), Existing::Keep), &name, b"").unwrap();
        assert_eq!(listing(&home.path().join("out")), [name]);
    }

    #[test]
    fn unsafe_names_are_refused() {
        let home = folder();
        let store = super::tests::store(home.path(), Existing::Keep);
        for name in ["", "../x", "/x", "a/../../x", "a\\b", "a\0b"] {
            assert!(
                matches!(publish(&store, name, b""), Err(FileError::Unsafe(_))),
                "{name:?} was stored"
            );
        }
        assert_eq!(listing(&home.path().join("out")), [""; 0]);
    }

    #[cfg(unix)]
    #[test]
    fn links_in_the_store_do_not_lead_out_of_it() {
        use std::os::unix::fs::symlink;
        let (home, outside) = (folder(), folder());
        let store = super::tests::store(home.path(), Existing::Replace);
        symlink(outside.path(), home.path().join("out/out")).unwrap();
        for name in ["out/x", "out/deep/x"] {
            assert!(
                matches!(publish(&store, name, b"x"), Err(FileError::Outside(_))),
                "{name:?} was stored"
            );
        }
        assert_eq!(listing(outside.path()), [""; 0]);

        // A link in place of the file is replaced. Its target is untouched.
        let target = put(outside.path(), "target", "old");
        symlink(&target, home.path().join("out/x")).unwrap();
        publish(&store, "x", b"new").unwrap();
        assert_eq!(fs::read(target).unwrap(), b"old");
        // A link within the store does no harm.
        publish(&store, "a/x", b"").unwrap();
        symlink(home.path().join("out/a"), home.path().join("out/inside")).unwrap();
        publish(&store, "inside/y", b"").unwrap();
        assert_eq!(listing(&home.path().join("out/a")), ["x", "y"]);
    }

    #[test]
    fn hidden_names_are_refused_on_request_and_names_of_spools_always() {
        let home = folder();
        let store = store(home.path(), Existing::Keep);
        publish(&store, "a/.hidden", b"").unwrap();
        let spool = publish(&store, ".manyflow-ab/1", b"");
        assert!(matches!(spool, Err(FileError::Reserved(_))));
        let store = store.refusing_hidden();
        let hidden = publish(&store, "b/.hidden", b"");
        assert!(matches!(hidden, Err(FileError::Unsafe(_))));
        assert_eq!(listing(store.folder()), ["a"]);
    }

    #[test]
    fn several_files_are_stored_together() {
        let home = folder();
        let store = store(home.path(), Existing::Keep);
        put(store.folder(), "taken", "kept");
        let files = [
            ("a", &b"1"[..]),
            ("taken", b"2"),
            ("b/c", b"3"),
            ("../d", b"4"),
        ];
        let results = publish_all(&store, &files);
        assert!(results[0].is_ok() && results[2].is_ok());
        assert!(matches!(results[1], Err(FileError::Exists(_))));
        assert!(matches!(results[3], Err(FileError::Unsafe(_))));
        assert_eq!(listing(store.folder()), ["a", "b", "taken"]);
        assert_eq!(fs::read(store.folder().join("taken")).unwrap(), b"kept");
    }

    #[test]
    fn a_file_with_the_announced_content_is_recognised() {
        let home = folder();
        let store = store(home.path(), Existing::Keep);
        put(store.folder(), "a/x", "content");
        let digest = <sha2::Sha256 as sha2::Digest>::digest("content").into();
        assert!(store.has("a/x", 7, &digest));
        assert!(!store.has("a/x", 8, &digest) && !store.has("a/y", 7, &digest));
        assert!(!store.has("a/x", 7, &[0; 32]));
        assert!(!store.has("a", 7, &digest) && !store.has("../out/a/x", 7, &digest));
        std::os::unix::fs::symlink("a/x", store.folder().join("link")).unwrap();
        assert!(!store.has("link", 7, &digest));
    }

    #[test]
    fn a_folder_in_the_way_is_an_error() {
        let home = folder();
        let store = store(home.path(), Existing::Replace);
        publish(&store, "taken/x", b"").unwrap();
        for name in ["taken", "taken/x/y"] {
            let error = publish(&store, name, b"").unwrap_err();
            assert!(matches!(error, FileError::Write { .. }), "{error}");
        }
        assert_eq!(listing(store.folder()), ["taken"]);
        let opened = Store::open(&store.folder().join("taken/x"), Existing::Keep);
        assert!(matches!(opened, Err(FileError::Folder { .. })));
    }

    #[test]
    fn a_folder_that_was_removed_is_not_found() {
        use std::os::fd::AsRawFd as _;
        let home = folder();
        let opened = fs::File::open(home.path()).unwrap();
        let same = format!("/proc/self/fd/{}", opened.as_raw_fd());
        home.close().unwrap();
        let error = match Store::open(Path::new(&same), Existing::Keep) {
            Err(FileError::Folder { error, .. }) => error,
            other => panic!("{other:?}"),
        };
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
    }

    #[test]
    fn a_pipe_with_the_name_of_a_file_is_not_replaced() {
        let home = folder();
        let store = store(home.path(), Existing::Replace);
        let pipe = store.folder().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::os::unix::fs::symlink(&pipe, store.folder().join("link")).unwrap();
        for name in ["pipe", "link"] {
            let error = publish(&store, name, b"x");
            assert!(matches!(error, Err(FileError::NotRegular(_))), "{error:?}");
        }
        assert!(is_special(&pipe));
    }

    #[test]
    fn a_former_version_is_a_regular_file_that_may_be_replaced() {
        let home = folder();
        put(home.path(), "elsewhere/file", "other");
        put(home.path(), "out/tree/file", "former");
        let out = home.path().join("out");
        let link = |to: &str, at: &str| std::os::unix::fs::symlink(to, out.join(at)).unwrap();
        link("../elsewhere", "away");
        link("file", "tree/link");
        let store = Store::open(&out, Existing::Keep).unwrap();
        assert!(store.former("tree/file").is_none());
        let store = Store::open(&out, Existing::Replace).unwrap();
        assert_eq!(store.former("tree/file").unwrap().length, 6);
        for name in [
            "away/file",
            "tree/link",
            "tree",
            "none",
            "../elsewhere/file",
        ] {
            assert!(store.former(name).is_none(), "{name}");
        }
    }
}
