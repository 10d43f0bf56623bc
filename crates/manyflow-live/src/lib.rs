//! Drivers that run manyflow's protocols on the network: over UDP, IP multicast and AMT tunnels.
//!
//! | module | what it holds |
//! |---|---|
//! | [`net`] | the clock, multicast sockets, sockets for AMT, an emulated last mile |
//! | [`overlay`] | group messages: a daemon of the overlay, and its clients |
//! | [`anypoint`] | connections of frames to a service of several members: the switch and its ends |
//! | [`anypoint_http`] | HTTP through such a connection: the gateway for clients, and members before servers |
//! | [`anypoint_store`] | a replicated chunk store: its disks, and files put into it and read from it |
//! | [`stream`] | live data in layers: each receiver at its own quality |
//! | [`filecast`] | files from one sender to many receivers: descriptions, sending, receiving |

pub mod anypoint;
pub mod anypoint_http;
pub mod anypoint_store;
pub mod filecast;
pub mod net;
pub mod overlay;
pub mod stream;

/// Time after which a test that waits for sockets fails: longer than a busy machine takes.
#[cfg(test)]
const TEST_LIMIT: std::time::Duration = std::time::Duration::from_secs(90);
