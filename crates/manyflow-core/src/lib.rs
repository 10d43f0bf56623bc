//! The contract between protocols and their worlds, and what all protocols share: links, XCP,
//! estimates.
//!
//! Nothing here has a clock, a socket, a thread or a file: time and packets are arguments, and the
//! world does what a protocol asks of it (see [`Endpoint`]). So the same code runs in the simulator
//! and, for WEBRC, on the network.
//!
//! | module | what it is |
//! |---|---|
//! | [`endpoint`] | the contract between a protocol and its world |
//! | [`link`] | a link with a queue, a rate, a delay and its faults |
//! | [`xcp`] | XCP's header, which routers change, and the router that does |
//! | [`estimate`] | what several protocols estimate: the TCP equation, the retransmission time-out |
//! | [`interval`] | the time between packets of a constant rate, without drift |
//!
//! Each protocol is a crate of its own: `manyflow-tcp`, `manyflow-webrc`, `manyflow-layered`,
//! `manyflow-anypoint` and `manyflow-overlay`.
#![forbid(unsafe_code)]

mod config_error;
pub mod endpoint;
pub mod estimate;
pub mod interval;
pub mod link;
pub mod packet;
mod payload;
pub mod time;
pub mod units;
pub mod xcp;

pub use config_error::{Check, ConfigError};
pub use endpoint::{Action, Endpoint};
pub use packet::{Channel, Destination, Ecn, EndpointId, Header, Packet};
pub use payload::{Contents, Length, Payload};
pub use time::Time;
pub use units::{Bytes, Rate};
