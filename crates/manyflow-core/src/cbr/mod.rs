//! Sources without congestion control: constant bit rate, on-off, Poisson.

/// IPv4 and UDP.
pub const HEADER_BYTES: u32 = 28;

/// A datagram's header.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Counts the datagrams of a source.
    pub sequence: u32,
}
