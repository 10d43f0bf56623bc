//! One client and an ensemble of servers over one connection.
//!
//! | module | what it holds |
//! |---|---|
//! | [`anypoint`] | connections of frames to a service of several members: the switch and its ends |
//! | [`http`] | HTTP through such a connection: the gateway for clients, and members before servers |
//! | [`store`] | a replicated chunk store: its disks, and files put into it and read from it |

pub mod anypoint;
pub mod http;
pub mod store;
