//! Sockets and a clock for AMT's relay and gateway ([`manyflow_amt`]), on tokio.

mod client;
mod server;
mod streams;
#[cfg(test)]
mod tests;
mod tunnel;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use rand::RngExt as _;
use rand::rngs::StdRng;
use socket2::{Domain, Protocol, Socket, Type};

pub use self::client::{FromRelay, GatewayClient, Incoming, TunnelDatagram};
pub use self::server::{RelayOptions, RelaySender, RelayServer, RelayStats};
pub use self::streams::{HopTotals, StreamsConfig};
pub(crate) use self::tunnel::Tunnel;
use crate::udp::{SOCKET_BUFFER_BYTES, grow_receive_buffer};

/// Returns the source address of a session inside tunnels: the relay's own address, or that of the
/// route to its receivers.
pub fn tunnel_source(listen: Option<SocketAddr>) -> IpAddr {
    /// Any source-specific group, and the discard service: nothing is sent.
    const ROUTE: (Ipv4Addr, u16) = (Ipv4Addr::new(232, 1, 0, 0), 9);
    let listen = listen.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip());
    if !listen.is_unspecified() {
        return listen;
    }
    // Connecting a datagram socket makes the kernel choose a source address.
    let local = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
        socket.connect(ROUTE)?;
        socket.local_addr()
    });
    local.map_or(Ipv4Addr::LOCALHOST.into(), |address| address.ip())
}

/// Returns a random seed from the operating system.
fn random_seed() -> [u8; 32] {
    rand::make_rng::<StdRng>().random()
}

/// Opens a socket with large buffers. A socket bound to `[::]` accepts IPv4 as well.
fn open_socket(local: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
    if local.ip() == Ipv6Addr::UNSPECIFIED {
        socket.set_only_v6(false)?;
    }
    grow_receive_buffer(&socket)?;
    socket.set_send_buffer_size(SOCKET_BUFFER_BYTES)?;
    socket.set_nonblocking(true)?;
    socket.bind(&local.into())?;
    Ok(socket)
}

/// Returns the unspecified address and port, with the IP version of `remote`.
fn any_address(remote: SocketAddr) -> SocketAddr {
    match remote {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}
