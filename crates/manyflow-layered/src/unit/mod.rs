//! Units of layered data: a sender cuts each unit of an embedded bitstream by the rates of the
//! groups, and a receiver gets the longest prefix that its groups can carry.
//!
//! A *unit* is a video frame, or any other piece of data with a time. Its bitstream is *embedded*:
//! every prefix decodes to a coarser version. SIM (section II) and RLM (section 2) send such data
//! in cumulative groups. The cutter gives group 0 the first bytes of each unit, group 1 the next
//! ones, and so on, each as many as its present rate permits:
//!
//! ```text
//!   unit   |0 ........... 700|700 ..... 1900|1900 ............ 4100|  rest: cut off
//!           group 0           group 1        group 2
//! ```
//!
//! A packet carries [`Piece`]s. Each is a range of one unit, and another one follows in the packet
//! if its unit ends there. The assembler at a receiver keeps the pieces of a unit until the unit's
//! deadline, and then delivers the bytes up to the first gap. So the loss of a packet shortens the
//! prefixes of the units in it, and affects no other unit.
//!
//! | module | contents |
//! |---|---|
//! | `wire.rs` | [`Piece`], the header of each piece behind that of a data packet |
//! | `cutter.rs` | [`Cutter`]: shares of each unit for the groups, by their rates |
//! | `assembler.rs`, `partial.rs` | [`Assembler`]: units from pieces, in order and in bounded memory |
//! | `playout.rs` | the deadlines of units: [`Latency`], fixed or adaptive |
//! | [`pattern`] | a test picture with an embedded coder, for streams without another program |
//!
//! # Numbers and times
//!
//! Unit numbers and times wrap around at 2^32. A receiver takes them as distances from the last
//! ones, so neither needs to begin at zero. A sender that restarts should begin at a random number:
//! its receivers then notice the restart by the numbers.
//!
//! # Example
//!
//! A unit of 2,000 bytes over two groups, of which the receiver has joined one:
//!
//! ```
//! use core::time::Duration;
//! use manyflow_core::Time;
//! use manyflow_layered::unit::{Assembler, AssemblerConfig, Cutter, Latency, Piece};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut cutter = Cutter::new(2, Duration::from_secs(1));
//! let interval = Duration::from_millis(100);
//! cutter.push_unit(0, vec![7; 2_000].into(), interval, &[5_000.0, 10_000.0]);
//!
//! let latency = Latency::Fixed(Duration::from_millis(200));
//! let mut assembler = Assembler::new(AssemblerConfig { latency, ..AssemblerConfig::default() });
//! let (now, mut payload) = (Time::ZERO, Vec::new());
//! while cutter.next_payload(0, 300, &mut payload) {
//!     for decoded in Piece::decode_all(&payload) {
//!         let (piece, bytes) = decoded?;
//!         assembler.handle_piece(now, piece, bytes);
//!     }
//!     payload.clear();
//! }
//! assert!(assembler.poll_unit(now).is_none(), "group 1 may follow until the deadline");
//! let deadline = assembler.poll_timeout().ok_or("a unit waits")?;
//! let unit = assembler.poll_unit(deadline).ok_or("the unit is due")?;
//! assert_eq!((unit.prefix.len(), unit.length), (500, 2_000));
//! # Ok(())
//! # }
//! ```

mod assembler;
mod cutter;
mod partial;
pub mod pattern;
mod playout;
mod wire;

pub use assembler::{Assembler, AssemblerConfig, AssemblerEvent, AssemblerStats, Unit};
pub use cutter::{Cutter, CutterStats, unit_share};
pub use playout::Latency;
pub use wire::{PIECE_BYTES, Piece, PieceError};

/// The maximum length of a unit in bytes, for senders and receivers.
pub const UNIT_BYTES_MAX: usize = 64 << 20;
