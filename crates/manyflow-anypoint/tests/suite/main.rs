//! Connections and switches in the simulator.

#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests fail by panicking, and print what they measured"
)]

mod acp;
mod acp_hostile;
#[path = "../../../manyflow-netsim/tests/seeds/mod.rs"]
mod seeds;
mod shares;
mod switch;
mod weights;
#[path = "../world/mod.rs"]
mod world;
