//! Estimates that more than one protocol needs.

pub(crate) mod rtt;
pub mod tcp_equation;
