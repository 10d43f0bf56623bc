//! TFMCC end to end: a sender, links and receivers, in simulated time.
#![allow(clippy::print_stdout, reason = "tests say what they measured")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod sessions;
mod suppression;
mod throughput;
mod world;
