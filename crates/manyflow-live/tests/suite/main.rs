//! Sessions, daemons, ensembles and streams on sockets of this host.

#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests fail by panicking, and print what they measured"
)]

mod amt;
mod anypoint;
mod anypoint_store;
#[path = "../common/mod.rs"]
mod common;
mod group;
mod hostile;
mod https;
mod loss;
mod multicast;
mod nats_clients;
mod overlay;
mod patience;
mod publish;
mod relays;
mod sdp;
mod sending;
mod signature;
mod slow_clients;
#[path = "../common/stage.rs"]
mod stage;
mod stream;
mod stream_beside_tcp;
mod stream_shares;
mod stream_units;
