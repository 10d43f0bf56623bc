//! A part of a file as the content of an object.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use manyflow_object::sender::Source;

/// A part of a file.
pub(crate) struct Part {
    pub(crate) file: Arc<File>,
    pub(crate) start: u64,
    pub(crate) length: u64,
}

impl Source for Part {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, self.start + offset)
    }
}
