//! Unix sockets of servers for programs on the same machine, written `unix:/run/manyflow.sock`.
//!
//! The process' umask decides who may connect: Linux asks for the permission to write to the file.
//! Only the folder's permissions count on some other systems.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use crate::address::AddressError;

/// The text before the path of a Unix socket.
const SCHEME: &str = "unix:";
/// The maximum length of the path in bytes: `sockaddr_un` has 108, of which the last is zero
/// (unix(7)).
pub const PATH_BYTES_MAX: usize = 107;

/// Returns the path in an address such as `unix:/run/manyflow.sock`; `None` if the text is another
/// address.
///
/// # Errors
/// [`AddressError::UnixPath`] if the path is relative or too long.
///
/// ```
/// use manyflow_net::unix_socket::path_of;
///
/// let path = path_of("unix:/run/manyflow.sock").expect("it is one")?;
/// assert_eq!(path, std::path::Path::new("/run/manyflow.sock"));
/// assert!(path_of("127.0.0.1:4222").is_none());
/// # Ok::<(), manyflow_net::address::AddressError>(())
/// ```
pub fn path_of(text: &str) -> Option<Result<&Path, AddressError>> {
    let path = text.strip_prefix(SCHEME)?;
    let wrong = |problem| AddressError::UnixPath {
        text: text.to_owned(),
        problem,
    };
    Some(match path {
        _ if !path.starts_with('/') => Err(wrong("has no absolute path")),
        _ if path.ends_with('/') => Err(wrong("names a folder")),
        _ if path.contains('\0') => Err(wrong("has a zero byte")),
        _ if path.len() > PATH_BYTES_MAX => Err(wrong("has too long a path")),
        _ => Ok(Path::new(path)),
    })
}

/// Returns the address of the Unix socket at a path.
pub fn address_of(path: &Path) -> String {
    format!("{SCHEME}{}", path.display())
}

/// Listens at a path. Replaces the file of a listener that no longer exists.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`] if a program listens there; an [`AddressError::NoSocket`] if there
/// is a file that is no socket, or no folder, or no permission.
pub fn listen(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    remove_stale(path)?;
    let listener = UnixListener::bind(path).map_err(|cause| explain(path, cause))?;
    listener.set_nonblocking(true)?;
    let inode = fs::metadata(path)?.ino();
    let path = path.to_owned();
    Ok((listener, SocketFile { path, inode }))
}

/// Removes the file of a socket at which nobody listens.
fn remove_stale(path: &Path) -> io::Result<()> {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !metadata.file_type().is_socket() {
        let problem = "is there already and is no socket: remove it".to_owned();
        return Err(no_socket(path, problem).into());
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        Err(cause) if cause.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|cause| explain(path, cause))
        }
        // Its listener has no room for another connection, or belongs to another user.
        Err(cause) => Err(explain(path, cause)),
    }
}

/// Adds the path to the kernel's reason. A socket in use keeps its kind, for which there is advice.
fn explain(path: &Path, cause: io::Error) -> io::Error {
    if cause.kind() == io::ErrorKind::AddrInUse {
        return cause;
    }
    let folder = path.parent().unwrap_or(path);
    let problem = match cause.kind() {
        io::ErrorKind::NotFound => format!("has no folder: make {}", folder.display()),
        io::ErrorKind::PermissionDenied => format!(
            "cannot be used by this user: check the owner and mode of it and of {}",
            folder.display()
        ),
        _ => format!("cannot be used: {cause}"),
    };
    no_socket(path, problem).into()
}

fn no_socket(path: &Path, problem: String) -> AddressError {
    AddressError::NoSocket {
        path: path.display().to_string(),
        problem,
    }
}

/// The file of a listener, which is removed when this is dropped.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl SocketFile {
    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another program may have replaced the file.
        let is_own = fs::symlink_metadata(&self.path).is_ok_and(|file| file.ino() == self.inode);
        if is_own && let Err(cause) = fs::remove_file(&self.path) {
            let path = self.path.display();
            tracing::warn!(
                "cannot remove {path}, the socket of a listener that has ended: {cause}"
            );
        }
    }
}

/// Connects to the listener at a path.
///
/// # Errors
/// The kernel's; if this user lacks the permission, an [`AddressError::NoSocket`] with advice.
pub async fn connect(path: &Path) -> io::Result<tokio::net::UnixStream> {
    let connected = tokio::net::UnixStream::connect(path).await;
    connected.map_err(|cause| match cause.kind() {
        io::ErrorKind::PermissionDenied => explain(path, cause),
        _ => cause,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    fn listen_error(path: &Path) -> String {
        listen(path).unwrap_err().to_string()
    }

    #[test]
    fn paths_that_no_socket_can_have_are_refused() {
        for (text, problem) in [
            ("unix:", "absolute"),
            ("unix:manyflow.sock", "absolute"),
            ("unix:/run/", "folder"),
            ("unix:/a\0b", "zero"),
        ] {
            let error = path_of(text).unwrap().unwrap_err();
            assert!(error.to_string().contains(problem), "{error}");
            assert!(!error.may_pass());
        }
        let longest = format!("unix:/{}", "x".repeat(PATH_BYTES_MAX - 1));
        assert!(path_of(&longest).unwrap().is_ok());
        let error = path_of(&format!("{longest}x")).unwrap().unwrap_err();
        assert!(error.to_string().contains("at most 107 bytes"), "{error}");
    }

    #[test]
    fn the_longest_path_can_be_listened_at() {
        let folder = tempfile::tempdir().unwrap();
        let used = folder.path().as_os_str().as_bytes().len() + 1;
        let path = folder.path().join("x".repeat(PATH_BYTES_MAX - used));
        let (_listener, file) = listen(&path).unwrap();
        assert!(UnixStream::connect(file.path()).is_ok());
    }

    #[test]
    fn only_a_socket_without_a_listener_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        // A listener without its SocketFile leaves the file behind, as a killed process does.
        drop(UnixListener::bind(&path).unwrap());
        let (listener, file) = listen(&path).unwrap();
        let in_use = listen(&path).unwrap_err();
        assert_eq!(in_use.kind(), io::ErrorKind::AddrInUse);
        drop((listener, file));
        assert!(!path.exists());

        fs::write(&path, "kept").unwrap();
        assert!(listen_error(&path).contains("is no socket"));
        assert_eq!(fs::read(&path).unwrap(), b"kept");
        let missing = folder.path().join("no/s");
        assert!(listen_error(&missing).contains("has no folder"));
    }

    #[test]
    fn a_file_that_another_program_has_replaced_remains() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let (_listener, file) = listen(&path).unwrap();
        let other = folder.path().join("other");
        let _other = UnixListener::bind(&other).unwrap();
        fs::rename(&other, &path).unwrap();
        drop(file);
        assert!(path.exists());
    }
}
