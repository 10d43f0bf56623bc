//! A device or file that takes an image: compared first, and written only where it differs.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use sha2::{Digest as _, Sha256};

use super::device::open_target;
use crate::files::FileError;

/// The unit of comparison in bytes: a block of the kernel's cache, and of most devices.
const UNIT_BYTES: usize = 4_096;
/// The number of bytes to compare at a time.
const PART_BYTES: usize = 1 << 20;

/// The place of a section: where it begins, and the lengths of its content and of the zeros behind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) zeros: u64,
}

impl Place {
    pub(crate) fn end(&self) -> u64 {
        self.offset
            .saturating_add(self.length)
            .saturating_add(self.zeros)
    }
}

/// A device, or a file that may grow.
#[derive(Debug)]
pub(crate) struct Target {
    path: PathBuf,
    file: File,
    /// The length of a device or an existing file; `None` for a file that grows.
    length: Option<u64>,
    /// The number of bytes that were written.
    written: AtomicU64,
}

impl Target {
    /// Opens a block device, or an existing file, whose length remains.
    pub(crate) fn open(path: &Path) -> Result<Target, FileError> {
        let (file, length) = open_target(path)?;
        Ok(Target {
            path: path.to_owned(),
            file,
            length: Some(length),
            written: AtomicU64::new(0),
        })
    }

