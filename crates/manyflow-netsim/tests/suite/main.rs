//! Random faults, which one number replays.

#![allow(
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "tests fail by panicking"
)]

mod anypoint_faults;
mod overlay_faults;
#[path = "../seeds/mod.rs"]
mod seeds;
mod store_faults;
