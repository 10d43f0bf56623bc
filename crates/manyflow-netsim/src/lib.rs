//! A deterministic network simulator, which runs the same protocol code as real networks.
//!
//! A [`Network`] is built node by node, link by link and endpoint by endpoint, and then run. A run
//! is a pure function of the network and the seed, on any machine: all times are integers, each
//! link and endpoint has its own random stream, which is derived from seed and name, and nothing
//! iterates over a hash map.
//!
//! The simulator is fast because a link has at most one pending event, regardless of the number of
//! packets that it carries. Packets are copied by value, everything is an index into a vector,
//! timers are cancelled lazily, and multicast state exists only where a channel is joined.
//!
//! The engine names no protocol. A network runs endpoints of one header type. This type belongs
//! to a protocol, or is a sum over several protocols, made by [`protocols!`].
//!
//! For example, a TCP connection of two nodes delivers 100 segments:
//!
//! ```
//! use manyflow_core::link::LinkConfig;
//! use manyflow_core::time::seconds;
//! use manyflow_core::{EndpointId, Time};
//! use manyflow_tcp::{Event, Receiver, Segment, Sender, TcpConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut network = manyflow_netsim::Network::<Segment, Event>::new(1);
//! let [a, b] = ["A", "B"].map(|name| network.add_node(name));
//! let link = LinkConfig {
//!     rate: Some("10 Mbit/s".parse()?),
//!     delay: seconds(0.02),
//!     ..LinkConfig::default()
//! };
//! network.add_duplex(a, b, link);
//! let config = TcpConfig {
//!     transfer: Some(100),
//!     ..TcpConfig::default()
//! };
//! let sender = network.add(a, Sender::new(config.clone(), EndpointId(1), 7)?);
//! let receiver = network.add(b, Receiver::new(config, sender)?);
//! network.run_until(Time::from_secs_f64(10.0), &mut ())?;
//! assert_eq!(network.received(receiver).packets, 100);
//! # Ok(())
//! # }
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `engine` | the network and its run |
//! | [`Probe`] | access to an endpoint between the steps of a run, for tests |
//! | [`models`] | wrappers that stop or change endpoints at given times |
//! | [`capture`] | captures of packets in pcap format |
//! | [`trace`] | traces of events and incidents as lines of JSON |
#![forbid(unsafe_code)]

pub mod capture;
mod engine;
pub mod models;
mod names;
mod probe;
mod sums;
pub mod trace;

// For the macro `protocols!`.
#[doc(hidden)]
pub use manyflow_core;

pub use engine::{
    AccountingError, BoxedEndpoint, Change, Halt, Holds, Incident, Lift, LinkId, Network, NodeId,
    Observer, Received, Stop, Windows,
};
pub use names::Names;
pub use probe::{Probe, Probed};
