//! Sources without congestion control, and the sink that counts their datagrams: the background
//! traffic of an experiment.
//!
//! ```text
//!   Constant   | | | | | | | | | | | | | | |     one packet per interval
//!   OnOff      | | | |         | | | | |         the same while on; what is left of an interval at the end of a period
//!                                                goes on in the next one, so that the mean rate is exact
//!   Poisson    ||  |    | |    |||    |   |      exponential intervals with the same mean
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `source.rs` | the source, its patterns and its clock |
//! | `sink.rs` | the sink, which joins its channel where it has one |

mod event;
mod sink;
mod source;

pub use event::Event;
pub use sink::Sink;
pub use source::{ConfigError, Pattern, Periods, Source, SourceConfig};

use manyflow_core::Header;

/// The bytes of the headers of IPv4 and UDP.
pub const HEADER_BYTES: u32 = 28;

/// A datagram's header.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The number of the datagram in its source's sequence, modulo 2^32.
    pub sequence: u32,
}

impl Header for Datagram {
    #[inline]
    fn wire_bytes(&self) -> u32 {
        HEADER_BYTES
    }
}
