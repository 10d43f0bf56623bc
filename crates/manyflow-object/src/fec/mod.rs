//! Forward error correction: Compact No-Code (FEC Encoding ID 0, RFC 5445 section 3) and RaptorQ (6, RFC 6330).
//!
//! An object is cut into source blocks, a block into K source symbols of equal length. Compact No-Code sends just
//! these; RaptorQ makes 2^24 encoding symbols of a block, the K source symbols first, and any K of them, rarely one or
//! two more, give the block back.

mod block_decoder;
mod block_encoder;
mod oti;

pub(crate) use block_decoder::{BOOKKEEPING_BYTES, BlockDecoder, Insertion};
pub(crate) use block_encoder::BlockEncoder;
pub use oti::{FecScheme, Oti};
