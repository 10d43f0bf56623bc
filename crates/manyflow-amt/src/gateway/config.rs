//! A gateway's parameters, events and errors.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use thiserror::Error;

use crate::Family;

/// The most subscriptions at a time. No session has as many, and each group's sources fit into one
/// record.
pub(super) const SUBSCRIPTIONS_MAX: usize = 1024;

/// How a gateway finds its relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayAddress {
    /// The relay's own address, for example from a session description. The handshake starts
    /// without discovery.
    Unicast(SocketAddr),
    /// A discovery address, such as an anycast address. The relay's answer contains its own address
    /// (RFC 7450, section 5.2.3.4).
    Discovery(SocketAddr),
}

/// A gateway's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewayConfig {
    /// How to find the relay.
    pub relay: RelayAddress,
    /// IP version of the multicast flows. The tunnel may use the other version. A gateway speaks
    /// either IGMPv3 or MLDv2 (RFC 7450, section 5.2.2).
    pub family: Family,
    /// First wait for an answer, and the minimum of later waits. Default 1 s (RFC 7450, section
    /// 5.2.3.5.3).
    pub initial_timeout: Duration,
    /// Maximum wait for an answer. Default 120 s (RFC 7450, section 5.2.3.5.3).
    pub maximum_timeout: Duration,
    /// Number of unanswered Discoveries or Requests after which the relay counts as lost. Default
    /// 4, which takes 4 s to 15 s with the default timeouts.
    pub attempts_max: u32,
}

impl GatewayConfig {
    /// Returns the default parameters for a relay and an IP version.
    pub fn new(relay: RelayAddress, family: Family) -> Self {
        let (initial_timeout, maximum_timeout) = (Duration::from_secs(1), Duration::from_secs(120));
        Self {
            relay,
            family,
            initial_timeout,
            maximum_timeout,
            attempts_max: 4,
        }
    }
}

/// A change in the state of the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayEvent {
    /// A relay has answered. Joins reach it from now on.
    Ready,
    /// There is no relay, for this reason. The gateway keeps trying at growing intervals, and
    /// reports success with [`Ready`](Self::Ready).
    RelayLost(LossReason),
}

/// Why a gateway has no relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// The relay does not answer.
    Silent,
    /// The relay accepts no more gateways (L flag, RFC 7450, section 5.1.4.4).
    Full,
}

/// The reason why a group cannot be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The group is not a multicast address.
    #[error("{0} is not a multicast group: give an address in 224.0.0.0/4 or ff00::/8")]
    NotMulticast(IpAddr),
    /// Group or source has another IP version than the gateway's flows.
    #[error("group and source must both be {0}: use a second gateway for the other IP version")]
    Family(Family),
    /// The gateway has its maximum number of subscriptions.
    #[error("{SUBSCRIPTIONS_MAX} subscriptions are joined already: leave one first")]
    TooMany,
}
