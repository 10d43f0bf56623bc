//! Digests of source blocks, with which a receiver recognises false symbols as soon as it has
//! decoded a block.

use blake3::Hasher;

/// The length of a block's digest in bytes.
pub const BLOCK_DIGEST_BYTES: usize = 16;

/// The first 128 bits of the BLAKE3 hash of a block's bytes, without padding. An attacker would
/// have to find a second preimage, for which 128 bits are enough. Both ends hash each byte, and
/// BLAKE3 takes a quarter of the time of SHA-256 with the processor's own instructions for that
/// (`cargo bench -p manyflow-object -- digests`).
pub type BlockDigest = [u8; BLOCK_DIGEST_BYTES];

/// Returns the digest of a block's bytes.
pub fn block_digest(block: &[u8]) -> BlockDigest {
    truncate(Hasher::new().update(block))
}

/// Returns the digest of the block whose bytes were hashed.
pub(crate) fn truncate(block: &Hasher) -> BlockDigest {
    let digest = block.finalize();
    let first = digest.as_bytes().first_chunk();
    *first.expect("a BLAKE3 hash has 32 bytes")
}
