//! Random faults, which one number replays, and TCP over managed queues.

#![allow(
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "tests fail by panicking"
)]

mod anypoint_clusters;
mod anypoint_faults;
mod anypoint_initiators;
mod overlay_faults;
mod queues;
#[path = "../seeds/mod.rs"]
mod seeds;
mod store_faults;
