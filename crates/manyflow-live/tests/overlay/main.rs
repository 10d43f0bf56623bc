//! Live daemons of an overlay on loopback, and the clients that they serve.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests fail by panicking, and print measurements"
)]

mod access;
mod attackers;
mod datagrams;
mod links;
mod messages;
mod stage;
mod stopping;
mod watch;
