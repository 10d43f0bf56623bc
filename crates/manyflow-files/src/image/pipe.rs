//! The pipe to a command, which may be slow.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::files::FileError;

/// The time between two looks whether the receiver was stopped, in milliseconds.
const PAUSE_MS: u16 = 100;

/// The writing end of a pipe.
#[derive(Debug)]
pub(super) struct Pipe(Arc<File>);

impl Pipe {
    /// Takes the writing end, which no longer blocks then.
    pub(super) fn new(file: Arc<File>) -> Result<Pipe, FileError> {
        let flags = fcntl(&file, FcntlArg::F_GETFL).map(OFlag::from_bits_retain);
        let set =
            flags.and_then(|flags| fcntl(&file, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)));
        set.map_err(|error| FileError::Pipe(error.into()))?;
        Ok(Pipe(file))
    }

    /// Writes all bytes, and passes each number of bytes written to `note`. Returns false if
    /// `is_stopped` became true before.
    pub(super) fn write(
        &mut self,
        mut bytes: &[u8],
        is_stopped: &dyn Fn() -> bool,
        note: &dyn Fn(u64),
    ) -> Result<bool, FileError> {
        while !bytes.is_empty() {
            if is_stopped() {
                return Ok(false);
            }
            match (&*self.0).write(bytes) {
                Ok(length) => {
                    note(length as u64);
                    bytes = &bytes[length..];
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait()?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(FileError::Pipe(error)),
            }
        }
        Ok(true)
    }

    fn wait(&self) -> Result<(), FileError> {
        let mut pipe = [PollFd::new(self.0.as_fd(), PollFlags::POLLOUT)];
        match poll(&mut pipe, PollTimeout::from(PAUSE_MS)) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(FileError::Pipe(error.into())),
        }
    }
}
