//! TCP and constant sources in the simulator.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod cbr;
mod control;
mod tcp;
mod tcp_padhye;
#[path = "../tcp_world/mod.rs"]
mod tcp_world;
