//! What a gateway is told, and what it tells.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use thiserror::Error;

use crate::Family;

/// Subscriptions at a time: more than any session has, and few enough that each group's sources fit one record.
pub(super) const SUBSCRIPTIONS_MAX: usize = 1024;

/// How a gateway finds its relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayAddress {
    /// The relay's own address, as a session description gives it: nothing is left to discover, the handshake
    /// starts at once.
    Unicast(SocketAddr),
    /// A discovery address, such as an anycast address: the relay's answer tells its own address (RFC 7450, section
    /// 5.2.3.4).
    Discovery(SocketAddr),
}

/// Where a gateway gets what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewayConfig {
    /// The relay.
    pub relay: RelayAddress,
    /// IP version of the multicast flows; the tunnel's own may differ. A gateway speaks either IGMPv3 or MLDv2 (RFC
    /// 7450, section 5.2.2).
    pub family: Family,
    /// First wait for an answer, and least of the later ones. Default 1 s (RFC 7450, section 5.2.3.5.3).
    pub initial_timeout: Duration,
    /// Longest wait for an answer. Default 120 s (RFC 7450, section 5.2.3.5.3).
    pub maximum_timeout: Duration,
    /// Discoveries or Requests without answer after which the relay counts as lost. Default 4: 4 s to 15 s with the
    /// default timeouts.
    pub attempts_max: u32,
}

impl GatewayConfig {
    /// The defaults, for one relay and IP version.
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

/// What became of the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayEvent {
    /// A relay has answered: joins reach it from now on.
    Ready,
    /// There is no relay, for this reason. The gateway goes on trying, more and more slowly; [`Ready`](Self::Ready)
    /// tells of success.
    RelayLost(LossReason),
}

/// Why a gateway has no relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// It does not answer.
    Silent,
    /// It takes no more gateways (L flag, RFC 7450, section 5.1.4.4).
    Full,
}

/// Why something cannot be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The group is a unicast address.
    #[error("{0} is not a multicast group: give an address in 224.0.0.0/4 or ff00::/8")]
    NotMulticast(IpAddr),
    /// Group or source is of another IP version than the gateway's flows.
    #[error("group and source must both be {0}: use a second gateway for the other IP version")]
    Family(Family),
    /// Too many subscriptions.
    #[error("{SUBSCRIPTIONS_MAX} subscriptions are joined already: leave one first")]
    TooMany,
}
