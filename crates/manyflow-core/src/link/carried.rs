//! Packets, as a link sees them.

use super::fair::mix;
use crate::ecn::Ecn;
use crate::packet::{Destination, Header, Packet};
use crate::xcp::Congestion;

/// A packet, as a link sees it when it takes it.
pub trait Carried {
    /// Returns whether a router may mark the packet instead of dropping it (RFC 3168).
    fn is_ecn_capable(&self) -> bool {
        false
    }

    /// Returns whether the packet has the identifier of L4S, ECT(1), or is marked (RFC 9331 section
    /// 5.1).
    fn is_l4s(&self) -> bool {
        false
    }

    /// Marks the packet: congestion experienced.
    fn mark(&mut self) {}

    /// Returns the packet's flow, for queues that keep flows apart.
    fn flow(&self) -> Flow {
        Flow::default()
    }

    /// Returns the session and the rank of the group, for data of a layered session.
    fn group(&self) -> Option<(u32, u8)> {
        None
    }

    /// Returns XCP's header, which a router may change.
    fn congestion(&mut self) -> Option<&mut Congestion> {
        None
    }
}

/// The flow of a packet.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// A number that packets of one flow share, or of all channels of a multicast session, and
    /// others hardly have.
    pub key: u64,
    /// The number of the multicast channel and 1; 0 for unicast.
    pub channel: u32,
    /// The source host.
    pub source: u32,
    /// The destination host or multicast session.
    pub destination: u32,
}

impl Flow {
    /// Returns a number that differs between the channels of a session, too.
    pub(super) fn channel_key(&self) -> u64 {
        self.key ^ u64::from(self.channel) << 32
    }
}

/// A packet that a link holds: the packet itself, or its number in a store of the world.
pub trait Item: Clone {
    /// Whether the world stores the packet. It then has to learn the [`Fate`](super::Fate) of each
    /// packet that a managed queue marks or drops.
    const IS_STORED: bool;

    /// Marks the packet. Does nothing if the world stores it.
    fn set_mark(&mut self);
}

impl<T: Carried + Clone> Item for T {
    const IS_STORED: bool = false;

    fn set_mark(&mut self) {
        self.mark();
    }
}

impl<H: Header> Carried for Packet<H> {
    fn is_ecn_capable(&self) -> bool {
        self.ecn != Ecn::NotCapable
    }

    fn is_l4s(&self) -> bool {
        matches!(self.ecn, Ecn::L4s | Ecn::Marked)
    }

    fn flow(&self) -> Flow {
        let source = self.source.0;
        let (destination, channel) = match self.destination {
            Destination::Endpoint(endpoint) => (endpoint.0, 0),
            Destination::Channel(channel) => (!channel.session, u32::from(channel.number) + 1),
        };
        let ends = u64::from(source) << 32 | u64::from(destination);
        Flow {
            key: mix(ends) ^ u64::from(self.header.flow()),
            channel,
            source,
            destination,
        }
    }

    fn mark(&mut self) {
        self.ecn = Ecn::Marked;
    }

    fn group(&self) -> Option<(u32, u8)> {
        match self.destination {
            Destination::Channel(channel) => Some((channel.session, self.header.layer()?)),
            Destination::Endpoint(_) => None,
        }
    }

    fn congestion(&mut self) -> Option<&mut Congestion> {
        self.header.congestion()
    }
}
