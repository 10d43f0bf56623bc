//! Drivers that run manyflow's protocols on the network: over UDP, IP multicast and AMT tunnels.

pub mod amt_driver;
pub mod clock;
pub mod files;
pub mod last_mile;
pub mod load;
pub mod multicast;
pub mod publish;
pub mod sdp;
pub mod session;
