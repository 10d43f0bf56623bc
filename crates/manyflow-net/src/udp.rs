//! A UDP socket that receives many datagrams at a time, reports the address to which each was sent,
//! and can send from any address of the host.
//!
//! quinn-udp sets the socket's options and sends: `sendmsg` with generic segmentation offload
//! (GSO). `batch.rs` receives: `recvmmsg` with generic receive offload (GRO), and control messages
//! with addresses, ECN fields and times.

mod batch;

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use manyflow_core::Ecn;
use quinn_udp::UdpSocketState;
use socket2::Socket;
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::train::{self, Towards, Unsent};
use super::trains::Outlet;

/// Upper bound for the length of a datagram, and of those that the kernel joins to one.
const DATAGRAM_BYTES_MAX: usize = 1 << 16;
/// The longest time that a datagram is believed to wait in a socket.
const AGE_MAX: Duration = Duration::from_secs(1);

/// Size of each socket's kernel buffers in bytes: a quarter of a second at 128 Mbit/s.
pub const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// A UDP socket.
#[derive(Debug)]
pub struct Port {
    socket: UdpSocket,
    state: UdpSocketState,
}

/// The datagrams that one system call took from a socket, in memory that the next call uses again.
#[derive(Debug)]
pub struct Inbox {
    buffer: Box<[u8]>,
    arrivals: VecDeque<Arrival>,
}

/// A datagram in an [`Inbox`].
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The place of the payload, for [`Inbox::bytes`].
    pub payload: Range<usize>,
    /// The address and port of its sender.
    pub source: SocketAddr,
    /// The address to which the datagram was sent; `None` if the kernel does not know it.
    pub destination: Option<IpAddr>,
    /// The ECN field of the datagram.
    pub ecn: Ecn,
    /// Time at which the datagram was taken from the kernel.
    pub received_at: Instant,
    /// Time at which the kernel got the datagram, or `received_at` if it does not say.
    pub arrived_at: Instant,
}

impl Port {
    /// Takes a socket that is bound.
    pub fn new(socket: Socket) -> io::Result<Port> {
        let state = UdpSocketState::new((&socket).into())?;
        let socket = UdpSocket::from_std(socket.into())?;
        Ok(Port { socket, state })
    }

    /// Returns the socket, for its address and options.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Sends datagrams of `length` bytes, of which the last may be shorter, with this ECN field.
    /// Never waits.
    pub fn send(
        &self,
        source: Option<IpAddr>,
        destination: SocketAddr,
        ecn: Ecn,
        train: &[u8],
        length: usize,
    ) -> Unsent {
        let to = Towards {
            source,
            destination,
            ecn,
        };
        self.send_train(to, train, length)
    }

    /// Polls until `inbox` has datagrams, which must be taken from it before the next call.
    pub fn poll_recv(&self, inbox: &mut Inbox, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while inbox.arrivals.is_empty() {
            ready!(self.socket.poll_recv_ready(context))?;
            match self.try_recv(inbox) {
                Ok(()) => {}
                // Readiness was stale. Polling again registers for the next datagram.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Takes the datagrams that are there from the socket, as many as one system call returns.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if no datagram has arrived.
    pub fn try_recv(&self, inbox: &mut Inbox) -> io::Result<()> {
        let receive = || inbox.receive(&self.socket);
        self.socket.try_io(Interest::READABLE, receive)
    }
}

impl Outlet for Port {
    fn send_train(&self, to: Towards, train: &[u8], length: usize) -> Unsent {
        train::send(&self.socket, &self.state, to, train, length)
    }
}

/// Enlarges the kernel's receive buffer of a socket: to 16 MiB with the rights of root, which is
/// 40 ms at 3 Gbit/s, and else to [`SOCKET_BUFFER_BYTES`] or the system's maximum. Returns its
/// length in bytes.
#[cfg(feature = "sessions")]
pub(crate) fn grow_receive_buffer(socket: &Socket) -> io::Result<usize> {
    use nix::sys::socket::{setsockopt, sockopt::RcvBufForce};

    /// The length of a receive buffer in bytes that the system's maximum does not limit.
    const LARGE_BUFFER_BYTES: usize = 16 << 20;

    if setsockopt(socket, RcvBufForce, &LARGE_BUFFER_BYTES).is_err() {
        socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES)?;
    }
    // The kernel reports twice what it has granted (socket(7)).
    Ok(socket.recv_buffer_size()? / 2)
}

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox::with_messages(batch::MESSAGES_MAX)
    }
}

