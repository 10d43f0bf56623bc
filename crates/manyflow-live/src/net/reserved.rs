//! Addresses that are known before their servers start.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

use tokio::net::TcpSocket;

/// A TCP address on loopback that the system gives to nobody who asks for any port, as long as the
/// value exists.
///
/// It is for servers that have to know each other's addresses, and for servers that are restarted
/// at the same address. A server can listen at a reserved address if it sets `SO_REUSEADDR`, which
/// the listeners of the standard library and of tokio do. Connections are refused while no server
/// listens.
#[derive(Debug)]
pub struct ReservedAddress {
    address: SocketAddr,
    /// Bound, but it never listens. Thus others may listen at its address.
    _socket: TcpSocket,
}

impl ReservedAddress {
    /// Reserves an address that is free now.
    ///
    /// # Errors
    /// If the system has no more sockets or ports.
    pub fn new() -> io::Result<ReservedAddress> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok(ReservedAddress {
            address: socket.local_addr()?,
            _socket: socket,
        })
    }

    /// Returns the address.
    pub fn get(&self) -> SocketAddr {
        self.address
    }
}

/// The first port of [`own_udp_address`]. Linux gives ports from 32,768 on to sockets that ask for
/// any port.
const OWN_PORTS: u16 = 10_000;

/// Returns a UDP address on loopback that no other call, in any process, returns while this process
/// runs.
///
/// It is for servers that are restarted at the same address: while they are stopped, the system
/// gives the address to no socket that asks for any port.
pub fn own_udp_address() -> SocketAddr {
    static COUNT: AtomicU16 = AtomicU16::new(0);
    // Linux has at most 2^22 processes.
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, 64 | (high & 63), middle, low);
    (host, OWN_PORTS + COUNT.fetch_add(1, Ordering::Relaxed)).into()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_udp_server_restarts_at_an_address_of_its_own() {
        let address = own_udp_address();
        assert_ne!(address, own_udp_address());
        for _ in 0..3 {
            std::net::UdpSocket::bind(address).unwrap();
        }
    }

    #[test]
    fn a_server_starts_and_restarts_at_a_reserved_address() {
        let reserved = ReservedAddress::new().unwrap();
        for _ in 0..3 {
            TcpStream::connect(reserved.get()).unwrap_err();
            let _server = TcpListener::bind(reserved.get()).unwrap();
            TcpStream::connect(reserved.get()).unwrap();
        }
    }
}
