//! The parameters of a relay.

use core::net::{IpAddr, SocketAddr};

use crate::GROUPS_MAX;
use crate::hop::{HopConfig, HopKey, HopWireError};
use manyflow_core::ConfigError;

/// The length of the headers of IPv4 and UDP, which each datagram counts with.
pub(super) const LOWER_BYTES: u32 = 28;

/// A session that a relay carries.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// The number of the session in feedback and experiments.
    pub session: u32,
    /// The number of its groups, at most [`GROUPS_MAX`]; 0 for a session without groups, such as a
    /// file session.
    pub groups: u8,
}

/// The parameters of a relay.
#[derive(Clone, Debug, PartialEq)]
pub struct RelayConfig {
    /// The parameters of each hop to a child.
    pub hop: HopConfig,
    /// The key that all relays and receivers of the tree share. Without one, messages are not
    /// sealed.
    pub key: Option<HopKey>,
    /// The number that reports carry as their source.
    pub id: u32,
    /// Whether reports go to a parent. Otherwise this end is the sender, which takes them with
    /// [`poll_feedback`](super::StreamRelay::poll_feedback).
    pub has_parent: bool,
    /// The maximum number of children, 1 to 100,000.
    pub children_max: usize,
    /// The maximum number of addresses without a hop that report.
    pub strangers_max: usize,
}

impl Default for RelayConfig {
    fn default() -> RelayConfig {
        RelayConfig {
            hop: HopConfig::default(),
            key: None,
            id: 0,
            has_parent: false,
            children_max: 1000,
            strangers_max: 4096,
        }
    }
}

impl RelayConfig {
    /// # Errors
    /// Names the first parameter that is outside its range.
    pub(super) fn check(&self, sessions: &[SessionInfo]) -> Result<(), ConfigError> {
        self.hop.check()?;
        ConfigError::first_of([
            (
                "the maximum number of children",
                "1 to 100,000",
                (1..=100_000).contains(&self.children_max),
            ),
            (
                "the groups of a session",
                "at most 32",
                sessions.iter().all(|info| info.groups <= GROUPS_MAX),
            ),
        ])
    }
}

/// Where datagrams go.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// To a child.
    Child {
        /// The child's address.
        to: SocketAddr,
        /// The local address to send from.
        local: IpAddr,
    },
    /// To the parent.
    Parent,
}

/// Datagrams to one place, all of one length, so that one call of the kernel can send them.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Datagrams {
    /// Where the datagrams go.
    pub place: Where,
    /// The length of each datagram in bytes.
    pub segment_bytes: usize,
}

/// The reason why a relay refuses a datagram or a packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RelayError {
    /// The datagram is not a message of a hop.
    #[error("the datagram is not a message of a hop: {0}")]
    Wire(#[from] HopWireError),
    /// The message is older than one before it, or answers no sounding of this hop.
    #[error("the message is old, or belongs to another hop")]
    Stale,
    /// The message comes from an address without a hop.
    #[error("the address has no hop")]
    NoHop,
    /// The message is of a kind that does not come from this side.
    #[error("the message has the wrong direction")]
    Direction,
    /// There are as many children or reporting addresses as the configuration allows.
    #[error("there are as many children as the configuration allows")]
    Full,
    /// There is no session with this number or group.
    #[error("the session or the group is not known")]
    NoSession,
    /// The sender of the message has sent too many of this kind.
    #[error("there are too many messages of this kind")]
    TooMany,
    /// The queue of the child's hop dropped the packet.
    #[error("the queue dropped the packet")]
    Dropped,
}
