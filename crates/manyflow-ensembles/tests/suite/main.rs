//! Ensembles and their clients on sockets of this host.

#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests fail by panicking, and print what they measured"
)]

mod anypoint;
mod anypoint_store;
mod store_maintenance;
