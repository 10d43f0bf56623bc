//! Connections of frames over UDP: the ends, and the switch between a peer and the members of a
//! service ([`manyflow_anypoint`] has the protocol).
//!
//! ```text
//!   Connection --UDP-- [ switch: one Switch for each connection ] --UDP-- Member, Connection
//!     connect            listen                       a number of its own     serve
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `options.rs` | parameters of ends |
//! | `connection.rs` | an end of a connection, as applications use it |
//! | `endpoint.rs` | a socket with its connections: `connect`, `bind`, `serve` |
//! | `core.rs`, `end.rs`, `driver.rs` | the connections of a socket; one of them; the task that serves them |
//! | `fragment.rs`, `reassembly.rs`, `seal.rs` | messages as fragments of at most a packet, and their encryption |
//! | `envelope.rs`, `cookies.rs`, `answers.rs` | admission: datagrams, cookies, and limits on answers to strangers |
//! | `timers.rs`, `arena.rs` | timers of many connections; memory for payloads |
//! | `way.rs` | what a path carries, and datagrams divided where they are too long for it |
//! | [`switch`] | the switch |
//!
//! Nobody costs state before it has shown that it receives at its address: an Open without a valid
//! cookie is answered with a Challenge, which is shorter than the Open and carries the cookie.

mod answers;
mod arena;
mod connection;
mod cookies;
mod core;
mod driver;
mod end;
mod endpoint;
pub mod envelope;
pub mod fragment;
mod header;
mod options;
mod reassembly;
mod seal;
pub mod switch;
mod timers;
mod way;

use std::io;
use std::net::{Ipv6Addr, SocketAddr};

use manyflow_anypoint::Segment;
use manyflow_net::udp::Port;
use rand::rngs::{StdRng, SysRng};
use rand::{Rng as _, SeedableRng as _};
use socket2::{Domain, Protocol, Socket, Type};

pub use connection::{Connection, ConnectionError, Counters};
pub use endpoint::{Endpoint, Member, connect, serve};
pub use manyflow_anypoint::switch::Prefix;
pub use manyflow_anypoint::{Control, Reason};
pub use options::{FRAME_BYTES_MAX, MESSAGE_BYTES_MAX, Options};
pub use reassembly::Message;

/// A connection's number on the wire.
pub type Number = u32;

/// The socket buffers that are asked for, in bytes. The kernel may give less.
const SOCKET_BYTES: usize = 4 << 20;

/// Draws bytes that nobody can predict.
fn random<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    rng().fill_bytes(&mut bytes);
    bytes
}

fn rng() -> StdRng {
    StdRng::try_from_rng(&mut SysRng).expect("the system has a random generator")
}

/// Opens a socket. One that is bound to `[::]` takes IPv4 as well.
fn open_port(local: SocketAddr) -> io::Result<(Port, SocketAddr)> {
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
    if local.ip() == Ipv6Addr::UNSPECIFIED {
        socket.set_only_v6(false)?;
    }
    socket.set_recv_buffer_size(SOCKET_BYTES)?;
    socket.set_send_buffer_size(SOCKET_BYTES)?;
    socket.set_nonblocking(true)?;
    socket.bind(&local.into())?;
    let local = socket
        .local_addr()?
        .as_socket()
        .ok_or(io::ErrorKind::Unsupported)?;
    Ok((Port::new(socket)?, local))
}

/// Returns the segment of connection `number` with this body.
fn segment(number: Number, body: manyflow_anypoint::Body) -> Segment {
    Segment {
        connection: number,
        body,
    }
}
