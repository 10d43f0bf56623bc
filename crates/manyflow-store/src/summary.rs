//! A file without its chunks, as listings have it.
//!
//! ```text
//!   | version u64 | revision u32 | size u64 | chunks u32 | copies u8 | 1 if removed, else 0 |
//!   | earlier versions u8 | length u16 | name | length u16 | metadata |
//! ```

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut, TryGetError};

use crate::Manifest;
use crate::query::{put_text, read_flag, read_text, take};

/// A file without its chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The name of the file.
    pub name: String,
    /// The version of its manifest.
    pub version: u64,
    /// The revision of its manifest.
    pub revision: u32,
    /// The length of the file in bytes.
    pub size: u64,
    /// The number of its chunks.
    pub chunks: u32,
    /// The number of members that shall have each chunk.
    pub copies: u8,
    /// Whether the name was removed.
    pub is_removed: bool,
    /// The number of earlier versions that can still be read.
    pub earlier: u8,
    /// Bytes of the application.
    pub metadata: Bytes,
}

impl Summary {
    /// Returns the summary of a manifest.
    pub fn of(manifest: &Manifest) -> Summary {
        Summary {
            name: manifest.name.clone(),
            version: manifest.version,
            revision: manifest.revision,
            size: manifest.size,
            chunks: manifest.chunks.len() as u32,
            copies: manifest.copies,
            is_removed: manifest.is_removed,
            earlier: manifest.earlier.len() as u8,
            metadata: manifest.metadata.clone(),
        }
    }

    /// Returns what decides which of two manifests of a name is valid, as far as a summary has it.
    pub fn rank(&self) -> (u64, u32) {
        (self.version, self.revision)
    }

    /// Appends the encoding.
    pub(crate) fn encode(&self, frame: &mut BytesMut) {
        frame.put_u64(self.version);
        frame.put_u32(self.revision);
        frame.put_u64(self.size);
        frame.put_u32(self.chunks);
        frame.put_u8(self.copies);
        frame.put_u8(u8::from(self.is_removed));
        frame.put_u8(self.earlier);
        put_text(frame, &self.name);
        frame.put_u16(self.metadata.len() as u16);
        frame.put_slice(&self.metadata);
    }

    /// Reads a summary; `None` if a field is invalid. The error means that the body ends too early.
    pub(crate) fn read(body: &mut &[u8]) -> Result<Option<Summary>, TryGetError> {
        let (version, revision) = (body.try_get_u64()?, body.try_get_u32()?);
        let (size, chunks) = (body.try_get_u64()?, body.try_get_u32()?);
        let (copies, is_removed) = (body.try_get_u8()?, read_flag(body)?);
        let (earlier, name) = (body.try_get_u8()?, read_text(body)?);
        let length = body.try_get_u16()?;
        let metadata = Bytes::copy_from_slice(take(body, length.into())?);
        let (Some(is_removed), Some(name)) = (is_removed, name) else {
            return Ok(None);
        };
        Ok(Some(Summary {
            name,
            version,
            revision,
            size,
            chunks,
            copies,
            is_removed,
            earlier,
            metadata,
        }))
    }
}
