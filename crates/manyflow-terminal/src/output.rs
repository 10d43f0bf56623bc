//! Lines on standard output, and their error.

use std::fmt;
use std::io::{self, Write as _};

/// An error in writing to standard output: it is closed, or its disk is full.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output: {0}")]
pub struct OutputError(io::Error);

impl OutputError {
    /// Returns the error of a write to standard output.
    pub(crate) fn new(error: io::Error) -> OutputError {
        OutputError(error)
    }

    /// Whether the reader of standard output has closed it, as `head` does after its last line.
    pub fn is_closed(&self) -> bool {
        self.0.kind() == io::ErrorKind::BrokenPipe
    }

    /// Returns the error of a standard output that is closed.
    pub fn closed() -> OutputError {
        OutputError(io::ErrorKind::BrokenPipe.into())
    }
}

/// Writes a line.
pub(crate) fn print_line(line: impl fmt::Display) -> Result<(), OutputError> {
    writeln!(io::stdout(), "{line}").map_err(OutputError)
}
