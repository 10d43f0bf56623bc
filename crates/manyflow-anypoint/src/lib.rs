//! Anypoint: one connection to a service of several servers, rate-controlled as a whole (Yocum and
//! Chase, *Explicit Rate Control for Anypoint Communication*).
//!
//! ```text
//!                      transit           +--> member 0     inbound:  the peer's frames, split among the members
//!   peer <---- XCP routers ----> switch <+--> member 1
//!                                        +--> member 2     outbound: the members' frames, merged into one stream
//! ```
//!
//! All ends speak ACP, a transport of frames: reliable, in order between two ends, with a
//! congestion window that XCP's header steers. No end knows that there is a switch. The switch
//! terminates no connection; it rewrites headers, so that the other side looks like one end to each
//! end (transport equivalence, section II).
//!
//! | file | what it holds | source |
//! |---|---|---|
//! | `segment.rs`, `wire.rs` | ACP's packets, XCP's header, and their bytes | section IV |
//! | `config.rs` | the parameters of a connection | section V |
//! | `connection.rs` | one end: opening, closing, keep-alive, and the two halves below | |
//! | `frame.rs` | the numbered items of a direction: frames, and the closing | |
//! | `sender.rs`, `window.rs`, `losses.rs`, `pacer.rs` | frames in flight, losses, time-outs; the window under XCP, Reno and CUBIC; when frames leave | sections IV, V |
//! | `receiver.rs` | order, the receive buffer, acknowledgements | section V |
//! | `soft.rs`, `soft/` | soft flow control: the receive buffer as an XCP queue, by the paper's law and by one that follows the application | section IV-A |
//! | `path.rs` | the longest datagram that a path carries (RFC 8899) | |
//! | `event.rs` | what connections and switches report | |
//! | `switch/` | splits and merges: sequence numbers, acknowledgements, the four header transforms, routing, members | sections III, IV |
//!
//! XCP's routers are [links](manyflow_core::link) with an
//! [`XcpConfig`](manyflow_core::xcp::XcpConfig).
//!
//! # Example
//!
//! A client sends one frame to a server. The loop stands for the network: it carries every segment
//! at once.
//!
//! ```
//! use manyflow_anypoint::{AcpConfig, Connection, Length};
//! use manyflow_core::Time;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let now = Time::ZERO;
//! let mut client: Connection<Length> = Connection::connect(AcpConfig::default(), 1, now)?;
//! let mut server = Connection::listen(AcpConfig::default())?;
//! client.send(7, Length(500)).map_err(|error| error.to_string())?;
//!
//! loop {
//!     if let Some((segment, payload)) = client.poll_transmit(now) {
//!         server.handle_segment(now, &segment, payload.unwrap_or_default());
//!     } else if let Some((segment, payload)) = server.poll_transmit(now) {
//!         client.handle_segment(now, &segment, payload.unwrap_or_default());
//!     } else {
//!         break;
//!     }
//! }
//! let frame = server.receive(now).expect("the frame has arrived");
//! assert_eq!((frame.key, frame.payload), (7, Length(500)));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod config;
mod connection;
mod event;
mod frame;
mod losses;
mod pacer;
pub mod path;
mod receiver;
mod segment;
mod sender;
mod soft;
pub mod switch;
mod window;
mod wire;

pub use config::{AcpConfig, ConfigError, Control, FlowControl, SoftConfig};
pub use connection::Connection;
pub use event::Event;
pub use frame::{Frame, SendError};
pub use manyflow_core::{Length, Payload};
pub use path::{ETHERNET_BYTES, JUMBO_BYTES, PathMtu, PathProbe};
pub use segment::{Ack, Body, Data, Gap, LOWER_BYTES, NO_GAPS, Reason, Segment, UNLIMITED};
pub use wire::{DATA_HEADER_BYTES, Encoded, HEADER_BYTES_MAX, WireError};
