//! What a cell consists of, with all generators expanded: nodes and links, sessions with their
//! receivers, switches and daemons, and the changes in the course of a run.

pub(crate) mod ensemble;
pub(crate) mod overlays;
pub(crate) mod schedule;
pub(crate) mod sessions;
pub(crate) mod topology;

pub use topology::{Direction, Topology};
