//! Drivers that run manyflow's protocols on the network: over UDP, IP multicast and AMT tunnels.
//!
//! | module | what it holds |
//! |---|---|
//! | [`net`] | the clock, multicast sockets, sockets for AMT, an emulated last mile |
//! | [`overlay`] | group messages: a daemon of the overlay, and its clients |
//! | [`anypoint`] | connections of frames to a service of several members: the switch and its ends |
//! | [`anypoint_http`] | HTTP through such a connection: the gateway for clients, and members before servers |
//! | [`anypoint_store`] | a replicated chunk store: its disks, and files put into it and read from it |
//! | [`filecast`] | files from one sender to many receivers: descriptions, sending, receiving |
//! | [`stream`] | layered streams: the units of a sender's source, and a receiver's sink |

pub mod anypoint;
pub mod anypoint_http;
pub mod anypoint_store;
pub mod filecast;
pub mod net;
pub mod overlay;
pub mod stream;
