//! Multicast, tunnels and the publisher on sockets of this host.

#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests fail by panicking, and print what they measured"
)]

mod amt;
mod dns;
mod https;
mod multicast;
mod sap;
mod slow_clients;
