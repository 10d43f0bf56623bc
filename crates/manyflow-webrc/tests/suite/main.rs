//! WEBRC sessions in the simulator.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod webrc;
mod webrc_batches;
mod webrc_ecn;
mod webrc_forged;
mod webrc_mrtt;
mod webrc_resume;
mod webrc_sender;
mod webrc_trains;
#[path = "../world/mod.rs"]
mod world;
