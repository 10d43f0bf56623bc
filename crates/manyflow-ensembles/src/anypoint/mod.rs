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
//! | `wire.rs` | what carries datagrams: UDP, or memory inside of a process |
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
mod wire;

use manyflow_anypoint::Segment;
use rand::rngs::{StdRng, SysRng};
use rand::{Rng as _, SeedableRng as _};

pub use connection::{Connection, ConnectionError, Counters};
pub use endpoint::{Endpoint, Member, connect, serve};
pub use manyflow_anypoint::switch::Prefix;
pub use manyflow_anypoint::{Control, Reason};
pub use options::{FRAME_BYTES_MAX, MESSAGE_BYTES_MAX, Options};
pub use reassembly::Message;

/// A connection's number on the wire.
pub type Number = u32;

/// Draws bytes that nobody can predict.
fn random<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    rng().fill_bytes(&mut bytes);
    bytes
}

fn rng() -> StdRng {
    StdRng::try_from_rng(&mut SysRng).expect("the system has a random generator")
}

/// Returns the segment of connection `number` with this body.
fn segment(number: Number, body: manyflow_anypoint::Body) -> Segment {
    Segment {
        connection: number,
        body,
    }
}