    /// Opens a file of the spool, which an earlier process may have begun.
    pub(crate) fn in_spool(path: PathBuf) -> Result<Target, FileError> {
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(false);
        match options.open(&path) {
            Ok(file) => Ok(Target {
                path,
                file,
                length: None,
                written: AtomicU64::new(0),
            }),
            Err(error) => Err(FileError::Target { path, error }),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this is a file that grows.
    pub(crate) fn grows(&self) -> bool {
        self.length.is_none()
    }

    /// The number of bytes that were written, because they differed.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Checks that an image of at least `needed` bytes fits.
    pub(crate) fn check_length(&self, needed: u64) -> Result<(), FileError> {
        match self.length {
            Some(length) if length < needed => Err(FileError::TargetTooShort {
                path: self.path.clone(),
                length,
                needed,
            }),
            _ => Ok(()),
        }
    }

    /// Whether the target has a section whose content has this digest.
    pub(crate) fn has(&self, place: Place, sha256: &[u8; 32]) -> Result<bool, FileError> {
        if self.check_length(place.end()).is_err() {
            return Ok(false);
        }
        let (mut digest, mut buffer) = (Sha256::new(), vec![0; PART_BYTES]);
        let mut is_zero = true;
        let content_end = place.offset + place.length;
        self.for_each_part(place.offset, content_end, &mut buffer, |_, part| {
            digest.update(part);
            Ok(())
        })?;
        if <[u8; 32]>::from(digest.finalize()) != *sha256 {
            return Ok(false);
        }
        self.for_each_part(content_end, place.end(), &mut buffer, |_, part| {
            is_zero &= part.iter().all(|byte| *byte == 0);
            Ok(())
        })?;
        Ok(is_zero)
    }

    /// Writes a section where the target has other bytes.
    pub(crate) fn write(&self, place: Place, content: &File) -> Result<(), FileError> {
        self.check_length(place.end())?;
        let (mut buffer, mut new) = (vec![0; PART_BYTES], vec![0; PART_BYTES]);
        let content_end = place.offset + place.length;
        self.for_each_part(place.offset, content_end, &mut buffer, |offset, old| {
            let new = &mut new[..old.len()];
            content.read_exact_at(new, offset - place.offset)?;
            self.write_changes(offset, old, new)
        })?;
        new.fill(0);
        self.for_each_part(content_end, place.end(), &mut buffer, |offset, old| {
            self.write_changes(offset, old, &new[..old.len()])
        })
    }

    /// Writes the units of `new` that differ from `old`, neighbours together.
    fn write_changes(&self, offset: u64, old: &[u8], new: &[u8]) -> io::Result<()> {
        let mut changed = 0..0;
        let units = old.chunks(UNIT_BYTES).zip(new.chunks(UNIT_BYTES));
        for (number, (old, new_unit)) in units.enumerate() {
            let start = number * UNIT_BYTES;
            if old != new_unit {
                changed = match changed.is_empty() {
                    true => start..start + new_unit.len(),
                    false => changed.start..start + new_unit.len(),
                };
            } else {
                self.write_part(offset, new, std::mem::take(&mut changed))?;
            }
        }
        self.write_part(offset, new, changed)
    }

    fn write_part(
        &self,
        offset: u64,
        bytes: &[u8],
        part: std::ops::Range<usize>,
    ) -> io::Result<()> {
        if part.is_empty() {
            return Ok(());
        }
        let length = part.len() as u64;
        self.file
            .write_all_at(&bytes[part.clone()], offset + part.start as u64)?;
        self.written.fetch_add(length, Ordering::Relaxed);
        Ok(())
    }

    /// Reads a range in parts, of which only the first and the last can be unaligned. A file that
    /// is not that long yet has zeros there.
    fn for_each_part(
        &self,
        start: u64,
        end: u64,
        buffer: &mut [u8],
        mut take: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> Result<(), FileError> {
        let mut offset = start;
        while offset < end {
            let aligned = PART_BYTES as u64 - offset % PART_BYTES as u64;
            let part = &mut buffer[..aligned.min(end - offset) as usize];
            let taken = self.read(offset, part).and_then(|()| take(offset, &*part));
            taken.map_err(|error| self.error(error))?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut read = 0;
        while read < buffer.len() {
            match self
                .file
                .read_at(&mut buffer[read..], offset + read as u64)?
            {
                0 if self.length.is_none() => {
                    buffer[read..].fill(0);
                    break;
                }
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => read += length,
            }
        }
        Ok(())
    }

    /// Gives a file that grows its length, and writes all to disk.
    pub(crate) fn sync(&self, length: u64) -> Result<(), FileError> {
        let resized = match self.grows() {
            true => self.file.set_len(length),
            false => Ok(()),
        };
        let synced = resized.and_then(|()| self.file.sync_all());
        synced.map_err(|error| self.error(error))?;
        // From now on, reads are from the device.
        let advice = PosixFadviseAdvice::POSIX_FADV_DONTNEED;
        let length = i64::try_from(length).unwrap_or(i64::MAX);
        if let Err(error) = posix_fadvise(&self.file, 0, length, advice) {
            tracing::debug!("{}: {error}", self.path.display());
        }
        Ok(())
    }

    fn error(&self, error: io::Error) -> FileError {
        let path = self.path.clone();
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FileError::DiskFull(path),
            _ => FileError::Target { path, error },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn content(folder: &Path, bytes: &[u8]) -> File {
        let path = folder.join("content");
        fs::write(&path, bytes).unwrap();
        File::open(path).unwrap()
    }

    #[test]
    fn only_units_that_differ_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("device");
        let mut old = vec![7; 3 << 20];
        fs::write(&path, &old).unwrap();
        let target = Target::open(&path).unwrap();
        // One unit of the content differs, and the zeros do.
        let mut new = vec![7; 1 << 20];
        new[500_000] = 8;
        let place = Place {
            offset: 10_000,
            length: 1 << 20,
            zeros: 50_000,
        };
        let digest = Sha256::digest(&new).into();
        assert!(!target.has(place, &digest).unwrap());
        target.write(place, &content(folder.path(), &new)).unwrap();
        assert!(target.has(place, &digest).unwrap());
        assert_eq!(target.written(), UNIT_BYTES as u64 + 50_000);
        old[10_000..10_000 + (1 << 20)].copy_from_slice(&new);
        old[10_000 + (1 << 20)..][..50_000].fill(0);
        target.sync(3 << 20).unwrap();
        assert!(fs::read(&path).unwrap() == old, "nothing else was touched");
        // The second time, nothing is written.
        target.write(place, &content(folder.path(), &new)).unwrap();
        assert_eq!(target.written(), UNIT_BYTES as u64 + 50_000);
    }

    #[test]
    fn an_image_that_is_too_long_is_refused_before_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("device");
        fs::write(&path, [7; 10_000]).unwrap();
        let target = Target::open(&path).unwrap();
        let place = Place {
            offset: 9_000,
            length: 500,
            zeros: 501,
        };
        let refused = target.write(place, &content(folder.path(), &[1; 500]));
        assert!(
            matches!(
                refused,
                Err(FileError::TargetTooShort {
                    length: 10_000,
                    needed: 10_001,
                    ..
                })
            ),
            "{refused:?}"
        );
        assert!(!target.has(place, &[0; 32]).unwrap());
        assert_eq!(fs::read(&path).unwrap(), [7; 10_000]);
    }

    #[test]
    fn a_file_that_grows_has_holes_for_zeros() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let target = Target::in_spool(path.clone()).unwrap();
        let place = Place {
            offset: 32 << 20,
            length: 5_000,
            zeros: 32 << 20,
        };
        let digest = Sha256::digest([1; 5_000]).into();
        assert!(!target.has(place, &digest).unwrap());
        target
            .write(place, &content(folder.path(), &[1; 5_000]))
            .unwrap();
        assert!(target.has(place, &digest).unwrap());
        target.sync(place.end()).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!(metadata.len(), place.end());
        assert!(
            metadata.blocks() * 512 < 1 << 20,
            "{} blocks",
            metadata.blocks()
        );
    }
}
