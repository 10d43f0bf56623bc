//! Anypoint: one connection to an ensemble of servers, rate-controlled as one (`anypoint-xcp.txt`).
//!
//! ```text
//!                      transit           +--> member 0     inbound:  the peer's frames, split among the members
//!   peer <---- XCP routers ----> switch <+--> member 1
//!                                        +--> member 2     outbound: the members' frames, merged into one stream
//! ```
//!
//! All ends speak ACP, a transport of frames: reliable, in order between two ends, with a
//! congestion window that XCP's header steers. None of them knows that there is a switch: it ends
//! no connection, but rewrites headers, so that to each end the other side looks like one host
//! (transport equivalence, section II).
//!
//! | file | what it holds | source |
//! |---|---|---|
//! | `segment.rs`, `wire.rs` | ACP's packets, XCP's header, and their bytes | section IV |
//! | `config.rs` | the parameters of a connection | section V |
//! | `connection.rs` | one end: opening, closing, keep-alive, and the two halves below | |
//! | `frame.rs` | what a direction numbers: frames, and its closing | |
//! | `sender.rs`, `window.rs` | frames in flight, losses, time-outs; the window under XCP and under Reno | sections IV, V |
//! | `receiver.rs` | order, the receive buffer, acknowledgements | section V |
//! | `soft.rs`, `soft/` | soft flow control: the receive buffer as an XCP queue, by the paper's law and by one that follows the application | section IV-A |
//! | `models/` | applications, liars and switches in a simulated world | section VI |
//! | `switch/` | splits and merges: sequence numbers, acknowledgements, the four header transforms, routing, members | sections III, IV |
//!
//! XCP's routers are [links](manyflow_core::link) with
//! [`XcpConfig`](manyflow_core::xcp::XcpConfig).
#![forbid(unsafe_code)]

mod config;
mod connection;
mod event;
mod frame;
pub mod models;
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
pub use segment::{Ack, Body, Data, Gap, LOWER_BYTES, NO_GAPS, Reason, Segment, UNLIMITED};
pub use wire::{Encoded, HEADER_BYTES_MAX, WireError};
