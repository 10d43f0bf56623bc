//! Bundles: gzipped tar archives of small files. An object costs at least a packet and an entry in
//! the table of files, which is more than a small file has.
//!
//! The formats are chosen so that a plain FLUTE receiver, which stores a bundle as a file, needs
//! only `tar xzf` to unpack it. A tar header takes 512 bytes, of which gzip leaves about 20.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use manyflow_object::fdt::Attributes;
use manyflow_object::receiver::CompleteObject;
use manyflow_object::sender::SourceFile;
use sha2::{Digest, Sha256};
use tempfile::TempPath;

use super::part::Part;
use super::sources::Found;
use super::store::{Staged, Store};
use super::{FileError, write_error};

/// The length of an archive, before compression, at which the next bundle begins. Bundles complete
/// one after another, so a receiver that is interrupted has files already.
const ARCHIVE_BYTES: u64 = 8 << 20;
/// The maximum length of an archive of another sender, before compression.
const FOREIGN_ARCHIVE_BYTES_MAX: u64 = 64 << 20;
const TAR_BLOCK_BYTES: u64 = 512;
/// The mode of a bundle, and of files in it without attributes.
const BUNDLE_MODE: u32 = 0o644;

/// Packs `small` files into bundles with names that are not `taken`, in a temporary file in
/// `scratch`. A file that can no longer be read is left out with a warning.
pub(super) fn pack(
    small: Vec<Found>,
    taken: BTreeSet<String>,
    scratch: &Path,
) -> Result<Vec<SourceFile>, FileError> {
    if small.is_empty() {
        return Ok(Vec::new());
    }
    let failed = |error| FileError::Folder {
        folder: scratch.to_owned(),
        error,
    };
    let file = Arc::new(tempfile::tempfile_in(scratch).map_err(failed)?);
    let mut names = (1..)
        .map(|number| format!("manyflow-bundle-{number}.tar.gz"))
        .filter(|name| !taken.contains(name));
    let mut small = small.into_iter().peekable();
    let (mut bundles, mut start) = (Vec::new(), 0);
    while small.peek().is_some() {
        let packed = pack_one(&file, start, &mut small).map_err(failed)?;
        let (end, files, attributes) = packed;
        if files > 0 {
            bundles.push(SourceFile {
                name: names.next().expect("the numbers do not end"),
                content: Arc::new(Part {
                    file: Arc::clone(&file),
                    start,
                    length: end - start,
                }),
                bundle: Some(files),
                attributes,
            });
        }
        start = end;
    }
    Ok(bundles)
}

/// Writes the next bundle to `file`, from `start` on. Returns its end, the number of its files, and
/// the bundle's own attributes if its files have some.
fn pack_one(
    file: &File,
    start: u64,
    small: &mut impl Iterator<Item = Found>,
) -> io::Result<(u64, u64, Option<Attributes>)> {
    let out = Appended {
        file,
        position: start,
    };
    let mut archive = tar::Builder::new(GzEncoder::new(out, Compression::default()));
    let (mut files, mut bytes, mut newest) = (0, 0, None);
    for found in small {
        let content = match std::fs::read(&found.path) {
            Ok(content) => content,
            Err(error) => {
                tracing::warn!("{}: left out: {error}", found.path.display());
                continue;
            }
        };
        // The same files give the same bundle, whenever it is made.
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(found.attributes.map_or(BUNDLE_MODE, |its| its.mode));
        header.set_mtime(found.attributes.map_or(0, |its| its.modified_s));
        newest = newest.max(found.attributes.map(|its| its.modified_s));
        archive.append_data(&mut header, &found.name, &content[..])?;
        files += 1;
        bytes += TAR_BLOCK_BYTES + (content.len() as u64).next_multiple_of(TAR_BLOCK_BYTES);
        if bytes >= ARCHIVE_BYTES {
            break;
        }
    }
    let out = archive.into_inner()?.finish()?;
    let attributes = newest.map(|modified_s| Attributes {
        mode: BUNDLE_MODE,
        modified_s,
    });
    Ok((out.position, files, attributes))
}

/// Writes at a position of a file.
struct Appended<'a> {
    file: &'a File,
    position: u64,
}

impl Write for Appended<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.file.write_at(bytes, self.position)?;
        self.position += length as u64;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The names and lengths of files, or the reasons why they were not stored.
pub(crate) type StoredFiles = Vec<(String, Result<u64, FileError>)>;

