//! The parameters of a forwarder, and the reasons why it cannot start.

use std::io;
use std::net::{IpAddr, SocketAddr};

use manyflow_amt::{DownstreamLink, Flow, RelayConfig};

use super::hosts::HostsConfig;
use crate::amt::StreamsConfig;
use crate::inlet::{Route, TransportError};
use crate::multicast::MulticastError;

/// Flows to forward, and the way on which they come.
#[derive(Clone, Debug)]
pub struct Feed {
    /// The flows. Packets of others are dropped.
    pub flows: Vec<Flow>,
    /// The way from upstream.
    pub route: Route,
}

/// The parameters of a [`Forwarder`](super::Forwarder).
#[derive(Clone, Debug)]
pub struct ForwarderConfig {
    /// The flows that may be joined downstream.
    pub feeds: Vec<Feed>,
    /// Address on which gateways are served; `None` serves none.
    pub listen: Option<SocketAddr>,
    /// Bounds for gateways.
    pub relay: RelayConfig,
    /// Links to gateways with rates of their own.
    pub links: Vec<DownstreamLink>,
    /// The network whose hosts are served by IP multicast.
    pub hosts: Option<HostsConfig>,
    /// The layered sessions among the flows, with their hops to gateways. All their flows come on
    /// one way.
    pub streams: Option<StreamsConfig>,
    /// The address to which reports of layered sessions go, if their packets come by IP multicast.
    /// Otherwise reports go to the relay upstream.
    pub reports_to: Option<SocketAddr>,
}

/// The reason why a forwarder cannot start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForwarderError {
    /// The way from upstream fails.
    #[error(transparent)]
    Upstream(#[from] TransportError),
    /// The address for gateways cannot be used.
    #[error("cannot listen on {address}: {cause}; choose another address or port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        cause: io::Error,
    },
    /// The network of hosts cannot be served.
    #[error(transparent)]
    Hosts(#[from] MulticastError),
    /// Hosts would receive packets twice, and the forwarder its own.
    #[error("packets come from the interface {0}: name another one for the hosts they are sent to")]
    SameInterface(String),
    /// Multicast to hosts is only implemented for IPv4.
    #[error(
        "{0} is an IPv6 group, which hosts cannot receive from this relay: serve only gateways"
    )]
    Ipv6Hosts(IpAddr),
    /// Layered sessions come on different ways.
    #[error(
        "the streams come from different relays: run one relay for each, or name the way of all with --relay"
    )]
    StreamsApart,
    /// Layered sessions have no gateways to serve.
    #[error("a relay of streams serves receivers on an address: name one with --listen")]
    StreamsUnserved,
    /// The socket for reports cannot be opened.
    #[error("cannot report to {address}: {cause}; is there a route to the sender?")]
    Reports {
        /// The sender's address for reports.
        address: SocketAddr,
        /// The system's reason.
        cause: io::Error,
    },
}
