//! Packets as the protocols exchange them: typed headers, and a payload that is a length.
//!
//! What the bytes are is the object layer's matter; what they look like on a wire is that of each protocol's `wire.rs`.

use crate::{anypoint, cbr, layered, overlay, tcp, webrc};

/// One multicast channel of a session: what a receiver joins and leaves (RFC 3738 section 3).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Channel {
    /// The session that the channel belongs to, numbered by the world that runs it.
    pub session: u32,
    /// The channel's number within its session.
    pub number: u16,
}

/// One protocol state machine at one host, numbered by the world that runs it: what a unicast packet is sent to.
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
    /// Whoever joined a multicast channel.
    Channel(Channel),
}

/// Explicit congestion notification (RFC 3168 section 5).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// The transport does not know ECN: a router drops instead of marking.
    #[default]
    NotCapable,
    /// ECT: a router may mark the packet.
    Capable,
    /// CE: a router has marked it.
    Marked,
}

/// A packet on its way: small and `Copy`, so that forwarding it to many costs no allocation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Who sent it: written by the world when it takes the packet, as a network's stack writes the source address.
    pub source: EndpointId,
    /// Where it goes.
    pub destination: Destination,
    /// What routers may do to it, or have done.
    pub ecn: Ecn,
    /// The protocol's own header.
    pub header: Header,
    /// Bytes behind the protocol's header.
    pub payload_bytes: u32,
}

impl Packet {
    /// The bytes that the packet takes on a link: its encoded header and its payload.
    pub fn wire_bytes(&self) -> u32 {
        let header = match &self.header {
            Header::Webrc(cci) => cci.wire_bytes(),
            Header::Tcp(segment) => segment.wire_bytes(),
            Header::Cbr(_) => cbr::HEADER_BYTES,
            Header::Layered(message) => message.wire_bytes(),
            Header::Anypoint(segment) => segment.wire_bytes(),
            Header::Overlay(frame) => frame.wire_bytes(),
        };
        header + self.payload_bytes
    }
}

/// The header of each protocol.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Header {
    /// WEBRC's Congestion Control Information (RFC 3738 section 5).
    Webrc(webrc::Cci),
    /// TCP, data or acknowledgement.
    Tcp(tcp::Segment),
    /// A datagram of a source without congestion control.
    Cbr(cbr::Datagram),
    /// Layered multicast: data, feedback, announcements.
    Layered(layered::Message),
    /// ACP: a frame, or what goes with frames.
    Anypoint(anypoint::Segment),
    /// The overlay: between daemons, and between a daemon and its clients.
    Overlay(overlay::Frame),
}

const _: () = assert!(size_of::<Packet>() <= 64, "packets are passed by value");
