//! TCP as a baseline: NewReno, SACK and CUBIC senders, and their receiver.

/// IPv4 and TCP without options.
pub const HEADER_BYTES: u32 = 40;

/// A segment's header. Sequence numbers count segments of the connection's maximum size.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
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
