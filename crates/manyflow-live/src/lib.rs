//! Drivers that run manyflow's protocols on the network: over UDP, IP multicast and AMT tunnels.
//!
//! | module | what it holds |
//! |---|---|
//! | [`net`] | the clock, multicast sockets, sockets for AMT's relay and gateway, an emulated last mile |
//! | [`filecast`] | one sender's files to many receivers: session descriptions, publishing, sending, receiving, storing |

pub mod filecast;
pub mod net;
