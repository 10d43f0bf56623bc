//! Bridges between real nats-servers over daemons on loopback.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests fail by panicking, and print what they left out"
)]

mod core_messages;
mod failures;
mod stage;
mod stored_once;
mod streams;
mod users;
