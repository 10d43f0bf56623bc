//! Estimates that more than one protocol needs.

pub mod tcp_equation;
