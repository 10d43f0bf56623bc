//! Packets as protocols exchange them: a typed header and a payload.
//!
//! Each protocol defines its own header type and the header's encoding in its `wire.rs`. Nothing
//! here names a protocol: a world that runs several protocols uses a sum type for `H`.

use core::convert::Infallible;
use core::fmt::Debug;
use std::sync::Arc;

use crate::ecn::Ecn;
use crate::payload::Contents;
use crate::xcp::Congestion;

/// One multicast channel of a session, which receivers join and leave (RFC 3738 section 3).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Channel {
    /// The session that the channel belongs to, numbered by the world.
    pub session: u32,
    /// The channel's number within its session.
    pub number: u16,
}

/// One protocol state machine at one node, numbered by the world. It is the address of unicast
/// packets.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub u32);

impl EndpointId {
    /// No endpoint: the source of a packet that has not been sent yet.
    pub const UNSET: EndpointId = EndpointId(u32::MAX);
}

/// The destination of a packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// One endpoint.
    Endpoint(EndpointId),
    /// Every endpoint that joined a multicast channel.
    Channel(Channel),
}

/// A protocol's header, with the fields that routers may read or write.
pub trait Header: Copy + Debug + PartialEq + Send {
    /// Returns the number of bytes that the encoded header takes on a link.
    fn wire_bytes(&self) -> u32;

    /// Returns the rank of the group, for data of a layered session. RED can mark by groups.
    fn layer(&self) -> Option<u8> {
        None
    }

    /// Returns a number by which queues tell flows between the same ends apart, such as a hash of
    /// ports.
    fn flow(&self) -> u32 {
        0
    }

    /// Returns XCP's congestion header, if the packet carries one.
    fn congestion(&mut self) -> Option<&mut Congestion> {
        None
    }
}

/// The header of endpoints that never send. It has no value.
impl Header for Infallible {
    fn wire_bytes(&self) -> u32 {
        match *self {}
    }
}

/// A packet in transit. A copy costs no allocation, so that a packet can be forwarded to many
/// receivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet<H> {
    /// The sending endpoint. The world writes it when it takes the packet, as a network stack
    /// writes the source address.
    pub source: EndpointId,
    /// The destination of the packet.
    pub destination: Destination,
    /// The packet's ECN field, which routers may change.
    pub ecn: Ecn,
    /// The protocol's own header.
    pub header: H,
    // The two halves of `Contents`. Separately, they take less room.
    payload_bytes: u32,
    contents: Option<Arc<Box<[u8]>>>,
}

impl<H> Packet<H> {
    /// Returns a packet without ECN, whose source the world has yet to write.
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

    /// Returns the packet with this ECN field.
    #[must_use]
    pub fn with_ecn(self, ecn: Ecn) -> Packet<H> {
        Packet { ecn, ..self }
    }

    /// Returns the packet with this source.
    #[must_use]
    pub fn with_source(self, source: EndpointId) -> Packet<H> {
        Packet { source, ..self }
    }

    /// Returns the length of the payload in bytes.
    #[inline]
    pub fn payload_bytes(&self) -> u32 {
        self.payload_bytes
    }

    /// Returns the payload. A copy shares the bytes, if there are any.
    pub fn payload(&self) -> Contents {
        Contents {
            length: self.payload_bytes,
            bytes: self.contents.clone(),
        }
    }

    /// Returns the bytes of the payload; `None` if it is only a length.
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
    /// Returns the number of bytes that the packet takes on a link: its encoded header and its
    /// payload.
    #[inline]
    pub fn wire_bytes(&self) -> u32 {
        self.header.wire_bytes() + self.payload_bytes
    }
}
