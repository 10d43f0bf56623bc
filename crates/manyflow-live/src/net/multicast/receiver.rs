//! The receiving side: a pool of sockets, because the kernel limits how many groups one socket may join.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::UdpSocket;

use super::interface::LocalInterface;
use super::is_source_specific;
use super::membership::Membership;
use super::{Interface, MulticastError, SOCKET_BUFFER_BYTES, check_multicast, check_same_version};

/// Linux's default limit for a socket (net.ipv4.igmp_max_memberships).
const GROUPS_PER_SOCKET: usize = 20;

const JOIN_ADVICE: &str = "name the interface that leads to the sender, and see that \
    net.ipv4.igmp_max_memberships is at least 20";

/// No datagram is longer, whatever its headers say.
const DATAGRAM_BYTES_MAX: usize = 1 << 16;

/// Datagrams are split off chunks of this size, so that hundreds of them share one allocation.
const CHUNK_BYTES: usize = 1 << 20;

/// Which session is received.
#[derive(Clone, Debug)]
pub struct ReceiverConfig {
    /// The sender's address; what comes from elsewhere is dropped.
    pub source: IpAddr,
    /// The UDP port of all groups.
    pub port: u16,
    /// The interface that leads to the sender; without one the routes decide.
    pub interface: Option<Interface>,
}

/// A datagram as it arrived. Which channel it belongs to is for its header to say.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// The UDP payload.
    pub payload: Bytes,
    /// Where it comes from: the session's sender.
    pub source: SocketAddr,
    /// When it was taken from the kernel.
    pub received_at: Instant,
}

/// Receives the groups that it has joined, from the session's sender only.
#[derive(Debug)]
pub struct MulticastReceiver {
    config: ReceiverConfig,
    /// The kernel's number of the interface, 0 for the one that the routes say.
    interface: u32,
    sockets: Vec<Member>,
    /// The socket to look at first, so that a busy one does not starve the others.
    first: usize,
    buffer: BytesMut,
    foreign_datagrams: u64,
}

/// A socket and the groups that it has joined.
#[derive(Debug)]
struct Member {
    socket: UdpSocket,
    groups: Vec<IpAddr>,
}

impl MulticastReceiver {
    /// Opens the first socket of the pool. Nothing is joined yet.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, here and in [`join`](Self::join).
    pub fn open(config: ReceiverConfig) -> Result<Self, MulticastError> {
        let interface = match &config.interface {
            Some(interface) => LocalInterface::find(interface)?.index,
            None => 0,
        };
        let sockets = vec![Member::open(&config)?];
        Ok(Self {
            config,
            interface,
            sockets,
            first: 0,
            buffer: BytesMut::new(),
            foreign_datagrams: 0,
        })
    }

    /// Joins `group`, source-specific where its range says so. Joining again does nothing.
    pub fn join(&mut self, group: IpAddr) -> Result<(), MulticastError> {
        check_multicast(group)?;
        check_same_version(group, self.config.source)?;
        if self
            .sockets
            .iter()
            .any(|member| member.groups.contains(&group))
        {
            return Ok(());
        }
        let membership = self.membership(group);
        let member = self.member_with_room()?;
        membership
            .join(&SockRef::from(&member.socket))
            .map_err(MulticastError::refused(
                format!("join {group}"),
                JOIN_ADVICE,
            ))?;
        member.groups.push(group);
        Ok(())
    }

    /// Leaves `group`: what arrives from now on is not received, but what the kernel already holds still is. Leaving a
    /// group that is not joined does nothing.
    pub fn leave(&mut self, group: IpAddr) -> Result<(), MulticastError> {
        let membership = self.membership(group);
        let Some(member) = self
            .sockets
            .iter_mut()
            .find(|member| member.groups.contains(&group))
        else {
            return Ok(());
        };
        member.groups.retain(|joined| *joined != group);
        membership
            .leave(&SockRef::from(&member.socket))
            .map_err(MulticastError::refused(
                format!("leave {group}"),
                "close the receiver",
            ))
    }

