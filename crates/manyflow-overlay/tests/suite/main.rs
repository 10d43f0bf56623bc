//! Daemons in the simulator.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests fail by panicking, and print what they measured"
)]

use manyflow_testing::allocations::CountingAllocator;

#[path = "../hop_world/mod.rs"]
mod hop_world;
mod overlay_allocations;
mod overlay_churn;
mod overlay_cost_benefit;
#[path = "../overlay_line/mod.rs"]
mod overlay_line;
#[path = "../overlay_mesh/mod.rs"]
mod overlay_mesh;
mod overlay_stream;
#[path = "../overlay_world/mod.rs"]
mod overlay_world;
#[path = "../../../manyflow-tcp/tests/tcp_world/mod.rs"]
#[allow(dead_code, reason = "the tests of manyflow-tcp use the rest")]
mod tcp_world;
#[path = "../world/mod.rs"]
mod world;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
