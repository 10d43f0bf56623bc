//! The two kinds of connections that clients of a daemon have: TCP, and Unix sockets for those on
//! the same machine.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use manyflow_net::unix_socket::{self, SocketFile};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Unsent bytes that the kernel may hold for a client. The policy for slow members concerns those
/// that the daemon holds.
const UNSENT_BYTES: u32 = 64 * 1024;

/// The other end of a client's connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum PeerAddress {
    /// A host.
    Ip(SocketAddr),
    /// A program on this machine, by a Unix socket.
    Unix,
}

impl PeerAddress {
    /// Returns the host of the client: this one for a Unix socket.
    pub(crate) fn ip(self) -> IpAddr {
        match self {
            PeerAddress::Ip(address) => address.ip(),
            PeerAddress::Unix => Ipv4Addr::LOCALHOST.into(),
        }
    }

    /// Returns the port of the client: 0 for a Unix socket.
    pub(crate) fn port(self) -> u16 {
        match self {
            PeerAddress::Ip(address) => address.port(),
            PeerAddress::Unix => 0,
        }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerAddress::Ip(address) => address.fmt(f),
            PeerAddress::Unix => f.write_str("unix"),
        }
    }
}

/// A socket for clients that another runtime can take.
pub(crate) enum ClientSocket {
    Tcp(std::net::TcpListener, SocketAddr),
    Unix(std::os::unix::net::UnixListener, SocketFile),
}

impl ClientSocket {
    /// Returns the address of TCP.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self {
            ClientSocket::Tcp(_, local) => Some(*local),
            ClientSocket::Unix(..) => None,
        }
    }

    /// Returns the path of a Unix socket.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        match self {
            ClientSocket::Tcp(..) => None,
            ClientSocket::Unix(_, file) => Some(file.path().to_owned()),
        }
    }

    /// Returns the listener of this runtime.
    pub(crate) fn listener(self) -> io::Result<ClientListener> {
        Ok(match self {
            ClientSocket::Tcp(socket, local) => {
                ClientListener::Tcp(TcpListener::from_std(socket)?, local)
            }
            ClientSocket::Unix(socket, file) => {
                ClientListener::Unix(UnixListener::from_std(socket)?, file)
            }
        })
    }
}

/// A listener for clients, and where it listens.
pub(crate) enum ClientListener {
    Tcp(TcpListener, SocketAddr),
    /// The file is removed with the listener.
    Unix(UnixListener, SocketFile),
}

impl ClientListener {
    /// Returns the host and port for INFO. A Unix socket has port 0.
    pub(crate) fn host_and_port(&self) -> (String, u16) {
        match self {
            ClientListener::Tcp(_, local) => (local.ip().to_string(), local.port()),
            ClientListener::Unix(_, file) => (unix_socket::address_of(file.path()), 0),
        }
    }
}

/// A connection of a client, before it is divided into reader and writer.
pub(crate) trait ClientStream: AsyncRead + AsyncWrite + Unpin + Sized + 'static {
    /// A listener for such connections.
    type Listener;

    /// Returns the next connection.
    async fn accept(listener: &Self::Listener) -> io::Result<(Self, PeerAddress)>;

    /// Sets the options of the socket.
    fn prepare(&self) -> io::Result<()>;

    /// Lets the kernel ask after this time without traffic whether the other end is alive, and end
    /// the connection if it is not: for protocols without PINGs.
    fn keep_alive(&self, after: Duration) -> io::Result<()>;

    /// Returns the reader and the writer.
    fn into_halves(self) -> (impl AsyncRead + Unpin, impl AsyncWrite + Unpin + 'static);
}

impl ClientStream for TcpStream {
    type Listener = TcpListener;

    async fn accept(listener: &TcpListener) -> io::Result<(TcpStream, PeerAddress)> {
        let (stream, from) = listener.accept().await?;
        Ok((stream, PeerAddress::Ip(from)))
    }

    fn prepare(&self) -> io::Result<()> {
        self.set_nodelay(true)?;
        #[cfg(target_os = "linux")]
        SockRef::from(self).set_tcp_notsent_lowat(UNSENT_BYTES)?;
        Ok(())
    }

    fn keep_alive(&self, after: Duration) -> io::Result<()> {
        let keep_alive = TcpKeepalive::new()
            .with_time(after)
            .with_interval(after / 4);
        SockRef::from(self).set_tcp_keepalive(&keep_alive)
    }

    fn into_halves(self) -> (impl AsyncRead + Unpin, impl AsyncWrite + Unpin + 'static) {
        self.into_split()
    }
}

impl ClientStream for UnixStream {
    type Listener = UnixListener;

    async fn accept(listener: &UnixListener) -> io::Result<(UnixStream, PeerAddress)> {
        let (stream, _) = listener.accept().await?;
        Ok((stream, PeerAddress::Unix))
    }

    fn prepare(&self) -> io::Result<()> {
        SockRef::from(self).set_send_buffer_size(UNSENT_BYTES as usize)
    }

    fn keep_alive(&self, _: Duration) -> io::Result<()> {
        // The kernel reports at once that a program on this machine has ended.
        Ok(())
    }

    fn into_halves(self) -> (impl AsyncRead + Unpin, impl AsyncWrite + Unpin + 'static) {
        self.into_split()
    }
}
