//! Coded video as units whose prefixes decode: one unit for each group of pictures.
//!
//! A [`Splitter`] takes a byte stream (Annex B, MPEG-TS, or AV1 in IVF or as OBUs) and returns
//! units. A unit begins with an index, then has the audio, then the pictures, those first on which
//! others depend. A receiver that gets a prefix of the unit has all that it needs to show the
//! pictures in it. A [`Player`] takes prefixes of units, leaves out the picture that was cut, and
//! writes pictures in decoding order again, with their times.
//!
//! ```text
//!   bytes --> Splitter: ts/read.rs --> annexb.rs --> codec (h264.rs, hevc.rs) --> gop.rs --> unit
//!                                      obu.rs    --> av1.rs             ---^
//!   prefix --> Player: unit.rs --> decoding order --> ts/write.rs, Annex B or obu.rs --> bytes
//! ```
//!
//! # The order of pictures
//!
//! 1. The key picture, with its parameter sets.
//! 2. Pictures that others may need, in decoding order. H.264 marks them by `nal_ref_idc` (ITU-T
//!    H.264, 7.4.1), HEVC by NAL unit types of sub-layer reference pictures (ITU-T H.265, 7.4.2.2).
//!    A prefix that ends among them has lost the last ones in decoding order, so no picture in it
//!    lacks a reference, and H.264's `frame_num` has no gap within a unit.
//! 3. Pictures that no other picture needs, every second one of a group after the others, so that a
//!    longer prefix increases the picture rate evenly.
//!
//! In HEVC, pictures of a lower temporal sub-layer come before all those of a higher one. If all
//! pictures of an H.264 stream are references, a slow receiver gets the first part of each group of
//! pictures, and not every second picture. B pictures avoid that.
//!
//! A frame of AV1 names the frames that it needs. In each temporal layer (`temporal_id`), the
//! longest chains of frames that need each other come first, and frames of equal rank are spread
//! evenly; a frame follows all that it needs. Frames that are not shown are items of their own, and
//! are written with the next one that is shown.
//!
//! # Groups of pictures that are not closed
//!
//! A unit that begins with a key picture other than an IDR picture may have *leading* pictures,
//! which depend on the unit before. The player leaves these out if the unit before was cut among
//! its references. A group of pictures that takes longer than [`UNIT_DURATION_MAX`] is continued in
//! further units, which the player uses only while none of the references before is missing.
//!
//! A decoder of H.264 counts the references. So the index of a unit before one that is not closed
//! has *substitutes*: short pictures that repeat the one before, which the player writes in place
//! of references that were cut. If even an index is missing, the player waits for an IDR picture,
//! or for four units. It then begins with the open group, and a decoder may report the gap.
//!
//! | file | contents |
//! |---|---|
//! | `splitter.rs` | [`Splitter`]: bytes to units |
//! | `annexb.rs` | NAL units of a byte stream (ITU-T H.264, Annex B) |
//! | `obu.rs` | OBUs of AV1, in IVF or one after the other, in and out |
//! | `codec.rs`, `h264.rs`, `hevc.rs`, `av1.rs` | what a NAL unit or an OBU means for the order of pictures |
//! | `gop.rs` | pictures, their times, and units of them |
//! | `skipped.rs` | substitutes for references of H.264 |
//! | `unit.rs` | the index of a unit |
//! | `player.rs` | [`Player`]: prefixes of units to bytes |
//! | `ts/` | MPEG-TS (ISO/IEC 13818-1), in and out |
//!
//! # Example
//!
//! ```
//! use manyflow_video::{Format, Player, Splitter};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let stream = include_bytes!("../tests/fixtures/pyramid.h264");
//! let mut splitter = Splitter::new(None);
//! splitter.push(stream)?;
//! splitter.finish()?;
//! let unit = splitter.poll_unit().ok_or("a group of pictures")?;
//!
//! // A receiver behind a slow path has the first part of the unit's bytes.
//! let mut player = Player::new(Format::MpegTs);
//! let mut written = Vec::new();
//! let played = player.play(0, &unit.bytes[..unit.bytes.len() * 9 / 10], &mut written)?;
//! assert!(played.pictures > 0 && played.pictures < played.pictures_sent);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod annexb;
mod av1;
mod codec;
mod gop;
mod h264;
mod hevc;
mod obu;
mod player;
mod skipped;
mod splitter;
mod ts;
mod unit;

pub use gop::{UNIT_DURATION_MAX, VideoUnit};
pub use player::{Format, Mark, Played, Player};
pub use splitter::{Splitter, VideoError};
pub use unit::{Begin, Index, IndexError, Item, StreamEntry};

/// Ticks per second of all times: the clock of MPEG-TS.
pub const CLOCK_HZ: i64 = 90_000;

/// The time of a number of ticks; none if it is negative.
fn duration(ticks: i64) -> core::time::Duration {
    let ticks = u64::try_from(ticks).unwrap_or(0);
    core::time::Duration::from_micros(ticks.saturating_mul(1_000_000) / CLOCK_HZ as u64)
}
