//! The benchmarks and long tests in short forms, run as a user runs them.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests fail by panicking, and print what they measured"
)]

mod cli;
mod files;
mod order;
mod overlay;
mod stream_lab;
