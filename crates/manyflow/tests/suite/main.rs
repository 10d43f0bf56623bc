//! The program, run as a user runs it.

#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests fail by panicking, and print what they measured"
)]

mod addresses;
mod archive;
mod attack;
mod audience;
mod book;
mod bridge;
mod check_order;
mod cli;
mod completion;
mod containers;
mod crash;
mod daemon_size;
mod demo;
mod discovery;
mod emulate;
mod evaluate;
mod exit_codes;
mod figures;
mod follow;
mod gateway;
mod gateway_clients;
mod gateway_health;
mod gateway_switches;
mod help;
mod imaging;
mod inspect;
mod install;
mod lab;
mod messages;
mod metrics;
mod monitoring;
mod multicast;
mod output;
mod overlay_deaths;
mod overlay_paths;
mod post_receive;
mod relay;
mod replicated_map;
mod rolling_restart;
mod router;
mod routers;
mod serve;
mod service;
mod shard;
mod small_mtu;
mod status_addresses;
mod store;
mod stream;
mod switch;
mod top;
mod trust;
mod tshark;
mod tunnel;
mod units;
mod wireshark;

use manyflow_testing::{http_stage, programs as common};