    /// Waits for the next datagram of the session. Cancel safe: a datagram is either returned or still to come.
    pub async fn recv(&mut self) -> io::Result<Datagram> {
        poll_fn(|context| self.poll_recv(context)).await
    }

    /// How many datagrams came to the port from other hosts than the session's sender.
    pub fn foreign_datagrams(&self) -> u64 {
        self.foreign_datagrams
    }

    fn membership(&self, group: IpAddr) -> Membership {
        let source = is_source_specific(group).then_some(self.config.source);
        Membership {
            group,
            source,
            interface: self.interface,
        }
    }

    fn member_with_room(&mut self) -> Result<&mut Member, MulticastError> {
        let has_room = |member: &Member| member.groups.len() < GROUPS_PER_SOCKET;
        let place = match self.sockets.iter().position(has_room) {
            Some(place) => place,
            None => {
                self.sockets.push(Member::open(&self.config)?);
                self.sockets.len() - 1
            }
        };
        Ok(&mut self.sockets[place])
    }

    fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Datagram>> {
        let count = self.sockets.len();
        let first = self.first;
        for place in (first..first + count).map(|place| place % count) {
            if let Poll::Ready(result) = self.poll_socket(place, context) {
                self.first = place + 1;
                return Poll::Ready(result);
            }
        }
        Poll::Pending
    }

    /// Polls one socket until it has a datagram of the session or none at all.
    fn poll_socket(
        &mut self,
        place: usize,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Datagram>> {
        let socket = &self.sockets[place].socket;
        loop {
            ready!(socket.poll_recv_ready(context))?;
            if self.buffer.capacity() < DATAGRAM_BYTES_MAX {
                self.buffer.reserve(CHUNK_BYTES);
            }
            match socket.try_recv_buf_from(&mut self.buffer) {
                Ok((_, source)) if source.ip() != self.config.source => {
                    self.buffer.clear();
                    self.foreign_datagrams += 1;
                }
                Ok((length, source)) => {
                    let received_at = Instant::now();
                    let payload = self.buffer.split_to(length).freeze();
                    return Poll::Ready(Ok(Datagram {
                        payload,
                        source,
                        received_at,
                    }));
                }
                // Readiness was stale; polling again registers for the next datagram.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Member {
    /// All sockets of the pool, and of other receivers on this host, share the port: `SO_REUSEADDR` lets them, and each
    /// gets its own copy. `MULTICAST_ALL` is off because Linux otherwise hands a socket the datagrams of whatever groups
    /// anybody on the host has joined.
    fn open(config: &ReceiverConfig) -> Result<Self, MulticastError> {
        let (any, domain) = match config.source {
            IpAddr::V4(_) => (IpAddr::V4(Ipv4Addr::UNSPECIFIED), Domain::IPV4),
            IpAddr::V6(_) => (IpAddr::V6(Ipv6Addr::UNSPECIFIED), Domain::IPV6),
        };
        let socket = || -> io::Result<UdpSocket> {
            let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
            socket.set_reuse_address(true)?;
            match config.source {
                IpAddr::V4(_) => socket.set_multicast_all_v4(false)?,
                IpAddr::V6(_) => {
                    socket.set_only_v6(true)?;
                    socket.set_multicast_all_v6(false)?;
                }
            }
            socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES)?;
            warn_of_small_buffer(socket.recv_buffer_size()?);
            socket.bind(&SocketAddr::new(any, config.port).into())?;
            socket.set_nonblocking(true)?;
            UdpSocket::from_std(socket.into())
        };
        let socket = socket().map_err(MulticastError::refused(
            format!("receive on UDP port {}", config.port),
            "end the program that holds the port or choose another",
        ))?;
        Ok(Self {
            socket,
            groups: Vec::new(),
        })
    }
}

/// The kernel caps the buffer silently, and reports twice what it grants (socket(7)).
fn warn_of_small_buffer(reported_bytes: usize) {
    let granted_bytes = reported_bytes / 2;
    if granted_bytes < SOCKET_BUFFER_BYTES {
        tracing::warn!(
            granted_bytes,
            wanted_bytes = SOCKET_BUFFER_BYTES,
            "small receive buffer: raise net.core.rmem_max"
        );
    }
}
