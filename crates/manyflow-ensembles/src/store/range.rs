//! Parts of a file, in order.

use std::ops::Range;

use bytes::Bytes;
use manyflow_store::{Download, Manifest};

use super::{Connect, StoreClient, StoreError};

impl<C: Connect> StoreClient<C> {
    /// Returns the bytes of a part of a file. A part of many chunks takes as much memory.
    ///
    /// # Errors
    /// If a chunk has no copy left, or the service cannot be reached.
    ///
    /// # Panics
    /// Panics if the part is not within the file.
    pub async fn read(
        &self,
        manifest: &Manifest,
        part: Range<u64>,
    ) -> Result<Vec<Bytes>, StoreError> {
        assert!(
            part.end <= manifest.size,
            "{part:?} of {} bytes",
            manifest.size
        );
        if part.is_empty() {
            return Ok(Vec::new());
        }
        let chunk_bytes = u64::from(manifest.chunk_bytes);
        let (first, last) = (part.start / chunk_bytes, (part.end - 1) / chunk_bytes);
        let is_wanted = |chunk: u32| (first..=last).contains(&chunk.into());
        let mut session = self.session();
        let now = session.now();
        let mut download = Download::new(self.config().clone(), manifest.clone(), is_wanted, now)?;
        let mut read = vec![Bytes::new(); (last - first + 1) as usize];
        loop {
            while let Some((chunk, bytes)) = download.poll_chunk() {
                read[(u64::from(chunk) - first) as usize] = within(manifest, chunk, &bytes, &part);
            }
            if let Some(error) = download.poll_failure() {
                return Err(error.into());
            }
            if download.is_complete() {
                break;
            }
            session.step(&mut download).await?;
        }
        self.keep(session);
        Ok(read)
    }
}

/// Returns the bytes of a chunk that belong to a part of the file.
fn within(manifest: &Manifest, chunk: u32, bytes: &Bytes, part: &Range<u64>) -> Bytes {
    let (offset, length) = manifest.span(chunk);
    let begin = part.start.saturating_sub(offset).min(length.into());
    let end = part.end.saturating_sub(offset).min(length.into());
    bytes.slice(begin as usize..end as usize)
}
