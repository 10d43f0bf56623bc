//! Links of datagrams, which an overlay under TFRC has: frames travel over UDP, and the
//! [`DatagramHop`](manyflow_overlay::hop::DatagramHop) repairs losses.
//!
//! ```text
//!   control connection: TCP, TLS, Hello, Resume, Endpoint       the link exists as long as it does
//!   packets:            UDP, sealed with keys of that TLS session
//!
//!   body of a packet | kind | contents                          |
//!                    |  0   |                                   | keep-alive
//!                    |  1   | frame, payload                    | from the neighbour
//!                    |  2   | from, to, hops, frame             | a direct message on its way
//! ```
//!
//! All links of a daemon share one socket, at the port of its TCP listener if it has one. Each end
//! of a link chooses a random number that packets to it carry. An end sends to the address from
//! which the latest authentic packet came, so that a link survives a change of a NAT's mapping.
//!
//! **Direct messages.** TFRC's receiving daemons report directly to sending daemons. Live, a direct
//! message is forwarded from daemon to daemon along the shortest path, without a number and without
//! repair. Daemons that are not neighbours then need neither addresses of each other nor keys, and
//! may be behind NATs. The measured round-trip time is that of the overlay's path, which the
//! messages take as well.
//!
//! **Packets that the kernel refuses** because its buffer is full are lost, as on the path: TFRC
//! observes the loss and the link repairs it.

mod link;
mod seal;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use bytes::BytesMut;
use manyflow_net::udp::{Inbox, Port};
use rand::RngExt as _;
use rand::rngs::StdRng;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

pub(super) use link::{DatagramLink, Direct, Endpoint};
pub(super) use seal::{KEYS_BYTES, Keys};

use link::Body;

use super::core::DaemonCore;

/// The maximum number of bytes of a message of the overlay on such a link. A packet with the
/// headers of IPv6 and UDP then has at most 1,280 bytes, which every path of IPv6 carries (RFC 8200
/// section 5). IP does not fragment the packets, and a router may drop longer ones silently.
pub(super) const FRAGMENT_BYTES: usize = 1152;
/// The size of the socket's buffers in bytes.
const BUFFER_BYTES: usize = 4 << 20;
/// The number of bytes that the memory for arriving packets grows by.
const ARENA_BYTES: usize = 256 * 1024;

/// The socket of all links of a daemon.
#[derive(Debug)]
pub(super) struct Datagrams {
    port: Port,
    local: SocketAddr,
    /// The links, by the numbers that packets to them carry.
    links: RefCell<HashMap<u64, Rc<DatagramLink>>>,
    /// The number of packets that were forged, repeated, or of no link.
    refused: Cell<u64>,
    /// Whether the log has that packets are too long.
    is_too_long_logged: Cell<bool>,
}

impl Datagrams {
    /// Binds a socket for [`new`](Self::new).
    ///
    /// # Errors
    /// Returns an error if the address cannot be used.
    pub(super) fn bind(address: SocketAddr) -> io::Result<Socket> {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::DGRAM,
            Some(Protocol::UDP),
        )?;
        // The kernel limits the sizes.
        socket.set_recv_buffer_size(BUFFER_BYTES)?;
        socket.set_send_buffer_size(BUFFER_BYTES)?;
        socket.set_nonblocking(true)?;
        socket.bind(&SockAddr::from(address))?;
        Ok(socket)
    }

    /// Takes a socket into the runtime of the daemon.
    ///
    /// # Errors
    /// Returns an error if the runtime cannot take the socket.
    pub(super) fn new(socket: Socket) -> io::Result<Rc<Datagrams>> {
        let port = Port::new(socket)?;
        let local = port.socket().local_addr()?;
        Ok(Rc::new(Datagrams {
            port,
            local,
            links: RefCell::default(),
            refused: Cell::new(0),
            is_too_long_logged: Cell::new(false),
        }))
    }

    /// Returns the socket's port.
    pub(super) fn port(&self) -> u16 {
        self.local.port()
    }

    /// Handles packets to a neighbour that are longer than the interface carries.
    fn handle_too_long(&self, peer: SocketAddr) {
        if !self.is_too_long_logged.replace(true) {
            tracing::warn!(
                "packets to the daemon at {peer} are longer than the MTU of the interface: raise it to \
                 1,280 bytes, which links of datagrams need, or use another controller than tfrc"
            );
        }
    }

    /// Returns the number of packets that were refused.
    pub(super) fn refused(&self) -> u64 {
        self.refused.get()
    }

    /// Returns a description of this end for a new link.
    pub(super) fn endpoint(&self) -> Endpoint {
        Endpoint {
            port: self.port(),
            number: rand::make_rng::<StdRng>().random(),
        }
    }

    /// Adds a link to the host at `peer`. `own` and `other` are the descriptions that the two ends
    /// have exchanged.
    pub(super) fn add(
        self: &Rc<Self>,
        (own, other): (Endpoint, Endpoint),
        peer: IpAddr,
        keys: Option<&Keys>,
        dialled: bool,
    ) -> Rc<DatagramLink> {
        let peer = SocketAddr::new(mapped(peer, self.local), other.port);
        let link = DatagramLink::new(Rc::clone(self), own, other, peer, keys, dialled);
        let link = Rc::new(link);
        self.links.borrow_mut().insert(own.number, Rc::clone(&link));
        link
    }

    /// Receives packets for as long as the daemon runs.
    pub(super) async fn receive(&self, core: &RefCell<DaemonCore>) {
        let (mut inbox, mut arena) = (Inbox::default(), BytesMut::new());
        loop {
            if let Err(error) = poll_fn(|context| self.port.poll_recv(&mut inbox, context)).await {
                // Such as the ICMP error that a packet to a host without a daemon caused.
                tracing::debug!("the socket of links reports: {error}");
                continue;
            }
            let mut core = core.borrow_mut();
            while let Some(arrival) = inbox.next_arrival() {
                let bytes = inbox.bytes(arrival.payload);
                if arena.capacity() < bytes.len() {
                    arena.reserve(ARENA_BYTES.max(bytes.len()));
                }
                arena.extend_from_slice(bytes);
                self.handle(&mut core, arrival.source, arena.split());
            }
            core.finish_datagrams();
        }
    }

    fn handle(&self, core: &mut DaemonCore, source: SocketAddr, packet: BytesMut) {
        let number = packet.first_chunk().map(|first| u64::from_be_bytes(*first));
        let link = number.and_then(|number| self.links.borrow().get(&number).cloned());
        match link.map(|link| (link.open(source, packet), link)) {
            Some((Ok(Body::KeepAlive), _)) => {}
            Some((Ok(Body::Frame(bytes)), link)) => core.handle_datagram(&link, bytes),
            Some((Ok(Body::Direct(direct, bytes)), link)) => {
                core.handle_direct(&link, direct, bytes);
            }
            Some((Err(()), _)) | None => self.refused.set(self.refused.get() + 1),
        }
    }
}

/// Returns an address that a socket at `local` can send to: a socket for both versions of IP needs
/// mapped addresses.
fn mapped(peer: IpAddr, local: SocketAddr) -> IpAddr {
    match (peer, local) {
        (IpAddr::V4(peer), SocketAddr::V6(_)) => IpAddr::V6(peer.to_ipv6_mapped()),
        (peer, SocketAddr::V4(_)) => peer.to_canonical(),
        (peer, SocketAddr::V6(_)) => peer,
    }
}
