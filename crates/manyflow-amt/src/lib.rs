//! Automatic Multicast Tunneling (RFC 7450): multicast to hosts whose network has none.
//!
//! The sender of a session embeds a [`Relay`]; a receiver without multicast runs a [`Gateway`], in user space and
//! over one UDP socket: no root, no tunnel device. Joins travel as the IGMPv3 or MLDv2 reports that a router would
//! get, data comes back as complete IP datagrams inside AMT.
//!
//! ```text
//!  gateway                                       relay
//!     |  Relay Discovery(nonce)         ->         |     only where the relay's unicast address is not known
//!     |         <-  Relay Advertisement(nonce, address)
//!     |  Request(nonce)                 ->         |     no state yet: the query carries all that the relay
//!     |         <-  Membership Query(nonce, MAC)   |     must know of this gateway
//!     |  Membership Update(nonce, MAC, joins) ->   |     the MAC proves the gateway's address: state begins
//!     |         <-  Multicast Data(IP datagram)    |
//!     |  Membership Update(nonce, MAC, leaves) ->  |     at any time, repeated against loss
//!     |  Request(new nonce)             ->         |     each query interval: refresh
//!     |  Teardown(nonce, MAC, address)  ->         |     the end
//! ```
//!
//! [`wire`] holds the AMT messages, [`membership`] the IGMPv3 and MLDv2 messages in them, [`ip`] the tunnelled
//! UDP/IP datagrams; [`relay`] and [`gateway`] are state machines without clock or socket.
//!
//! What is left out, and why: IGMPv1/v2 and MLDv1 (a gateway chooses its version, and only the newer ones know
//! sources); inner fragments (the sender of the data is in the same process and cuts its packets to fit); a tunnel
//! MTU of the relay's own (RFC 7450, section 5.3.3.6.1). A tunnelled packet is 58 (IPv4 in IPv4) to 98 bytes (IPv6
//! in IPv6) longer than its payload. Where that exceeds the path's MTU, the kernel fragments the outer datagram.

pub mod gateway;
pub mod ip;
pub mod membership;
pub mod relay;
pub mod wire;

use std::net::{IpAddr, SocketAddr};

pub use self::gateway::{
    Gateway, GatewayConfig, GatewayEvent, JoinError, LossReason, RelayAddress,
};
pub use self::relay::{Relay, RelayConfig, RelayCounters};

/// An IP version, and with it the group membership protocol: IGMPv3 or MLDv2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4 and IGMPv3.
    V4,
    /// IPv6 and MLDv2.
    V6,
}

impl Family {
    /// The family of an address.
    pub fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    fn address_len(self) -> usize {
        match self {
            Self::V4 => 4,
            Self::V6 => 16,
        }
    }

    fn p_flag(self) -> bool {
        self == Self::V6
    }

    fn from_p_flag(p: bool) -> Self {
        if p { Self::V6 } else { Self::V4 }
    }
}

/// The UDP packets from one source to one multicast group and port: what a tunnel carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// Address and port that the packets come from.
    pub source: SocketAddr,
    /// Group and port that they go to.
    pub group: SocketAddr,
}

/// What a gateway joins: a group, from one source (SSM, RFC 4607) or from any (ASM).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subscription {
    /// The group: a multicast address.
    pub group: IpAddr,
    /// The one source wanted, of the group's family; `None` takes any.
    pub source: Option<IpAddr>,
}

impl From<Flow> for Subscription {
    /// The source-specific subscription that receives `flow`.
    fn from(flow: Flow) -> Self {
        Self {
            group: flow.group.ip(),
            source: Some(flow.source.ip()),
        }
    }
}

/// A UDP datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub destination: SocketAddr,
    /// Its payload: one AMT message.
    pub contents: Vec<u8>,
}
