//! Estimates that more than one protocol needs.

pub mod max_min;
pub mod rtt;
pub mod tcp_equation;
pub mod token_bucket;
