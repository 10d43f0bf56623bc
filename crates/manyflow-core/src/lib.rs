//! The contract between protocols and their worlds, and the mechanisms that protocols share: links,
//! XCP and estimators.
//!
//! Nothing here has a clock, a socket, a thread or a file. Time and packets are arguments, and the
//! world carries out the actions of a protocol (see [`Endpoint`]). The same code therefore runs in
//! the simulator and, for WEBRC, on the network.
//!
//! | module | contents |
//! |---|---|
//! | [`endpoint`] | the contract between a protocol and its world |
//! | [`packet`], [`time`], [`units`] | packets with typed headers, points in time, rates and sizes |
//! | [`link`] | a link with a queue, a rate, a delay and its faults |
//! | [`xcp`] | XCP's header, and the router that changes it |
//! | [`estimate`] | the estimators of several protocols: the TCP equation, the retransmission time-out |
//! | [`cubic`] | CUBIC's congestion avoidance (RFC 9438) |
//! | [`wire`] | the form of headers that several protocols share |
//! | [`interval`] | the time between packets of a constant rate, without drift |
//!
//! Two packets over a link of 8 Mbit/s and 50 ms: each takes 1 ms to send, and the second waits for
//! the first.
//!
//! ```
//! use manyflow_core::link::{Carried, Link, LinkConfig};
//! use manyflow_core::{Rate, Time};
//! use std::time::Duration;
//!
//! #[derive(Clone, Debug, PartialEq)]
//! struct Probe(u32);
//! impl Carried for Probe {}
//!
//! let config = LinkConfig {
//!     rate: Some(Rate::from_bits_per_s(8_000_000)),
//!     delay: Duration::from_millis(50),
//!     ..LinkConfig::default()
//! };
//! let mut link = Link::new(config, 1);
//! assert!(link.push(Time::ZERO, Probe(1), 1000).is_ok());
//! assert!(link.push(Time::ZERO, Probe(2), 1000).is_ok());
//!
//! let first = Time::ZERO + Duration::from_millis(51);
//! assert_eq!(link.next_time(), Some(first));
//! assert_eq!(link.pop_ready(first), Some(Probe(1)));
//! assert_eq!(link.pop_ready(first), None);
//! assert_eq!(link.next_time(), Some(first + Duration::from_millis(1)));
//! ```
//!
//! Each protocol is a crate of its own: `manyflow-tcp`, `manyflow-webrc`, `manyflow-layered`,
//! `manyflow-anypoint` and `manyflow-overlay`.
#![forbid(unsafe_code)]

mod config_error;
pub mod cubic;
mod ecn;
pub mod endpoint;
pub mod estimate;
pub mod interval;
pub mod link;
pub mod packet;
mod payload;
pub mod time;
pub mod units;
pub mod wire;
pub mod xcp;

pub use config_error::{Check, ConfigError};
pub use ecn::Ecn;
pub use endpoint::{Action, Endpoint};
pub use packet::{Channel, Destination, EndpointId, Header, Packet};
pub use payload::{Contents, Length, Payload};
pub use time::Time;
pub use units::{Bytes, Rate};
