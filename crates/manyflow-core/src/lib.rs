//! Rate-control protocols as state machines, and the links that carry their packets.
//!
//! Nothing here has a clock, a socket, a thread or a file: time and packets come in as arguments, and what is to be done
//! comes out (see [`Endpoint`]). The same code runs in the simulator, in the emulator and on the network.
//!
//! | module | what it is |
//! |---|---|
//! | [`endpoint`] | the contract between a protocol and its world |
//! | [`webrc`] | one source, many receivers, each at its own rate (RFC 3738) |
//! | [`layered`] | one source, groups that each receiver takes as many of as it can (SIM, and RLM beside it) |
//! | [`anypoint`] | one connection to an ensemble of servers, steered by XCP's routers |
//! | [`overlay`] | many senders to groups of clients, over daemons and the links between them (Cost-Benefit, many-to-many TFRC) |
//! | [`tcp`], [`cbr`] | what others send, for comparison |
//! | [`link`] | a link with a queue, a rate, a delay and its faults |
//! | [`xcp`] | XCP's header, which routers change, and the router that does |
//! | [`estimate`] | what several protocols estimate: the TCP equation, the retransmission time-out |
#![forbid(unsafe_code)]

pub mod anypoint;
pub mod cbr;
mod config_error;
pub mod endpoint;
pub mod estimate;
mod interval;
pub mod layered;
pub mod link;
pub mod overlay;
pub mod packet;
mod payload;
pub mod tcp;
pub mod time;
pub mod units;
pub mod webrc;
pub mod xcp;

pub use config_error::ConfigError;
pub use endpoint::{Action, Endpoint};
pub use packet::{Channel, Destination, Ecn, EndpointId, Header, Packet};
pub use payload::{Contents, Length, Payload};
pub use time::Time;
pub use units::{Bytes, Rate};
