//! Live switches on loopback, with their members and peers.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod attackers;
mod echo;
mod failures;
mod large;
mod stage;
