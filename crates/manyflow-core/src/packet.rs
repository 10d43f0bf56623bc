//! Packets as protocols exchange them: a typed header, and a payload.
//!
//! Each protocol defines its own header type and, in its `wire.rs`, what the header looks like in
//! bytes. Nothing here names a protocol: a world that runs several of them uses a sum type for `H`.

use core::convert::Infallible;
use core::fmt::Debug;
use std::sync::Arc;

use crate::payload::Contents;
use crate::xcp::Congestion;

/// One multicast channel of a session: what a receiver joins and leaves (RFC 3738 section 3).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Channel {
    /// The session that the channel belongs to, numbered by the world that runs it.
    pub session: u32,
    /// The channel's number within its session.
    pub number: u16,
}

/// One protocol state machine at one host, numbered by the world that runs it: the address of a
/// unicast packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub u32);

impl EndpointId {
    /// No endpoint: the source of a packet that has not been sent yet.
    pub const UNSET: EndpointId = EndpointId(u32::MAX);
}

/// Where a packet goes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// One endpoint.
    Endpoint(EndpointId),
    /// Every endpoint that joined a multicast channel.
    Channel(Channel),
}

/// Explicit congestion notification (RFC 3168 section 5).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// The transport does not know ECN: a router drops the packet instead of marking it.
    #[default]
    NotCapable,
    /// ECT: a router may mark the packet.
    Capable,
    /// CE: a router has marked the packet.
    Marked,
}

/// A protocol's header, and the fields in it that routers may read or write.
pub trait Header: Copy + Debug + PartialEq + Send {
    /// Bytes that the encoded header takes on a link.
    fn wire_bytes(&self) -> u32;

    /// The rank of the group, for data of a layered session: RED can mark by groups.
    fn layer(&self) -> Option<u8> {
        None
    }

    /// XCP's congestion header, for packets that carry one.
    fn congestion(&mut self) -> Option<&mut Congestion> {
        None
    }
}

/// The header of endpoints that never send: it has no value.
impl Header for Infallible {
    fn wire_bytes(&self) -> u32 {
        match *self {}
    }
}

/// A packet on its way. Copying it costs no allocation, so it can be forwarded to many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet<H> {
    /// The sending endpoint. The world writes it when it takes the packet, as a network stack
    /// writes the source address.
    pub source: EndpointId,
    /// Where the packet goes.
    pub destination: Destination,
    /// What routers may do to the packet, or have done.
    pub ecn: Ecn,
    /// The protocol's own header.
    pub header: H,
    // The two halves of `Contents`: apart they take less room.
    payload_bytes: u32,
    contents: Option<Arc<Box<[u8]>>>,
}

impl<H> Packet<H> {
    /// A packet without ECN, whose source the world has yet to write.
    pub fn new(destination: Destination, header: H, payload: impl Into<Contents>) -> Packet<H> {
        let payload = payload.into();
        Packet {
            source: EndpointId::UNSET,
            destination,
            ecn: Ecn::NotCapable,
            header,
            payload_bytes: payload.length,
            contents: payload.bytes,
        }
    }

    /// The packet with this ECN field.
    #[must_use]
    pub fn with_ecn(self, ecn: Ecn) -> Packet<H> {
        Packet { ecn, ..self }
    }

    /// The packet with this source.
    #[must_use]
    pub fn with_source(self, source: EndpointId) -> Packet<H> {
        Packet { source, ..self }
    }

    /// Length of what follows the header, in bytes.
    #[inline]
    pub fn payload_bytes(&self) -> u32 {
        self.payload_bytes
    }

    /// What follows the header. A copy shares the bytes, if there are any.
    pub fn payload(&self) -> Contents {
        Contents {
            length: self.payload_bytes,
            bytes: self.contents.clone(),
        }
    }

    /// The bytes that follow the header; `None` if the payload is only a length.
    pub fn contents(&self) -> Option<&[u8]> {
        self.contents.as_ref().map(|bytes| &***bytes)
    }

    /// Converts the header, as a world does whose header type is a sum over protocols.
    #[inline]
    pub fn map_header<G>(self, convert: impl FnOnce(H) -> G) -> Packet<G> {
        Packet {
            source: self.source,
            destination: self.destination,
            ecn: self.ecn,
            header: convert(self.header),
            payload_bytes: self.payload_bytes,
            contents: self.contents,
        }
    }

    /// Returns a copy with another header.
    #[inline]
    pub fn with_header<G>(&self, header: G) -> Packet<G> {
        Packet {
            source: self.source,
            destination: self.destination,
            ecn: self.ecn,
            header,
            payload_bytes: self.payload_bytes,
            contents: self.contents.clone(),
        }
    }
}

impl<H: Header> Packet<H> {
    /// Bytes that the packet takes on a link: its encoded header and its payload.
    #[inline]
    pub fn wire_bytes(&self) -> u32 {
        self.header.wire_bytes() + self.payload_bytes
    }
}
