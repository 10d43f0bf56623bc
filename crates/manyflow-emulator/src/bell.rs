//! A signal from other threads that ends a wait for packets.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

/// Wakes a [drive](crate::drive::Drive) when one of its ringers rings.
#[derive(Debug)]
pub struct Bell {
    reader: PipeReader,
    writer: PipeWriter,
}

/// Rings a [`Bell`], from any thread.
#[derive(Debug)]
pub struct Ringer(PipeWriter);

impl Bell {
    /// Makes a bell.
    ///
    /// # Errors
    /// Returns an error if the process has no file descriptors left.
    pub fn new() -> io::Result<Bell> {
        let (reader, writer) = io::pipe()?;
        Ok(Bell { reader, writer })
    }

    /// Makes a ringer.
    ///
    /// # Errors
    /// Returns an error if the process has no file descriptors left.
    pub fn ringer(&self) -> io::Result<Ringer> {
        self.writer.try_clone().map(Ringer)
    }

    /// Takes one ring, after a poll has reported it.
    pub(crate) fn take(&mut self) {
        // A pipe that is readable and whose writer is open returns a byte.
        let _ = self.reader.read(&mut [0]);
    }
}

impl Ringer {
    /// Rings once.
    pub fn ring(&mut self) {
        // If the bell is gone, nobody waits.
        let _ = self.0.write(&[0]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}
