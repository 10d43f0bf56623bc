//! Several manifests in one request: each is its length as u32, and its bytes.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use crate::STORED_BYTES_MAX;

/// Manifests that are stored together, so that a member writes them to disk at once.
#[derive(Debug, Default)]
pub struct Batch {
    bytes: BytesMut,
}

impl Batch {
    /// Adds an encoded manifest. Returns false, and adds nothing, if it does not fit.
    #[must_use]
    pub fn push(&mut self, manifest: &Bytes) -> bool {
        let fits = self.bytes.len() + 4 + manifest.len() <= STORED_BYTES_MAX;
        if fits {
            self.bytes.put_u32(manifest.len() as u32);
            self.bytes.put_slice(manifest);
        }
        fits
    }

    /// Returns whether no manifest was added.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the bytes of the batch.
    pub fn into_bytes(self) -> Bytes {
        self.bytes.freeze()
    }

    /// Returns the manifests of a batch. `None` if the bytes end too early.
    pub fn decode(mut bytes: Bytes) -> Option<Vec<Bytes>> {
        let mut manifests = Vec::new();
        while !bytes.is_empty() {
            let length = bytes.try_get_u32().ok()? as usize;
            if length > bytes.len() {
                return None;
            }
            manifests.push(bytes.split_to(length));
        }
        Some(manifests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_its_manifests_and_ends_with_them() {
        let manifests = [&b"one"[..], b"", b"three"].map(Bytes::from_static);
        let mut batch = Batch::default();
        assert!(manifests.iter().all(|manifest| batch.push(manifest)));
        assert!(!batch.push(&Bytes::from(vec![0; STORED_BYTES_MAX])));
        let bytes = batch.into_bytes();
        assert_eq!(Batch::decode(bytes.clone()).unwrap(), manifests);
        assert_eq!(Batch::decode(bytes.slice(..bytes.len() - 1)), None);
    }
}
