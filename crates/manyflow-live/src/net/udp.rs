//! A UDP socket that reports the address to which each datagram was sent, and can send from any
//! address of the host.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use socket2::Socket;
use tokio::net::UdpSocket;

/// Upper bound for the length of a datagram, and of those that the kernel joins to one.
const DATAGRAM_BYTES_MAX: usize = 1 << 16;

/// Size of the chunks that datagrams are split from, so that hundreds of them share one allocation.
const CHUNK_BYTES: usize = 1 << 20;

/// A UDP socket.
#[derive(Debug)]
pub(crate) struct Port {
    socket: UdpSocket,
    state: UdpSocketState,
}

/// A datagram that has arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) payload: Bytes,
    pub(crate) source: SocketAddr,
    /// The address to which the datagram was sent; `None` if the kernel does not know it.
    pub(crate) destination: Option<IpAddr>,
    /// Time at which the datagram was taken from the kernel.
    pub(crate) received_at: Instant,
}

/// Memory for the datagrams that a socket receives.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    chunk: BytesMut,
    /// The rest of the datagrams that the kernel had joined.
    arrivals: VecDeque<Arrival>,
}

impl Port {
    /// Takes a socket that is bound.
    pub(crate) fn new(socket: Socket) -> io::Result<Port> {
        let state = UdpSocketState::new((&socket).into())?;
        let socket = UdpSocket::from_std(socket.into())?;
        Ok(Port { socket, state })
    }

    pub(crate) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Sends a datagram from `source`, or from the address that the kernel chooses. Never waits.
    ///
    /// It does not ask tokio whether the socket is writable: tokio knows that only after it has
    /// polled, so the first datagram would be lost.
    pub(crate) fn send(
        &self,
        source: Option<IpAddr>,
        destination: SocketAddr,
        contents: &[u8],
    ) -> io::Result<()> {
        let transmit = Transmit {
            destination,
            ecn: None,
            contents,
            segment_size: None,
            src_ip: source,
        };
        self.state.try_send((&self.socket).into(), &transmit)
    }

    /// Polls for the next datagram. `inbox` belongs to this socket.
    pub(crate) fn poll_recv(
        &self,
        inbox: &mut Inbox,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Arrival>> {
        loop {
            if let Some(arrival) = inbox.arrivals.pop_front() {
                return Poll::Ready(Ok(arrival));
            }
            ready!(self.socket.poll_recv_ready(context))?;
            let receive = || inbox.receive(&self.socket, &self.state);
            match self.socket.try_io(tokio::io::Interest::READABLE, receive) {
                Ok(()) => {}
                // Readiness was stale. Polling again registers for the next datagram.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Inbox {
    /// Takes what the kernel has joined from the socket, and splits it into datagrams.
    fn receive(&mut self, socket: &UdpSocket, state: &UdpSocketState) -> io::Result<()> {
        if self.chunk.len() < DATAGRAM_BYTES_MAX {
            self.chunk = BytesMut::zeroed(CHUNK_BYTES);
        }
        let mut meta = [RecvMeta::default()];
        let buffer = IoSliceMut::new(&mut self.chunk[..DATAGRAM_BYTES_MAX]);
        state.recv(socket.into(), &mut [buffer], &mut meta)?;
        let received_at = Instant::now();
        let [meta] = meta;
        let mut rest = self.chunk.split_to(meta.len).freeze();
        loop {
            let payload = rest.split_to(rest.len().min(meta.stride));
            self.arrivals.push_back(Arrival {
                payload,
                source: meta.addr,
                destination: meta.dst_ip,
                received_at,
            });
            if rest.is_empty() {
                return Ok(());
            }
        }
    }
}

/// Returns this host's address on the route to `peer`. Sends nothing.
pub(crate) fn route_to(peer: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let probe = std::net::UdpSocket::bind((any, 0))?;
    probe.connect(peer)?;
    Ok(probe.local_addr()?.ip())
}
