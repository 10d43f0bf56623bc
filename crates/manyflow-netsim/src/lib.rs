//! A deterministic network simulator: it runs manyflow's protocols as they ship.
//!
//! A [`Network`] is built node by node, link by link, endpoint by endpoint, and then run. A run is
//! a pure function of what was built and of the seed, on any machine: all times are integers,
//! random streams belong to one link or endpoint each and are derived from seed and name, and
//! nothing iterates over a hash map.
//!
//! It is fast because a link has at most one pending event, whatever it carries; packets are copied
//! by value; everything is an index into a vector; timers are cancelled lazily; and multicast state
//! exists only where a channel is joined.
//!
//! The simulator names no protocol. A network runs the endpoints of one header type, which is a
//! protocol's own or a sum over several, made by [`protocols!`].
//!
//! | module | what it holds |
//! |---|---|
//! | `engine` | the network and its run |
//! | [`models`] | wrappers of endpoints: they end, or something is done to them at given times |
//! | [`capture`] | packets as files that other tools read |
//! | [`trace`] | events and incidents as lines of JSON |
#![forbid(unsafe_code)]

pub mod capture;
mod engine;
pub mod models;
mod names;
mod sums;
pub mod trace;

// For the macro `protocols!`.
#[doc(hidden)]
pub use manyflow_core;

pub use engine::{
    AccountingError, BoxedEndpoint, Change, Halt, Holds, Incident, Lift, LinkId, Network, NodeId,
    Observer, Received,
};
pub use names::Names;
