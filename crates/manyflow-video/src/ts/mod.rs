//! MPEG-TS (ISO/IEC 13818-1), in and out.
//!
//! `mpeg2ts` reads and writes packets and tables: one crate for both, kept, and without
//! dependencies.

mod read;
mod write;

pub(crate) use read::TsReader;
pub(crate) use write::TsWriter;

/// The length of a packet.
pub(crate) const PACKET_BYTES: usize = mpeg2ts::ts::TsPacket::SIZE;
/// The first byte of each packet.
pub(crate) const SYNC_BYTE: u8 = mpeg2ts::ts::TsPacket::SYNC_BYTE;
/// Times have 33 bits.
const TIME_RANGE: i64 = 1 << 33;
