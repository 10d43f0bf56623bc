//! TCP as a baseline: NewReno, SACK and CUBIC senders, and their receiver.

mod config;
mod cubic;
mod flight;
mod receiver;
mod rtt;
mod sender;
mod window;

pub use config::{ConfigError, TcpConfig, Variant};
pub use receiver::Receiver;
pub use sender::{Counters, Sender};

/// IPv4 and TCP without options.
pub const HEADER_BYTES: u32 = 40;

/// The longest SACK option: three blocks, and two bytes that align it (RFC 2018 section 3).
const MAX_OPTION_BYTES: u32 = 28;

/// A segment's header. Sequence numbers count segments of the connection's maximum size.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Data: the segment's number. Acknowledgement: 0.
    pub sequence: u32,
    /// The next number that the receiver expects.
    pub acknowledgement: u32,
    /// Received blocks above it, the newest first: first number and the one after the last; equal where unused (RFC 2018).
    pub sack: [(u32, u32); 3],
    /// ECE: the receiver has seen a marked packet (RFC 3168 section 6.1).
    pub ecn_echo: bool,
    /// CWR: the sender has reduced its window.
    pub window_reduced: bool,
}

impl Segment {
    /// The header's bytes on a link: IPv4, TCP, and SACK where there are blocks (RFC 2018 section 3).
    pub fn wire_bytes(&self) -> u32 {
        match self.blocks().count() as u32 {
            0 => HEADER_BYTES,
            blocks => HEADER_BYTES + 4 + 8 * blocks,
        }
    }

    /// The SACK blocks that are used.
    fn blocks(&self) -> impl Iterator<Item = (u32, u32)> {
        self.sack.into_iter().take_while(|block| block.0 < block.1)
    }
}