/// Stores the files of the bundle at `archive`. Files that exist with the same content are not
/// written again. `folder` is for temporary files, on the store's disk.
/// Returns the results by name.
pub(crate) fn unpack(
    archive: &Path,
    bundle: &CompleteObject,
    folder: &Path,
    store: &Store,
) -> Result<StoredFiles, FileError> {
    let files_max = bundle.bundle.unwrap_or(0);
    let not_announced = || FileError::Bundle(bundle.name.clone());
    let wrong = |_: io::Error| not_announced();
    let archive = File::open(archive).map_err(wrong)?;
    let archive = GzDecoder::new(archive).take(FOREIGN_ARCHIVE_BYTES_MAX);
    let mut archive = tar::Archive::new(archive);
    let (mut staged, mut names, mut results) = (Vec::new(), Vec::new(), Vec::new());
    for entry in archive.entries().map_err(wrong)?.take(files_max as usize) {
        let mut entry = entry.map_err(wrong)?;
        let path = entry.path().map_err(wrong)?;
        let is_file = entry.header().entry_type().is_file();
        let path = path.to_str().filter(|_| is_file).map(str::to_owned);
        let Some(path) = path else {
            return Err(not_announced());
        };
        let attributes = match bundle.attributes {
            Some(_) => Some(attributes(entry.header()).map_err(wrong)?),
            None => None,
        };
        let mut content = Vec::new();
        entry.read_to_end(&mut content).map_err(wrong)?;
        let length = content.len() as u64;
        // An archive that ends early, or is too long, ends in the middle of a file without error.
        if length != entry.size() {
            return Err(not_announced());
        }
        if store.has(&path, length, &Sha256::digest(&content).into()) {
            results.push((path, Ok(length)));
        } else {
            let part = folder.join(format!("part-{}", staged.len()));
            names.push((path.clone(), length));
            staged.push(Staged {
                content: stage(part, &content)?,
                name: path,
                attributes,
            });
        }
    }
    if (results.len() + staged.len()) as u64 != files_max {
        return Err(not_announced());
    }
    let published = store.publish(staged);
    let published = names
        .into_iter()
        .zip(published)
        .map(|((name, length), result)| (name, result.map(|_| length)));
    results.extend(published);
    Ok(results)
}

fn attributes(header: &tar::Header) -> io::Result<Attributes> {
    Ok(Attributes {
        mode: header.mode()? & Attributes::MODE_MAX,
        modified_s: header.mtime()?,
    })
}

fn stage(path: PathBuf, content: &[u8]) -> Result<TempPath, FileError> {
    let staged = fs::write(&path, content).and_then(|()| TempPath::try_from_path(&path));
    staged.map_err(|error| write_error(&path, error))
}

#[cfg(test)]
mod tests {
    use manyflow_object::receiver::Verified;

    use super::*;

    use crate::files::{Existing, Selection, SourceOptions, find_sources};

    /// A folder of small files, the bundle of them, and the place where it is unpacked.
    struct Case {
        home: tempfile::TempDir,
        archive: Vec<u8>,
        files: u64,
        store: Store,
    }

    impl Case {
        fn new(files: u64) -> Case {
            let home = tempfile::tempdir().unwrap();
            let tree = home.path().join("tree");
            fs::create_dir(&tree).unwrap();
            for number in 0..files {
                let content = number.to_string().repeat(number as usize % 90);
                fs::write(tree.join(format!("file {number}")), content).unwrap();
            }
            let options = SourceOptions {
                bundle_max: 1_000,
                scratch: home.path().to_owned(),
                selection: Selection::default(),
                archive: false,
            };
            let sources = find_sources(&[tree], &options).unwrap();
            let [bundle] = &sources.files[..] else {
                panic!("{sources:?}");
            };
            let mut archive = vec![0; bundle.content.length() as usize];
            bundle.content.read_at(0, &mut archive).unwrap();
            let store = Store::open(&home.path().join("out"), Existing::Keep).unwrap();
            fs::write(home.path().join("bundle"), &archive).unwrap();
            Case {
                home,
                archive,
                files,
                store,
            }
        }

        fn unpack(&self, files: u64) -> Result<StoredFiles, FileError> {
            let home = self.home.path();
            let bundle = CompleteObject {
                toi: 1,
                name: "bundle".to_owned(),
                length: self.archive.len() as u64,
                sha256: None,
                bundle: Some(files),
                attributes: None,
                section: None,
                verified: Verified::default(),
            };
            unpack(&home.join("bundle"), &bundle, home, &self.store)
        }

        fn assert_unpacked(&self) {
            for number in 0..self.files {
                let name = format!("tree/file {number}");
                let sent = fs::read(self.home.path().join(&name)).unwrap();
                let received = fs::read(self.store.folder().join(&name)).unwrap();
                assert_eq!(sent, received, "{name}");
            }
        }
    }

