//! A deterministic network simulator: it runs manyflow's protocols as they ship.
//!
//! A [`Network`] is built node by node, link by link, endpoint by endpoint, and then run. A run is
//! a pure function of what was built and of the seed, on any machine: all times are integers,
//! random streams belong to one link or endpoint each and are derived from seed and name, and
//! nothing iterates over a hash map.
//!
//! How it is fast: a link has at most one pending event, whatever it carries; packets are copied by
//! value; everything is an index into a vector; timers are cancelled lazily; multicast state exists
//! only where a channel is joined.
#![forbid(unsafe_code)]

mod capture;
pub mod engine;
mod names;
pub mod results;
pub mod scenario;
mod trace;

pub use engine::{Change, Halt, Incident, LinkId, NodeId, Observer, Received};
pub use names::Names;
pub use scenario::protocols::{AnyEvent, AnyHeader, Network, Packet};
