//! TCP and constant sources in the simulator.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod bbr;
mod cbr;
mod control;
mod recovery;
mod scalable;
mod tcp;
mod tcp_any;
mod tcp_padhye;
#[path = "../tcp_world/mod.rs"]
mod tcp_world;
