//! The file of a session description, `--session`.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};

/// The permissions of a new file, less those that the umask takes.
const MODE: u32 = 0o666;

/// Writes a description. A reader finds the file whole: as it was before, or as it is now.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    let written = match is_replaceable(path) {
        true => replace(path, text),
        false => fs::write(path, text),
    };
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Whether another file may take the name. Devices, pipes and links keep it, and take the text.
fn is_replaceable(path: &Path) -> bool {
    match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.is_file(),
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

/// Writes a file beside the old one, and gives it the name.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let made = tempfile::Builder::new()
        .prefix(".session-")
        .permissions(Permissions::from_mode(MODE))
        .tempfile_in(folder);
    let mut beside = match made {
        Ok(beside) => beside,
        // A file may be writable in a folder that is not.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return fs::write(path, text),
        // The error would name the file beside, which nobody knows.
        Err(error) => {
            return Err(error
                .raw_os_error()
                .map_or(error, io::Error::from_raw_os_error));
        }
    };
    beside.write_all(text.as_bytes())?;
    beside.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_replaces_a_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("a.sdp"), folder.path().join("link"));
        write(&file, "first").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mut reader = fs::File::open(&file).unwrap();
        write(&file, "second").unwrap();
        // A reader that has opened the file reads it whole.
        assert_eq!(io::read_to_string(&mut reader).unwrap(), "first");
        assert_eq!(fs::read_to_string(&file).unwrap(), "second");
        write(&link, "third").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "third");
        write(Path::new("/dev/null"), "nothing").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        let names = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 2, "nothing remains beside");
        let umask = nix::sys::stat::umask(nix::sys::stat::Mode::empty());
        nix::sys::stat::umask(umask);
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE & !umask.bits());
    }

    #[test]
    fn errors_name_the_file_of_the_option() {
        let error = write(Path::new("/nowhere/a.sdp"), "text").unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.starts_with("cannot write /nowhere/a.sdp: No such file"),
            "{error}"
        );
    }
}
