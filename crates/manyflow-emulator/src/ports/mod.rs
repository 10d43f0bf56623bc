//! The devices between hosts and the network.

pub mod tun;
