//! The contents of the objects at the sender.

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::fdt::Attributes;

/// The content of an object. The sender reads a part of it whenever it sends or encodes that part,
/// so that large files need not be in memory.
pub trait Source: Send + Sync {
    /// The length in bytes. It must not change.
    fn length(&self) -> u64;

    /// Fills `buffer` with the bytes from `offset` on.
    ///
    /// # Errors
    /// If the bytes cannot be read, for example because a file was removed or became shorter.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

impl Source for Bytes {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64);
        let range = end.and_then(|end| self.get(usize::try_from(offset).ok()?..end as usize));
        let bytes = range.ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }
}

/// A file to send.
#[derive(Clone)]
pub struct SourceFile {
    /// A relative path with `/` between its components, as [`name::check`](crate::name::check)
    /// accepts.
    pub name: String,
    /// The content.
    pub content: Arc<dyn Source>,
    /// The number of files in the content if it is a bundle: an archive whose files our receivers
    /// store instead of the archive. `None` for a file.
    pub bundle: Option<u64>,
    /// The mode and time that receivers set; for a bundle, those of the archive, whose headers then
    /// have those of its files.
    pub attributes: Option<Attributes>,
}

impl SourceFile {
    /// Creates a file with `content` in memory.
    pub fn new(name: impl Into<String>, content: impl Into<Bytes>) -> Self {
        SourceFile {
            name: name.into(),
            content: Arc::new(content.into()),
            bundle: None,
            attributes: None,
        }
    }
}

impl fmt::Debug for SourceFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceFile")
            .field("name", &self.name)
            .field("length", &self.content.length())
            .field("bundle", &self.bundle)
            .finish()
    }
}
