//! The order under random faults.

#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests fail by panicking, and print how to repeat them"
)]

mod faults;
#[path = "../../../manyflow-netsim/tests/seeds/mod.rs"]
mod seeds;
