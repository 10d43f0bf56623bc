//! The way of layered sessions to their parent: the relay upstream, or the sender.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use super::config::{ForwarderConfig, ForwarderError};
use crate::inlet::Inlet;

/// The way of layered sessions to their parent.
pub(super) struct Upward {
    /// The way on which their flows come.
    pub(super) upstream: usize,
    /// The socket for reports; `None` if they go through the upstream's tunnel.
    socket: Option<UdpSocket>,
}

impl Upward {
    /// Opens the way; `None` if there are no layered sessions. `upstream_of` has the upstream of
    /// each flow.
    ///
    /// # Errors
    /// If the sessions come on different ways or have no gateways to serve, or the socket cannot be
    /// opened.
    pub(super) fn open(
        config: &ForwarderConfig,
        upstream_of: &[usize],
    ) -> Result<Option<Upward>, ForwarderError> {
        let Some(streams) = &config.streams else {
            return Ok(None);
        };
        if config.listen.is_none() {
            return Err(ForwarderError::StreamsUnserved);
        }
        let layered = streams.groups.iter().zip(upstream_of);
        let mut ways = layered.filter_map(|(group, upstream)| group.and(Some(*upstream)));
        let Some(upstream) = ways.next() else {
            return Ok(None);
        };
        if ways.any(|other| other != upstream) {
            return Err(ForwarderError::StreamsApart);
        }
        let open = |address: SocketAddr| {
            report_socket(address).map_err(|cause| ForwarderError::Reports { address, cause })
        };
        Ok(Some(Upward {
            upstream,
            socket: config.reports_to.map(open).transpose()?,
        }))
    }

    /// Sends a hop message. A message that the kernel does not take is lost.
    pub(super) fn send(&self, message: &[u8], inlet: &Inlet) {
        match &self.socket {
            None => inlet.send_hop_message(message),
            Some(socket) => {
                if let Err(error) = socket.send(message) {
                    tracing::debug!(%error, "a report was not sent");
                }
            }
        }
    }
}

/// Opens a socket for reports to `address`.
pub fn report_socket(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
