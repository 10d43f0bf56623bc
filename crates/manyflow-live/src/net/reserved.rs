//! Addresses that are known before their servers start.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

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

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

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
