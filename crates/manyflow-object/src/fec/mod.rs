//! Forward error correction: Compact No-Code (FEC Encoding ID 0, RFC 5445 section 3) and RaptorQ
//! (FEC Encoding ID 6, RFC 6330).
//!
//! An object is divided into source blocks, and a block into K source symbols of equal length.
//! Compact No-Code sends only these. RaptorQ derives 2^24 encoding symbols from a block, beginning
//! with the K source symbols. Any K of them recover the block; rarely one or two more are needed.

mod block_decoder;
mod block_encoder;
mod digest;
mod oti;

pub use block_decoder::{BOOKKEEPING_BYTES, DecodeJob, Decoded};
pub(crate) use block_decoder::{BlockDecoder, Insertion};
pub(crate) use block_encoder::{BlockEncoder, Demand, Next, ObjectSource, Plans, symbols_ahead};
pub use block_encoder::{EncodeJob, Encoded};
pub(crate) use digest::truncate;
pub use digest::{BLOCK_DIGEST_BYTES, BlockDigest, block_digest};
pub(crate) use oti::RAPTORQ_BLOCKS_MAX;
pub use oti::{FecScheme, Oti};
