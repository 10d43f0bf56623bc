//! The number under which a receiver reports, in a file beside its spool, so that a receiver that
//! is started again is the same one.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use super::spool::{folder_of, read_if_exists};

/// The name of the file.
pub(super) const RECEIVER: &str = "receiver";

/// Returns the number under which the receiver of this session in the folder `output` reports;
/// `None` if it has none yet.
///
/// # Errors
/// If the number cannot be read.
pub(crate) fn receiver_number(output: &Path, table_sha256: &[u8; 32]) -> io::Result<Option<u64>> {
    let path = folder_of(output, table_sha256).join(RECEIVER);
    let text = read_if_exists(&path)?;
    let text = text.and_then(|text| String::from_utf8(text).ok());
    Ok(text.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()))
}

/// Writes the number of the receiver, and returns it.
///
/// # Errors
/// If the number cannot be written.
pub(crate) fn write_receiver_number(
    output: &Path,
    table_sha256: &[u8; 32],
    number: u64,
) -> io::Result<u64> {
    let folder = folder_of(output, table_sha256);
    fs::create_dir_all(&folder)?;
    let mut file = tempfile::NamedTempFile::new_in(&folder)?;
    writeln!(file, "{number:016x}")?;
    file.persist(folder.join(RECEIVER))?;
    Ok(number)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::SystemTime;

    use manyflow_object::storage::Storage as _;

    use super::super::spool::{KEPT_FOR, Spool};
    use super::*;

    const DIGEST: [u8; 32] = [0xab; 32];

    #[test]
    fn the_number_of_a_receiver_remains_for_a_week() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(receiver_number(home.path(), &DIGEST).unwrap(), None);
        assert_eq!(write_receiver_number(home.path(), &DIGEST, 7).unwrap(), 7);
        for _ in 0..2 {
            let (mut spool, _) = Spool::open(home.path(), Some(&DIGEST)).unwrap();
            spool.write_at(1, 0, b"symbol").unwrap();
            spool.flush().unwrap();
            fs::create_dir(spool.folder().join("bundle")).unwrap();
            spool.discard();
            drop(spool);
            let left = fs::read_dir(folder_of(home.path(), &DIGEST)).unwrap();
            let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(left, [RECEIVER]);
            assert_eq!(receiver_number(home.path(), &DIGEST).unwrap(), Some(7));
        }
        // Somebody has written something else there.
        let file = folder_of(home.path(), &DIGEST).join(RECEIVER);
        fs::write(&file, "seven").unwrap();
        assert_eq!(receiver_number(home.path(), &DIGEST).unwrap(), None);
        let written = File::open(&file).unwrap();
        written
            .set_modified(SystemTime::now() - KEPT_FOR * 2)
            .unwrap();
        Spool::open(home.path(), Some(&[1; 32])).unwrap();
        assert!(!file.exists());
    }
}
