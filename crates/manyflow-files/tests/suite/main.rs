//! Sessions of files on sockets of this host.

#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests fail by panicking, and print what they measured"
)]

mod ecn;
mod group;
mod hostile;
mod loss;
mod patience;
mod publish;
mod rejoin;
mod relays;
mod sdp;
mod sending;
mod signature;
mod stage;
mod versions;
