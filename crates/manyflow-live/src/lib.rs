//! Drivers that run the protocols over UDP, IP multicast and AMT tunnels.

pub mod amt;