    #[test]
    fn files_of_a_bundle_are_stored_once() {
        let case = Case::new(200);
        let results = case.unpack(200).unwrap();
        assert!(results.len() == 200 && results.iter().all(|(_, result)| result.is_ok()));
        case.assert_unpacked();
        // A receiver that was killed finds the files, of which one has changed since.
        fs::write(case.store.folder().join("tree/file 5"), "changed").unwrap();
        let results = case.unpack(200).unwrap();
        let failed: Vec<_> = results
            .iter()
            .filter(|(_, result)| result.is_err())
            .collect();
        assert!(
            matches!(failed[..], [(name, Err(FileError::Exists(_)))] if name == "tree/file 5"),
            "{failed:?}"
        );
    }

    #[test]
    fn a_bundle_that_is_not_what_was_announced_is_refused() {
        let case = Case::new(200);
        for files in [0, 199, 201] {
            let result = case.unpack(files).err();
            // With fewer files than the archive has, the others are ignored.
            assert_eq!(result.is_some(), files > 200, "{files}: {result:?}");
        }
        for wrong in [&case.archive[..case.archive.len() / 2], b"no archive"] {
            fs::write(case.home.path().join("bundle"), wrong).unwrap();
            assert!(matches!(case.unpack(200), Err(FileError::Bundle(_))));
        }
    }

    /// An archive with one entry of this name and type, as an attacker would write it.
    fn hostile_archive(name: &[u8], kind: tar::EntryType, content: &[u8]) -> Vec<u8> {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_entry_type(kind);
        // The library refuses such names.
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        header.as_old_mut().linkname[..4].copy_from_slice(b"/etc");
        header.set_cksum();
        archive.append(&header, content).unwrap();
        archive.into_inner().unwrap().finish().unwrap()
    }

    #[test]
    fn a_hostile_bundle_stores_nothing_outside_its_folder() {
        use tar::EntryType;
        let case = Case::new(200);
        let store = Store::open(&case.home.path().join("out"), Existing::Replace).unwrap();
        let case = Case {
            store: store.refusing_hidden(),
            ..case
        };
        let long = [b'x'; 100];
        for (name, kind) in [
            (&b"../escaped"[..], EntryType::Regular),
            (b"a/../../escaped", EntryType::Regular),
            (b"/tmp/manyflow-escaped", EntryType::Regular),
            (b".bashrc", EntryType::Regular),
            (b"a/.ssh/authorized_keys", EntryType::Regular),
            (b"", EntryType::Regular),
            (b"\xff", EntryType::Regular),
            (b"line\nbreak", EntryType::Regular),
            (b"link", EntryType::Symlink),
            (b"link", EntryType::Link),
            (b"device", EntryType::Block),
            (b"pipe", EntryType::Fifo),
            (b"folder/", EntryType::Directory),
            (&long, EntryType::GNULongName),
        ] {
            let archive = hostile_archive(name, kind, b"");
            fs::write(case.home.path().join("bundle"), archive).unwrap();
            let stored = case.unpack(1).unwrap_or_default();
            let is_stored = stored.iter().any(|(_, result)| result.is_ok());
            assert!(!is_stored, "{kind:?} {}", String::from_utf8_lossy(name));
        }
        assert_eq!(fs::read_dir(case.store.folder()).unwrap().count(), 0);
        assert!(!case.home.path().join("escaped").exists());
        assert!(!Path::new("/tmp/manyflow-escaped").exists());
    }

    #[test]
    fn a_bundle_that_unpacks_to_more_than_a_bundle_may_have_is_refused() {
        let case = Case::new(200);
        let zeros = vec![0; FOREIGN_ARCHIVE_BYTES_MAX as usize + 1];
        let archive = hostile_archive(b"zeros", tar::EntryType::Regular, &zeros);
        assert!(archive.len() < 1 << 20);
        fs::write(case.home.path().join("bundle"), archive).unwrap();
        assert!(matches!(case.unpack(1), Err(FileError::Bundle(_))));
    }

    #[test]
    fn tar_unpacks_a_bundle() {
        let case = Case::new(200);
        let archive = case.home.path().join("bundle.tar.gz");
        fs::write(&archive, &case.archive).unwrap();
        let unpacked = std::process::Command::new("tar")
            .arg("xzf")
            .arg(&archive)
            .arg("-C")
            .arg(case.store.folder())
            .status();
        assert!(unpacked.unwrap().success());
        case.assert_unpacked();
    }
}
