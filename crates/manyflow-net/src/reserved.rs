//! Addresses that are known before their servers start.

use std::io;
use std::iter;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;
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

/// The ports of [`own_address`]. Linux gives ports from 32,768 on to sockets that ask for any port.
const OWN_PORTS: Range<u16> = 10_000..20_000;
/// Ports that are tried before [`own_address`] gives up.
const ATTEMPTS_MAX: usize = 100;

/// Returns an address on loopback, for TCP and UDP, that no other call returns while this process
/// runs, in any process.
///
/// It is for servers that have to know each other's addresses or are restarted at the same address,
/// also over UDP: while they are stopped, the system gives the address to no socket that asks for
/// any port. [`ReservedAddress`] is the same for TCP at the usual address of this host.
///
/// # Errors
/// If other programs have the ports at all addresses.
pub fn own_address() -> io::Result<SocketAddr> {
    static COUNT: AtomicU16 = AtomicU16::new(0);
    // Linux has at most 2^22 processes.
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, 64 | (high & 63), middle, low);
    let next = || {
        let count = COUNT.fetch_add(1, Ordering::Relaxed) % OWN_PORTS.len() as u16;
        SocketAddr::from((host, OWN_PORTS.start + count))
    };
    let is_free = |address: &SocketAddr| {
        UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok()
    };
    iter::repeat_with(next)
        .take(ATTEMPTS_MAX)
        .find(is_free)
        .ok_or_else(|| {
            let message = format!("other programs have the ports from {}", OWN_PORTS.start);
            io::Error::new(io::ErrorKind::AddrInUse, message)
        })
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_udp_server_restarts_at_an_address_of_its_own() {
        let address = own_address().unwrap();
        assert_ne!(address, own_address().unwrap());
        for _ in 0..3 {
            UdpSocket::bind(address).unwrap();
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
