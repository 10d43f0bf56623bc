//! Automatic Multicast Tunneling (AMT, RFC 7450): multicast for hosts whose network has none.
//!
//! The sender of a session embeds a [`Relay`]. Relays can also stand between sender and receivers,
//! in chains. A receiver without multicast runs a [`Gateway`] in user space, over one UDP socket,
//! and needs no root and no tunnel device. Joins travel as the IGMPv3 or MLDv2 reports that a
//! router would get. Data comes back as complete IP datagrams inside AMT messages.
//!
//! Both are state machines without sockets, clock or threads. The caller hands in the datagrams
//! that arrive and the current time, sends what [`poll_transmit`](Gateway::poll_transmit) returns,
//! and calls [`handle_timeout`](Gateway::handle_timeout) when
//! [`poll_timeout`](Gateway::poll_timeout) asks for it.
//!
//! ```text
//!  gateway                                       relay
//!     |  Relay Discovery(nonce)         ->         |  only if the relay's address is unknown
//!     |         <-  Relay Advertisement(nonce, address)
//!     |  Request(nonce)                 ->         |  no state yet: the query carries all that
//!     |         <-  Membership Query(nonce, MAC)   |  the relay must know about the gateway
//!     |  Membership Update(nonce, MAC, joins) ->   |  the MAC proves the gateway's address:
//!     |         <-  Multicast Data(IP datagram)    |  the relay's state begins
//!     |  Membership Update(nonce, MAC, leaves) ->  |  at any time, repeated against loss
//!     |  Request(new nonce)             ->         |  refresh, each query interval
//!     |  Teardown(nonce, MAC, address)  ->         |  the end
//! ```
//!
//! | module | what it holds | RFC 7450 |
//! |---|---|---|
//! | [`gateway`] | discovery, refreshes, joins and leaves, teardown | 5.2 |
//! | [`relay`] | response MACs, tunnels, forwarding | 5.3 |
//! | [`hosts`] | hosts that join flows by IGMPv3 on a relay's own network | |
//! | [`discovery`] | relays that the DNS names (RFC 8777) | |
//! | [`wire`] | the seven AMT messages | 5.1 |
//! | [`membership`] | the IGMPv3 and MLDv2 messages inside them (RFC 3376, RFC 3810) | 5.2.1, 5.3.1 |
//! | [`ip`] | the tunnelled UDP/IP datagrams | 5.1.6, 5.2.3.3 |
//!
//! # Example
//!
//! A gateway joins one flow, and receives its first packet. A driver would put a UDP socket between
//! the two ends, and take the seeds from the operating system.
//!
//! ```
//! use std::net::SocketAddr;
//!
//! use manyflow_amt::{Family, Flow, Gateway, GatewayConfig, Relay, RelayAddress, RelayConfig};
//! use manyflow_core::Time;
//!
//! let now = Time::ZERO;
//! let relay_address: SocketAddr = "192.0.2.1:2268".parse()?;
//! let gateway_address: SocketAddr = "198.51.100.7:4001".parse()?;
//! let flow = Flow {
//!     source: "192.0.2.1:40000".parse()?,
//!     group: "232.1.1.1:5000".parse()?,
//! };
//!
//! let mut relay = Relay::new(now, RelayConfig::default(), vec![flow], [1; 32]);
//! let config = GatewayConfig::new(RelayAddress::Unicast(relay_address), Family::V4);
//! let mut gateway = Gateway::new(now, config, [2; 32]);
//! gateway.join(now, flow.into())?;
//!
//! // The gateway sends a Request; after the relay's Membership Query, a Membership Update.
//! while let Some(message) = gateway.poll_transmit() {
//!     relay.handle_datagram(now, gateway_address, relay_address.ip(), &message.contents);
//!     while let Some(reply) = relay.poll_transmit() {
//!         gateway.handle_datagram(now, relay_address, &reply.contents);
//!     }
//! }
//! assert!(relay.is_joined(0));
//!
//! let mut received = Vec::new();
//! relay.forward(now, 0, [&b"hello"[..]], |to, _, message, _| {
//!     assert_eq!(to, gateway_address);
//!     if let Some((from, payload)) = gateway.handle_datagram(now, relay_address, message) {
//!         assert_eq!(from, flow);
//!         received.extend_from_slice(payload);
//!     }
//! })?;
//! assert_eq!(received, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is left out
//!
//! - IGMPv1. Reports of IGMPv2 and MLDv1 name no source: a relay applies them to all its flows with
//!   the group.
//! - Inner fragments: senders cut their packets to fit.
//! - A tunnel MTU of the relay's own (section 5.3.3.6.1). A tunnelled packet is 58 (IPv4 in IPv4)
//!   to 98 bytes (IPv6 in IPv6) longer than its payload. Senders choose packets that fit their
//!   interfaces. If a path is narrower, the driver lets the kernel fragment the outer datagram, so
//!   that gateways need no reassembly of their own; the RFC would fragment the inner one.
#![forbid(unsafe_code)]

pub mod discovery;
pub mod gateway;
pub mod hosts;
pub mod ip;
pub mod membership;
pub mod relay;
pub mod wire;

use std::fmt;
use std::net::{IpAddr, SocketAddr};

pub use self::gateway::{
    Gateway, GatewayConfig, GatewayEvent, JoinError, LossReason, RelayAddress,
};
pub use self::hosts::Hosts;
pub use self::relay::{
    DownstreamLink, FlowMessages, LeaveReason, Prefix, Relay, RelayConfig, RelayCounters,
    RelayEvent,
};

/// An IP version, and with it the group membership protocol: IGMPv3 or MLDv2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4 and IGMPv3.
    V4,
    /// IPv6 and MLDv2.
    V6,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

impl Family {
    /// Returns the family of an address.
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

/// The UDP packets from one source to one multicast group and port, which a tunnel carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// Source address and port of the packets.
    pub source: SocketAddr,
    /// Multicast group and port of the packets.
    pub group: SocketAddr,
}

/// A multicast group that a gateway joins, from one source (SSM, RFC 4607) or from any source
/// (ASM).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subscription {
    /// The group: a multicast address.
    pub group: IpAddr,
    /// The only accepted source, of the group's family; `None` accepts any source.
    pub source: Option<IpAddr>,
}

impl From<Flow> for Subscription {
    /// Returns the source-specific subscription that receives `flow`.
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
    /// Address that the datagram is sent to.
    pub destination: SocketAddr,
    /// The UDP payload: one AMT message.
    pub contents: Vec<u8>,
}

/// The example of the README, compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
