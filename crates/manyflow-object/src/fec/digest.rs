//! Digests of source blocks, with which a receiver recognises false symbols as soon as it has
//! decoded a block.

use sha2::{Digest, Sha256};

/// The length of a block's digest in bytes.
pub const BLOCK_DIGEST_BYTES: usize = 16;

/// The first 128 bits of the SHA-256 of a block's bytes, without padding. An attacker would have to
/// find a second preimage, for which 128 bits are enough.
pub type BlockDigest = [u8; BLOCK_DIGEST_BYTES];

/// Returns the digest of a block's bytes.
pub fn block_digest(block: &[u8]) -> BlockDigest {
    truncate(Sha256::new_with_prefix(block))
}

/// Returns the digest of the block whose bytes were hashed.
pub(crate) fn truncate(block: Sha256) -> BlockDigest {
    let digest: [u8; 32] = block.finalize().into();
    *digest.first_chunk().expect("SHA-256 has 32 bytes")
}
