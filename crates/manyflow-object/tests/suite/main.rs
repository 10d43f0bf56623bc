//! Objects from sender to receiver, without a network.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests fail by panicking, and print what they measured"
)]

#[path = "../common/mod.rs"]
mod common;
mod delivery;
mod hostile;
mod image;
mod interoperability;
mod resume;
mod versions;
mod waves;
mod windows;
mod withdrawal;
