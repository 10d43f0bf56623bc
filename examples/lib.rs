//! Small programs that use manyflow's crates as libraries, one idea each.
//!
//! | program | what it shows |
//! |---|---|
//! | `webrc_link` | the run loop of a protocol: WEBRC's sender and receiver over a simulated link |
//! | `webrc_udp` | the same receiver on real sockets of the standard library |
//! | `three_daemons` | a group message over an overlay of three daemons |
//! | `group_chat` | clients of two live daemons that exchange messages |
//! | `replicated_map` | a map that programs at three daemons have alike, linearizable, over an ordered group ([`map`]) |
//! | `switch_two_members` | one connection to two servers behind an Anypoint switch |
//! | `own_controller` | a flow controller of one's own for an overlay |
//! | `evaluate_own` | a congestion control of one's own, evaluated by the criteria of RFC 9743 |
//! | `own_topology` | a simulated network built by hand, with TCP in it |
//! | `scenario_to_csv` | a scenario file run from a program, its series written as CSV |
//! | `rate_trace` | the course of a wireless link as a rate trace for Mahimahi and scenario files, or what a trace is like |
//! | `progressive_samples` | a time series as layered data: cut for three groups, and received in prefixes |
//!
//! Run one with `cargo run -p manyflow-examples --example webrc_link`; `make examples` runs all.

pub mod map;
