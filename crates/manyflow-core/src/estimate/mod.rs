//! Estimates that more than one protocol needs.

pub mod delay_damping;
pub mod loss_intervals;
pub mod max_min;
pub mod rtt;
pub mod tcp_equation;
pub mod token_bucket;
