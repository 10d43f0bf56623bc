//! Memory for payloads: one allocation for many of them.

use bytes::{Bytes, BytesMut};

/// The size of a chunk in bytes. The longest-lived payload of a chunk keeps all of it.
const CHUNK_BYTES: usize = 64 << 10;

/// Chunks that payloads are cut from. A chunk without payloads is used again.
#[derive(Debug, Default)]
pub(super) struct Arena(BytesMut);

impl Arena {
    /// Copies a payload.
    pub(super) fn copy(&mut self, payload: &[u8]) -> Bytes {
        let space = self.reserve(payload.len());
        space.extend_from_slice(payload);
        self.take()
    }

    /// Returns empty space for a payload of this length. Its content is taken by
    /// [`take`](Arena::take).
    pub(super) fn reserve(&mut self, length: usize) -> &mut BytesMut {
        debug_assert!(self.0.is_empty(), "the last payload was taken");
        if self.0.capacity() < length {
            self.0.reserve(length.max(CHUNK_BYTES));
        }
        &mut self.0
    }

    /// Returns the payload that was written to the space.
    pub(super) fn take(&mut self) -> Bytes {
        self.0.split().freeze()
    }
}