impl Inbox {
    /// Creates an inbox for this number of messages at a time, each of which can be many datagrams
    /// that the kernel has joined. A message takes 64 KiB of memory.
    pub(crate) fn with_messages(messages: usize) -> Inbox {
        Inbox {
            // Pages that no datagram has reached are not resident.
            buffer: vec![0; messages * DATAGRAM_BYTES_MAX].into(),
            arrivals: VecDeque::new(),
        }
    }

    /// Adds the datagrams of a train, of `length` bytes each, that no socket has received. Returns
    /// false if there is no room for them.
    pub fn put(&mut self, source: SocketAddr, train: &[u8], length: usize) -> bool {
        let start = self.arrivals.back().map_or(0, |last| last.payload.end);
        let end = start + train.len();
        let Some(place) = self.buffer.get_mut(start..end) else {
            return false;
        };
        place.copy_from_slice(train);
        let now = Instant::now();
        for first in (start..end).step_by(length.max(1)) {
            self.arrivals.push_back(Arrival {
                payload: first..(first + length).min(end),
                source,
                destination: None,
                ecn: Ecn::NotCapable,
                received_at: now,
                arrived_at: now,
            });
        }
        true
    }

    /// Returns whether no datagram waits.
    pub fn is_empty(&self) -> bool {
        self.arrivals.is_empty()
    }

    /// Takes the next datagram.
    pub fn next_arrival(&mut self) -> Option<Arrival> {
        self.arrivals.pop_front()
    }

    /// Returns the bytes in this place for changes, as [`bytes`](Inbox::bytes) does for reading.
    #[cfg(feature = "sessions")]
    pub(crate) fn bytes_mut(&mut self, place: Range<usize>) -> &mut [u8] {
        &mut self.buffer[place]
    }

    /// Returns the bytes in this place, which an [`Arrival`] of the last call gave.
    pub fn bytes(&self, place: Range<usize>) -> &[u8] {
        &self.buffer[place]
    }

    /// Drops the datagrams that were not taken.
    pub fn clear(&mut self) {
        self.arrivals.clear();
    }

    /// Receives messages, and splits those that the kernel has joined into datagrams.
    fn receive(&mut self, socket: &UdpSocket) -> io::Result<()> {
        let Inbox { buffer, arrivals } = self;
        let mut times = None;
        batch::receive(
            socket.as_fd(),
            buffer,
            DATAGRAM_BYTES_MAX,
            |place, message| {
                let (received_at, unix_time) = *times.get_or_insert_with(|| {
                    let unix_time = SystemTime::now().duration_since(UNIX_EPOCH).ok();
                    (Instant::now(), unix_time)
                });
                let start = place * DATAGRAM_BYTES_MAX;
                let end = start + message.length;
                let age = age(message.timestamp, unix_time);
                let arrived_at = received_at.checked_sub(age).unwrap_or(received_at);
                // An empty datagram has no bytes to step over.
                for first in (start..end.max(start + 1)).step_by(message.stride.max(1)) {
                    arrivals.push_back(Arrival {
                        payload: first..(first + message.stride).min(end),
                        source: message.source,
                        destination: message.destination,
                        ecn: message.ecn,
                        received_at,
                        arrived_at,
                    });
                }
            },
        )
    }
}

/// Returns the time since the kernel got a message, by its time stamp. Both times are since the
/// Unix epoch. Zero without a time stamp, or if the system's clock was set in the meantime.
fn age(timestamp: Option<Duration>, unix_time: Option<Duration>) -> Duration {
    let age = unix_time.zip(timestamp);
    let age = age.and_then(|(now, then)| now.checked_sub(then));
    age.filter(|age| *age < AGE_MAX).unwrap_or_default()
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
