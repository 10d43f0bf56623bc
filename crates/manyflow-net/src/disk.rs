//! Questions about the user's files that several roles ask.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

/// The length of the parts in which a file is read, in bytes.
const PART_BYTES: usize = 1 << 18;

/// Whether a path leads to a device, pipe or socket, directly or by a link. A rename to the path
/// would replace it, so that root could lose `/dev/null`. A rename never replaces a folder.
pub fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
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
