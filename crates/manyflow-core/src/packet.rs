//! Packets as the protocols exchange them: typed headers, and a payload that is a length.
//!
//! What the bytes are is the object layer's matter; what they look like on a wire is that of each protocol's `wire.rs`.

use crate::webrc;

/// One multicast channel of a session: what a receiver joins and leaves (RFC 3738 section 3).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Channel {
    /// The session that the channel belongs to, numbered by the world that runs it.
    pub session: u32,
    /// The channel's number within its session.
    pub number: u16,
}

/// A packet on its way: small and `Copy`, so that forwarding it to many costs no allocation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Where it goes.
    pub channel: Channel,
    /// The protocol's own header.
    pub header: Header,
    /// Bytes behind the protocol's header.
    pub payload_bytes: u32,
}

impl Packet {
    /// The bytes that the packet takes on a link: its encoded header and its payload.
    pub fn wire_bytes(&self) -> u32 {
        let Header::Webrc(cci) = self.header;
        cci.wire_bytes() + self.payload_bytes
    }
}

/// The header of each protocol.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Header {
    /// WEBRC's Congestion Control Information (RFC 3738 section 5).
    Webrc(webrc::Cci),
}

const _: () = assert!(size_of::<Packet>() <= 64, "packets are passed by value");
