//! Questions about the user's files that several roles ask.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use nix::sys::statvfs::statvfs;
use sha2::{Digest, Sha256};

/// The length of the parts in which a file is read, in bytes.
const PART_BYTES: usize = 1 << 18;

/// Whether a path leads to a device, pipe or socket, directly or by a link. A rename to the path
/// would replace it, so that root could lose `/dev/null`. A rename never replaces a folder.
pub fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

/// Returns the room that the disk of `folder` has for this user, and its size, in bytes. `None` if
/// the system does not say: memory without a limit (ramfs, as on rescue systems) and some network
/// disks state zero for both.
pub fn room(folder: &Path) -> Option<(u64, u64)> {
    let disk = statvfs(folder).ok()?;
    let fragment = disk.fragment_size();
    let has_size = disk.blocks() > 0;
    has_size.then(|| (disk.blocks_available() * fragment, disk.blocks() * fragment))
}

/// Returns the SHA-256 of a file's content.
///
/// # Errors
/// If the file cannot be read.
pub fn sha256_of_file(path: &Path) -> io::Result<[u8; 32]> {
    let (mut file, mut digest) = (File::open(path)?, Sha256::new());
    let mut part = vec![0; PART_BYTES];
    loop {
        match file.read(&mut part)? {
            0 => return Ok(digest.finalize().into()),
            length => digest.update(&part[..length]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_without_a_size_does_not_say_its_room() {
        let folder = tempfile::tempdir().unwrap();
        let (free, size) = room(folder.path()).unwrap();
        assert!(free <= size && size > 0, "{free} of {size}");
        assert_eq!(room(Path::new("/proc")), None);
        assert_eq!(room(&folder.path().join("missing")), None);
    }
}
