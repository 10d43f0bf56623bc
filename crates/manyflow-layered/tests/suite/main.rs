//! Senders, receivers, relays and hops of layered sessions in the simulator.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests fail by panicking, and print what they measured"
)]

mod convergence;
mod hop;
mod relay;
mod repair;
mod rlm;
mod sim;
mod tcp;
mod unit;
#[path = "../../../manyflow-webrc/tests/world/mod.rs"]
#[allow(dead_code, reason = "the tests of manyflow-webrc use the rest")]
mod world;
