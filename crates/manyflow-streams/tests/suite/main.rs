//! Streams on sockets of this host, and beside TCP in simulated time.

#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests fail by panicking, and print what they measured"
)]

mod stream;
mod stream_beside_tcp;
mod stream_shares;
mod stream_units;
mod stream_video;
